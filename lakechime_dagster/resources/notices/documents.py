"""Changes, messages, plans and all that was done with a change, as JSON: what the command line and the page of lineage show."""

from dataclasses import asdict
from typing import Any

from lakechime_dagster.lineage.notices.changes import ChangeState
from lakechime_dagster.lineage.notices.occasions import WITHDRAWN
from lakechime_dagster.resources.notices.planning import Plan
from lakechime_dagster.resources.notices.preview import Preview
from lakechime_dagster.resources.notices.sending import notices, outbox
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.notices.changes import KeptChange
from lakechime_dagster.store.notices.outbox import KeptMessage, MessageState
from lakechime_dagster.store.notices.tally import Tally, tally


def change_document(one: KeptChange) -> dict[str, Any]:
    """A change, also as facts for people."""
    change = one.change
    return {
        "change": one.change_id, "version": one.version, "state": one.state.value, "kind": change.kind.value, "what": change.what,
        "action": change.action, "on": None if change.on is None else change.on.isoformat(), "of": [str(ref) for ref in change.refs],
        "sender": change.sender, "who": one.who, "source": one.source, "made_ts": one.made_ts, "announced_ts": one.announced_ts,
    }  # fmt: skip


def message_document(one: KeptMessage) -> dict[str, Any]:
    """A message, without its text."""
    return {
        "change": one.change_id, "version": one.version, "occasion": one.message.occasion, "owner": one.message.owner,
        "channel": one.message.channel, "state": one.state.value, "attempt": one.attempt, "tried_ts": one.tried_ts, "due_ts": one.due_ts,
        "problem": one.problem,
    }  # fmt: skip


def list_document(platform: Platform, *, ended: bool) -> list[dict[str, Any]]:
    """The changes that are planned or announced, the newest first, `ended` ones too, each with how many were told and have seen it."""
    states = [state for state in ChangeState if ended or state.is_open]
    counted, nobody = tally(platform.store.engine, platform.ledger.deployment), Tally()
    return [
        change_document(one) | {"title": one.change.title, **asdict(counted.get(one.change_id, nobody))}
        for one in notices(platform).changes(*states)
    ]


def plan_document(plan: Plan) -> dict[str, Any]:
    """Who would be told what of a change."""
    told = [
        {"owner": one.digest.owner, "channels": list(one.channels), "reason": one.digest.reason, "title": one.title, "body": one.body}
        for one in plan.told
    ]  # fmt: skip
    return change_document(plan.kept) | {"occasion": plan.occasion, "told": told, **beside_document(plan)}


def beside_document(plan: Plan) -> dict[str, Any]:
    """What is for the eyes of its sender: tables that nobody owns, and the sender's own."""
    return {"unowned": [hit.table for hit in plan.unowned.hits], "own": [hit.table for hit in plan.own.hits]}


def preview_document(found: Preview) -> dict[str, Any]:
    """What sending a change would do, with the texts; what stands in addresses is in none of it."""
    messages = [
        {
            "owner": one.message.owner, "channel": one.message.channel, "occasion": one.message.occasion, "reason": one.reason,
            "title": one.message.title, "body": one.message.body, "problem": one.problem or ("" if one.kept is None else one.kept.problem),
            "state": None if one.kept is None else one.kept.state.value, "due_ts": None if one.kept is None else one.kept.due_ts,
            "goes": not found.problem and one.goes(found.now_ms), "goes_again": not found.problem and one.goes_again,
        }
        for one in found.messages
    ]  # fmt: skip
    return change_document(found.kept) | {
        "title": found.kept.change.title, "mark": found.mark, "problem": found.problem, "recipients": found.recipients,
        "messages": messages, **({} if found.plan is None else beside_document(found.plan)),
    }  # fmt: skip


def story_document(platform: Platform, change_id: int) -> dict[str, Any]:
    """A change with what was done with it, what was sent to whom, and who has seen it, or was told and has not said so.

    Raises:
        NotFoundError: there is no such change.
    """
    one = notices(platform).get(change_id)
    messages, seen = outbox(platform).of(change_id), notices(platform).acknowledged(change_id, one.version)
    told = [
        each.message.owner for each in messages
        if each.version == one.version and each.state is MessageState.SENT and each.message.occasion != WITHDRAWN
    ]  # fmt: skip
    known = {ack.owner for ack in seen}
    steps = notices(platform).steps(change_id)
    return change_document(one) | {
        "title": one.change.title,
        "steps": [{name: getattr(step, name) for name in ("action", "version", "who", "reason", "ts")} for step in steps],
        "messages": [message_document(message) for message in messages],
        "acknowledged": [{name: getattr(ack, name) for name in ("owner", "who", "note", "acked_ts")} for ack in seen],
        "unseen": [owner for owner in dict.fromkeys(told) if owner not in known],
    }
