"""Records the lineage of runs in the store."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import among, insert_if_absent, now_ms, reading, slices, writing
from lakechime_dagster.dce.partitions import checked_milliseconds, checked_text, storable
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import ColumnRef, LineageRecord, Names
from lakechime_dagster.lineage.facts import Fact, Facts, ToldRun, data_sets, reads_of, records_of
from lakechime_dagster.lineage.graph import TableFacts
from lakechime_dagster.lineage.intervals import Intervals, forget
from lakechime_dagster.lineage.nodes import (
    MANY,
    digest,
    ensured_nodes,
    ensured_told,
    ensured_writers,
    key_of,
    key_of_told,
    spelled,
    storable_statement,
)
from lakechime_dagster.lineage.reads import keep_reads, note_way
from lakechime_dagster.lineage.store import forget_code_on

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
        "writer_id": place[0],
        "run_key": place[1],
        "run_id": record.run_id,
        "at_ms": record.at_ms,
        "told_id": told,
        "consumer": record.consumer,
        "step": record.step,
        "version": record.version,
        "code": record.code,
    }


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


MORE_MS = 7 * 24 * 3_600_000  # so long more may come of a run; what comes of a finished one later changes nothing


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What came of several documents: those that told nothing new, how many targets were told of, and data sets that are not the lake's."""

    documents: int
    repeated: int
    records: int
    reads: int
    outside: tuple[str, ...]


@dataclass(frozen=True)
class SqlIngest:
    """What other programs tell, into a store."""

    engine: Engine

    def take(self, told: Sequence[ToldRun], way: str, names: Names, refused: int = 0, place: str | None = None) -> Taken:
        """Keep what documents tell, all of them or none, what follows from it, and up to where the way was read."""
        with writing(self.engine) as connection:
            return take_on(connection, told, way, names, refused, place)


def take_on(connection: Connection, told: Sequence[ToldRun], way: str, names: Names, refused: int = 0, place: str | None = None) -> Taken:
    """The same within an open transaction that writes."""
    lake = {name.casefold() for name in names.tables}
    outside = tuple(sorted({name for one in told for name in data_sets(one.facts) if name.casefold() not in lake}))
    changed, repeated = _added(connection, [one for one in told if not one.is_whole])
    whole = [one for one in told if one.is_whole]
    found = [record for one in (*changed, *whole) for record in records_of(one)]
    records = record_all_on(connection, found, is_told_anew=True) if found else 0
    reads = [read for one in (*changed, *whole) for read in reads_of(one)]
    keep_reads(connection, reads)
    note_way(connection, way, len(told), refused, len(outside), place)
    return Taken(documents=len(told), repeated=repeated, records=records, reads=len(reads), outside=outside)


def key_of_run(run: ToldRun) -> bytes:
    return digest(run.producer.namespace, run.producer.job, run.run_id)


def _added(connection: Connection, told: Sequence[ToldRun]) -> tuple[list[ToldRun], int]:
    """All that is known by now of the runs of which something new is told, and how many told nothing new."""
    if not told:
        return [], 0
    now = now_ms(connection)
    connection.execute(sa.delete(schema.arriving).where(schema.arriving.c.updated_ms < now - MORE_MS))
    keys = sorted({key_of_run(one) for one in told})
    connection.execute(insert_if_absent(connection, schema.arriving), [{"key": key, "facts": [], "updated_ms": now} for key in keys])
    known = _known(connection, keys)
    runs: dict[bytes, ToldRun] = {}
    repeated = 0
    for one in told:
        key = key_of_run(one)
        before = runs[key].facts if key in runs else known[key]
        if one.facts <= before:
            repeated += 1
        elif known[key] or not _stands(connection, one):
            runs[key] = replace(one, facts=before | one.facts)
    update = sa.update(schema.arriving).where(schema.arriving.c.key == sa.bindparam("of")).values(facts=sa.bindparam("all"), updated_ms=now)
    if runs:
        connection.execute(update, [{"of": key, "all": _plain(run.facts)} for key, run in runs.items()])
    return list(runs.values()), repeated


def _known(connection: Connection, keys: Sequence[bytes]) -> dict[bytes, Facts]:
    """What came of these runs before; nobody else adds to them until the transaction ends."""
    found: dict[bytes, Facts] = {}
    row = schema.arriving.c
    for some in slices(keys, MANY):
        query = sa.select(row.key, row.facts).where(among(connection, row.key, some)).order_by(row.key).with_for_update()
        for key, kept in connection.execute(query):
            found[bytes(key)] = frozenset(tuple(fact) for fact in kept)
    return found


def _stands(connection: Connection, run: ToldRun) -> bool:
    """Whether a run of which nothing is kept any more was recorded already: what comes of it now is a part of what was told."""
    keys = [_writer_key(record) for record in records_of(run)]
    if not keys:
        return False
    of_run = sa.and_(schema.run.c.run_key == digest(run.run_id), among(connection, schema.writer.c.key, keys))
    joined = schema.run.join(schema.writer, schema.writer.c.writer_id == schema.run.c.writer_id)
    return connection.execute(sa.select(1).select_from(joined).where(of_run).limit(1)).first() is not None


def _writer_key(record: LineageRecord) -> bytes:
    return digest(record.producer.namespace, record.producer.job, record.target)


def _plain(facts: Facts) -> list[list[str | int | bool | None]]:
    ordered: list[Fact] = sorted(facts, key=str)
    return [list(fact) for fact in ordered]


@dataclass
class LineageToKeep:
    """A record of what a run told of its target, of whose rows it may have `replaced` all.

    `is_new` says whether it is unlike what the run before told; None until it is kept.
    """

    record: LineageRecord
    replaced: bool = False
    is_new: bool | None = None

    def __call__(self, connection: Connection) -> None:
        """Keep it in an open transaction that writes."""
        is_new = not is_told_on(connection, self.record)
        record_on(connection, self.record)
        if self.replaced:
            forget_code_on(connection, self.record.producer, self.record.target, self.record.at_ms)
        self.is_new = is_new

    def kept(self, engine: Engine) -> bool:
        """Keep it now, unless it is; whether it is new."""
        if self.is_new is None:
            with writing(engine) as connection:
                self(connection)
        return bool(self.is_new)


def expire_runs(engine: Engine, before_ms: int, *, dry_run: bool = False) -> int:
    """Remove the runs before a time that neither began nor ended an interval nor brought another code; how many they are.

    No answer changes by it. A record that comes later, of a run before that time, may be placed less exactly.
    """
    run, interval, earlier = schema.run, schema.interval, schema.run.alias("earlier")
    bounds = sa.or_(interval.c.from_run == run.c.run_key, interval.c.last_run == run.c.run_key)
    is_bound = sa.select(1).where(interval.c.writer_id == run.c.writer_id, bounds).exists()
    has_brought = (
        ~sa.select(1)
        .where(
            earlier.c.writer_id == run.c.writer_id,
            earlier.c.code == run.c.code,
            sa.tuple_(earlier.c.at_ms, earlier.c.run_key) < sa.tuple_(run.c.at_ms, run.c.run_key),
        )
        .exists()
    )
    is_old = sa.and_(run.c.at_ms < before_ms, ~is_bound, sa.or_(run.c.code.is_(None), ~has_brought))
    if dry_run:
        with reading(engine) as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(run).where(is_old)).scalar_one())
    with writing(engine) as connection:
        keys = sa.select(run.c.writer_id, run.c.run_key).where(is_old)
        found = [tuple(row) for row in connection.execute(keys)]
        remove = sa.delete(run).where(run.c.writer_id == sa.bindparam("writer"), run.c.run_key == sa.bindparam("key"))
        if found:
            connection.execute(remove, [{"writer": writer, "key": key} for writer, key in found])
    return len(found)


def recorded_since(engine: Engine) -> int | None:
    """When the first run that is recorded succeeded, in milliseconds; None before any did."""
    with reading(engine) as connection:
        return connection.execute(sa.select(sa.func.min(schema.interval.c.from_ms))).scalar()


def facts_of(engine: Engine, tables: Collection[str]) -> dict[str, TableFacts]:
    """What is recorded of the writers of data sets; nothing of one that no run wrote."""
    interval, writer, told = schema.interval.c, schema.writer.c, schema.told.c
    query = (
        sa.select(
            schema.node.c.name,
            writer.writer_id,
            writer.namespace,
            writer.job,
            writer.owners,
            writer.links,
            sa.func.min(interval.from_ms).label("since_ms"),
            sa.func.max(interval.last_ms).label("last_ms"),
        )
        .join_from(schema.node, schema.told, told.target_id == schema.node.c.node_id)  # these ways have indexes, from writers none has
        .join(schema.interval, interval.told_id == told.told_id)
        .join(schema.writer, writer.writer_id == interval.writer_id)
        .group_by(writer.writer_id, schema.node.c.name)
        .order_by(writer.namespace, writer.job)
    )
    found: dict[str, TableFacts] = {}
    names = sorted(set(tables))
    with reading(engine) as connection:
        for some in slices(names, MANY):
            keys = [key_of(ColumnRef(name)) for name in some]
            for row in connection.execute(query.where(among(connection, schema.node.c.key, keys))):
                one = TableFacts(
                    owners=tuple(row.owners),
                    jobs=(f"{row.namespace}/{row.job}",),
                    links=row.links,
                    since_ms=row.since_ms,
                    last_ms=row.last_ms,
                )
                found[row.name] = found[row.name].joined(one) if row.name in found else one
    return found
