"""`lakechime notification`: planned changes, and the messages to owners."""

import difflib
import os
from collections.abc import Collection, Iterable
from dataclasses import asdict, replace
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
    declared_lake,
    note,
    open_platform,
    print_documents,
    print_facts,
    print_json,
    say,
    would,
)
from lakechime_dagster.compat import date_of_iso
from lakechime_dagster.errors import NotFoundError, shown
from lakechime_dagster.lineage.columns import ColumnRef

if TYPE_CHECKING:
    from lakechime_dagster.governance.changes import Change
    from lakechime_dagster.governance.notifications import Plan
    from lakechime_dagster.governance.store import KeptChange, KeptMessage, Notifications
    from lakechime_dagster.lineage.service import AskedLineage

KINDS = "deprecation, retention, schema change, incident, backfill"
FIELDS = {"what": "--what", "on": "--on", "action": "--action", "sender": "--from", "refs": "OF", "table": "OF", "column": "OF"}
NUMBER = {"metavar": "CHANGE", "min": 1, "max": 2**31 - 1}

app = typer.Typer(name="notification", help="Change notifications: draft a change, see whom it affects, notify its owners.")
Number = Annotated[int, typer.Argument(**NUMBER, help="Its number, see `lakechime notification show`.")]
Of = Annotated[list[str] | None, typer.Argument(metavar="[OF]...", help="Tables, as schema.table, or columns, schema.table.column.")]
Kind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help=f"One of: {KINDS}.")]
What = Annotated[str | None, typer.Option("--what", help="What happens, in a sentence or two.")]
Action = Annotated[str | None, typer.Option("--action", help="What readers are to do.")]
On = Annotated[str | None, typer.Option("--on", metavar="DATE", help="When it happens, such as 2026-12-31.")]
From = Annotated[str | None, typer.Option("--from", metavar="OWNER", help="In whose name; the owner of all these tables unless given.")]
Amended = Annotated[int | None, typer.Option("--change", metavar="CHANGE", min=1, help="Amend this draft: the rest stays as it was.")]


@app.command()
def draft(
    of: Of = None,
    kind: Kind = None,
    what: What = None,
    action: Action = None,
    on: On = None,
    sender: From = None,
    change: Amended = None,
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Draft a change, or amend a draft; nobody is notified. `lakechime notification send` shows whom it affects."""
    from lakechime_dagster.governance.changes import checked_day
    from lakechime_dagster.governance.notifications import notifications
    from lakechime_dagster.lineage.service import AskedLineage
    from lakechime_dagster.triggers.schedule import from_milliseconds

    platform = open_platform()
    asked = AskedLineage(platform, declared_lake(platform.settings))
    by = common.by(who, "draft")
    given = _given(of, kind, what, action, on, sender, asked)
    with common.reading_fields(FIELDS):
        known = None if change is None else notifications(platform).get(change).change
        new = _new(given, asked) if known is None else replace(known, **given)
        if known is None or (new.on, new.kind) != (known.on, known.kind):
            checked_day(new, from_milliseconds(platform.store.now()))
        kept = notifications(platform).draft(new, by.who) if change is None else notifications(platform).amend(change, new)
    answer(
        as_json,
        _document(kept),
        f"change {kept.change_id} is a {kept.state}: {kept.change.title}",
        f"`lakechime notification send {kept.change_id}` shows whom it affects, with --yes it notifies them",
    )


@app.command()
def show(
    change: Annotated[int | None, typer.Argument(**NUMBER, help="Show this one with its messages and acknowledgements.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also changes that are closed.")] = False,
    as_json: Json = False,
) -> None:
    """List changes that are drafted or announced, the newest first, or show one."""
    from lakechime_dagster.governance.changes import ChangeState
    from lakechime_dagster.governance.notifications import notifications

    several = notifications(open_platform())
    if change is not None:
        _show(several, change, as_json)
        return
    states = [state for state in ChangeState if all_ or state is not ChangeState.CLOSED]
    changes = [_document(one) | _progress(several, one.change_id) for one in several.changes(*states)]
    if as_json:
        print_json({"changes": changes})
        return
    counts = [one | {name: len(one[name]) for name in ("notified", "acknowledged")} for one in changes]
    print_documents(counts, "change state title drafted_by notified acknowledged", empty="no change is planned")


@app.command()
def send(
    change: Number,
    yes: Annotated[bool, typer.Option("--yes", help="Send them; without it they are only shown.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also what a sender that died may have sent already.")] = False,
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Show whom a change affects and the message for each; with --yes send what was not sent yet.

    The exit code is 1 when a message was not delivered, or an owner of a newly announced change has no channel.
    """
    from lakechime_dagster.governance import notifications as service
    from lakechime_dagster.governance.changes import ChangeState
    from lakechime_dagster.lineage.service import AskedLineage

    platform = open_platform()
    by, kept = common.by(who, "sends"), service.notifications(platform).get(change)
    plan = service.plan_of(AskedLineage(platform, declared_lake(platform.settings)), kept, by.who)
    if not yes:
        _preview(plan, service.notifications(platform).messages(change), as_json)
        return
    tried = service.send(platform, os.environ, plan, by, again=again)
    failed = [one for one in tried if one.problem]
    if as_json:
        print_json(_plan_document(plan) | {"sent": True, "messages": [_message(one) for one in tried]})
    else:
        _messages(tried, empty="nothing was left to send")
    for owner, reason in _unreached(plan):
        note(f"{owner} was not notified: LAKECHIME_NOTIFICATION_URLS has no channel for it; it {reason}")
    if failed:
        note(f"{count(len(failed), 'message')} of {len(tried)} not delivered; send again to retry")
    if failed or (kept.state is ChangeState.DRAFT and _unreached(plan)):
        raise typer.Exit(1)


@app.command()
def ack(
    change: Number,
    owner: Annotated[str, typer.Option("--owner", help="The owner who was notified, such as team:ops.")],
    text: Annotated[str, typer.Option("--note", help="A note to the sender.")] = "",
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Acknowledge a change for an owner."""
    from lakechime_dagster.governance.notifications import notifications

    by = common.by(who, "acknowledges")
    with common.reading_fields({"who": "--who", "note": "--note"}):
        kept = notifications(open_platform()).acknowledge(change, owner, by.who, text)
    answer(as_json, {"change": change, **asdict(kept)}, f"{kept.who} acknowledged change {change} for {kept.owner}")


@app.command()
def close(change: Number, reason: Reason, who: Who = None, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Close a draft, or an announced change, as it has happened or does not; nothing more of it is sent."""
    from lakechime_dagster.governance.notifications import notifications

    platform, by = open_platform(dry_run=dry_run), common.by(who, reason)
    several = notifications(platform)
    kept = several.get(change) if dry_run else several.close(change, by)
    answer(as_json, _document(kept) | {"dry_run": dry_run}, f"change {change} {would(dry_run)} closed")


def _given(
    of: list[str] | None, kind: str | None, what: str | None, action: str | None, on: str | None, sender: str | None, asked: "AskedLineage"
) -> dict[str, Any]:
    from lakechime_dagster.governance.changes import ChangeKind
    from lakechime_dagster.lineage.store import known_tables

    given: dict[str, Any] = {"what": what, "action": action, "sender": sender}
    known = {*known_tables(asked.platform.store.engine), *(table.name for table in asked.lake.tables)} if of else set()
    given["refs"] = tuple(_ref(name, known, asked) for name in of) if of else None
    if kind is not None:
        if kind.replace("_", " ") not in list(ChangeKind):
            raise common.wrong("--kind", f"{kind!r} is none of {KINDS}")
        given["kind"] = ChangeKind(kind.replace("_", " "))
    if on is not None:
        try:
            given["on"] = date_of_iso(on)
        except ValueError:
            raise common.wrong("--on", f"{on!r} is not a date; write such as 2026-12-31") from None
    return {name: value for name, value in given.items() if value is not None}


def _ref(name: str, tables: Collection[str], asked: "AskedLineage") -> ColumnRef:
    """A table by its name, or a column as schema.table.column, which a table whose columns are known must have.

    Raises:
        NotFoundError: naming what is nearest.
    """
    if name in tables:
        return ColumnRef(name)
    of = max((table for table in tables if name.startswith(f"{table}.")), key=len, default=None)
    if of is None or len(name) == len(of) + 1:
        near = difflib.get_close_matches(name, tables, n=1)
        remedy = f"did you mean {near[0]}?" if near else "name a table as schema.table, or a column as schema.table.column"
        raise NotFoundError(f"no table {shown(name)} is known; {remedy}")
    column, columns = name[len(of) + 1 :], asked.columns(of)
    return asked.ref(name) if columns and column.partition(".")[0] not in columns else ColumnRef(of, column)


def _new(given: dict[str, Any], asked: "AskedLineage") -> "Change":
    from lakechime_dagster.governance.changes import Change
    from lakechime_dagster.governance.notifications import default_sender

    for name, option in (("kind", "--kind"), ("what", "--what"), ("refs", "OF")):
        if name not in given:
            raise common.wrong(option, "is missing; say what changes")
    values: dict[str, Any] = {"sender": default_sender(asked, given["refs"])} | given
    return Change(**values)


def _show(several: "Notifications", change: int, as_json: bool) -> None:
    facts, messages, acks = _document(several.get(change)), several.messages(change), several.acknowledgements(change)
    missing = [owner for owner in _progress(several, change)["notified"] if owner not in {one.owner for one in acks}]
    if as_json:
        told = {"messages": [_message(one) for one in messages], "acknowledged": [asdict(one) for one in acks]}
        print_json(facts | told | {"not_acknowledged": missing})
        return
    print_facts(facts)
    say("")
    _messages(messages, empty="nobody was notified yet")
    say("")
    print_documents(map(asdict, acks), "owner who acked_ts note", empty="nobody has acknowledged it yet")
    if missing:
        say(f"\nnot yet: {', '.join(missing)}")


def _preview(plan: "Plan", known: "Iterable[KeptMessage]", as_json: bool) -> None:
    from lakechime_dagster.governance.notifications import problems
    from lakechime_dagster.governance.store import MessageState

    there = {(one.message.owner, one.message.channel): one for one in known}
    left = {to: one.message for to, one in there.items() if one.state is not MessageState.SENT}
    new = {(one.owner, one.channel): one for one in plan.messages if (one.owner, one.channel) not in there} | left
    wrong = problems(new.values(), os.environ)
    if as_json:
        told = [
            {"owner": one.owner, "channel": one.channel, "title": one.title, "body": one.body, "problem": wrong.get(to, "")}
            for to, one in new.items()
        ]
        print_json(_plan_document(plan) | {"sent": False, "messages": told})
        return
    for (owner, channel), one in new.items():
        tried = there.get((owner, channel))
        again = "" if tried is None else f" ({tried.state}: {tried.problem or 'it may have been sent'})"
        say(f"--- to {owner} through {channel}{again}: {one.title}\n{one.body}\n")
    for owner, reason in _unreached(plan):
        note(f"{owner} has no channel in LAKECHIME_NOTIFICATION_URLS; it {reason}")
    for (owner, _), problem in wrong.items():
        note(f"{owner} cannot be notified from here: {problem}")
    if plan.unowned:
        say(f"nobody owns {', '.join(plan.unowned)}")
    say("nothing was sent: add --yes to send it" if new else "there is nothing to send")


def _document(one: "KeptChange") -> dict[str, Any]:
    """A change as JSON, also as facts for people."""
    change = one.change
    return {
        "change": one.change_id,
        "state": one.state.value,
        "title": change.title,
        "kind": change.kind.value,
        "what": change.what,
        "action": change.action,
        "on": None if change.on is None else change.on.isoformat(),
        "of": [str(ref) for ref in change.refs],
        "sender": change.sender,
        "source": one.source,
        "drafted_by": one.drafted_by,
        "drafted_ts": one.drafted_ts,
        "announced_by": one.announced_by,
        "announced_ts": one.announced_ts,
        "closed_by": one.closed_by,
        "closed_ts": one.closed_ts,
        "reason": one.reason,
    }


def _plan_document(plan: "Plan") -> dict[str, Any]:
    recipients = [{"owner": one.digest.owner, "channels": list(one.channels), "reason": one.digest.reason} for one in plan.recipients]
    return _document(plan.kept) | {"recipients": recipients, "unowned": list(plan.unowned)}


def _message(one: "KeptMessage") -> dict[str, Any]:
    """A message, without its text."""
    return {
        "owner": one.message.owner,
        "channel": one.message.channel,
        "state": one.state.value,
        "attempts": one.attempts,
        "claimed_ts": one.claimed_ts,
        "problem": one.problem,
    }


def _messages(messages: "Iterable[KeptMessage]", empty: str) -> None:
    print_documents(map(_message, messages), "owner channel state claimed_ts problem", empty=empty)


def _progress(several: "Notifications", change: int) -> dict[str, list[str]]:
    """The owners who were notified of a change, and those who have acknowledged it."""
    from lakechime_dagster.governance.store import MessageState

    sent = [one.message.owner for one in several.messages(change) if one.state is MessageState.SENT]
    return {"notified": list(dict.fromkeys(sent)), "acknowledged": [one.owner for one in several.acknowledgements(change)]}


def _unreached(plan: "Plan") -> list[tuple[str, str]]:
    """The owners without a channel, with the reason of their message."""
    return [(one.digest.owner, one.digest.reason) for one in plan.recipients if not one.channels]
