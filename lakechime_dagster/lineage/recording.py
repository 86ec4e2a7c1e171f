"""Records lineage in the store: data sets, columns, producers, readers, and what each wrote or
read.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection, Engine
from sqlalchemy.dialects import postgresql, sqlite

from lakechime_dagster.dce.engine import among, insert_if_absent, now_ms, slices, writing
from lakechime_dagster.dce.partitions import checked_milliseconds, checked_text, storable
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import (
    ColumnRef,
    Consumer,
    LineageRecord,
    Names,
    Producer,
    Read,
    Statement,
    joined,
    refs_in,
    respelled,
    statement_from,
    statement_json,
)
from lakechime_dagster.lineage.graph import parts_of
from lakechime_dagster.lineage.reports import RunReport, report_from
from lakechime_dagster.tables.names import folded

MANY = 500  # keys that one statement asks for


def digest(*parts: str) -> bytes:
    """A key of several texts."""
    return blake2b("\0".join(parts).encode(), digest_size=16).digest()


def key_of(ref: ColumnRef) -> bytes:
    """The key of a data set, or of a column, whose letters' case makes no difference."""
    return digest(ref.table) if ref.column is None else digest(ref.table, folded(ref.column))


def storable_statement(statement: Statement) -> Statement:
    """The statement with a replacement character in its names and reasons for each one that not
    every store can hold.
    """
    value = statement_json(statement)
    if (kept := _storable_json(value)) == value:
        return statement
    found = statement_from(kept)
    return replace(found, columns=joined(found.columns))


def _storable_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _storable_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_storable_json(one) for one in value]
    return storable(value) if isinstance(value, str) else value


def ensured_nodes(connection: Connection, refs: Iterable[ColumnRef]) -> dict[ColumnRef, int]:
    """The numbers of data sets and columns; a column that is met for the first time has the name by
    which it stands first.
    """
    wanted = dict.fromkeys(refs)
    names = dict.fromkeys(ref.table for ref in wanted)
    found = _ensured(
        connection, {key_of(ColumnRef(name)): {"name": name, "dataset_id": None} for name in names}
    )
    columns: dict[bytes, dict[str, Any]] = {}
    for ref in wanted:
        if ref.column is not None:
            columns.setdefault(
                key_of(ref), {"name": ref.column, "dataset_id": found[key_of(ColumnRef(ref.table))]}
            )
    found |= _ensured(connection, columns)
    return {ref: found[key_of(ref)] for ref in (*wanted, *map(ColumnRef, names))}


def _ensured(connection: Connection, nodes: Mapping[bytes, Mapping[str, Any]]) -> dict[bytes, int]:
    """The numbers of nodes by their keys; those that are missing are made, in the order of their
    keys.
    """
    found = _numbers_of(connection, schema.node, nodes)
    missing = [{**nodes[key], "key": key} for key in sorted(nodes) if key not in found]
    if missing:
        connection.execute(insert_if_absent(connection, schema.node), missing)
        found |= _numbers_of(connection, schema.node, [row["key"] for row in missing])
    return found


def _numbers_of(
    connection: Connection, table: sa.Table, keys: Collection[bytes]
) -> dict[bytes, int]:
    (number,) = table.primary_key.columns
    found: dict[bytes, int] = {}
    for some in slices(sorted(keys), MANY):
        query = sa.select(table.c.key, number).where(among(connection, table.c.key, some))
        found |= {bytes(key): value for key, value in connection.execute(query)}
    return found


def refs_of(connection: Connection, numbers: Collection[int]) -> dict[int, ColumnRef]:
    """The names of data sets and columns."""
    found: dict[int, ColumnRef] = {}
    dataset = schema.node.alias("dataset")
    for some in slices(sorted(numbers), MANY):
        query = (
            sa.select(schema.node.c.node_id, schema.node.c.name, dataset.c.name.label("dataset"))
            .outerjoin(dataset, dataset.c.node_id == schema.node.c.dataset_id)
            .where(among(connection, schema.node.c.node_id, some))
        )
        for row in connection.execute(query):
            found[row.node_id] = (
                ColumnRef(row.name) if row.dataset is None else ColumnRef(row.dataset, row.name)
            )
    return found


def ensured_statements(
    connection: Connection, statements: Iterable[Statement]
) -> dict[Statement, int]:
    """The numbers of statements; one that is met for the first time is kept with what it reads, by
    the names that columns have.
    """
    keys = {
        one: blake2b(orjson.dumps(statement_json(one)), digest_size=16).digest()
        for one in statements
    }
    found = _numbers_of(connection, schema.statement, set(keys.values()))
    new = {key: one for one, key in keys.items() if key not in found}
    if new:
        found |= _kept(connection, new)
        # those that others made meanwhile
        found |= _numbers_of(connection, schema.statement, new.keys() - found.keys())
    return {one: found[key] for one, key in keys.items()}


def _kept(connection: Connection, new: Mapping[bytes, Statement]) -> dict[bytes, int]:
    """Keep statements that are new, and give the numbers of those that nobody else has kept
    meanwhile.
    """
    numbers = ensured_nodes(connection, (ref for one in new.values() for ref in refs_in(one)))
    names = refs_of(connection, set(numbers.values()))
    other_names = {ref: names[number] for ref, number in numbers.items() if names[number] != ref}
    spelled = {
        key: respelled(one, other_names) if other_names else one for key, one in sorted(new.items())
    }
    nodes = {ref: number for number, ref in names.items()}
    rows = [
        {"key": key, "target_id": nodes[ColumnRef(one.target)], "statement": statement_json(one)}
        for key, one in spelled.items()
    ]
    made = insert_if_absent(connection, schema.statement).returning(
        schema.statement.c.statement_id, schema.statement.c.key
    )
    ours = {bytes(key): number for number, key in connection.execute(made, rows)}
    inputs = [
        {"statement_id": number, "source_id": nodes[ColumnRef(name)], "parts": int(part)}
        for key, number in ours.items()
        for name, part in parts_of(spelled[key]).items()
    ]
    if inputs:
        connection.execute(sa.insert(schema.statement_input), inputs)
    return ours


def ensured_writers(
    connection: Connection, pairs: Mapping[tuple[Producer, str], int]
) -> dict[tuple[Producer, str], sa.Row[Any]]:
    """The rows of producers at their targets, with their targets; nobody else records for them
    until the transaction ends.
    """
    keys = {digest(pair[0].namespace, pair[0].job, pair[1]): pair for pair in pairs}
    rows = [
        {
            "key": key,
            "namespace": pair[0].namespace,
            "job": pair[0].job,
            "target_id": pairs[pair],
            "at_ms": -1,
            "run_key": b"",
        }
        for key, pair in sorted(keys.items())
    ]
    found: dict[tuple[Producer, str], sa.Row[Any]] = {}
    row = schema.writer.c
    for some in slices(rows, MANY):
        connection.execute(insert_if_absent(connection, schema.writer), list(some))
    for some in slices(sorted(keys), MANY):
        held = (
            sa.select(schema.writer)
            .where(among(connection, row.key, some))
            .order_by(row.key)
            .with_for_update()
        )
        found |= {keys[bytes(one.key)]: one for one in connection.execute(held).all()}
    return found


@dataclass(frozen=True)
class SqlLineage:
    """What runs recorded of their writes, in a store; of all deployments."""

    engine: Engine

    def record(self, record: LineageRecord) -> bool:
        """Keep a record; False if it was there."""
        return self.record_all([record]) == 1

    def record_all(self, records: Iterable[LineageRecord]) -> int:
        """Keep several records, all of them or none; how many were new."""
        with writing(self.engine) as connection:
            return record_all_on(connection, tuple(records))


def statement_on(connection: Connection, producer: Producer, target: str) -> int | None:
    """The number of the statement that the newest run of a producer recorded of a target; None
    before any did.
    """
    return connection.execute(
        sa.select(schema.writer.c.statement_id).where(
            schema.writer.c.key == writer_key(producer, target)
        )
    ).scalar()


def writer_key(producer: Producer, target: str) -> bytes:
    """The key of a producer at one of its targets."""
    return digest(producer.namespace, producer.job, storable(target))


def record_all_on(
    connection: Connection, records: Sequence[LineageRecord], reads: Iterable[Read] = ()
) -> int:
    """Keep records in an open transaction that writes; how many changed what is known.

    Of each producer and target the newest run holds. What is late or repeated changes nothing,
    unless the newest run says more. Call it once in a transaction, so that two transactions that
    record for the same producers wait for each other and no more: all data sets and columns that
    are new are made first, in the order of their keys, also those of `reads` that are kept after
    it.

    Raises:
        InvalidValueError: for a producer, run or time that no store can hold; nothing is kept then.
    """
    records = [_storable(record) for record in records]
    newest = {(one.producer, one.target): one for one in sorted(records, key=_moment)}
    refs = [ref for one in newest.values() for ref in refs_in(one.statement)]
    refs += [ref for one in reads for ref in _storable_read(one).refs]
    targets = ensured_nodes(connection, refs)
    writers = ensured_writers(connection, {pair: targets[ColumnRef(pair[1])] for pair in newest})
    newest = {
        pair: one
        for pair, one in newest.items()
        if _moment(one) >= (writers[pair].at_ms, bytes(writers[pair].run_key))
    }
    numbers = ensured_statements(connection, (one.statement for one in newest.values()))
    rows = [_written(writers[pair], one, numbers[one.statement]) for pair, one in newest.items()]
    changed = [row for row in rows if row is not None]
    if changed:
        names = {name: sa.bindparam(f"new_{name}") for name in changed[0] if name != "of"}
        connection.execute(
            sa.update(schema.writer)
            .where(schema.writer.c.writer_id == sa.bindparam("new_of"))
            .values(names),
            [{f"new_{name}": value for name, value in row.items()} for row in changed],
        )
    return len(changed)


def _moment(record: LineageRecord) -> tuple[int, bytes]:
    """When a run succeeded, and the key of the run: their order is total."""
    return record.at_ms, digest(record.run_id)


def _written(before: sa.Row[Any], record: LineageRecord, statement: int) -> dict[str, Any] | None:
    """What a writer's row becomes by its newest run; None where that is what it is."""
    if (before.at_ms, bytes(before.run_key), before.statement_id) == (*_moment(record), statement):
        return None
    return {
        "of": before.writer_id,
        "statement_id": statement,
        "first_ms": record.at_ms if before.first_ms is None else before.first_ms,
        "at_ms": record.at_ms,
        "run_key": digest(record.run_id),
        "consumer": record.consumer,
        "code": record.code or before.code,
        "owners": list(record.owners),
        "links": dict(record.links),
    }


def _storable(record: LineageRecord) -> LineageRecord:
    """The record with names that every store can hold; a producer, a run or a time that none can
    hold is refused.
    """
    checked_text("the namespace of a producer", record.producer.namespace)
    checked_text("the job of a producer", record.producer.job)
    checked_text("the run of a lineage record", record.run_id)
    checked_milliseconds("the time of a lineage record", record.at_ms)
    links = {storable(name): storable(link) for name, link in record.links.items()}
    return replace(
        record,
        statement=storable_statement(record.statement),
        owners=tuple(map(storable, record.owners)),
        links=links,
    )


# so long more may be reported of a run; later reports of a finished one change nothing
MORE_MS = 7 * 24 * 3_600_000


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A line or row that could not be read, counted from 1, and why."""

    line: int
    problem: str


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Counts of several documents: those that repeat what is known, records and reads that follow;
    `outside` are data sets of others.
    """

    documents: int = 0
    repeated: int = 0
    records: int = 0
    reads: int = 0
    outside: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()

    def __add__(self, other: "Taken") -> "Taken":
        return Taken(
            documents=self.documents + other.documents,
            repeated=self.repeated + other.repeated,
            records=self.records + other.records,
            reads=self.reads + other.reads,
            outside=tuple(sorted({*self.outside, *other.outside})),
            refused=self.refused + other.refused,
        )


def keep_reports(
    engine: Engine,
    reports: Sequence[RunReport],
    way: str,
    names: Names,
    checkpoint: str | None = None,
) -> Taken:
    """Keep what other programs report, all of it or nothing, what follows from it, and up to where
    the way was read.
    """
    lake = {name.casefold() for name in names.tables}
    outside = tuple(
        sorted({name for one in reports for name in one.data_sets if name.casefold() not in lake})
    )
    with writing(engine) as connection:
        changed, repeated = _joined(connection, [one for one in reports if not one.is_whole])
        known = [*changed, *(one for one in reports if one.is_whole)]
        found = [record for one in known for record in one.records()]
        reads = [read for one in known for read in one.reads()]
        records = record_all_on(connection, found, reads) if found else 0
        keep_reads(connection, reads)
        note_way(connection, way, checkpoint)
    return Taken(
        documents=len(reports),
        repeated=repeated,
        records=records,
        reads=len(reads),
        outside=outside,
    )


def _joined(connection: Connection, reports: Sequence[RunReport]) -> tuple[list[RunReport], int]:
    """All that is known by now of the runs of which something new is reported, and how many reports
    say nothing new.
    """
    if not reports:
        return [], 0
    now, row = now_ms(connection), schema.pending_run.c
    connection.execute(sa.delete(schema.pending_run).where(row.updated_ms < now - MORE_MS))
    keys = [digest(one.producer.namespace, one.producer.job, one.run_id) for one in reports]
    ordered = sorted(set(keys))
    connection.execute(
        insert_if_absent(connection, schema.pending_run),
        [{"key": key, "report": {}, "updated_ms": now} for key in ordered],
    )
    kept: dict[bytes, dict[str, Any]] = {}
    for some in slices(ordered, MANY):  # nobody else adds to them until the transaction ends
        query = (
            sa.select(row.key, row.report)
            .where(among(connection, row.key, some))
            .order_by(row.key)
            .with_for_update()
        )
        kept |= {bytes(key): report for key, report in connection.execute(query)}
    runs: dict[bytes, RunReport] = {}
    repeated = 0
    for one, key in zip(reports, keys, strict=True):
        before = runs.get(key) or report_from(one.producer, one.run_id, kept[key])
        after = before.joined(one)
        if after == before:
            repeated += 1
        elif kept[key] or not _is_recorded(connection, one):
            runs[key] = after
    if runs:
        update = sa.update(schema.pending_run).where(row.key == sa.bindparam("of"))
        values = [{"of": key, "new": run.to_json()} for key, run in runs.items()]
        connection.execute(update.values(report=sa.bindparam("new"), updated_ms=now), values)
    return list(runs.values()), repeated


def _is_recorded(connection: Connection, run: RunReport) -> bool:
    """Whether a run of which nothing is kept any more was recorded: what is reported of it now is a
    part of what was known.
    """
    keys = [writer_key(record.producer, record.target) for record in run.records()]
    if not keys:
        return False
    row = schema.writer.c
    of_run = (row.run_key == digest(run.run_id), among(connection, row.key, keys))
    return connection.execute(sa.select(1).where(*of_run).limit(1)).first() is not None


@dataclass
class LineageToKeep:
    """A record of what a run wrote on its target.

    `is_new` says whether it is unlike what the run before recorded; None until it is kept.
    """

    record: LineageRecord
    is_new: bool | None = None

    def __call__(self, connection: Connection) -> None:
        """Keep it in an open transaction that writes."""
        of = self.record.producer, self.record.target
        before = statement_on(connection, *of)
        record_all_on(connection, [self.record])
        self.is_new = statement_on(connection, *of) != before

    def kept(self, engine: Engine) -> bool:
        """Keep it now, unless it is; whether it is new."""
        if self.is_new is None:
            with writing(engine) as connection:
                self(connection)
        return bool(self.is_new)


def keep_reads(connection: Connection, several: Sequence[Read]) -> None:
    """Keep reads within an open transaction that writes; repeats and another order change
    nothing.
    """
    reads = [_storable_read(one) for one in several if one.refs]
    if not reads:
        return
    nodes = ensured_nodes(connection, (ref for one in reads for ref in one.refs))
    consumers = _ensured_consumers(connection, reads)
    last: dict[tuple[int, int], int] = {}
    for one in reads:
        for ref in one.refs:
            key = (nodes[ref], consumers[one.consumer])
            last[key] = max(last.get(key, one.at_ms), one.at_ms)
    rows = [
        {"node_id": node, "consumer_id": consumer, "last_ms": at_ms}
        for (node, consumer), at_ms in sorted(last.items())
    ]
    insert = _insert(connection, schema.read)
    later = insert.on_conflict_do_update(
        index_elements=list(schema.read.primary_key),
        set_={"last_ms": insert.excluded.last_ms},
        where=insert.excluded.last_ms > schema.read.c.last_ms,
    )
    connection.execute(later, rows)


def note_way(connection: Connection, name: str, checkpoint: str | None = None) -> None:
    """Note that something was reported by a way, and up to where it was read; the first time is
    kept too.
    """
    now = now_ms(connection)
    connection.execute(
        insert_if_absent(connection, schema.way).values(name=name, since_ms=now, last_ms=now)
    )
    read = {} if checkpoint is None else {"checkpoint": checkpoint}
    connection.execute(
        sa.update(schema.way).where(schema.way.c.name == name).values(last_ms=now, **read)
    )


def _storable_read(one: Read) -> Read:
    refs = {ColumnRef(storable(ref.table), ref.column and storable(ref.column)) for ref in one.refs}
    who = Consumer(one.consumer.kind, storable(one.consumer.namespace), storable(one.consumer.name))
    return Read(
        consumer=who,
        refs=tuple(refs),
        at_ms=one.at_ms,
        owners=tuple(map(storable, one.owners)),
        link=storable(one.link),
    )


def _ensured_consumers(connection: Connection, reads: Iterable[Read]) -> dict[Consumer, int]:
    """The numbers of consumers; owners and link are those of the newest read."""
    newest = {
        one.consumer: one
        for one in sorted(reads, key=lambda one: (one.at_ms, one.owners, one.link))
    }
    keys = {digest(who.kind.value, who.namespace, who.name): who for who in newest}
    rows = [
        {
            "key": key,
            "kind": who.kind.value,
            "namespace": who.namespace,
            "name": who.name,
            "owners": list(newest[who].owners),
            "link": newest[who].link,
            "newest_ms": newest[who].at_ms,
        }
        for key, who in sorted(keys.items())
    ]
    insert, row = _insert(connection, schema.consumer), schema.consumer.c
    new = insert.excluded
    values = {"owners": new.owners, "link": new.link, "newest_ms": new.newest_ms}
    is_newer = new.newest_ms > row.newest_ms
    connection.execute(
        insert.on_conflict_do_update(index_elements=[row.key], set_=values, where=is_newer), rows
    )
    return {
        keys[key]: number for key, number in _numbers_of(connection, schema.consumer, keys).items()
    }


def _insert(connection: Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that may say what is done with a row that exists."""
    return (
        postgresql.insert(table)
        if connection.dialect.name == "postgresql"
        else sqlite.insert(table)
    )
