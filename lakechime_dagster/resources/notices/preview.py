"""What sending a change would do now, for a person to look at first: whom it tells what and why, and what cannot be sent and why not.

Nothing is told by looking. What was looked at has a mark, so that nothing else is sent by whoever looked.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage.notices.channels import SETTING, Channels, NoAddressError, address_of
from lakechime_dagster.lineage.notices.digest_text import text_of
from lakechime_dagster.lineage.notices.occasions import WITHDRAWN, is_reminder
from lakechime_dagster.resources.lineage.asked import AskedLineage
from lakechime_dagster.resources.notices.planning import Plan, plan
from lakechime_dagster.resources.notices.sending import Outcome, carry_out, check_sending, notices, outbox
from lakechime_dagster.resources.telling import problems_of
from lakechime_dagster.settings import Settings
from lakechime_dagster.store.interventions import By
from lakechime_dagster.store.notices.changes import ChangeMovedError, KeptChange
from lakechime_dagster.store.notices.outbox import KeptMessage, Message, MessageState

LEFT = (MessageState.WAITING, MessageState.CLAIMED, MessageState.UNKNOWN, MessageState.FAILED)
AGAIN = (MessageState.UNKNOWN, MessageState.FAILED)


@dataclass(frozen=True, kw_only=True)
class Previewed:
    """What one recipient gets: `kept` is how that fares if it is in the outbox already, `problem` why nothing can be sent through it now.

    Where nobody can be told, as no channel is known, the channel is empty.
    """

    message: Message
    reason: str
    problem: str
    kept: KeptMessage | None = None

    def goes(self, now_ms: int) -> bool:
        """Whether sending now sends it."""
        is_due = self.kept is None or (self.kept.state is MessageState.WAITING and self.kept.due_ts <= now_ms)
        return is_due and not self.problem

    @property
    def goes_again(self) -> bool:
        """Whether it is sent only if a person says that it is sent again."""
        return self.kept is not None and self.kept.state in AGAIN and not self.problem


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What is shown: `plan` is None of a change that has ended, `problem` says why nothing at all can be sent; `mark` is of all of it."""

    kept: KeptChange
    plan: Plan | None
    messages: tuple[Previewed, ...]
    problem: str
    now_ms: int

    @property
    def recipients(self) -> int:
        """How many messages sending now would send."""
        return 0 if self.problem else sum(one.goes(self.now_ms) for one in self.messages)

    @property
    def mark(self) -> str:
        """It is another one where another one is told, or another thing; whoever sends it, and whatever was sent of it already."""
        told = () if self.plan is None else self.plan.told
        texts = [(one.digest.owner, one.channels, text_of(self.kept.change, one.digest, "", "")) for one in told]
        state = "open" if self.kept.state.is_open else self.kept.state.value
        return sha256(json.dumps([self.kept.change_id, self.kept.version, state, texts]).encode()).hexdigest()[:32]


def preview(asked: AskedLineage, environment: Mapping[str, str], change_id: int, who: str) -> Preview:
    """What sending a change would do, if this process did it with its environment.

    Raises:
        NotFoundError: there is no such change.
    """
    kept = notices(asked.platform).get(change_id)
    channels, problem = _channels(asked.platform.settings)
    planned = plan(asked, kept, who, channels) if kept.state.is_open else None
    known = [one for one in outbox(asked.platform).of(change_id) if one.version == kept.version]
    shown = [*([] if planned is None else _planned(planned, known)), *_beside(known, planned)]
    problems = unsendable([message for message, _, _ in shown], environment)
    messages = tuple(
        Previewed(message=message, reason=reason, kept=one, problem=problems.get((message.owner, message.channel), ""))
        for message, reason, one in shown
    )
    return Preview(kept=kept, plan=planned, messages=messages, problem=problem, now_ms=asked.platform.store.now())


def send_previewed(
    asked: AskedLineage, environment: Mapping[str, str], change_id: int, by: By, *, version: int, mark: str, again: bool = False
) -> Outcome:  # fmt: skip
    """Send what a person has looked at, as a preview marked it, and nothing else.

    Raises:
        ChangeMovedError: it is at another version, or has ended, or others would be told, or another thing.
        LakeChimeError: nothing can be sent at all.
    """
    now = preview(asked, environment, change_id, by.who)
    if now.kept.version != version:
        by_now = f"{now.kept.state} at version {now.kept.version} by now"
        raise ChangeMovedError(f"change {change_id} was amended: it is {by_now}; look at it again")
    if now.problem:
        raise LakeChimeError(now.problem)
    if now.mark != mark:
        moved = "whom it concerns, or what of theirs, is another by now" if now.kept.state.is_open else f"it is {now.kept.state} by now"
        raise ChangeMovedError(f"change {change_id} is not what was looked at: {moved}; look at it again")
    plans = [] if now.plan is None else [now.plan]
    return carry_out(asked.platform, environment, plans, by, change_id, again=again, seen=now.kept)


def _channels(settings: Settings) -> tuple[Channels, str]:
    """The channels, or why nothing can be sent at all."""
    try:
        return check_sending(settings), ""
    except LakeChimeError as error:
        return Channels(), str(error)


Shown = tuple[Message, str, KeptMessage | None]


def _planned(planned: Plan, known: Collection[KeptMessage]) -> Iterable[Shown]:
    """What is planned, each as it is in the outbox if it is there."""
    there = {_key(one.message): one for one in known}
    for one in planned.told:
        messages = one.messages(planned.occasion)
        nobody = Message(occasion=planned.occasion, owner=one.digest.owner, channel="", title=one.title, body=one.body)
        for message in messages or [nobody]:
            kept = there.get(_key(message))
            yield (message if kept is None else kept.message), one.digest.reason, kept


def _beside(known: Iterable[KeptMessage], planned: Plan | None) -> Iterable[Shown]:
    """What else is left in the outbox: that a change is withdrawn, reminders, and messages to whom it concerns no more."""
    own = {_key(message) for message in planned.messages} if planned is not None else set()
    for one in known:
        if one.state in LEFT and _key(one.message) not in own and (one.message.occasion == WITHDRAWN) == (planned is None):
            of = one.message.occasion
            yield one.message, "was told of it" if of == WITHDRAWN else of if is_reminder(of) else "was to be told of it before", one


def unsendable(messages: Iterable[Message], environment: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """By owner and channel why nothing can be sent, as far as that is known without sending; nothing of a URL is in it."""
    found: dict[tuple[str, str], str] = {}
    urls: dict[tuple[str, str], str] = {}
    for one in messages:
        way = one.owner, one.channel
        if not one.channel:
            found[way] = f"{SETTING} has no channel for {one.owner}"
            continue
        try:
            urls[way] = address_of(one.channel, one.owner, environment)
        except NoAddressError as error:
            found[way] = str(error)
    wrong = problems_of(set(urls.values()))
    return found | {way: f"{way[1]}: {wrong[url]}" for way, url in urls.items() if url in wrong}


def _key(message: Message) -> tuple[str, str, str]:
    return message.occasion, message.owner, message.channel
