"""`lakechime trigger`: why a trigger fires or not, and what a person does to it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    DryRun,
    Json,
    Module,
    Reason,
    Who,
    count,
    declared_subscriptions,
    group_problem,
    note,
    one_line,
    open_platform,
    print_facts,
    print_json,
    print_table,
    say,
    shown_fact,
    subscription_declared,
    subscription_known,
    when,
)
from lakechime_dagster.cli.dce import print_events
from lakechime_dagster.dce.events import to_json
from lakechime_dagster.errors import LakeChimeError, NotFoundError

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.triggers.consumers import Place
    from lakechime_dagster.triggers.interventions import By, PlaceAt
    from lakechime_dagster.triggers.progress import SubscriptionOverview
    from lakechime_dagster.triggers.registry import ConsumerRow, SubscriptionRow
    from lakechime_dagster.triggers.subscription import Subscription
    from lakechime_dagster.triggers.triggers import StartFrom

app = typer.Typer(name="trigger", help="Triggers: why one fires or not, pause, resume, seek, forget.")

Name = Annotated[str, typer.Argument(help="The trigger's name, as `lakechime trigger list` shows it.")]
Moved = Sequence[tuple["ConsumerRow", "Place"]]  # consumers as they were, each with its new place


@app.command("list")
def list_(module: Module = None, as_json: Json = False) -> None:
    """List the triggers that are declared here, and those that the ledger knows."""
    from lakechime_dagster.triggers.progress import overview

    subscriptions = _declared_or_none(module)
    seen = {subscription.row.name: subscription for subscription in overview(open_platform().ledger)}
    names = sorted({*subscriptions, *seen})
    if as_json:
        print_json({"triggers": [_summary(name, subscriptions.get(name), seen.get(name)) for name in names]})
        return
    columns = ["trigger", "state", "waiting", "open", "held", "consumers", "condition"]
    rows = []
    for name in names:
        summary = _summary(name, subscriptions.get(name), seen.get(name))
        rows.append([summary[column] for column in ("name", "state", "waiting", "open", "held", "consumers", "condition")])
    print_table(columns, rows, empty="no trigger is declared here, and the ledger knows none")


@app.command()
def show(name: Name, module: Module = None, as_json: Json = False) -> None:
    """Show a trigger: its condition, its consumers, and what people did to it."""
    from lakechime_dagster.triggers.interventions import Interventions
    from lakechime_dagster.triggers.progress import overview

    platform = open_platform()
    subscription = _declared_or_none(module).get(name)
    seen = next((one for one in overview(platform.ledger) if one.row.name == name), None)
    if subscription is None and seen is None:
        raise NotFoundError(f"no trigger {name!r} is declared here, and the ledger knows none of that name")
    consumers = platform.ledger.consumers(seen.row) if seen else {}
    history = Interventions(platform.ledger).history(seen.row) if seen else []
    document = _summary(name, subscription, seen) | _details(subscription, seen)
    if as_json:
        done = [vars(one) | {"action": one.action.value} for one in history]
        print_json({"trigger": document, "consumers": [_consumer(consumer) for consumer in consumers.values()], "interventions": done})
        return
    print_facts({key: shown_fact(key, value) for key, value in document.items() if value not in (None, [])})
    say("")
    columns = ["consumer", "state", "settled", "position", "snapshots", "reason"]
    rows = [
        [consumer.key or "(one)", consumer.state, consumer.settled, consumer.place.position, _snapshots(consumer), consumer.state_reason]
        for consumer in consumers.values()
    ]
    print_table(columns, rows, empty="no consumer yet: nothing was claimed")
    if history:
        say("")
        did = [[when(one.ts), one.who, one.action, one.consumer_key, one.reason] for one in history]
        print_table(["when", "who", "did", "consumer", "because"], did, empty="")


@app.command()
def explain(
    name: Name,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="As it was at this time.")] = None,
    module: Module = None,
    as_json: Json = False,
) -> None:
    """Say why a trigger fires or does not, now or at a past time, and on which events that rests."""
    from lakechime_dagster.runtime.explain import explain as explained
    from lakechime_dagster.triggers.decision import Decision

    at_ms = common.optional_milliseconds("--at", at)
    if problem := group_problem(name, module):
        failed = f"its declaration is wrong, and its events wait in the stream's table until it is corrected: {problem}"
        decision = Decision(trigger=name, fires=False, reasons=(failed,))
    else:
        decision = explained(open_platform(), subscription_declared(name, module), at_ms)
    verdict = "fire" if decision.fires else "not_yet"
    if as_json:
        events = [to_json(event) for event in decision.events]
        print_json({"trigger": name, "decision": verdict, "reasons": list(decision.reasons), "events": events})
        return
    past = f" at {when(at_ms)}" if at_ms is not None else ""
    say(f"{name} {'fires' if decision.fires else 'does not fire'}{past}:")
    for reason in decision.reasons:
        say(f"  - {reason}")
    if decision.events:
        say("")
        print_events(decision.events)


@app.command()
def pause(name: Name, reason: Reason, who: Who = None, module: Module = None, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Stop launching runs, retries included, until resumed. Running ones finish; new events queue up.

    A run that a person launches is not the trigger's: it goes on as ever.
    """
    from lakechime_dagster.triggers.interventions import Interventions

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    row = subscription_known(platform, name, module, dry_run=dry_run)
    if not dry_run:
        Interventions(platform.ledger).pause(row, by)
    _told({"trigger": name, "paused": True, "dry_run": dry_run}, f"{name} {_would(dry_run)} paused", as_json)


@app.command()
def resume(
    name: Name,
    reason: Reason,
    from_: Annotated[
        str, typer.Option("--from", metavar="all|latest|since:TIME|since:POSITION", help="What of the waiting events is consumed.")
    ] = "all",
    who: Who = None,
    module: Module = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Go on: with all that waited, only with what comes from now on, or with what came since a time or position.

    Keys of a partition trigger that have not fired yet fire in any case; `latest` and `since` leave out late changes. What is
    held because its feed lost messages goes on with those that are there; a step that asked for a person is tried again, with
    all that came meanwhile.
    """
    from lakechime_dagster.runtime.platform import ends_of_held
    from lakechime_dagster.runtime.sources import place_at as place_found
    from lakechime_dagster.runtime.sources import place_kept
    from lakechime_dagster.triggers.interventions import Interventions

    where = _resume_from(from_)
    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    row = subscription_known(platform, name, module, dry_run=dry_run)
    interventions = Interventions(platform.ledger)
    place_at = None
    moved: Moved = []
    ends = {}
    if where is not None:
        subscription = subscription_declared(name, module, manual=True)
        place_at = place_found(platform, subscription, where)
        moved = _first_consumer(platform, subscription, row, place_at, dry_run) or interventions.seek(row, None, by, place_at, dry_run=True)
    elif subscription := _declared_or_none(module).get(name):
        ends = ends_of_held(platform, subscription, row)
        if place_at := place_kept(platform, subscription, row):
            moved = interventions.seek(row, None, by, place_at, dry_run=True)
    if not dry_run:
        interventions.resume(row, by, place_at, ends)
    document = {"trigger": name, "paused": False, "from": from_, "consumers": _moves(moved), "dry_run": dry_run}
    _told(document, f"{name} {_would(dry_run)} resumed", as_json, moved)


@app.command()
def seek(
    name: Name,
    to: Annotated[str, typer.Option("--to", metavar="beginning|now|TIME|POSITION", help="Where to go on from.")],
    reason: Reason,
    key: Annotated[str | None, typer.Option("--key", help="The consumer of this key; all consumers unless given.")] = None,
    who: Who = None,
    module: Module = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Put the consumers of a trigger at another place: back to replay, forward to leave out."""
    where = _start_from("--to", to)
    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    moved = sought(platform, subscription_declared(name, module, manual=True), where, by, key=key, dry_run=dry_run)
    document = {"trigger": name, "consumers": _moves(moved), "dry_run": dry_run}
    _told(document, f"{count(len(moved), 'consumer')} of {name} {_would(dry_run)} moved", as_json, moved)


@app.command()
def forget(name: Name, reason: Reason, who: Who = None, module: Module = None, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Forget a trigger that is declared no more, with its consumers and executions: `store expire` waits for it no longer."""
    from lakechime_dagster.triggers.interventions import Interventions

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    row = platform.ledger.subscription(name)
    if row is None:
        raise NotFoundError(f"the ledger knows no trigger {name!r}; `lakechime trigger list` shows those that it knows")
    if name in declared_subscriptions(module):
        raise LakeChimeError(f"{name} is declared here, so that its sensor would activate it again; remove it from the code first")
    consumers = Interventions(platform.ledger).forget(row, by, dry_run=dry_run)
    document = {"trigger": name, "consumers": len(consumers), "dry_run": dry_run}
    _told(document, f"{name} {_would(dry_run)} forgotten, with {count(len(consumers), 'consumer')}", as_json)


def sought(
    platform: "Platform", subscription: "Subscription", where: "StartFrom", by: "By", *, key: str | None = None, dry_run: bool = False
) -> Moved:
    """Put the consumer of a key, or all consumers, of a trigger at another place; the consumers as they were, each with its new place."""
    from lakechime_dagster.runtime.explain import inactive
    from lakechime_dagster.runtime.sources import place_at as place_found
    from lakechime_dagster.triggers.interventions import Interventions

    _check_consumers(platform, subscription, key)
    imagined = (platform.ledger.subscription(subscription.name) or inactive(platform, subscription)) if dry_run else None
    row = imagined or platform.evaluator.activate(subscription)
    place_at = place_found(platform, subscription, where)
    moved = _first_consumer(platform, subscription, row, place_at, dry_run)
    return moved or Interventions(platform.ledger).seek(row, key, by, place_at, dry_run=dry_run)


def _check_consumers(platform: "Platform", subscription: "Subscription", key: str | None) -> None:
    """Refuse to move a consumer that is not there, before anything is made."""
    row = platform.ledger.subscription(subscription.name)
    keys = {*(platform.ledger.consumers(row) if row else {}), *([] if subscription.is_partitioned else [""])}
    if key is not None and key not in keys:
        raise NotFoundError(
            f"{subscription.name} has no consumer {key!r}; `lakechime trigger show {subscription.name}` lists its consumers"
        )
    if not keys:
        raise LakeChimeError(f"{subscription.name} has no consumer yet: nothing was claimed, so there is nothing to put elsewhere")


def _first_consumer(
    platform: "Platform", subscription: "Subscription", row: "SubscriptionRow", place_at: "PlaceAt", dry_run: bool
) -> Moved:
    """A snapshot trigger has one consumer, which can be put somewhere before anything was claimed: made, in a dry run only imagined."""
    from lakechime_dagster.dce.engine import reading
    from lakechime_dagster.runtime.platform import ask_target
    from lakechime_dagster.triggers.consumers import ConsumerId, ConsumerState
    from lakechime_dagster.triggers.registry import ConsumerRow

    if subscription.is_partitioned or platform.ledger.consumers(row):
        return []
    target = platform.log(subscription.target, subscription.location) if subscription.target else None
    committed = ask_target(target)(ConsumerId(platform.ledger.deployment, subscription.name))
    if not dry_run:
        platform.ledger.ensure_consumer(row, "", committed)
        return []
    consumer = ConsumerRow(
        consumer_id=0,
        key="",
        state=ConsumerState.ACTIVE,
        state_reason="",
        settled=committed.commit_metadata.step if committed else 0,
        place=committed.commit_metadata.end if committed else row.start,
        fired=committed is not None,
        created_ts=row.activated_ts,
    )
    with reading(platform.ledger.engine) as connection:
        return [(consumer, place_at(connection, consumer))]


def _declared_or_none(module: str | None) -> dict[str, "Subscription"]:
    """The declared subscriptions; a code location that cannot be loaded must not hide what the ledger knows."""
    try:
        return declared_subscriptions(module)
    except LakeChimeError as error:
        note(f"warning: {one_line(str(error))}; showing what the ledger knows")
        return {}


def _summary(name: str, subscription: "Subscription | None", seen: "SubscriptionOverview | None") -> dict[str, Any]:
    row = seen.row if seen else None
    state = (
        "not active yet" if row is None else "paused" if row.paused_ts is not None else "active" if subscription else "not declared here"
    )
    condition = subscription.condition if subscription else row.description if row else ""
    return {
        "name": name,
        "state": state,
        "declared": subscription is not None,
        "condition": condition,
        "waiting": seen.waiting if seen else None,
        "open": seen.open if seen else 0,
        "held": seen.held if seen else 0,
        "stale": seen.stale if seen else 0,
        "consumers": seen.consumers if seen else 0,
        "paused_reason": row.paused_reason if row else None,
    }


def _details(subscription: "Subscription | None", seen: "SubscriptionOverview | None") -> dict[str, Any]:
    row = seen.row if seen else None
    tables = subscription.pinned if subscription else row.tables if row else ()
    assets = subscription.asset_keys if subscription else row.asset_keys if row else ()
    return {
        "tables": list(tables),
        "target": subscription.target if subscription else row and row.target,
        "job": subscription.job if subscription else row and row.job,
        "assets": list(assets),
        "activated_ts": row.activated_ts if row else None,
    }


def _consumer(consumer: "ConsumerRow") -> dict[str, Any]:
    return {
        "key": consumer.key,
        "state": consumer.state.value,
        "reason": consumer.state_reason,
        "settled": consumer.settled,
        "fired": consumer.fired,
        "place": consumer.place.to_json(),
    }


def _snapshots(consumer: "ConsumerRow") -> str:
    tables = [f"{table}@{place.snapshot_id}" for table, place in consumer.place.sources.items()]
    return ", ".join([*tables, *([str(consumer.place.feed)] if consumer.place.feed is not None else [])])


def _resume_from(text: str) -> "StartFrom | None":
    if text == "all":
        return None
    if text == "latest":
        return _start_from("--from", "now")
    kind, colon, where = text.partition(":")
    if kind != "since" or not colon:
        raise common.wrong("--from", f"{text!r} is none of all, latest, since:TIME, since:POSITION")
    return _start_from("--from", where)


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


def _moves(moved: Moved) -> list[dict[str, Any]]:
    return [{"key": consumer.key, "before": consumer.place.to_json(), "after": place.to_json()} for consumer, place in moved]


def _told(document: dict[str, Any], sentence: str, as_json: bool, moved: Moved = ()) -> None:
    if as_json:
        print_json(document)
        return
    say(sentence)
    if moved:
        rows = [[consumer.key or "(one)", consumer.place.position, place.position] for consumer, place in moved]
        print_table(["consumer", "before", "after"], rows, empty="")


def _would(dry_run: bool) -> str:
    return "would be" if dry_run else "is"
