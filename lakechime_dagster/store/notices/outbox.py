"""The outbox of notices: each message is claimed by one sender, and what came of it is kept; no message is sent twice by itself."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lineage.notices.changes import ChangeState
from lakechime_dagster.lineage.notices.occasions import WITHDRAWN
from lakechime_dagster.store.dialect import insert_if_absent, now_ms
from lakechime_dagster.store.engine import reading, writing
from lakechime_dagster.store.notices import schema

LEASE_MS = 300_000  # of a claim; a message takes seconds
BACKOFF_MS = (0, 60_000, 600_000, 3_600_000, 21_600_000)  # before attempts 1 to 5
MAX_ATTEMPTS = len(BACKOFF_MS)


class MessageState(StrEnum):
    """WAITING to be sent, also again; CLAIMED by a sender; SENT; FAILED for good; UNKNOWN: its sender died, so that it may be sent or not.

    OBSOLETE ones were not sent before the change was amended, done or withdrawn.
    """

    WAITING = "waiting"
    CLAIMED = "claimed"
    SENT = "sent"
    FAILED = "failed"
    UNKNOWN = "unknown"
    OBSOLETE = "obsolete"


@dataclass(frozen=True, kw_only=True)
class Message:
    """What one recipient is to get: a channel is the name of what holds its address."""

    occasion: str
    owner: str
    channel: str
    title: str
    body: str


@dataclass(frozen=True, kw_only=True)
class KeptMessage:
    """A message of a version of a change, and how it fares; times are in milliseconds since the epoch."""

    message_id: int
    change_id: int
    version: int
    message: Message
    state: MessageState
    attempt: int
    due_ts: int
    tried_ts: int | None
    problem: str


@dataclass(frozen=True)
class Outbox:
    """The messages of one deployment, for a sender with an id of its own."""

    engine: Engine
    deployment: str

    def claim(
        self, sender: str, change_id: int | None = None, *, again: bool = False, channels: Collection[str] | None = None,
        version: int | None = None, withdrawn: bool | None = None,
    ) -> KeptMessage | None:  # fmt: skip
        """Take one message that is due, of one change or of any; None when there is none.

        `again` also takes those of which nobody knows whether they were sent, and those that failed for good: a person said so.
        `channels` are given where no person sends: only what goes through one of them, and that a change is withdrawn only if
        a person has begun to tell it. With `version` it is of that one alone; `withdrawn` says whether only that it is withdrawn is
        told, or only what else there is.
        """
        outbox = schema.notice_outbox
        with writing(self.engine) as connection:
            now = now_ms(connection)
            self._expire(connection, now)
            due = sa.and_(outbox.c.state == MessageState.WAITING.value, outbox.c.due_ts <= now)
            if again:
                due = sa.or_(outbox.c.state.in_([state.value for state in (MessageState.UNKNOWN, MessageState.FAILED)]), due)
                due = sa.and_(due, sa.or_(outbox.c.sender.is_(None), outbox.c.sender != sender))  # each once by one who says it
            which = [due, self._of_deployment(), _still_said()] + ([] if change_id is None else [outbox.c.change_id == change_id])
            if channels is not None:
                which += [outbox.c.channel.in_(sorted(channels)), sa.or_(outbox.c.attempt > 0, outbox.c.occasion != WITHDRAWN)]
            which += [] if version is None else [outbox.c.version == version]
            which += [] if withdrawn is None else [(outbox.c.occasion == WITHDRAWN) == sa.literal(withdrawn)]
            query = sa.select(outbox).where(*which).order_by(outbox.c.message_id).limit(1).with_for_update(skip_locked=True)
            row = connection.execute(query).first()
            if row is None:
                return None
            values = {"state": MessageState.CLAIMED.value, "sender": sender, "lease_until": now + LEASE_MS, "tried_ts": now}
            this = outbox.c.message_id == row.message_id
            connection.execute(sa.update(outbox).where(this).values(attempt=row.attempt + 1, **values))
            taken = connection.execute(sa.select(outbox).where(this)).one()
        return _kept(taken)

    def settle(self, sender: str, message: KeptMessage, problem: str | None) -> MessageState:
        """Keep what came of a message that this sender claimed; one that was not taken waits for another try, up to MAX_ATTEMPTS.

        One whose change says another thing by now waits no longer. A result that comes after the claim was over still counts,
        unless another one has claimed it since.
        """
        outbox = schema.notice_outbox
        with writing(self.engine) as connection:
            now = now_ms(connection)
            state = MessageState.SENT if problem is None else _after_failure(message.attempt)
            due = now if problem is None else now + BACKOFF_MS[min(message.attempt, MAX_ATTEMPTS - 1)]
            open_states = [MessageState.CLAIMED.value, MessageState.UNKNOWN.value]
            this = (outbox.c.message_id == message.message_id, outbox.c.sender == sender, outbox.c.state.in_(open_states))
            goes_on = sa.case((_still_said(), state.value), else_=MessageState.OBSOLETE.value)
            values = {"state": state.value if problem is None else goes_on, "lease_until": None, "due_ts": due, "problem": problem or ""}
            connection.execute(sa.update(outbox).where(*this).values(values))
        return state

    def of(self, change_id: int) -> list[KeptMessage]:
        """All messages of a change, first ones first; a claim that is over is told as unknown."""
        outbox = schema.notice_outbox
        with writing(self.engine) as connection:
            self._expire(connection, now_ms(connection))
        query = sa.select(outbox).where(outbox.c.change_id == change_id, self._of_deployment()).order_by(outbox.c.message_id)
        with reading(self.engine) as connection:
            return [_kept(row) for row in connection.execute(query)]

    def waiting(self, change_id: int | None = None) -> list[KeptMessage]:
        """What is still to be sent, of one change or of all, and what a person may send again; nothing is moved by it."""
        outbox = schema.notice_outbox
        states = [state.value for state in (MessageState.WAITING, MessageState.UNKNOWN, MessageState.FAILED)]
        which = [outbox.c.state.in_(states), self._of_deployment(), _still_said()]
        which += [] if change_id is None else [outbox.c.change_id == change_id]
        with reading(self.engine) as connection:
            return [_kept(row) for row in connection.execute(sa.select(outbox).where(*which).order_by(outbox.c.message_id))]

    def _expire(self, connection: Connection, now: int) -> None:
        """A claim whose time is over says that its sender died, before or after it sent: nobody knows."""
        outbox = schema.notice_outbox
        over = (outbox.c.state == MessageState.CLAIMED.value, outbox.c.lease_until <= now, self._of_deployment())
        problem = "its sender ended before it said whether this was sent"
        connection.execute(sa.update(outbox).where(*over).values(state=MessageState.UNKNOWN.value, problem=problem))

    def _of_deployment(self) -> sa.ColumnElement[bool]:
        change = schema.notice_change
        ours = sa.select(change.c.change_id).where(change.c.deployment == self.deployment)
        return schema.notice_outbox.c.change_id.in_(ours)


def _still_said() -> sa.ColumnElement[bool]:
    """Whether the change is at the version of the message and is announced, or was withdrawn and that is what the message tells."""
    change, outbox = schema.notice_change, schema.notice_outbox
    is_announced = change.c.state == ChangeState.ANNOUNCED.value
    is_withdrawn = sa.and_(change.c.state == ChangeState.WITHDRAWN.value, outbox.c.occasion == WITHDRAWN)
    this = (change.c.change_id == outbox.c.change_id, change.c.version == outbox.c.version, sa.or_(is_announced, is_withdrawn))
    return sa.exists().where(*this)


def put(connection: Connection, change_id: int, version: int, messages: Iterable[Message]) -> int:
    """Put messages into the outbox; one to the same recipient on the same occasion of the same version is there already."""
    now, added = now_ms(connection), 0
    for one in messages:
        values = {"change_id": change_id, "version": version, "occasion": one.occasion, "owner": one.owner, "channel": one.channel}
        values |= {"title": one.title, "body": one.body, "state": MessageState.WAITING.value, "attempt": 0}
        values |= {"due_ts": now, "made_ts": now, "problem": ""}
        statement = insert_if_absent(connection, schema.notice_outbox).values(values).returning(schema.notice_outbox.c.message_id)
        added += len(connection.execute(statement).all())
    return added


def put_off(connection: Connection, change_id: int) -> None:
    """Leave unsent what waits of a change, as it says something else from now on."""
    outbox = schema.notice_outbox
    this = (outbox.c.change_id == change_id, outbox.c.state == MessageState.WAITING.value)
    connection.execute(sa.update(outbox).where(*this).values(state=MessageState.OBSOLETE.value))


def _after_failure(attempt: int) -> MessageState:
    return MessageState.WAITING if attempt < MAX_ATTEMPTS else MessageState.FAILED


def _kept(row: sa.Row) -> KeptMessage:
    return KeptMessage(
        message_id=row.message_id, change_id=row.change_id, version=row.version, state=MessageState(row.state), attempt=row.attempt,
        due_ts=row.due_ts, tried_ts=row.tried_ts, problem=row.problem,
        message=Message(occasion=row.occasion, owner=row.owner, channel=row.channel, title=row.title, body=row.body),
    )  # fmt: skip
