"""`lakechime trigger`: why a trigger fires or does not, and what a person does to it."""

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    DryRun,
    Json,
    Module,
    Reason,
    Who,
    answer,
    count,
    declared_lake,
    declared_or_none,
    declared_subscriptions,
    group_problem,
    open_platform,
    print_documents,
    print_facts,
    print_json,
    print_list,
    print_table,
    say,
    subscription_declared,
    subscription_known,
    when,
    would,
)
from lakechime_dagster.cli.dce import print_events
from lakechime_dagster.errors import LakeChimeError, NotFoundError

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.runtime.sources import Moved
    from lakechime_dagster.triggers.registry import ConsumerRow
    from lakechime_dagster.triggers.triggers import StartFrom

app = typer.Typer(
    name="trigger",
    help="Triggers: show why one fires or does not, pause, resume, seek, replay, forget.",
)

Name = Annotated[
    str, typer.Argument(help="The trigger's name, as `lakechime trigger show` lists it.")
]


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show this trigger; else list all.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Whether it fired at this time, and why."),
    ] = None,
    after_key: Annotated[
        str | None,
        typer.Option("--after-key", metavar="KEY", help="The next keys that lack something."),
    ] = None,
    module: Module = None,
    as_json: Json = False,
) -> None:
    """List the triggers, or show one: whether it fires and why, on which events that rests, which
    partition keys are pending or expired and what they lack, its consumers, and what people did to
    it.
    """
    from lakechime_dagster.runtime.explain import explained, trigger_summary
    from lakechime_dagster.triggers.progress import overview

    if name is None and (at is not None or after_key is not None):
        raise common.wrong("--at" if after_key is None else "--after-key", "name the trigger")
    at_ms = common.optional_milliseconds("--at", at)
    platform = open_platform()
    subscriptions = declared_or_none(module)
    seen = {one.row.name: one for one in overview(platform.ledger)}
    if name is None:
        triggers = [
            trigger_summary(each, subscriptions.get(each), seen.get(each))
            for each in sorted({*subscriptions, *seen})
        ]
        facts = "name state waiting open blocked consumers condition"
        print_list(
            as_json, "triggers", triggers, facts, empty="no trigger is declared here or recorded"
        )
        return
    subscription, known = subscriptions.get(name), seen.get(name)
    problem = group_problem(name, module)
    if not subscription and not known and not problem:
        subscription_declared(name, module)
    found = explained(
        platform, name, subscription, known, at_ms=at_ms, problem=problem, after_key=after_key
    )
    if as_json:
        print_json(found.to_json())
        return
    decision = found.decision
    past = f" at {when(at_ms)}" if at_ms is not None else ""
    say(f"{name} {'fires' if decision.fires else 'does not fire'}{past}:")
    for reason in decision.reasons:
        say(f"  - {reason}")
    if decision.events:
        say("")
        print_events(decision.events)
    if found.keys:
        say("")
        keys = [[one.key, one.state, one.reason] for one in found.keys]
        print_table(["key", "state", "reason"], keys, empty="")
    if found.next_key:
        say(f"more keys follow: --after-key {shlex.quote(found.next_key)}")
    say("")
    print_facts(found.trigger)
    say("")
    rows = [
        [
            one.key or "(one)",
            one.state,
            one.completed,
            one.checkpoint.position,
            _snapshots(one),
            one.state_reason,
        ]
        for one in found.consumers
    ]
    print_table(
        ["consumer", "state", "completed", "position", "snapshots", "reason"],
        rows,
        empty="no consumer yet: nothing was claimed",
    )
    if found.interventions:
        say("")
        print_documents(found.interventions, "ts who action consumer_key reason")


@app.command()
def pause(
    name: Name,
    reason: Reason,
    who: Who = None,
    module: Module = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Stop launching runs, retries included, until resumed. Running ones finish; new events queue
    up.

    Runs that a person launches are not affected.
    """
    from lakechime_dagster.triggers.interventions import Interventions

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    row = subscription_known(platform, name, module, dry_run=dry_run)
    if not dry_run:
        Interventions(platform.ledger).pause(row, by)
    answer(
        as_json,
        {"trigger": name, "paused": True, "dry_run": dry_run},
        f"{name} {would(dry_run)} paused",
    )


@app.command()
def resume(
    name: Name,
    reason: Reason,
    who: Who = None,
    module: Module = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Launch runs again, for all waiting events; `lakechime trigger seek NAME --to now` leaves them
    out.

    A consumer that is blocked because its source lost messages continues with those that exist; an
    execution that asked for a person is retried with all newer events.
    """
    from lakechime_dagster.runtime import sources

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    row = subscription_known(platform, name, module, dry_run=dry_run)
    subscription = declared_or_none(module).get(name)
    moved = sources.resume(platform, subscription, row, by, dry_run=dry_run)
    _moved(
        {"trigger": name, "paused": False, "dry_run": dry_run},
        moved,
        f"{name} {would(dry_run)} resumed",
        as_json,
    )


@app.command()
def seek(
    name: Name,
    to: Annotated[
        str,
        typer.Option("--to", metavar="beginning|now|TIME|POSITION", help="Where to continue from."),
    ],
    reason: Reason,
    key: Annotated[
        str | None,
        typer.Option("--key", help="The consumer of this key; all consumers unless given."),
    ] = None,
    who: Who = None,
    module: Module = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Move the checkpoints of a trigger's consumers: back to replay events, forward to leave them
    out.

    `--to beginning` rebuilds the target: of a CDC table from all messages of its bronze table,
    without asking the database.
    """
    from lakechime_dagster.runtime import sources

    where = _start_from("--to", to)
    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    subscription = subscription_declared(name, module, manual=True)
    if to == "beginning" and module is None:
        _check_rebuild(platform, name)
    moved = sources.seek(platform, subscription, where, by, key=key, dry_run=dry_run)
    sentence = f"{count(len(moved), 'consumer')} of {name} {would(dry_run)} moved"
    _moved({"trigger": name, "dry_run": dry_run}, moved, sentence, as_json)


@app.command()
def replay(
    name: Name,
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="beginning|TIME|POSITION", help="What was registered from here on."
        ),
    ],
    reason: Reason,
    end: Annotated[
        str, typer.Option("--to", metavar="now|TIME|POSITION", help="And before here.")
    ] = "now",
    who: Who = None,
    module: Module = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Launch a run of a snapshot trigger's job with the events of a range, beside its other runs;
    its consumer stays where it is.

    For triggers whose runs write no table of ours: `lakechime backfill` computes tables again.
    """
    from lakechime_dagster.runtime import sources
    from lakechime_dagster.runtime.explain import execution_summary

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    subscription = subscription_declared(name, module)
    execution, events = sources.replay(
        platform,
        subscription,
        _start_from("--from", start),
        _start_from("--to", end),
        by,
        dry_run=dry_run,
    )
    document = {"execution": execution_summary(execution), "events": events, "dry_run": dry_run}
    sentence = (
        f"{count(events, 'event')} of {name} {would(dry_run)} replayed; its sensor launches the run"
    )
    answer(as_json, document, sentence)


@app.command()
def forget(
    name: Name,
    reason: Reason,
    who: Who = None,
    module: Module = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Forget a trigger that is no longer declared, with its consumers and executions, so that
    `store expire` no longer waits for it.
    """
    from lakechime_dagster.triggers.interventions import Interventions

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    row = platform.ledger.subscription(name)
    if row is None:
        raise NotFoundError(f"no trigger {name!r} is recorded; `lakechime trigger show` lists them")
    if name in declared_subscriptions(module):
        raise LakeChimeError(
            f"{name} is declared here, so that its sensor would activate it again; remove it from "
            f"the code first"
        )
    consumers = Interventions(platform.ledger).forget(row, by, dry_run=dry_run)
    document = {"trigger": name, "consumers": len(consumers), "dry_run": dry_run}
    answer(
        as_json,
        document,
        f"{name} {would(dry_run)} forgotten, with {count(len(consumers), 'consumer')}",
    )


def _check_rebuild(platform: "Platform", name: str) -> None:
    """Refuse to rebuild a CDC table of the lake of which no message is left."""
    from lakechime_dagster.cdc.service import check_rebuild

    try:
        lake = declared_lake(platform.settings)
    except LakeChimeError:  # of a project that has triggers and no lake
        return
    check_rebuild(platform, lake, name)


def _snapshots(consumer: "ConsumerRow") -> str:
    tables = [
        f"{table}@{checkpoint.snapshot_id}"
        for table, checkpoint in consumer.checkpoint.sources.items()
    ]
    return ", ".join(
        [
            *tables,
            *(
                [str(consumer.checkpoint.offsets)]
                if consumer.checkpoint.offsets is not None
                else []
            ),
        ]
    )


def _start_from(option: str, text: str) -> "StartFrom":
    """`beginning`, `now`, a position, or a time (UTC where it names no zone) or milliseconds."""
    from lakechime_dagster.triggers.schedule import from_milliseconds
    from lakechime_dagster.triggers.triggers import StartFrom

    if text in ("beginning", "now"):
        return StartFrom(text)
    whole, dash, seq = text.partition("-")
    if dash and whole.isdigit() and seq.isdigit():
        return StartFrom(str(common.position(option, text)))
    return StartFrom(from_milliseconds(common.milliseconds(option, text)).isoformat())


def _moved(document: dict[str, Any], moved: "Moved", sentence: str, as_json: bool) -> None:
    """Which consumers were moved from where to where."""
    from lakechime_dagster.runtime.sources import moves

    answer(as_json, document | {"consumers": moves(moved)}, sentence)
    if moved and not as_json:
        rows = [
            [one.key or "(one)", one.checkpoint.position, after.position] for one, after in moved
        ]
        print_table(["consumer", "before", "after"], rows, empty="")
