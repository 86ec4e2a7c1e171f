"""`lakechime execution`: what was claimed, by which runs, and what to do when one is stuck."""

from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    MAX_LIMIT,
    DryRun,
    Json,
    Reason,
    Who,
    answer,
    open_platform,
    print_documents,
    print_facts,
    print_json,
    print_list,
    print_table,
    say,
    when,
    would,
)
from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import ConsumerConflictError, NotFoundError

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.triggers.consumers import Execution

app = typer.Typer(name="execution", help="Executions: show, retry, skip.")

Id = Annotated[
    str, typer.Argument(metavar="EXECUTION", help="Its id, as `lakechime execution show` lists it.")
]


class State(StrEnum):
    """The states of an execution, as a person types them."""

    OPEN = "open"
    COMPLETED = "completed"
    SKIPPED = "skipped"


@app.command()
def show(
    execution_id: Annotated[
        str | None,
        typer.Argument(metavar="[EXECUTION]", help="Show this one; else the newest ones."),
    ] = None,
    subscription: Annotated[
        str | None, typer.Option("--trigger", help="Of this trigger only.")
    ] = None,
    state: Annotated[
        State | None, typer.Option("--state", case_sensitive=False, help="In this state only.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_LIMIT, help="At most so many, newest first.")
    ] = 50,
    as_json: Json = False,
) -> None:
    """List executions, newest claim first, or show one: what it reads, its attempts and their
    errors.
    """
    from lakechime_dagster.runtime.explain import execution_summary
    from lakechime_dagster.triggers.consumers import ExecutionState

    ledger = (platform := open_platform()).ledger
    if execution_id is not None:
        _show(platform, execution_id, as_json)
        return
    if subscription is not None and ledger.subscription(subscription) is None:
        raise NotFoundError(
            f"nothing was ever claimed for a trigger {subscription!r}; `lakechime trigger show` "
            f"lists the triggers"
        )
    wanted = ExecutionState(state.value.upper()) if state else None
    executions = [
        execution_summary(one)
        for one in ledger.executions(subscription=subscription, state=wanted, limit=limit)
    ]
    facts = "execution_id trigger key number state attempt cause claimed_ts reason"
    print_list(as_json, "executions", executions, facts, empty="no execution")


def _show(platform: "Platform", execution_id: str, as_json: bool) -> None:
    from lakechime_dagster.runtime.explain import execution_summary, found_execution

    execution = found_execution(platform, execution_id)
    document, attempts = execution_summary(execution), platform.ledger.attempts(execution_id)
    if as_json:
        print_json({"execution": document, "attempts": attempts})
        return
    ranges = document.pop("ranges")
    lease = {"lease_until": when(execution.lease_until)}
    print_facts(
        document | lease | {"start": execution.start.position, "end": execution.end.position}
    )
    say("")
    rows = [[one["table"], one["start"] or "(nothing)", one["end"]] for one in ranges]
    print_table(["reads", "after commit", "up to commit"], rows, empty="it reads no new commit")
    say("")
    print_documents(attempts, "number run_id begun_ts ended_ts outcome error", empty="no attempt")


@app.command()
def retry(
    execution_id: Id,
    reason: Reason,
    who: Who = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Launch the next attempt of an open execution at once, also where its consumer is blocked."""
    from lakechime_dagster.runtime.explain import execution_summary
    from lakechime_dagster.triggers.interventions import Interventions

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    execution = _open(platform, execution_id)
    following = execution if dry_run else Interventions(platform.ledger).retry(execution, by)
    attempt = execution.attempt + 1 if dry_run else following.attempt
    row = platform.ledger.subscription(execution.consumer.subscription)
    until = (
        ""
        if row is None or row.paused_ts is None
        else f" once `lakechime trigger resume {row.name} --reason …` ends its pause"
    )
    sentence = (
        f"attempt {attempt} at {_named(execution)} {would(dry_run)} due; its sensor launches the "
        f"run{until}"
    )
    answer(
        as_json,
        {"execution": execution_summary(following), "attempt": attempt, "dry_run": dry_run},
        sentence,
    )


@app.command()
def skip(
    execution_id: Id,
    reason: Reason,
    who: Who = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Give up an open execution: its consumer continues after its range, which is not processed."""
    from lakechime_dagster.runtime.explain import execution_summary, found_execution
    from lakechime_dagster.triggers.interventions import Interventions

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    execution = _open(platform, execution_id)
    if not dry_run:
        Interventions(platform.ledger).skip(execution, by)
    now = execution if dry_run else found_execution(platform, execution_id)
    sentence = (
        f"{_named(execution)} {would(dry_run)} skipped; its consumer continues after "
        f"{execution.end.position}"
    )
    answer(as_json, {"execution": execution_summary(now), "dry_run": dry_run}, sentence)


def _open(platform: "Platform", execution_id: str) -> "Execution":
    """An execution that can still be acted on."""
    from lakechime_dagster.runtime.explain import found_execution

    execution = found_execution(platform, execution_id)
    if execution.completed_ts is not None:
        raise ConsumerConflictError(
            f"execution {execution_id} is {execution.state.value.lower()} already; nothing was "
            f"changed"
        )
    return execution


def _named(execution: "Execution") -> str:
    return f"execution {execution.number} of {execution.consumer.subscription} {execution.consumer.key}".strip()
