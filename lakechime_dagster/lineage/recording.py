"""Records the lineage of runs in the store."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import TransactionId, among, insert_if_absent, now_ms, reading, slices, writing
from lakechime_dagster.dce.partitions import checked_milliseconds, checked_text, storable
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import ColumnRef, LineageRecord, Names, Producer
from lakechime_dagster.lineage.facts import Fact, Facts, ToldRun, data_sets, reads_of, records_of
from lakechime_dagster.lineage.graph import TableFacts
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


def told_on(connection: Connection, producer: Producer, target: str) -> int | None:
    """The number of what the newest run of a producer told of a target; None before any did."""
    key = digest(producer.namespace, producer.job, storable(target))
    return connection.execute(sa.select(schema.writer.c.told_id).where(schema.writer.c.key == key)).scalar()


def record_all_on(connection: Connection, records: Sequence[LineageRecord]) -> int:
    """Keep records in an open transaction that writes; how many changed what is known.

    Of each producer and target the newest run holds. What comes late or again changes nothing, unless the newest run tells more.
    Call it once in a transaction, so that two transactions that record for the same producers wait for each other and no more.

    Raises:
        InvalidValueError: for a producer, run or time that no store can hold; nothing is kept then.
    """
    records = spelled(connection, [_storable(record) for record in records])
    newest = {(one.producer, one.target): one for one in sorted(records, key=_moment)}
    targets = ensured_nodes(connection, (ColumnRef(target) for _, target in newest))
    writers = ensured_writers(connection, {pair: targets[ColumnRef(pair[1])] for pair in newest})
    newest = {pair: one for pair, one in newest.items() if _moment(one) >= (writers[pair].at_ms, bytes(writers[pair].run_key))}
    keys = {pair: key_of_told(one.statement) for pair, one in newest.items()}
    told = ensured_told(connection, {keys[pair]: one.statement for pair, one in newest.items()})
    change = change_of(connection)
    rows = [_written(writers[pair], one, told[keys[pair]], change) for pair, one in newest.items()]
    changed = [row for row in rows if row is not None]
    if changed:
        names = {name: sa.bindparam(f"new_{name}") for name in changed[0] if name != "of"}
        connection.execute(
            sa.update(schema.writer).where(schema.writer.c.writer_id == sa.bindparam("new_of")).values(names),
            [{f"new_{name}": value for name, value in row.items()} for row in changed],
        )
    return len(changed)


def _moment(record: LineageRecord) -> tuple[int, bytes]:
    """When a run succeeded, and the key of the run: their order is total."""
    return record.at_ms, digest(record.run_id)


def _written(before: sa.Row[Any], record: LineageRecord, told: int, change: int) -> dict[str, Any] | None:
    """What a writer's row becomes by its newest run; None where that is what it is."""
    if (before.at_ms, bytes(before.run_key), before.told_id) == (*_moment(record), told):
        return None
    is_other_code = None not in (before.code, record.code) and before.code != record.code
    return {
        "of": before.writer_id,
        "told_id": told,
        "first_ms": record.at_ms if before.first_ms is None else before.first_ms,
        "at_ms": record.at_ms,
        "run_key": digest(record.run_id),
        "consumer": record.consumer,
        "code": record.code or before.code,
        "code_version": record.version if is_other_code else before.code_version,
        "owners": list(record.owners),
        "links": dict(record.links),
        "change": change if before.told_id != told else before.change,
    }


def change_of(connection: Connection) -> int:
    """The position of a change that is made now: the transaction's number, or the next one where there is one writer at a time."""
    if connection.dialect.name == "postgresql":
        return connection.execute(sa.select(TransactionId())).scalar_one()
    return (connection.execute(sa.select(sa.func.max(schema.writer.c.change))).scalar() or 0) + 1


def _storable(record: LineageRecord) -> LineageRecord:
    """The record with names that every store can hold; a producer, a run or a time that none can hold is refused."""
    checked_text("the namespace of a producer", record.producer.namespace)
    checked_text("the job of a producer", record.producer.job)
    checked_text("the run of a lineage record", record.run_id)
    checked_milliseconds("the time of a lineage record", record.at_ms)
    links = {storable(name): storable(link) for name, link in record.links.items()}
    return replace(record, statement=storable_statement(record.statement), owners=tuple(map(storable, record.owners)), links=links)


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
    records = record_all_on(connection, found) if found else 0
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
    row = schema.writer.c
    of_run = (row.run_key == digest(run.run_id), among(connection, row.key, keys))
    return connection.execute(sa.select(1).where(*of_run).limit(1)).first() is not None


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
        of = self.record.producer, self.record.target
        before = told_on(connection, *of)
        record_all_on(connection, [self.record])
        if self.replaced:
            forget_code_on(connection, *of)
        self.is_new = told_on(connection, *of) != before

    def kept(self, engine: Engine) -> bool:
        """Keep it now, unless it is; whether it is new."""
        if self.is_new is None:
            with writing(engine) as connection:
                self(connection)
        return bool(self.is_new)


def recorded_since(engine: Engine) -> int | None:
    """When the first run that is recorded succeeded, in milliseconds; None before any did."""
    with reading(engine) as connection:
        return connection.execute(sa.select(sa.func.min(schema.writer.c.first_ms))).scalar()


def facts_of(engine: Engine, tables: Collection[str]) -> dict[str, TableFacts]:
    """What is recorded of the writers of data sets; nothing of one that no run wrote."""
    writer, node = schema.writer.c, schema.node.c
    query = (
        sa.select(node.name, writer.namespace, writer.job, writer.owners, writer.links, writer.at_ms)
        .join_from(schema.node, schema.writer, writer.target_id == node.node_id)
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
                    last_ms=row.at_ms,
                )
                found[row.name] = found[row.name].joined(one) if row.name in found else one
    return found
