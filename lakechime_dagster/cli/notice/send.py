"""`lakechime notice send`: whom a change concerns and what they would be told; with --yes they are told."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.options import Json, Who
from lakechime_dagster.cli.output import count, note, print_json, print_table, say

if TYPE_CHECKING:
    from lakechime_dagster.lineage.notices.digests import Digest
    from lakechime_dagster.resources.notices.planning import Plan
    from lakechime_dagster.resources.notices.sending import Outcome
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
    """Show whom a change concerns and what each would be told; with --yes tell them, each once.

    Exits with 1 if a message was not taken, or if an owner of a change that this sends first has no channel; repeated, that is only noted.
    """
    from lakechime_dagster.resources.lineage.asked import AskedLineage
    from lakechime_dagster.resources.notices import sending as notices

    platform = open_platform()
    by = parse.by(who, "sends")
    plans = notices.plans_of(AskedLineage(platform, declared_lake(platform.settings)), change, by.who)
    if yes:
        _report(plans, notices.carry_out(platform, os.environ, plans, by, change, again=again), as_json)
    else:
        _preview(plans, notices.outbox(platform).waiting(change), as_json)


def _preview(plans: "list[Plan]", waiting: "list[KeptMessage]", as_json: bool) -> None:
    from lakechime_dagster.resources.notices.documents import message_document, plan_document
    from lakechime_dagster.resources.notices.preview import unsendable

    messages = [*(one for plan in plans for one in plan.messages), *(one.message for one in waiting)]
    problems = unsendable(messages, os.environ)
    if as_json:
        told = {"changes": [plan_document(plan) for plan in plans], "waiting": [message_document(one) for one in waiting]}
        cannot = [{"owner": owner, "channel": channel, "problem": problem} for (owner, channel), problem in problems.items()]
        print_json({**told, "problems": cannot, "sent": False})
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
    for (owner, _), problem in problems.items():
        note(f"{owner} cannot be told from here: {problem}")
    if not plans and not waiting:
        say("there is nothing to tell")
    else:
        say("\nthis is what would be sent; nothing was: say --yes to send it")


def _report(plans: "list[Plan]", outcome: "Outcome", as_json: bool) -> None:
    from lakechime_dagster.lineage.notices.changes import ChangeState
    from lakechime_dagster.resources.notices.documents import message_document, plan_document

    tried, unreached, failed = outcome.tried, outcome.unreached, outcome.failed
    if as_json:
        told = {"messages": [message_document(one) for one in tried], "unreached": [digest.owner for digest in unreached]}
        print_json({"changes": [plan_document(plan) for plan in plans], "sent": True, **told})
    else:
        _table(tried)
        for digest in unreached:
            note(f"{digest.owner} was not told: LAKECHIME_NOTICE_URLS has no channel for it; it {digest.reason}")
        if failed:
            note(f"{count(len(failed), 'message')} of {len(tried)} not taken; `lakechime notice send --yes` tries again when it is time")
    if failed or any(plan.unreached for plan in plans if plan.kept.state is ChangeState.PLANNED):
        raise typer.Exit(1)


def _table(messages: "Sequence[KeptMessage]") -> None:
    rows = [(one.change_id, one.message.occasion, one.message.owner, one.message.channel, one.state, one.problem) for one in messages]
    print_table(["change", "told", "owner", "channel", "state", "problem"], rows, empty="nothing was due")


def _tables(digest: "Digest") -> str:
    return ", ".join(dict.fromkeys([*(hit.table for hit in digest.hits), *(hit.table for _, hit in digest.readers)]))
