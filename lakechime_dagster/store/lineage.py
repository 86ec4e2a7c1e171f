"""Recording lineage: each run's record once, and from it since when and until when what a producer told of a target held.

What a producer's newest successful run told of a target is current. Records may come in any order and again: what holds at a time is
the same. A record that tells what the one before it told adds no edges.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.text import checked_milliseconds, checked_text, storable
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.record import LineageRecord
from lakechime_dagster.store import lineage_schema as schema
from lakechime_dagster.store.dialect import TransactionId, insert_if_absent
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.lineage_names import digest, ensured_nodes, ensured_told, ensured_writers, key_of_told, storable_statement

Moment = tuple[int, bytes]  # when a run succeeded, and the key of the run: their order is total


@dataclass(frozen=True)
class SqlLineage:
    """What runs told of their writes, in a store; of all deployments."""

    engine: Engine

    def record(self, record: LineageRecord) -> bool:
        """Keep a record; False if it was there."""
        return self.record_all([record]) == 1

    def record_all(self, records: Iterable[LineageRecord]) -> int:
        """Keep several records, all of them or none; how many were new."""
        with writing(self.engine) as connection:
            return record_all_on(connection, tuple(records))


def record_on(connection: Connection, record: LineageRecord) -> bool:
    """Keep a record in an open transaction that writes; False if it was there."""
    return record_all_on(connection, (record,)) == 1


def record_all_on(connection: Connection, records: Sequence[LineageRecord]) -> int:
    """Keep several records in an open transaction that writes; how many were new.

    Call it once in a transaction, so that two transactions that record for the same producers wait for each other and no more.

    Raises:
        InvalidValueError: for a producer, run or time that no store can hold; nothing is kept then.
    """
    records = [_storable(record) for record in records]
    targets = ensured_nodes(connection, (ColumnRef(record.target) for record in records))
    pairs = {(record.producer, record.target): targets[ColumnRef(record.target)] for record in records}
    writers = ensured_writers(connection, pairs)
    keys = {id(record): key_of_told(record.statement) for record in records}
    told = ensured_told(connection, {keys[id(record)]: record.statement for record in records})
    return sum(_is_kept(connection, writers[record.producer, record.target], record, told[keys[id(record)]]) for record in records)


def _storable(record: LineageRecord) -> LineageRecord:
    """The record with names that every store can hold; a producer, a run or a time that none can hold is refused."""
    checked_text("the namespace of a producer", record.producer.namespace)
    checked_text("the job of a producer", record.producer.job)
    checked_text("the run of a lineage record", record.run_id)
    checked_milliseconds("the time of a lineage record", record.at_ms)
    links = {storable(name): storable(link) for name, link in record.links.items()}
    return replace(record, statement=storable_statement(record.statement), owners=tuple(map(storable, record.owners)), links=links)


def _is_kept(connection: Connection, writer: int, record: LineageRecord, told: int) -> bool:
    run_key = digest(record.run_id)
    values = {
        "writer_id": writer, "run_key": run_key, "run_id": record.run_id, "at_ms": record.at_ms, "told_id": told,
        "lane": record.lane, "step": record.step, "version": record.version, "code": record.code,
    }  # fmt: skip
    if connection.execute(insert_if_absent(connection, schema.run).values(**values).returning(schema.run.c.run_key)).first() is None:
        return False
    _place(connection, writer, (record.at_ms, run_key), told)
    _note_owners(connection, writer, (record.at_ms, run_key), record)
    return True


def _place(connection: Connection, writer: int, moment: Moment, told: int) -> None:
    """Let the intervals of a writer be those that follow from its runs, now that one more is among them."""
    before, after = _around(connection, writer, moment)
    if before is not None and before.told_id == told:
        if moment > before.last:
            _update(connection, before, last=moment)
        return
    if before is not None and moment < before.last:
        earlier, later = _neighbours(connection, writer, moment)
        _update(connection, before, last=earlier or before.start, to_ms=moment[0])
        _insert(connection, _Interval(writer, told, moment, moment, (later or before.last)[0]))
        _insert(connection, _Interval(writer, before.told_id, later or before.last, before.last, before.to_ms))
        return
    if before is not None:
        _update(connection, before, last=before.last, to_ms=moment[0])
    if after is not None and after.told_id == told:
        _update(connection, after, start=moment, to_ms=after.to_ms)
    else:
        _insert(connection, _Interval(writer, told, moment, moment, after.start[0] if after is not None else None))


@dataclass(frozen=True)
class _Interval:
    writer: int
    told_id: int
    start: Moment
    last: Moment
    to_ms: int | None
    interval_id: int = 0


def _around(connection: Connection, writer: int, moment: Moment) -> tuple[_Interval | None, _Interval | None]:
    """The interval that began last until a moment, and the one that began first after it."""
    row = schema.interval.c
    query, start = sa.select(schema.interval).where(row.writer_id == writer).limit(1), sa.tuple_(row.from_ms, row.from_run)
    before = query.where(start <= _bound(moment)).order_by(row.from_ms.desc(), row.from_run.desc())
    after = query.where(start > _bound(moment)).order_by(row.from_ms, row.from_run)
    return _interval(connection.execute(before).first()), _interval(connection.execute(after).first())


def _neighbours(connection: Connection, writer: int, moment: Moment) -> tuple[Moment | None, Moment | None]:
    """The runs of a writer right before and right after a moment."""
    row = schema.run.c
    query, at = sa.select(row.at_ms, row.run_key).where(row.writer_id == writer).limit(1), sa.tuple_(row.at_ms, row.run_key)
    earlier = connection.execute(query.where(at < _bound(moment)).order_by(row.at_ms.desc(), row.run_key.desc())).first()
    later = connection.execute(query.where(at > _bound(moment)).order_by(row.at_ms, row.run_key)).first()
    return _moment(earlier), _moment(later)


def _moment(row: sa.Row[Any] | None) -> Moment | None:
    return None if row is None else (row.at_ms, bytes(row.run_key))


def _bound(moment: Moment) -> sa.Tuple:
    return sa.tuple_(sa.literal(moment[0]), sa.literal(moment[1]))


def _interval(row: sa.Row[Any] | None) -> _Interval | None:
    if row is None:
        return None
    start, last = (row.from_ms, bytes(row.from_run)), (row.last_ms, bytes(row.last_run))
    return _Interval(row.writer_id, row.told_id, start, last, row.to_ms, row.interval_id)


def _update(
    connection: Connection,
    found: _Interval,
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


def _insert(connection: Connection, new: _Interval) -> None:
    values = {
        "writer_id": new.writer, "told_id": new.told_id, "from_ms": new.start[0], "from_run": new.start[1], "last_ms": new.last[0],
        "last_run": new.last[1], "to_ms": new.to_ms, "change": change_of(connection),
    }  # fmt: skip
    connection.execute(sa.insert(schema.interval).values(**values))


def change_of(connection: Connection) -> int:
    """The position of a change that is made now: the transaction's number, or the next one where there is one writer at a time."""
    if connection.dialect.name == "postgresql":
        return connection.execute(sa.select(TransactionId())).scalar_one()
    return (connection.execute(sa.select(sa.func.max(schema.interval.c.change))).scalar() or 0) + 1


def _note_owners(connection: Connection, writer: int, moment: Moment, record: LineageRecord) -> None:
    """Keep owners and links of a writer's newest run."""
    run, row = schema.run.c, schema.writer.c
    is_later = sa.tuple_(run.at_ms, run.run_key) > _bound(moment)
    if connection.execute(sa.select(1).where(run.writer_id == writer, is_later).limit(1)).first():
        return
    values = {"owners": list(record.owners), "links": record.links}
    held = connection.execute(sa.select(row.owners, row.links).where(row.writer_id == writer)).one()
    if held._asdict() != values:
        connection.execute(sa.update(schema.writer).where(row.writer_id == writer).values(**values))
