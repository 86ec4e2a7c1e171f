"""Changes that people are told of, in the store: drafted, announced, done or withdrawn, and who acknowledged them."""

from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.text import checked_text
from lakechime_dagster.errors import LakeChimeError, NotFoundError
from lakechime_dagster.lineage.notices.changes import Change, ChangeState
from lakechime_dagster.lineage.notices.drafts import Again, Drafting, drafting_of, source_key
from lakechime_dagster.store.dialect import insert_if_absent, now_ms
from lakechime_dagster.store.engine import reading, writing
from lakechime_dagster.store.interventions import By
from lakechime_dagster.store.notices import schema
from lakechime_dagster.store.notices.outbox import Message, put, put_off


class ChangeMovedError(LakeChimeError):
    """A change is not in the state, or not at the version, that this needs; nothing was done."""


class NoticeAction(StrEnum):
    """What was done with a change."""

    DRAFTED = "drafted"
    AMENDED = "amended"
    ANNOUNCED = "announced"
    WITHDRAWN = "withdrawn"
    DONE = "done"


@dataclass(frozen=True, kw_only=True)
class KeptChange:
    """A change as the store has it; `source` is what drafted it by itself, None a person; times are in milliseconds since the epoch."""

    change_id: int
    version: int
    state: ChangeState
    change: Change
    who: str
    made_ts: int
    source: str | None = None
    announced_ts: int | None = None


@dataclass(frozen=True, kw_only=True)
class Drafted:
    """What became of a draft that came by itself, and the change of its source as it is now."""

    kept: KeptChange
    outcome: Drafting


@dataclass(frozen=True, kw_only=True)
class NoticeStep:
    """One thing that was done with a change; `change` is what it said from then on, where this made a version."""

    action: NoticeAction
    version: int
    who: str
    reason: str
    ts: int
    change: Change | None = None


@dataclass(frozen=True, kw_only=True)
class Acknowledged:
    """That somebody has acknowledged a version for an owner, the first time."""

    version: int
    owner: str
    who: str
    note: str
    acked_ts: int


@dataclass(frozen=True)
class Notices:
    """The changes of one deployment; every move is one transaction that also keeps who did it."""

    engine: Engine
    deployment: str

    def draft(self, change: Change, who: str) -> KeptChange:
        """Keep the draft of a person, that nobody is told of."""
        checked_text("who", who, limit=128)
        with writing(self.engine) as connection:
            change_id = self._added(connection, change, who, None)
            assert change_id is not None  # as only a source can be there already
            return self._one(connection, change_id)

    def draft_of(self, source: str, change: Change, who: str, *, again: Again = Again.NEVER) -> Drafted:
        """Keep a draft that comes by itself; from one `source` there is one that is open, of however many at once.

        Told in other words it becomes its next version, unless a person has amended or announced it: then it stays as it is. One
        that is done or withdrawn stays so, and whether there is another one after it `again` says.
        """
        checked_text("who", who, limit=128)
        with writing(self.engine) as connection:
            return self._drafted(connection, source, 1, change, who, again)

    def amend(self, change_id: int, change: Change, who: str) -> KeptChange:
        """Say another thing of an open change: its next version, which is a draft again; nothing if it says the same.

        Raises:
            ChangeMovedError: it is done or withdrawn.
        """
        with writing(self.engine) as connection:
            return self._amended(connection, self._locked(connection, change_id), change, checked_text("who", who, limit=128), "")

    def announce(self, known: KeptChange, messages: Iterable[Message], who: str) -> int:
        """Put what is to be sent into the outbox, with the move to ANNOUNCED; returns how many messages are new.

        Whoever announces the same version again adds only what nobody has put there yet.

        Raises:
            ChangeMovedError: it is at another version, done or withdrawn.
        """
        with writing(self.engine) as connection:
            current = self._locked(connection, known.change_id)
            if current.version != known.version or not current.state.is_open:
                raise ChangeMovedError(f"{_named(current)} is {current.state} at version {current.version} by now; look at it again")
            if current.state is ChangeState.PLANNED:
                self._move(connection, current, NoticeAction.ANNOUNCED, who, "", announced_ts=now_ms(connection))
            return put(connection, current.change_id, current.version, messages)

    def withdraw(self, change_id: int, by: By, messages: Iterable[Message] = ()) -> KeptChange:
        """Take an open change back; what was not sent yet is not sent, and `messages` tell whoever was told.

        Raises:
            ChangeMovedError: it is done or withdrawn.
        """
        return self._end(change_id, NoticeAction.WITHDRAWN, by, messages)

    def done(self, change_id: int, by: By) -> KeptChange:
        """Say that an announced change has come.

        Raises:
            ChangeMovedError: nobody was told of it yet, or it is done or withdrawn.
        """
        return self._end(change_id, NoticeAction.DONE, by, ())

    def acknowledge(self, change_id: int, owner: str, who: str, note: str = "", *, version: int | None = None) -> Acknowledged:
        """Keep that an owner has seen a version, the newest unless given; again changes nothing.

        Raises:
            NotFoundError: there is no such change, or the owner was not told of that version.
        """
        checked_text("who", who, limit=128)
        checked_text("note", note, limit=1000, empty=True)
        with writing(self.engine) as connection:
            known = self._locked(connection, change_id)
            version = known.version if version is None else version
            told = sa.select(schema.notice_outbox.c.message_id).where(
                schema.notice_outbox.c.change_id == change_id,
                schema.notice_outbox.c.version == version,
                schema.notice_outbox.c.owner == owner,
            )
            if connection.execute(told.limit(1)).first() is None:
                raise NotFoundError(
                    f"{owner} was not told of version {version} of change {change_id}; `lakechime notice show` says who was"
                )
            values = {"change_id": change_id, "version": version, "owner": owner, "who": who, "note": note, "acked_ts": now_ms(connection)}
            connection.execute(insert_if_absent(connection, schema.notice_ack).values(values))
            return next(one for one in self._acknowledged(connection, change_id, version) if one.owner == owner)

    def get(self, change_id: int) -> KeptChange:
        """The change of that number.

        Raises:
            NotFoundError: there is none in this deployment.
        """
        with reading(self.engine) as connection:
            return self._one(connection, change_id)

    def changes(self, *states: ChangeState) -> list[KeptChange]:
        """All changes, or those in some states; the newest first."""
        change = schema.notice_change
        query = sa.select(change).where(change.c.deployment == self.deployment)
        if states:
            query = query.where(change.c.state.in_([state.value for state in states]))
        with reading(self.engine) as connection:
            return [_kept(row) for row in connection.execute(query.order_by(change.c.change_id.desc()))]

    def steps(self, change_id: int) -> list[NoticeStep]:
        """What was done with a change, first things first."""
        step = schema.notice_step
        query = sa.select(step).where(step.c.change_id == change_id).order_by(step.c.step_id)
        with reading(self.engine) as connection:
            return [_step(row) for row in connection.execute(query)]

    def acknowledged(self, change_id: int, version: int) -> list[Acknowledged]:
        """Who has acknowledged a version, by owner."""
        with reading(self.engine) as connection:
            return self._acknowledged(connection, change_id, version)

    def _drafted(self, connection: Connection, source: str, number: int, change: Change, who: str, again: Again) -> Drafted:
        """What becomes of a draft of a source that had so many changes, but one, which are over."""
        key = source_key(source, number)
        change_id = self._added(connection, change, who, key)
        if change_id is not None:
            return Drafted(kept=self._one(connection, change_id), outcome=Drafting.DRAFTED)
        this = (schema.notice_change.c.deployment == self.deployment, schema.notice_change.c.source == key)
        known = self._locked(connection, connection.execute(sa.select(schema.notice_change.c.change_id).where(*this)).scalar_one())
        told = self._told(connection, known.change_id)
        says_same = next((step.change for step in told if step.reason == key), None) == change
        match drafting_of(known.state, is_own=told[0].reason == key, says_same=says_same, again=again):
            case Drafting.DRAFTED:
                return self._drafted(connection, source, number + 1, change, who, again)
            case Drafting.RENEWED as outcome:
                return Drafted(kept=self._amended(connection, known, change, who, key), outcome=outcome)
            case outcome:
                return Drafted(kept=known, outcome=outcome)

    def _added(self, connection: Connection, change: Change, who: str, key: str | None) -> int | None:
        """The number of a new change; None if its source has one."""
        values = {"deployment": self.deployment, "source": key, "version": 1, "state": ChangeState.PLANNED.value}
        values |= {"change": change.to_json(), "who": who, "made_ts": now_ms(connection)}
        added = insert_if_absent(connection, schema.notice_change).values(values).returning(schema.notice_change.c.change_id)
        change_id: int | None = connection.execute(added).scalar_one_or_none()
        if change_id is not None:
            _record(connection, change_id, 1, NoticeAction.DRAFTED, who, key or "", change)
        return change_id

    def _told(self, connection: Connection, change_id: int) -> list[NoticeStep]:
        """The steps that made a version, the newest first; those of a source have its key as the reason."""
        step = schema.notice_step
        query = sa.select(step).where(step.c.change_id == change_id, step.c.change.is_not(None)).order_by(step.c.step_id.desc())
        return [_step(row) for row in connection.execute(query)]

    def _amended(self, connection: Connection, known: KeptChange, change: Change, who: str, reason: str) -> KeptChange:
        _check_open(known)
        if known.change == change:
            return known
        version = known.version + 1
        values = {"version": version, "state": ChangeState.PLANNED.value, "change": change.to_json(), "announced_ts": None}
        this = schema.notice_change.c.change_id == known.change_id
        connection.execute(sa.update(schema.notice_change).where(this).values(values))
        put_off(connection, known.change_id)
        _record(connection, known.change_id, version, NoticeAction.AMENDED, who, reason, change)
        return self._one(connection, known.change_id)

    def _end(self, change_id: int, action: NoticeAction, by: By, messages: Iterable[Message]) -> KeptChange:
        with writing(self.engine) as connection:
            known = self._locked(connection, change_id)
            _check_open(known)
            if action is NoticeAction.DONE and known.state is ChangeState.PLANNED:
                raise ChangeMovedError(f"nobody was told of {_named(known)} yet; send it, or withdraw it")
            put_off(connection, change_id)
            put(connection, change_id, known.version, messages)
            self._move(connection, known, action, by.who, by.reason)
            return self._one(connection, change_id)

    def _move(self, connection: Connection, known: KeptChange, action: NoticeAction, who: str, reason: str, **values: int) -> None:
        this = schema.notice_change.c.change_id == known.change_id
        connection.execute(sa.update(schema.notice_change).where(this).values(state=ChangeState(action.value).value, **values))
        _record(connection, known.change_id, known.version, action, who, reason, None)

    def _one(self, connection: Connection, change_id: int) -> KeptChange:
        this = (schema.notice_change.c.change_id == change_id, schema.notice_change.c.deployment == self.deployment)
        row = connection.execute(sa.select(schema.notice_change).where(*this)).first()
        if row is None:
            raise NotFoundError(f"there is no change {change_id}; see `lakechime notice list`")
        return _kept(row)

    def _locked(self, connection: Connection, change_id: int) -> KeptChange:
        this = schema.notice_change.c.change_id == change_id
        connection.execute(sa.select(schema.notice_change.c.change_id).where(this).with_for_update())
        return self._one(connection, change_id)

    def _acknowledged(self, connection: Connection, change_id: int, version: int) -> list[Acknowledged]:
        ack = schema.notice_ack
        query = sa.select(ack).where(ack.c.change_id == change_id, ack.c.version == version).order_by(ack.c.owner)
        return [
            Acknowledged(version=row.version, owner=row.owner, who=row.who, note=row.note, acked_ts=row.acked_ts)
            for row in connection.execute(query)
        ]


def _kept(row: sa.Row) -> KeptChange:
    return KeptChange(
        change_id=row.change_id, version=row.version, state=ChangeState(row.state), change=Change.from_json(row.change), who=row.who,
        made_ts=row.made_ts, source=row.source, announced_ts=row.announced_ts,
    )  # fmt: skip


def _step(row: sa.Row) -> NoticeStep:
    return NoticeStep(
        action=NoticeAction(row.action), version=row.version, who=row.who, reason=row.reason, ts=row.ts,
        change=None if row.change is None else Change.from_json(row.change),
    )  # fmt: skip


def _record(
    connection: Connection, change_id: int, version: int, action: NoticeAction, who: str, reason: str, change: Change | None
) -> None:  # fmt: skip
    values = {"change_id": change_id, "version": version, "action": action.value, "who": who, "reason": reason}
    values |= {"change": sa.null() if change is None else change.to_json(), "ts": now_ms(connection)}
    connection.execute(sa.insert(schema.notice_step).values(values))


def _check_open(known: KeptChange) -> None:
    if not known.state.is_open:
        raise ChangeMovedError(f"{_named(known)} is {known.state} already; draft another one")


def _named(known: KeptChange) -> str:
    return f"change {known.change_id} ({known.change.title})"
