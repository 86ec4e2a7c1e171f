"""`lakechime backfill`: recompute what a change of columns affects, and nothing else."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    DryRun,
    Json,
    Reason,
    Since,
    TimeColumn,
    Until,
    Who,
    answer,
    count,
    declared_lake,
    declared_subscriptions,
    open_platform,
    print_documents,
    print_facts,
    print_json,
    print_list,
    print_table,
    record,
    say,
)

if TYPE_CHECKING:
    from lakechime_dagster.lineage.backfill import BackfillPlan
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.triggers.backfills import Backfill
    from lakechime_dagster.triggers.consumers import BackfillRequest

app = typer.Typer(
    name="backfill", help="Backfills: run what a change of columns affects, show and cancel it."
)

Columns = Annotated[
    str,
    typer.Option(
        "--columns",
        help=(
            "Columns whose values changed, as schema.table.column, or whole tables; separated by "
            "commas."
        ),
    ),
]
Except = Annotated[
    str, typer.Option("--except", help="Tables that stay as they are, separated by commas.")
]
InFlight = Annotated[
    int, typer.Option("--max-in-flight", min=1, max=1_000, help="Consumers that may run at once.")
]
WhyRun = Annotated[
    str, typer.Option("--reason", help="Why; it is kept with who and when. A dry run needs none.")
]
Id = Annotated[
    str, typer.Argument(metavar="BACKFILL", help="Its id, as `lakechime backfill show` lists it.")
]
OfId = Annotated[
    str | None,
    typer.Argument(
        metavar="[BACKFILL]", help="Each request of this one; else the newest backfills."
    ),
]
MAX_KEYS = 8  # of a table that are shown


@app.command()
def run(
    columns: Columns,
    reason: WhyRun = "",
    since: Since = None,
    until: Until = None,
    time_column: TimeColumn = None,
    leave_out: Except = "",
    in_flight: InFlight = 4,
    who: Who = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Recompute what a change of columns affects: a request for each consumer, which its next run
    processes with its new events.

    Sensors launch the runs; while the request of an input is open, none of its readers runs. Tables
    that cannot be recomputed in part are refused. A dry run shows which consumers would run, which
    are blocked, which tables are unaffected and why; it writes nothing.
    """
    from lakechime_dagster.lineage import backfill

    by = None if dry_run else common.by(who, reason)
    platform = open_platform()
    planned = _planned(platform, columns, since, until, time_column, leave_out)
    made: dict[str, Any] = {}
    if by is not None:
        for subscription in declared_subscriptions(manual=True).values():
            platform.evaluator.activate(subscription)
        made = {"backfill": backfill.run(platform, planned, by, max_in_flight=in_flight)}
    if as_json:
        print_json(made | document(planned) | {"dry_run": dry_run})
        return
    _print_plan(planned)
    if made:
        say(
            "\nrequested as {backfill}; `lakechime backfill show {backfill}` shows its progress".format(
                **made
            )
        )


@app.command()
def show(backfill_id: OfId = None, as_json: Json = False) -> None:
    """Show the newest backfills, or each request of one."""
    from lakechime_dagster.triggers.backfills import Backfills

    backfills = Backfills(open_platform().ledger)
    if backfill_id is None:
        several = [_facts(one) for one in backfills.backfills()]
        print_list(
            as_json,
            "backfills",
            several,
            "backfill is states who created_ts reason",
            empty="no backfill",
        )
        return
    facts, requests = (
        _facts(backfills.backfill(backfill_id)),
        [_request(request) for request in backfills.requests(backfill_id)],
    )
    if as_json:
        print_json(facts | {"requests": requests})
        return
    print_facts(facts)
    print_documents(requests, "table key state waits_for number why")


@app.command()
def cancel(backfill_id: Id, reason: Reason, who: Who = None, as_json: Json = False) -> None:
    """Drop the requests that no run has claimed yet; runs in flight finish."""
    from lakechime_dagster.triggers.backfills import Backfills

    dropped = Backfills(open_platform().ledger).cancel(backfill_id, common.by(who, reason))
    answer(
        as_json,
        {"backfill": backfill_id, "dropped": dropped},
        f"{count(dropped, 'consumer')} of {backfill_id} dropped",
    )


def _planned(
    platform: "Platform",
    columns: str,
    since: str | None,
    until: str | None,
    time_column: str | None,
    leave_out: str,
) -> "BackfillPlan":
    from lakechime_dagster.lineage import backfill
    from lakechime_dagster.lineage.backfill import Window
    from lakechime_dagster.lineage.service import AskedLineage

    lake = declared_lake(platform.settings)
    left_out = _names(leave_out)
    for name in left_out:
        lake.table(name)
    with common.reading("--since / --until"):
        window = Window(since=since, until=until, column=time_column)
    columns_asked = tuple(map(AskedLineage(platform, lake).ref, _names(columns)))
    asked = backfill.Asked(columns=columns_asked, leave_out=left_out, window=window)
    return backfill.plan(platform, lake, declared_subscriptions(manual=True), asked)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def document(planned: "BackfillPlan") -> dict[str, Any]:
    """A plan, as JSON."""
    requests = planned.requests
    return {
        "asked": planned.asked.to_json(),
        "requests": [
            _request(request) | {"partition": requests.partitions.get(request.number)}
            for request in requests.requests
        ],
        "blocked": dict(requests.blocked),
        "pending": dict(requests.pending),
        "refused": dict(requests.refused),
        "unaffected": {**planned.found.unaffected, **requests.unaffected},
        "unsure": [name for name, one in planned.found.tables.items() if not one.is_sure],
        "consumers": len(requests.requests),
        "consumers_of_everything": len(planned.everything.requests),
    }


def _print_plan(planned: "BackfillPlan") -> None:
    requests, tables = (
        planned.requests,
        dict.fromkeys(request.subscription for request in planned.requests.requests),
    )
    rows = [
        [
            table,
            len(mine := [one for one in requests.requests if one.subscription == table]),
            _keys(planned, mine),
            mine[0].why,
        ]
        for table in tables
    ]
    print_table(["table", "consumers", "what", "because"], rows, empty="nothing is to be run")
    for head, several in (
        ("blocked", requests.blocked),
        ("later", requests.pending),
        ("refused", requests.refused),
        ("unaffected", {**planned.found.unaffected, **requests.unaffected}),
    ):
        for table, why in several.items():
            say(f"{head}: {table}: {why}")
    mine, everything = len(requests.requests), len(planned.everything.requests)
    say(f"{count(mine, 'consumer')} of {everything:,} downstream")


def _keys(planned: "BackfillPlan", requests: "list[BackfillRequest]") -> str:
    return common.first(
        [planned.requests.partitions[request.number] for request in requests], MAX_KEYS
    )


def _request(request: "BackfillRequest") -> dict[str, Any]:
    span = request.span and request.span.to_json()
    facts = record(
        request, "number key waits_for why state", span=span, execution=request.execution_id
    )
    return {"table": request.subscription, **facts}


def _facts(one: "Backfill") -> dict[str, Any]:
    facts = record(
        one,
        "asked max_in_flight who reason created_ts",
        states={str(state): number for state, number in one.states.items()},
    )
    return {"backfill": one.backfill_id, "is": _state(one), **facts}


def _state(one: "Backfill") -> str:
    if one.is_open:
        return "cancelling" if one.cancelled_ts is not None else "running"
    return "cancelled" if one.cancelled_ts is not None else "done"
