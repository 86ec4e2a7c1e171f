"""Governance in the store: changes, the outbox of their messages, acknowledgements, and decisions
about personal columns.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.engine import BIG, insert_if_absent, now_ms, reading, writing
from lakechime_dagster.dce.partitions import checked_text
from lakechime_dagster.dce.schema import DOCUMENT, metadata
from lakechime_dagster.errors import LakeChimeError, NotFoundError
from lakechime_dagster.governance.changes import Change, ChangeState
from lakechime_dagster.governance.tags import Decision
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.triggers.registry import By

LEASE_MS = 300_000  # of a claimed message; sending one takes seconds

change_table = sa.Table(
    "lc_notification_change",
    metadata,
    sa.Column("change_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("deployment", sa.String(64), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("change", DOCUMENT, nullable=False),
    sa.Column("drafted_by", sa.String(128), nullable=False),
    sa.Column("drafted_ts", sa.BigInteger, nullable=False),
    sa.Column("announced_by", sa.String(128)),
    sa.Column("announced_ts", sa.BigInteger),
    sa.Column("closed_by", sa.String(128)),
    sa.Column("closed_ts", sa.BigInteger),
    sa.Column("reason", sa.Text),  # of closing it
    sa.Index("lc_notification_change_by_state", "deployment", "state"),
    sqlite_autoincrement=True,
)

# A message to one recipient. Whoever claims a row sends it; one that stays claimed may have been
# sent.
message_table = sa.Table(
    "lc_notification_message",
    metadata,
    sa.Column("message_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("change_id", sa.BigInteger, nullable=False),
    sa.Column("owner", sa.String(512), nullable=False),
    # the name of the variable that holds the URL, never the URL
    sa.Column("channel", sa.String(128), nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("claimed_ts", sa.BigInteger),
    sa.Column("problem", sa.Text, nullable=False),
    sa.UniqueConstraint("change_id", "owner", "channel", name="lc_notification_message_once"),
    sqlite_autoincrement=True,
)

acknowledgement_table = sa.Table(
    "lc_notification_ack",
    metadata,
    sa.Column("change_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.String(512), primary_key=True),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("acked_ts", sa.BigInteger, nullable=False),
)


class ChangeMovedError(LakeChimeError):
    """A change is not in the state that this needs; nothing was done."""


class MessageState(StrEnum):
    """WAITING: to be sent, again where it has a `problem`. SENDING: claimed; after `LEASE_MS` it
    may have been sent, as its sender died.
    """

    WAITING = "waiting"
    SENDING = "sending"
    SENT = "sent"


@dataclass(frozen=True, kw_only=True)
class KeptChange:
    """A change as the store has it; times are in milliseconds since the epoch."""

    change_id: int
    state: ChangeState
    change: Change
    drafted_by: str
    drafted_ts: int
    announced_by: str | None
    announced_ts: int | None
    closed_by: str | None
    closed_ts: int | None
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message for one recipient: a channel is the name of what holds its address."""

    owner: str
    channel: str
    title: str
    body: str

    @property
    def to(self) -> tuple[str, str]:
        """The recipient: the owner and the channel."""
        return self.owner, self.channel


@dataclass(frozen=True, kw_only=True)
class KeptMessage(Message):
    """A message in the outbox; `claimed_ts` is the last attempt."""

    message_id: int
    change_id: int
    state: MessageState
    attempts: int
    claimed_ts: int | None
    problem: str


@dataclass(frozen=True, kw_only=True)
class Acknowledgement:
    """That somebody acknowledged a change for an owner, the first time."""

    owner: str
    who: str
    note: str
    acked_ts: int


@dataclass(frozen=True)
class Notifications:
    """The change notifications of one deployment; each method is one transaction."""

    engine: Engine
    deployment: str

    def draft(self, change: Change, who: str) -> KeptChange:
        """Keep a person's draft; nobody is notified."""
        with writing(self.engine) as connection:
            values = {
                "deployment": self.deployment,
                "state": ChangeState.DRAFT.value,
                "change": change.to_json(),
            }
            values |= {
                "drafted_by": checked_text("who", who, limit=128),
                "drafted_ts": now_ms(connection),
            }
            added = sa.insert(change_table).values(values).returning(change_table.c.change_id)
            return self._one(connection, connection.execute(added).scalar_one())

    def announce(self, known: KeptChange, messages: Iterable[Message], who: str) -> None:
        """Put messages into the outbox, each recipient once, with the move to ANNOUNCED.

        Raises:
            ChangeMovedError: it is closed.
        """
        with writing(self.engine) as connection:
            current = self._locked(connection, known.change_id)
            self._check(current, ChangeState.DRAFT, ChangeState.ANNOUNCED)
            if current.state is ChangeState.DRAFT:
                by = {
                    "announced_by": checked_text("who", who, limit=128),
                    "announced_ts": now_ms(connection),
                }
                self._update(connection, known.change_id, state=ChangeState.ANNOUNCED.value, **by)
            for one in messages:
                waiting = {
                    "change_id": known.change_id,
                    "state": MessageState.WAITING.value,
                    "attempts": 0,
                    "problem": "",
                }
                connection.execute(
                    insert_if_absent(connection, message_table).values(vars(one) | waiting)
                )

    def close(self, change_id: int, by: By) -> KeptChange:
        """End a draft or an announced change; from then on nothing of it is sent.

        Raises:
            ChangeMovedError: it is closed already.
        """
        with writing(self.engine) as connection:
            self._check(
                self._locked(connection, change_id), ChangeState.DRAFT, ChangeState.ANNOUNCED
            )
            values = {"closed_by": by.who, "reason": by.reason, "closed_ts": now_ms(connection)}
            return self._update(connection, change_id, state=ChangeState.CLOSED.value, **values)

    def acknowledge(self, change_id: int, owner: str, who: str, note: str = "") -> Acknowledgement:
        """Keep that an owner who was notified has acknowledged a change; again changes nothing.

        Raises:
            NotFoundError: there is no such change, or the owner was not notified.
        """
        checked_text("who", who, limit=128)
        checked_text("note", note, limit=1000, empty=True)
        with writing(self.engine) as connection:
            self._locked(connection, change_id)
            message = message_table.c
            sent = sa.select(message.message_id).where(
                message.change_id == change_id,
                message.owner == owner,
                message.state != MessageState.WAITING.value,
            )
            if connection.execute(sent.limit(1)).first() is None:
                raise NotFoundError(
                    f"{owner} was not notified of change {change_id}; see `lakechime notification "
                    f"show {change_id}`"
                )
            values = {
                "change_id": change_id,
                "owner": owner,
                "who": who,
                "note": note,
                "acked_ts": now_ms(connection),
            }
            connection.execute(insert_if_absent(connection, acknowledgement_table).values(values))
            return next(
                one for one in self._acknowledgements(connection, change_id) if one.owner == owner
            )

    def get(self, change_id: int) -> KeptChange:
        """The change of that number.

        Raises:
            NotFoundError: there is none in this deployment.
        """
        with reading(self.engine) as connection:
            return self._one(connection, change_id)

    def changes(self, *states: ChangeState) -> list[KeptChange]:
        """All changes, or those in some states; the newest first."""
        query = sa.select(change_table).where(change_table.c.deployment == self.deployment)
        if states:
            query = query.where(change_table.c.state.in_([state.value for state in states]))
        with reading(self.engine) as connection:
            return [
                _change(row)
                for row in connection.execute(query.order_by(change_table.c.change_id.desc()))
            ]

    def messages(self, change_id: int) -> list[KeptMessage]:
        """All messages of a change, the first one first."""
        query = (
            sa.select(message_table)
            .where(message_table.c.change_id == change_id)
            .order_by(message_table.c.message_id)
        )
        with reading(self.engine) as connection:
            return [_message(row) for row in connection.execute(query)]

    def acknowledgements(self, change_id: int) -> list[Acknowledgement]:
        """Who has acknowledged a change, by owner."""
        with reading(self.engine) as connection:
            return self._acknowledgements(connection, change_id)

    def claim(self, one: KeptMessage, *, again: bool = False) -> bool:
        """Claim a message that waits, so that nobody else sends it; `again` also claims one whose
        sender died, which may have been sent.
        """
        row = message_table.c
        with writing(self.engine) as connection:
            now = now_ms(connection)
            is_due = row.state == MessageState.WAITING.value
            if again:
                is_due = sa.or_(
                    is_due,
                    sa.and_(
                        row.state == MessageState.SENDING.value, row.claimed_ts <= now - LEASE_MS
                    ),
                )
            values = {
                "state": MessageState.SENDING.value,
                "claimed_ts": now,
                "attempts": row.attempts + 1,
            }
            this = (row.message_id == one.message_id, row.attempts == one.attempts)
            claimed = (
                sa.update(message_table)
                .where(*this, is_due)
                .values(values)
                .returning(row.message_id)
            )
            is_open = self._one(connection, one.change_id).state is ChangeState.ANNOUNCED
            return is_open and connection.execute(claimed).first() is not None

    def complete(self, one: KeptMessage, problem: str | None) -> None:
        """Keep what became of a message that was claimed; nothing where another sender has claimed
        it since.
        """
        state = MessageState.SENT if problem is None else MessageState.WAITING
        values = {"state": state.value, "problem": problem or ""}
        with writing(self.engine) as connection:
            this = (
                message_table.c.message_id == one.message_id,
                message_table.c.attempts == one.attempts + 1,
            )
            connection.execute(sa.update(message_table).where(*this).values(values))

    def _update(self, connection: Connection, change_id: int, **values: object) -> KeptChange:
        connection.execute(
            sa.update(change_table).where(change_table.c.change_id == change_id).values(values)
        )
        return self._one(connection, change_id)

    def _one(self, connection: Connection, change_id: int) -> KeptChange:
        this = (change_table.c.change_id == change_id, change_table.c.deployment == self.deployment)
        row = connection.execute(sa.select(change_table).where(*this)).first()
        if row is None:
            raise NotFoundError(
                f"there is no change {change_id}; see `lakechime notification show`"
            )
        return _change(row)

    def _locked(self, connection: Connection, change_id: int) -> KeptChange:
        this = change_table.c.change_id == change_id
        connection.execute(sa.select(change_table.c.change_id).where(this).with_for_update())
        return self._one(connection, change_id)

    def _check(self, known: KeptChange, *states: ChangeState) -> None:
        if known.state not in states:
            raise ChangeMovedError(
                f"change {known.change_id} is {known.state}; this needs one that is "
                f"{' or '.join(states)}"
            )

    def _acknowledgements(self, connection: Connection, change_id: int) -> list[Acknowledgement]:
        ack = acknowledgement_table
        query = (
            sa.select(ack.c.owner, ack.c.who, ack.c.note, ack.c.acked_ts)
            .where(ack.c.change_id == change_id)
            .order_by(ack.c.owner)
        )
        return [Acknowledgement(**row._mapping) for row in connection.execute(query)]


def _change(row: sa.Row) -> KeptChange:
    values = dict(row._mapping)
    del values["deployment"]
    return KeptChange(
        **values | {"state": ChangeState(row.state), "change": Change.from_json(row.change)}
    )


def _message(row: sa.Row) -> KeptMessage:
    values: dict[str, Any] = {**row._mapping, "state": MessageState(row.state)}
    return KeptMessage(**values)


# Of a column the newest row holds; those before it say who thought otherwise.
personal_decision = sa.Table(
    "lc_personal_decision",
    metadata,
    sa.Column("decision_id", BIG, sa.Identity(), primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),  # of the column, or a path into it
    sa.Column("category", sa.String(40)),  # null: not personal
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("decided_ts", sa.BigInteger, nullable=False),
    sqlite_autoincrement=True,
)


@dataclass(frozen=True)
class PersonalDecisions:
    """The decisions of a store, for good: of a column the newest one holds, whatever the case of
    its name.
    """

    engine: Engine

    def decide(self, ref: ColumnRef, category: str | None, by: By) -> None:
        """From now on a column holds personal data of a category, or without one none."""
        values = {
            "dataset": ref.table,
            "name": ref.column,
            "category": category,
            "who": by.who,
            "reason": by.reason,
        }
        with writing(self.engine) as connection:
            connection.execute(
                sa.insert(personal_decision).values(**values, decided_ts=now_ms(connection))
            )

    def holding(self) -> dict[ColumnRef, Decision]:
        """What holds by now, by column."""
        newest = {(one.ref.table, str(one.ref.column).lower()): one for one in self.all()}
        return {one.ref: one for one in newest.values()}

    def all(self) -> list[Decision]:
        """All that was ever decided, the first one first."""
        query = sa.select(personal_decision).order_by(personal_decision.c.decision_id)
        with reading(self.engine) as connection:
            return [
                Decision(
                    ref=ColumnRef(row.dataset, row.name),
                    category=row.category,
                    who=row.who,
                    reason=row.reason,
                    decided_ms=row.decided_ts,
                )
                for row in connection.execute(query)
            ]
