"""From when to when what a writer recorded was the newest."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.engine import TransactionId, among, slices
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.nodes import MANY

NOBODY = 0  # the number of no writer

Moment = tuple[int, bytes]  # when a run succeeded, and the key of the run: their order is total


@dataclass(frozen=True)
class Interval:
    """From when to when something was the newest that a writer told: `start` included, `to_ms` not, None while it holds.

    `last` is the last run that told it. One without a number is not in the store yet.
    """

    writer: int
    told_id: int
    start: Moment
    last: Moment
    to_ms: int | None
    interval_id: int | None = None


class Intervals:
    """The newest intervals of some writers, which are held, while further runs of theirs are put in; written by `flush`.

    The run itself is in the store already.
    """

    def __init__(self, connection: Connection, writers: Collection[int]) -> None:
        self._connection = connection
        self._newest: dict[int, Interval] = {}
        self._changed: dict[int, Interval] = {}  # by number
        self._new: list[Interval] = []
        self._load(writers)

    def last_of(self, writer: int) -> Moment | None:
        """The newest run of a writer."""
        return self._newest[writer].last if writer in self._newest else None

    def place(self, writer: int, moment: Moment, told: int) -> None:
        """Put in one more run."""
        newest = self._newest.get(writer)
        if newest is not None and moment < newest.last:
            self.flush()
            _place(self._connection, writer, moment, told)
            self._load([writer])
            return
        if newest is not None and newest.told_id == told:
            self._keep(replace(newest, last=moment))
            return
        if newest is not None:
            self._keep(replace(newest, to_ms=moment[0]))
        self._newest[writer] = Interval(writer, told, moment, moment, None)

    def flush(self) -> None:
        """Write what was changed."""
        self._new += [one for one in self._newest.values() if one.interval_id is None]
        if self._new:
            _insert(self._connection, *self._new)
        _write(self._connection, list(self._changed.values()))
        fresh = {one.writer for one in self._new if one.to_ms is None}
        self._new, self._changed = [], {}
        self._load(fresh)

    def _keep(self, interval: Interval) -> None:
        if interval.interval_id is not None:
            self._changed[interval.interval_id] = interval
        elif interval.to_ms is not None:
            self._new.append(interval)
        self._newest[interval.writer] = interval

    def _load(self, writers: Collection[int]) -> None:
        row = schema.interval.c
        for some in slices(sorted(writers), MANY):
            query = sa.select(schema.interval).where(row.to_ms.is_(None), among(self._connection, row.writer_id, some))
            self._newest |= {one.writer_id: _interval(one) for one in self._connection.execute(query)}


def forget(connection: Connection, writer: int, moment: Moment) -> None:
    """Let the intervals of a writer be as if a run had never been, which is not in the store any more.

    One that held for that run alone ends when it began and is of no writer from then on; those who read by positions are told.
    """
    found, _ = _around(connection, writer, moment)
    if found is None:
        return
    earlier, later = _neighbours(connection, found, moment)
    if found.start == found.last:
        _update(connection, found, to_ms=moment[0])
        connection.execute(sa.update(schema.interval).where(schema.interval.c.interval_id == found.interval_id).values(writer_id=NOBODY))
        before, _ = _around(connection, writer, moment)
        if before is not None:
            _update(connection, before, to_ms=found.to_ms)
    elif moment == found.start and later is not None:
        _update(connection, found, start=later, to_ms=found.to_ms)
        before, _ = _around(connection, writer, moment)
        if before is not None:
            _update(connection, before, to_ms=later[0])
    elif moment == found.last:
        _update(connection, found, last=earlier)


def _write(connection: Connection, changed: list[Interval]) -> None:
    """Write intervals that were told again, or that ended; the latter are changes that readers of positions are told of."""
    row = schema.interval.c
    number, last_ms, last_run = (sa.bindparam(f"new_{name}") for name in ("id", "last_ms", "last_run"))
    update = sa.update(schema.interval).where(row.interval_id == number).values(last_ms=last_ms, last_run=last_run)
    seen = [{"new_id": one.interval_id, "new_last_ms": one.last[0], "new_last_run": one.last[1]} for one in changed]
    if seen:
        connection.execute(update, seen)
    ended = [{"new_id": one.interval_id, "new_to_ms": one.to_ms} for one in changed if one.to_ms is not None]
    if ended:
        ending = sa.update(schema.interval).where(row.interval_id == number)
        connection.execute(ending.values(to_ms=sa.bindparam("new_to_ms"), change=change_of(connection)), ended)


def _place(connection: Connection, writer: int, moment: Moment, told: int) -> None:
    """Let the intervals of a writer be those that follow from its runs, now that one more is among them."""
    before, after = _around(connection, writer, moment)
    if before is not None and before.told_id == told:
        if moment > before.last:
            _update(connection, before, last=moment)
        return
    if before is not None and moment < before.last:
        earlier, later = _neighbours(connection, before, moment)
        _update(connection, before, last=earlier or before.start, to_ms=moment[0])
        _insert(connection, Interval(writer, told, moment, moment, (later or before.last)[0]))
        _insert(connection, Interval(writer, before.told_id, later or before.last, before.last, before.to_ms))
        return
    if before is not None:
        _update(connection, before, last=before.last, to_ms=moment[0])
    if after is not None and after.told_id == told:
        _update(connection, after, start=moment, to_ms=after.to_ms)
    else:
        _insert(connection, Interval(writer, told, moment, moment, after.start[0] if after is not None else None))


def _around(connection: Connection, writer: int, moment: Moment) -> tuple[Interval | None, Interval | None]:
    """The interval that began last until a moment, and the one that began first after it."""
    row = schema.interval.c
    query, start = sa.select(schema.interval).where(row.writer_id == writer).limit(1), sa.tuple_(row.from_ms, row.from_run)
    before = query.where(start <= _bound(moment)).order_by(row.from_ms.desc(), row.from_run.desc())
    after = query.where(start > _bound(moment)).order_by(row.from_ms, row.from_run)
    first, second = connection.execute(before).first(), connection.execute(after).first()
    return None if first is None else _interval(first), None if second is None else _interval(second)


def _neighbours(connection: Connection, within: Interval, moment: Moment) -> tuple[Moment | None, Moment | None]:
    """The runs right before and right after a moment that told what holds in an interval around it."""
    row = schema.run.c
    told = (row.writer_id == within.writer, row.told_id == within.told_id)
    query, at = sa.select(row.at_ms, row.run_key).where(*told).limit(1), sa.tuple_(row.at_ms, row.run_key)
    earlier = connection.execute(query.where(at < _bound(moment)).order_by(row.at_ms.desc(), row.run_key.desc())).first()
    later = connection.execute(query.where(at > _bound(moment)).order_by(row.at_ms, row.run_key)).first()
    return _moment(earlier), _moment(later)


def _moment(row: sa.Row[Any] | None) -> Moment | None:
    return None if row is None else (row.at_ms, bytes(row.run_key))


def _bound(moment: Moment) -> sa.Tuple:
    return sa.tuple_(sa.literal(moment[0]), sa.literal(moment[1]))


def _interval(row: sa.Row[Any]) -> Interval:
    start, last = (row.from_ms, bytes(row.from_run)), (row.last_ms, bytes(row.last_run))
    return Interval(row.writer_id, row.told_id, start, last, row.to_ms, row.interval_id)


def _update(
    connection: Connection,
    found: Interval,
    *,
    start: Moment | None = None,
    last: Moment | None = None,
    to_ms: int | EllipsisType | None = ...,
) -> None:
    """Change an interval; what reads changes by their position is told of all but a later `last`."""
    values: dict[str, Any] = {}
    if start is not None:
        values |= {"from_ms": start[0], "from_run": start[1]}
    if last is not None:
        values |= {"last_ms": last[0], "last_run": last[1]}
    if to_ms is not ...:
        values |= {"to_ms": to_ms, "change": change_of(connection)}
    row = schema.interval.c
    connection.execute(sa.update(schema.interval).where(row.interval_id == found.interval_id).values(**values))


def _insert(connection: Connection, *new: Interval) -> None:
    change = change_of(connection)
    rows = [
        {
            "writer_id": one.writer,
            "told_id": one.told_id,
            "from_ms": one.start[0],
            "from_run": one.start[1],
            "last_ms": one.last[0],
            "last_run": one.last[1],
            "to_ms": one.to_ms,
            "change": change,
        }
        for one in new
    ]
    connection.execute(sa.insert(schema.interval), rows)


def change_of(connection: Connection) -> int:
    """The position of a change that is made now: the transaction's number, or the next one where there is one writer at a time."""
    if connection.dialect.name == "postgresql":
        return connection.execute(sa.select(TransactionId())).scalar_one()
    return (connection.execute(sa.select(sa.func.max(schema.interval.c.change))).scalar() or 0) + 1
