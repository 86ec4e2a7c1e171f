"""`lakechime cdc`, what it changes: a table read again from its messages, and epochs that a person confirms."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import flow_declared, followed_table, open_platform
from lakechime_dagster.cli.options import DryRun, Json, Reason, Who
from lakechime_dagster.cli.output import count, print_facts, print_json, print_table, say
from lakechime_dagster.errors import LakeChimeError, shown

if TYPE_CHECKING:
    from lakechime_dagster.resources.following.epochs import Epochs
    from lakechime_dagster.resources.following.followed import Followed

Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc list` shows it.")]


def rebuild(
    name: Name,
    reason: Reason,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only said what would happen.")] = False,
    who: Who = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make a table anew from all messages of its bronze table; nothing is asked of the database.

    It is put back to the beginning, as by `trigger seek TABLE --to beginning`, so that its next run replaces it.
    """
    from lakechime_dagster.cli.trigger import sought
    from lakechime_dagster.resources.following.followed import Followed
    from lakechime_dagster.triggers.model import StartFrom

    platform = open_platform(dry_run=dry_run)
    by = parse.by(who, reason)
    followed = Followed(platform, followed_table(name, platform.settings))
    flow, beginning = flow_declared(name, None, manual=True), StartFrom("beginning")
    facts = _replaced(followed)
    if not facts["messages"]:
        raise LakeChimeError(f"{followed.table.bronze.name} holds no message, so that {name} would be empty; nothing was done")
    if not (dry_run or yes):
        raise LakeChimeError(f"{_sentence(name, facts)}; nothing was done: say --yes to do it")
    moved = sought(platform, flow, beginning, by, dry_run=dry_run)
    if as_json:
        places = [{"before": lane.place.to_json(), "after": place.to_json()} for lane, place in moved]
        print_json({"table": name, **facts, "lanes": places, "dry_run": dry_run})
    else:
        say(f"{_sentence(name, facts)}{'; nothing was done' if dry_run else ''}")


def epoch(
    name: Name,
    confirm: Annotated[bool, typer.Option("--confirm", help="What follows is newer, though its positions are lower: go on.")] = False,
    source: Annotated[str | None, typer.Option("--source", help="Only if this source is asked about.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept with who and when.")] = "its positions begin anew",
    who: Who = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Show how far a table's sources have come and why its lane is held; with `--confirm` let positions begin anew.

    Positions go back where a database was replaced by another, or its log began anew. Confirmed, all that follows counts as
    newer than all that came before.
    """
    from lakechime_dagster.resources.following import epochs as answering
    from lakechime_dagster.resources.following.followed import Followed

    platform = open_platform(dry_run=dry_run)
    by = parse.by(who, reason)
    followed = Followed(platform, followed_table(name, platform.settings))
    epochs = answering.epochs_of(followed)
    if source is not None and source != epochs.asks:
        asked = f"about {epochs.asks}" if epochs.asks else "about no source"
        raise parse.wrong("--source", f"{shown(source)} is not asked about: {name} asks {asked}")
    if confirm and epochs.step is None:
        lane = followed.lane(name)
        why = f"is HELD: {lane.state_reason}" if lane is not None and lane.state_reason else "waits for nobody"
        raise LakeChimeError(f"no step of {name} asks whether positions may begin anew: its lane {why}; nothing was changed")
    opened = None
    if confirm:
        flow = flow_declared(name, None, manual=True)
        opened = epochs.next if dry_run else answering.confirm(followed, flow, epochs, by)
    document = _document(followed, epochs) | {"confirmed": opened, "dry_run": dry_run}
    if as_json:
        print_json(document)
    elif confirm:
        would = "would be" if dry_run else "is"
        say(f"epoch {opened} of {epochs.asks} {would} open; the step of {name} {would} tried again by its sensor")
    else:
        _print(document)


def _replaced(followed: "Followed") -> dict[str, Any]:
    """What a rebuild reads and replaces."""
    return {"messages": followed.bronze.count(), "rows": followed.target.count(), "remembered": followed.changes()}


def _sentence(name: str, facts: dict[str, Any]) -> str:
    return (
        f"the next run of {name} reads all {count(facts['messages'], 'message')} of its bronze table again, and replaces its "
        f"{count(facts['rows'], 'row')} and the {count(facts['remembered'], 'change')} that are remembered; what it refuses again comes "
        "to its quarantine once more"
    )


def _document(followed: "Followed", epochs: "Epochs") -> dict[str, Any]:
    lane = followed.lane(followed.table.name)
    places = [
        {"source": one.source, "topic": one.topic, "partition": one.partition, "epoch": one.epoch, "position": list(one.position),
         "offset": one.offset}
        for one in epochs.places
    ]  # fmt: skip
    return {
        "table": followed.table.name, "state": lane.state.value if lane else None, "reason": lane.state_reason if lane else "",
        "asks": epochs.asks or None, "opened": epochs.opened, "places": places,
    }  # fmt: skip


def _print(document: dict[str, Any]) -> None:
    facts = {"table": document["table"], "lane": document["state"] or "not begun", "reason": document["reason"]}
    print_facts({name: value for name, value in facts.items() if value})
    say("")
    rows = [
        [one["source"], one["topic"], one["partition"], one["epoch"], document["opened"].get(one["source"]), one["position"], one["offset"]]
        for one in document["places"]
    ]
    columns = ["source", "topic", "partition", "epoch", "open up to", "position", "offset"]
    print_table(columns, rows, empty="nothing is remembered of positions yet")
