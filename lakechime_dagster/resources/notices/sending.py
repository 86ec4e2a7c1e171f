"""Notices of a deployment: the changes and their messages, and telling people of them."""

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage.notices.acknowledging import checked_key
from lakechime_dagster.lineage.notices.changes import ChangeState
from lakechime_dagster.lineage.notices.channels import Channels, NoAddressError, address_of, channels_of
from lakechime_dagster.lineage.notices.digest_text import text_of, title_of
from lakechime_dagster.lineage.notices.digests import Digest
from lakechime_dagster.lineage.notices.occasions import WITHDRAWN, due_reminder
from lakechime_dagster.resources.lineage.asked import AskedLineage
from lakechime_dagster.resources.notices.hits import hits_of
from lakechime_dagster.resources.notices.links import acknowledge_by
from lakechime_dagster.resources.notices.planning import Plan, plan, plan_of
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.telling import NotSentError, tell
from lakechime_dagster.settings import Settings
from lakechime_dagster.store.interventions import By
from lakechime_dagster.store.notices.changes import KeptChange, Notices
from lakechime_dagster.store.notices.outbox import KeptMessage, Message, MessageState, Outbox
from lakechime_dagster.triggers.grid import from_milliseconds

DEAD = (MessageState.OBSOLETE, MessageState.FAILED)


def notices(platform: Platform) -> Notices:
    """The changes of this deployment that people are told of."""
    return Notices(platform.store.engine, platform.ledger.deployment)


def outbox(platform: Platform) -> Outbox:
    """The messages of this deployment."""
    return Outbox(platform.store.engine, platform.ledger.deployment)


def plans_of(asked: AskedLineage, change_id: int | None, who: str) -> list[Plan]:
    """What is to be put into the outbox: of a change that was asked for, or the reminders of all; of one that has ended nothing.

    Raises:
        NotFoundError: there is no such change.
    """
    several = notices(asked.platform)
    if change_id is None:
        announced = several.changes(ChangeState.ANNOUNCED)
        return [due for one in reversed(announced) if (due := reminders(asked, one, who)) is not None]
    kept = several.get(change_id)
    return [plan(asked, kept, who)] if kept.state.is_open else []


def reminders(asked: AskedLineage, kept: KeptChange, who: str) -> Plan | None:
    """What is to be told again of an announced change, to those who have not acknowledged; None where nothing is due."""
    platform = asked.platform
    now = platform.store.now()
    occasion = reminder_due(kept, now)
    if occasion is None:
        return None
    channels = channels_of(platform.settings.notice_urls)
    whole = plan_of(kept, hits_of(asked, kept.change.refs), channels, who, now, occasion)
    seen = {one.owner for one in notices(platform).acknowledged(kept.change_id, kept.version)}
    known = {(one.message.owner, one.message.channel) for one in outbox(platform).of(kept.change_id) if one.message.occasion == occasion}
    left = [
        one for one in whole.told
        if one.digest.owner not in seen and any((one.digest.owner, channel) not in known for channel in one.channels)
    ]  # fmt: skip
    return Plan(kept=kept, occasion=occasion, told=tuple(left), unowned=whole.unowned, own=whole.own) if left else None


def reminder_due(kept: KeptChange, now_ms: int) -> str | None:
    """The occasion of a reminder that is due of an announced change."""
    if kept.state is not ChangeState.ANNOUNCED or kept.announced_ts is None:
        return None
    return due_reminder(kept.change, from_milliseconds(kept.announced_ts), from_milliseconds(now_ms))


def withdraw(platform: Platform, change_id: int, by: By) -> tuple[KeptChange, int]:
    """Take a change back; the messages, of which the number is told too, say so to whoever was told, or may have been."""
    known = notices(platform).get(change_id)
    title, body = title_of(known.change, WITHDRAWN), text_of(known.change, Digest(owner=""), WITHDRAWN, by.who)
    sent = [one for one in outbox(platform).of(change_id) if one.attempt and one.state not in DEAD]
    recipients = dict.fromkeys((one.message.owner, one.message.channel) for one in sent)
    messages = [Message(occasion=WITHDRAWN, owner=owner, channel=channel, title=title, body=body) for owner, channel in recipients]
    return notices(platform).withdraw(change_id, by, messages), len(messages)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of sending: the messages that this sender tried, and whom nobody could tell, as no channel is known."""

    tried: tuple[KeptMessage, ...]
    unreached: tuple[Digest, ...]

    @property
    def failed(self) -> list[KeptMessage]:
        """What was not taken."""
        return [one for one in self.tried if one.state is not MessageState.SENT]


def carry_out(
    platform: Platform, environment: Mapping[str, str], plans: Collection[Plan], by: By, change_id: int | None = None,
    *, again: bool = False, seen: KeptChange | None = None,
) -> Outcome:  # fmt: skip
    """Tell people: put what plans say into the outbox, and send what is due, of one change or of any.

    `again` also sends what failed for good, and what nobody knows to have been sent. `seen` is the change as the person
    has seen it: of what it became meanwhile nothing is sent.

    Raises:
        ChangeMovedError: a change of a plan is at another version, done or withdrawn by now.
        LakeChimeError: nothing can be sent at all, so that nothing was announced either.
    """
    check_sending(platform.settings)
    for one in plans:
        notices(platform).announce(one.kept, one.messages, by.who)
    sender, box = uuid.uuid4().hex, outbox(platform)
    version = None if seen is None else seen.version
    withdrawn = None if seen is None else seen.state is ChangeState.WITHDRAWN
    claim = partial(box.claim, sender, change_id, again=again, version=version, withdrawn=withdrawn)
    tried = _sent(platform, environment, sender, claim)
    return Outcome(tried=tuple(tried), unreached=tuple(digest for one in plans for digest in one.unreached))


def send_on(platform: Platform, environment: Mapping[str, str], channels: Collection[str], most: int) -> list[KeptMessage]:
    """Send of what people announced what is due through these channels, so many at most: what was not taken before, and reminders."""
    sender, box = uuid.uuid4().hex, outbox(platform)
    left = iter(range(most))
    return _sent(platform, environment, sender, lambda: None if next(left, None) is None else box.claim(sender, channels=channels))


def _sent(
    platform: Platform, environment: Mapping[str, str], sender: str, claim: Callable[[], KeptMessage | None]
) -> list[KeptMessage]:  # fmt: skip
    box, tried = outbox(platform), list[KeptMessage]()
    while (one := claim()) is not None:
        box.settle(sender, one, _problem(platform, one, environment))
        tried.append(one)
    ids = {one.message_id for one in tried}
    of_changes = dict.fromkeys(one.change_id for one in tried)
    return [one for number in of_changes for one in box.of(number) if one.message_id in ids]


def _problem(platform: Platform, one: KeptMessage, environment: Mapping[str, str]) -> str | None:
    """Why a message was not taken; None if it was."""
    try:
        body = f"{one.message.body}\n\n{acknowledge_by(platform, one)}" if one.message.occasion != WITHDRAWN else one.message.body
        tell(address_of(one.message.channel, one.message.owner, environment), one.message.title, body, one_alone=True)
    except (NoAddressError, NotSentError) as error:
        return f"{one.message.channel}: {error}"
    return None


def check_sending(settings: Settings) -> Channels:
    """The channels, if something can be sent at all; the key is looked at before anything is sent.

    Raises:
        LakeChimeError: no channel is known, or the key is none.
    """
    channels = channels_of(settings.notice_urls)
    if not channels.by_owner:
        raise LakeChimeError(
            """no channel is known: set LAKECHIME_NOTICE_URLS such as '{"team:ops": "$OPS_SLACK"}', and OPS_SLACK to a URL of apprise"""
        )
    if settings.notice_key:
        checked_key(settings.notice_key)
    return channels
