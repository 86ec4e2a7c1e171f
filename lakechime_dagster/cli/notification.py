"""`lakechime notification`: planned changes, and the messages to owners."""

import datetime as dt
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    DryRun,
    Json,
    Reason,
    Who,
    answer,
    count,
    note,
    open_lineage,
    open_platform,
    print_documents,
    print_facts,
    print_json,
    record,
    say,
    would,
)
from lakechime_dagster.governance.changes import Change, ChangeKind, ChangeState, checked_day

if TYPE_CHECKING:
    from lakechime_dagster.governance.notifications import Plan
    from lakechime_dagster.governance.store import KeptChange, KeptMessage, Notifications
    from lakechime_dagster.runtime.platform import Platform

FIELDS = {
    "what": "--what",
    "on": "--on",
    "action": "--action",
    "sender": "--from",
    "table": "OF",
    "column": "OF",
}
NUMBER = {"metavar": "CHANGE", "min": 1, "max": 2**31 - 1}

app = typer.Typer(
    name="notification",
    help="Change notifications: draft a change, see whom it affects, notify its owners.",
)
Number = Annotated[
    int, typer.Argument(**NUMBER, help="Its number, see `lakechime notification show`.")
]


@app.command()
def draft(
    of: Annotated[
        list[str],
        typer.Argument(
            metavar="OF...", help="Tables, as schema.table, or columns, schema.table.column."
        ),
    ],
    kind: Annotated[ChangeKind, typer.Option("--kind", help="What kind of change it is.")],
    what: Annotated[str, typer.Option("--what", help="What happens, in a sentence or two.")],
    action: Annotated[str, typer.Option("--action", help="What readers are to do.")] = "",
    on: Annotated[
        dt.datetime | None,
        typer.Option("--on", formats=["%Y-%m-%d"], help="When it happens, such as 2026-12-31."),
    ] = None,
    sender: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="OWNER",
            help="In whose name; the owner of all these tables unless given.",
        ),
    ] = None,
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Draft a change; nobody is notified. `lakechime notification send` shows whom it affects."""
    from lakechime_dagster.governance.notifications import default_sender
    from lakechime_dagster.triggers.schedule import from_milliseconds

    lineage = open_lineage()
    platform = lineage.platform
    by = common.by(who, "draft")
    refs = tuple(map(lineage.ref, of))
    with common.reading_fields(FIELDS):
        name = default_sender(lineage, refs) if sender is None else sender
        change = Change(
            kind=kind, what=what, refs=refs, action=action, on=on and on.date(), sender=name
        )
        kept = _several(platform).draft(
            checked_day(change, from_milliseconds(platform.store.now())), by.who
        )
    sentence = f"change {kept.change_id} is a {kept.state}: {kept.change.title}"
    answer(
        as_json,
        _document(kept),
        sentence,
        f"`lakechime notification send {kept.change_id}` shows whom it affects",
    )


@app.command()
def show(
    change: Annotated[
        int | None,
        typer.Argument(**NUMBER, help="Show this one with its messages and acknowledgements."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also changes that are closed.")] = False,
    as_json: Json = False,
) -> None:
    """List changes that are drafted or announced, the newest first, or show one."""
    several = _several(open_platform())
    if change is not None:
        _show(several, change, as_json)
        return
    states = [state for state in ChangeState if all_ or state is not ChangeState.CLOSED]
    changes = [
        _document(one) | _progress(several, one.change_id) for one in several.changes(*states)
    ]
    if as_json:
        print_json({"changes": changes})
        return
    counts = [
        one | {name: len(one[name]) for name in ("notified", "acknowledged")} for one in changes
    ]
    print_documents(
        counts, "change state title drafted_by notified acknowledged", empty="no change is planned"
    )


@app.command()
def send(
    change: Number,
    yes: Annotated[
        bool, typer.Option("--yes", help="Send them; without it they are only shown.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also what a sender that died may have sent already.")
    ] = False,
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Show whom a change affects and the message for each; with --yes send what was not sent yet.

    The exit code is 1 when a message was not delivered, or an owner of a newly announced change has
    no channel.
    """
    from lakechime_dagster.governance import notifications as service

    lineage = open_lineage()
    platform = lineage.platform
    by, kept = common.by(who, "sends"), _several(platform).get(change)
    plan = service.plan_of(lineage, kept, by.who)
    if not yes:
        _preview(plan, _several(platform).messages(change), as_json)
        return
    tried = service.send(platform, os.environ, plan, by, again=again)
    failed = [one for one in tried if one.problem]
    if as_json:
        print_json(
            _plan_document(plan) | {"sent": True, "messages": [_message(one) for one in tried]}
        )
    else:
        _print_messages(tried, empty="nothing was left to send")
    for one in plan.unreached:
        note(
            f"{one.digest.owner} was not notified: LAKECHIME_NOTIFICATION_URLS has no channel for "
            f"it; it {one.digest.reason}"
        )
    if failed:
        note(f"{count(len(failed), 'message')} of {len(tried)} not delivered; send again to retry")
    if failed or (kept.state is ChangeState.DRAFT and plan.unreached):
        raise typer.Exit(1)


@app.command()
def ack(
    change: Number,
    owner: Annotated[
        str, typer.Option("--owner", help="The owner who was notified, such as team:ops.")
    ],
    text: Annotated[str, typer.Option("--note", help="A note to the sender.")] = "",
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Acknowledge a change for an owner."""
    by = common.by(who, "acknowledges")
    with common.reading_fields({"note": "--note"}):
        kept = _several(open_platform()).acknowledge(change, owner, by.who, text)
    answer(
        as_json,
        {"change": change, **vars(kept)},
        f"{kept.who} acknowledged change {change} for {kept.owner}",
    )


@app.command()
def close(
    change: Number, reason: Reason, who: Who = None, dry_run: DryRun = False, as_json: Json = False
) -> None:
    """Close a draft, or an announced change, as it has happened or does not; nothing more of it is
    sent.
    """
    platform, by = open_platform(dry_run=dry_run), common.by(who, reason)
    several = _several(platform)
    kept = several.get(change) if dry_run else several.close(change, by)
    answer(
        as_json, _document(kept) | {"dry_run": dry_run}, f"change {change} {would(dry_run)} closed"
    )


def _several(platform: "Platform") -> "Notifications":
    from lakechime_dagster.governance.notifications import notifications

    return notifications(platform)


def _show(several: "Notifications", change: int, as_json: bool) -> None:
    facts, messages, acks = (
        _document(several.get(change)),
        several.messages(change),
        several.acknowledgements(change),
    )
    missing = [
        owner
        for owner in _progress(several, change)["notified"]
        if owner not in {one.owner for one in acks}
    ]
    if as_json:
        print_json(
            facts
            | {
                "messages": [*map(_message, messages)],
                "acknowledged": acks,
                "not_acknowledged": missing,
            }
        )
        return
    print_facts(facts)
    say("")
    _print_messages(messages, empty="nobody was notified yet")
    say("")
    print_documents(acks, "owner who acked_ts note", empty="nobody has acknowledged it yet")
    if missing:
        say(f"\nnot yet: {', '.join(missing)}")


def _preview(plan: "Plan", known: "Iterable[KeptMessage]", as_json: bool) -> None:
    from lakechime_dagster.governance.notifications import problems
    from lakechime_dagster.governance.store import MessageState

    tried = {one.to: one for one in known}
    new = {one.to: one for one in plan.messages if one.to not in tried}
    new |= {to: one for to, one in tried.items() if one.state is not MessageState.SENT}
    wrong = problems(new.values(), os.environ)
    if as_json:
        messages = [
            record(one, "owner channel title body", problem=wrong.get(to, ""))
            for to, one in new.items()
        ]
        print_json(_plan_document(plan) | {"sent": False, "messages": messages})
        return
    for to, one in new.items():
        again = (
            f" ({tried[to].state}: {tried[to].problem or 'it may have been sent'})"
            if to in tried
            else ""
        )
        say(f"--- to {one.owner} through {one.channel}{again}: {one.title}\n{one.body}\n")
    for lost in plan.unreached:
        note(
            f"{lost.digest.owner} has no channel in LAKECHIME_NOTIFICATION_URLS; it "
            f"{lost.digest.reason}"
        )
    for (owner, _), problem in wrong.items():
        note(f"{owner} cannot be notified from here: {problem}")
    if plan.unowned:
        say(f"nobody owns {', '.join(plan.unowned)}")
    say("nothing was sent: add --yes to send it" if new else "there is nothing to send")


def _document(one: "KeptChange") -> dict[str, Any]:
    """A change as JSON, also as facts for people."""
    content = record(
        one.change, "title kind what action on sender", of=[*map(str, one.change.refs)]
    )
    history = record(
        one, "drafted_by drafted_ts announced_by announced_ts closed_by closed_ts reason"
    )
    return {"change": one.change_id, "state": one.state} | content | history


def _plan_document(plan: "Plan") -> dict[str, Any]:
    recipients = [
        record(one.digest, "owner reason", channels=one.channels) for one in plan.recipients
    ]
    return _document(plan.kept) | {"recipients": recipients, "unowned": plan.unowned}


def _message(one: "KeptMessage") -> dict[str, Any]:
    """A message, without its text."""
    return record(one, "owner channel state attempts claimed_ts problem")


def _print_messages(messages: "Iterable[KeptMessage]", empty: str) -> None:
    print_documents(map(_message, messages), "owner channel state claimed_ts problem", empty=empty)


def _progress(several: "Notifications", change: int) -> dict[str, list[str]]:
    """The owners who were notified of a change, and those who have acknowledged it."""
    from lakechime_dagster.governance.store import MessageState

    sent = [one.owner for one in several.messages(change) if one.state is MessageState.SENT]
    return {
        "notified": list(dict.fromkeys(sent)),
        "acknowledged": [one.owner for one in several.acknowledgements(change)],
    }
