"""Recording lineage: each run's record once, and from it since when and until when what a producer told of a target held.

What a producer's newest successful run told of a target is current. Records may come in any order and again: what holds at a time is
the same. A record that tells what the one before it told adds no edges.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.text import checked_milliseconds, checked_text, storable
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.record import LineageRecord
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.lineage import schema
from lakechime_dagster.store.lineage.intervals import Intervals, forget
from lakechime_dagster.store.lineage.names import (
    MANY,
    digest,
    ensured_nodes,
    ensured_told,
    ensured_writers,
    key_of_told,
    storable_statement,
)
from lakechime_dagster.store.lineage.spelling import spelled
from lakechime_dagster.store.slices import slices

Place = tuple[int, bytes]  # of a run: its writer, and its key


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


def is_told_on(connection: Connection, record: LineageRecord) -> bool:
    """Whether the newest run of its producer told of the target what a record tells."""
    (record,) = spelled(connection, [_storable(record)])
    statement = record.statement
    writer, told, interval = schema.writer.c, schema.told.c, schema.interval.c
    query = (
        sa.select(1)
        .join_from(schema.interval, schema.writer, writer.writer_id == interval.writer_id)
        .join(schema.told, told.told_id == interval.told_id)
        .where(
            writer.key == digest(record.producer.namespace, record.producer.job, statement.target),
            told.key == key_of_told(statement),
            interval.to_ms.is_(None),
        )
    )
    return connection.execute(query).first() is not None


def record_on(connection: Connection, record: LineageRecord) -> bool:
    """Keep a record in an open transaction that writes; False if it was there."""
    return record_all_on(connection, (record,)) == 1


def record_all_on(connection: Connection, records: Sequence[LineageRecord], *, is_told_anew: bool = False) -> int:
    """Keep several records in an open transaction that writes; how many were new.

    With `is_told_anew` what a run told before of a target gives way to what it tells now, as if that had been told at first.

    Call it once in a transaction, so that two transactions that record for the same producers wait for each other and no more.

    Raises:
        InvalidValueError: for a producer, run or time that no store can hold; nothing is kept then.
    """
    records = spelled(connection, [_storable(record) for record in records])
    targets = ensured_nodes(connection, (ColumnRef(record.target) for record in records))
    pairs = {(record.producer, record.target): targets[ColumnRef(record.target)] for record in records}
    writers = ensured_writers(connection, pairs)
    places = {(writers[one.producer, one.target], digest(one.run_id)): one for one in reversed(records)}
    if is_told_anew:
        _forget_others(connection, places)
    new = _new(connection, places)
    keys = {place: key_of_told(record.statement) for place, record in new.items()}
    told = ensured_told(connection, {keys[place]: record.statement for place, record in new.items()})
    rows = [_run(place, record, told[keys[place]]) for place, record in new.items()]
    if rows:
        connection.execute(sa.insert(schema.run), rows)
    intervals = Intervals(connection, {writer for writer, _ in new})
    for (writer, run), record in sorted(new.items(), key=lambda one: (one[1].at_ms, one[0])):
        intervals.place(writer, (record.at_ms, run), told[keys[writer, run]])
    intervals.flush()
    _note_owners(connection, new, intervals)
    return len(new)


def _storable(record: LineageRecord) -> LineageRecord:
    """The record with names that every store can hold; a producer, a run or a time that none can hold is refused."""
    checked_text("the namespace of a producer", record.producer.namespace)
    checked_text("the job of a producer", record.producer.job)
    checked_text("the run of a lineage record", record.run_id)
    checked_milliseconds("the time of a lineage record", record.at_ms)
    links = {storable(name): storable(link) for name, link in record.links.items()}
    return replace(record, statement=storable_statement(record.statement), owners=tuple(map(storable, record.owners)), links=links)


def _new(connection: Connection, records: Mapping[Place, LineageRecord]) -> dict[Place, LineageRecord]:
    """Those whose run is not there yet; nobody adds one meanwhile, since their writers are held."""
    row, there = schema.run.c, set[Place]()
    writers = sorted({writer for writer, _ in records})
    runs = sorted({run for _, run in records})
    for some in slices(runs, MANY):
        is_one = sa.and_(among(connection, row.run_key, some), among(connection, row.writer_id, writers))
        there |= {(writer, bytes(run)) for writer, run in connection.execute(sa.select(row.writer_id, row.run_key).where(is_one))}
    return {place: record for place, record in records.items() if place not in there}


def _forget_others(connection: Connection, records: Mapping[Place, LineageRecord]) -> None:
    """Let runs never have been that told something else than these records."""
    run, told = schema.run.c, schema.told.c
    runs = sorted({key for _, key in records})
    writers = sorted({writer for writer, _ in records})
    for some in slices(runs, MANY):
        is_one = sa.and_(among(connection, run.run_key, some), among(connection, run.writer_id, writers))
        query = sa.select(run.writer_id, run.run_key, run.at_ms, told.key).join_from(schema.run, schema.told, told.told_id == run.told_id)
        for writer, key, at_ms, what in connection.execute(query.where(is_one)).all():
            record = records.get((writer, bytes(key)))
            if record is not None and (at_ms, bytes(what)) != (record.at_ms, key_of_told(record.statement)):
                connection.execute(sa.delete(schema.run).where(run.writer_id == writer, run.run_key == key))
                forget(connection, writer, (at_ms, bytes(key)))


def _run(place: Place, record: LineageRecord, told: int) -> dict[str, Any]:
    return {
        "writer_id": place[0], "run_key": place[1], "run_id": record.run_id, "at_ms": record.at_ms, "told_id": told,
        "lane": record.lane, "step": record.step, "version": record.version, "code": record.code,
    }  # fmt: skip


def _note_owners(connection: Connection, records: Mapping[Place, LineageRecord], intervals: Intervals) -> None:
    """Keep owners and links of each writer's newest run, where one of these is that."""
    newest = {writer: record for (writer, run), record in records.items() if intervals.last_of(writer) == (record.at_ms, run)}
    row = schema.writer.c
    query = sa.select(row.writer_id, row.owners, row.links)
    for writer, owners, links in connection.execute(query.where(among(connection, row.writer_id, sorted(newest)))).all():
        record = newest[writer]
        if (list(record.owners), dict(record.links)) != (owners, links):
            values = {"owners": list(record.owners), "links": dict(record.links)}
            connection.execute(sa.update(schema.writer).where(row.writer_id == writer).values(**values))
