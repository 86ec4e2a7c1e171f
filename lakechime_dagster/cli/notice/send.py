"""`lakechime notice send`: whom a change concerns and what they would be told; with --yes they are told."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.notice.names import document, message_document
from lakechime_dagster.cli.options import Json, Who
from lakechime_dagster.cli.output import count, note, print_json, print_table, say
from lakechime_dagster.lineage.notices.changes import ChangeState

if TYPE_CHECKING:
    from lakechime_dagster.lake import Lake
    from lakechime_dagster.lineage.notices.digests import Digest
    from lakechime_dagster.resources.notices.sending import Plan
    from lakechime_dagster.resources.platform import Platform
    from lakechime_dagster.store.notices.outbox import KeptMessage

CHANGE = "A change; without it what is due of announced ones: retries and reminders."


def send(
    change: Annotated[int | None, typer.Argument(metavar="[CHANGE]", min=1, max=2**31 - 1, help=CHANGE)] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only shown who would be told what.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also what failed for good, and of what nobody knows whether it was sent.")
    ] = False,
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Show whom a change concerns and what each would be told; with --yes tell them, each once. Exits with 1 if somebody was not told."""
    from lakechime_dagster.resources.notices import sending as notices

    platform = open_platform()
    by = parse.by(who, "sends")
    lake = declared_lake(platform.settings)
    plans = _plans(platform, lake, change, by.who)
    if not yes:
        _preview(plans, notices.outbox(platform).waiting(change), as_json)
        return
    notices.check_sending(platform.settings)
    for plan in plans:
        notices.notices(platform).announce(plan.kept, plan.messages, by.who)
    _report(plans, notices.send(platform, os.environ, change, again=again), as_json)


def _plans(platform: "Platform", lake: "Lake", change: int | None, who: str) -> "list[Plan]":
    """What is to be put into the outbox: of a change that was asked for, or the reminders of all; of one that has ended nothing."""
    from lakechime_dagster.resources.notices import sending as notices

    if change is None:
        announced = notices.notices(platform).changes(ChangeState.ANNOUNCED)
        return [plan for one in reversed(announced) if (plan := notices.reminders(platform, lake, one, who)) is not None]
    kept = notices.notices(platform).get(change)
    return [notices.plan(platform, lake, kept, who)] if kept.state.is_open else []


def _preview(plans: "list[Plan]", waiting: "list[KeptMessage]", as_json: bool) -> None:
    if as_json:
        print_json({"changes": [_document(plan) for plan in plans], "waiting": [message_document(one) for one in waiting], "sent": False})
        return
    for plan in plans:
        say(f"change {plan.kept.change_id}, version {plan.kept.version}, {plan.kept.state}: {plan.occasion}")
        rows = [(one.digest.owner, " ".join(one.channels) or "none: nobody is told", one.digest.reason) for one in plan.told]
        print_table(["owner", "through", "why"], rows, empty="it concerns nobody else")
        for digest, about in ((plan.unowned, "nobody owns"), (plan.own, "of the sender's own")):
            if not digest.is_empty:
                say(f"{about}: {_tables(digest)}")
        for one in plan.told:
            say(f"\n--- to {one.digest.owner}: {one.title}\n{one.body}")
    if waiting:
        say("in the outbox:")
        _table(waiting)
    if not plans and not waiting:
        say("there is nothing to tell")
    else:
        say("\nthis is what would be sent; nothing was: say --yes to send it")


def _report(plans: "list[Plan]", tried: "list[KeptMessage]", as_json: bool) -> None:
    from lakechime_dagster.store.notices.outbox import MessageState

    unreached = [digest for plan in plans for digest in plan.unreached]
    failed = [one for one in tried if one.state is not MessageState.SENT]
    if as_json:
        told = {"messages": [message_document(one) for one in tried], "unreached": [digest.owner for digest in unreached]}
        print_json({"changes": [_document(plan) for plan in plans], "sent": True, **told})
    else:
        _table(tried)
        for digest in unreached:
            note(f"{digest.owner} was not told: LAKECHIME_NOTICE_URLS has no channel for it; it {digest.reason}")
        if failed:
            note(f"{count(len(failed), 'message')} of {len(tried)} not taken; `lakechime notice send --yes` tries again when it is time")
    if failed or unreached:
        raise typer.Exit(1)


def _table(messages: "list[KeptMessage]") -> None:
    rows = [(one.change_id, one.message.occasion, one.message.owner, one.message.channel, one.state, one.problem) for one in messages]
    print_table(["change", "told", "owner", "channel", "state", "problem"], rows, empty="nothing was due")


def _document(plan: "Plan") -> dict[str, Any]:
    told = [
        {"owner": one.digest.owner, "channels": list(one.channels), "reason": one.digest.reason, "title": one.title, "body": one.body}
        for one in plan.told
    ]  # fmt: skip
    beside = {"unowned": [hit.table for hit in plan.unowned.hits], "own": [hit.table for hit in plan.own.hits]}
    return document(plan.kept) | {"occasion": plan.occasion, "told": told, **beside}


def _tables(digest: "Digest") -> str:
    return ", ".join(dict.fromkeys([*(hit.table for hit in digest.hits), *(hit.table for _, hit in digest.readers)]))
