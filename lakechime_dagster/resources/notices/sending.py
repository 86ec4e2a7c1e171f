"""Notices of a deployment: what a change reaches, who would be told what, and telling them."""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lake import Lake
from lakechime_dagster.lineage.notices.acknowledging import Acknowledgement, signed
from lakechime_dagster.lineage.notices.changes import ChangeState
from lakechime_dagster.lineage.notices.channels import Channels, NoAddressError, address_of, channels_of
from lakechime_dagster.lineage.notices.digest_text import text_of, title_of
from lakechime_dagster.lineage.notices.digests import Digest, Hit, digests_of
from lakechime_dagster.lineage.notices.occasions import ANNOUNCED, WITHDRAWN, due_reminder
from lakechime_dagster.resources.notices.hits import hits_of
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.telling import NotSentError, tell
from lakechime_dagster.settings import Settings
from lakechime_dagster.store.interventions import By
from lakechime_dagster.store.notices.changes import KeptChange, Notices
from lakechime_dagster.store.notices.outbox import KeptMessage, Message, MessageState, Outbox
from lakechime_dagster.triggers.grid import from_milliseconds

LINK_MS = 60 * 86_400_000  # so long a link to acknowledge by is good
ACKNOWLEDGE = "/notice/acknowledge?token="
DEAD = (MessageState.OBSOLETE, MessageState.FAILED)


@dataclass(frozen=True, kw_only=True)
class Told:
    """What one owner is to be told, and through which channels; without one nobody tells."""

    digest: Digest
    channels: tuple[str, ...]
    title: str
    body: str

    def messages(self, occasion: str) -> list[Message]:
        return [
            Message(occasion=occasion, owner=self.digest.owner, channel=channel, title=self.title, body=self.body)
            for channel in self.channels
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Who would be told what of a change; `unowned` and `own` are for the eyes of its sender."""

    kept: KeptChange
    occasion: str
    told: tuple[Told, ...]
    unowned: Digest
    own: Digest

    @property
    def unreached(self) -> list[Digest]:
        """Whom nobody can tell, as no channel is known."""
        return [one.digest for one in self.told if not one.channels]

    @property
    def messages(self) -> list[Message]:
        return [message for one in self.told for message in one.messages(self.occasion)]


def notices(platform: Platform) -> Notices:
    """The changes of this deployment that people are told of."""
    return Notices(platform.store.engine, platform.ledger.deployment)


def outbox(platform: Platform) -> Outbox:
    """The messages of this deployment."""
    return Outbox(platform.store.engine, platform.ledger.deployment)


def plan_of(kept: KeptChange, hits: Iterable[Hit], channels: Channels, who: str, now_ms: int, occasion: str = ANNOUNCED) -> Plan:
    """Who would be told what on this occasion. What nobody owns is told to the sender, if a channel of that one is known."""
    found = digests_of(kept.change, hits, now_ms)
    several = [*found.digests, *([found.unowned] if found.unowned.owner and not found.unowned.is_empty else [])]
    title = title_of(kept.change, occasion)
    told = [
        Told(digest=one, channels=channels.of(one.owner), title=title, body=text_of(kept.change, one, occasion, who)) for one in several
    ]
    return Plan(kept=kept, occasion=occasion, told=tuple(told), unowned=found.unowned, own=found.own)


def plan(platform: Platform, lake: Lake, kept: KeptChange, who: str) -> Plan:
    """What sending a change would tell now."""
    channels = channels_of(platform.settings.notice_urls)
    return plan_of(kept, hits_of(platform, lake, kept.change.refs), channels, who, platform.store.now())


def reminders(platform: Platform, lake: Lake, kept: KeptChange, who: str) -> Plan | None:
    """What is to be told again of an announced change, to those who have not acknowledged; None where nothing is due."""
    now = platform.store.now()
    occasion = reminder_due(kept, now)
    if occasion is None:
        return None
    channels = channels_of(platform.settings.notice_urls)
    whole = plan_of(kept, hits_of(platform, lake, kept.change.refs), channels, who, now, occasion)
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


def send(platform: Platform, environment: Mapping[str, str], change_id: int | None = None, *, again: bool = False) -> list[KeptMessage]:
    """Send all that is due, of one change or of any; what each came to. `again` also sends what nobody knows to have been sent."""
    sender, box = uuid.uuid4().hex, outbox(platform)
    return _sent(platform, environment, sender, partial(box.claim, sender, change_id, again=again))


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


def acknowledge_by(platform: Platform, one: KeptMessage) -> str:
    """How the owner says that it was seen: by a link where one can be made, else by the command."""
    link = link_of(platform.settings, platform.ledger.deployment, one, platform.store.now())
    if link:
        return f"Say that you have seen this: {link}"
    return f"Say that you have seen this: lakechime notice ack {one.change_id} --owner '{one.message.owner}'"


def link_of(settings: Settings, deployment: str, one: KeptMessage, now_ms: int) -> str:
    """The link by which an owner acknowledges; empty where the API has no address for people, or there is no key to sign it with."""
    if not settings.notice_page or not settings.notice_key:
        return ""
    what = Acknowledgement(
        deployment=deployment, change_id=one.change_id, version=one.version, owner=one.message.owner, until_ms=now_ms + LINK_MS
    )
    return settings.notice_page.rstrip("/") + ACKNOWLEDGE + signed(what, settings.notice_key)


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
        signed(Acknowledgement(deployment="", change_id=0, version=0, owner="", until_ms=0), settings.notice_key)
    return channels
