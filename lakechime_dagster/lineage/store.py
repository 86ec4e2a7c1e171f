"""Recorded lineage, as it is asked for: what holds, who reads, and since when."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import among, reading, slices
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import ColumnLineage, ColumnRef, Consumer, ConsumerKind, Producer, Source, Statement
from lakechime_dagster.lineage.graph import Standing, TableFacts, kind_of
from lakechime_dagster.lineage.recording import MANY, key_of, writer_key


@dataclass(frozen=True)
class LineageStandings:
    """What holds of the writes of data sets: what the newest run of each producer told."""

    engine: Engine

    def all(self) -> list[Standing]:
        """What holds of every target."""
        with reading(self.engine) as connection:
            return _standings(connection, sa.true())

    def of_targets(self, targets: Collection[str]) -> list[Standing]:
        """What holds of some targets."""
        names, found = sorted(set(targets)), []
        with reading(self.engine) as connection:
            for some in slices(names, MANY):
                found += _standings(connection, schema.writer.c.target_id.in_(_nodes(connection, some)))
        return found

    def of_inputs(self, inputs: Collection[str]) -> list[Standing]:
        """What holds now of the writes that read any of some data sets, each once."""
        told, found = set[int](), list[Standing]()
        with reading(self.engine) as connection:
            for some in slices(sorted(set(inputs)), MANY):
                reads = sa.select(schema.told_input.c.told_id).where(schema.told_input.c.source_id.in_(_nodes(connection, some)))
                told.update(connection.execute(reads.distinct()).scalars())
            for numbers in slices(sorted(told), MANY):
                found += _standings(connection, among(connection, schema.writer.c.told_id, numbers))
        return found

    def outlines(self, targets: Collection[str]) -> dict[str, list[Statement]]:
        """What holds of the writes of some targets, by target, without sources and inputs: which columns, and what is not known."""
        told, node, found = schema.told, schema.node, dict[str, list[Statement]]()
        query = (
            sa.select(node.c.name, told.c.columns, told.c.opaque, told.c.unknown, told.c.foreign_code)
            .join_from(node, told, told.c.target_id == node.c.node_id)
            .join(schema.writer, schema.writer.c.told_id == told.c.told_id)
            .order_by(schema.writer.c.at_ms, told.c.told_id)
        )
        with reading(self.engine) as connection:
            for some in slices(sorted(set(targets)), MANY):
                keys = [key_of(ColumnRef(name)) for name in some]
                for row in connection.execute(query.where(among(connection, node.c.key, keys))):
                    found.setdefault(row.name, []).append(_outline(row, row.name))
        return found


def _nodes(connection: Connection, names: Collection[str]) -> sa.Select[tuple[int]]:
    """The numbers of data sets."""
    return sa.select(schema.node.c.node_id).where(among(connection, schema.node.c.key, [key_of(ColumnRef(name)) for name in names]))


def told_by_subscriptions(connection: Connection, declared: Collection[str], namespace: str) -> set[str]:
    """Of the tables that a lake declares those of which one of its own subscriptions told; what others write there too tells nothing of
    these.
    """
    found, writer, node = set[str](), schema.writer.c, schema.node.c
    query = (
        sa.select(node.name)
        .distinct()
        .join_from(schema.writer, schema.node, node.node_id == writer.target_id)
        .where(writer.namespace == namespace)
    )
    subscriptions = set(declared)
    for some in slices(sorted(key_of(ColumnRef(name)) for name in subscriptions), MANY):
        rows = connection.execute(query.add_columns(writer.job).where(among(connection, node.key, some)))
        found.update(name for name, job in rows if job in subscriptions)
    return found


def _standings(connection: Connection, which: sa.ColumnElement[bool]) -> list[Standing]:
    writer = schema.writer.c
    query = sa.select(schema.writer).where(writer.told_id.is_not(None), which).order_by(writer.namespace, writer.job, writer.target_id)
    rows = connection.execute(query).all()
    statements = _statements(connection, {row.told_id for row in rows})
    return [
        Standing(
            producer=Producer(namespace=row.namespace, job=row.job),
            statement=statements[row.told_id],
            last_ms=row.at_ms,
            owners=tuple(row.owners),
            links=row.links,
            code=row.code,
        )
        for row in rows
    ]


def _statements(connection: Connection, numbers: Collection[int]) -> dict[int, Statement]:
    found: dict[int, Statement] = {}
    for some in slices(sorted(numbers), MANY):
        told = connection.execute(sa.select(schema.told).where(among(connection, schema.told.c.told_id, some))).all()
        inputs = connection.execute(sa.select(schema.told_input).where(among(connection, schema.told_input.c.told_id, some))).all()
        edges = connection.execute(sa.select(schema.told_edge).where(among(connection, schema.told_edge.c.told_id, some))).all()
        numbers_met = {number for row in edges for number in (row.source_id, row.target_id)}
        names = refs_of(connection, numbers_met | {row.source_id for row in inputs} | {row.target_id for row in told})
        inputs_of, edges_of = _by_told(inputs), _by_told(edges)
        for row in told:
            of_inputs = [names[one.source_id].table for one in inputs_of.get(row.told_id, ())]
            found[row.told_id] = _statement(row, of_inputs, edges_of.get(row.told_id, ()), names)
    return found


def _by_told(rows: Iterable[sa.Row[Any]]) -> dict[int, list[sa.Row[Any]]]:
    found: dict[int, list[sa.Row[Any]]] = {}
    for row in rows:
        found.setdefault(row.told_id, []).append(row)
    return found


def _statement(row: sa.Row[Any], inputs: Iterable[str], edges: Iterable[sa.Row[Any]], names: dict[int, ColumnRef]) -> Statement:
    sources: dict[str | None, list[Source]] = {}
    for edge in edges:
        found = Source(names[edge.source_id], kind_of(edge.kind), edge.kind < 0)
        sources.setdefault(names[edge.target_id].column, []).append(found)
    outline = _outline(row, names[row.target_id].table)
    columns = tuple(replace(one, sources=tuple(sources.get(one.column, ()))) for one in outline.columns)
    return replace(outline, columns=columns, indirect=tuple(sources.get(None, ())), inputs=tuple(inputs), replaces=row.replaces)


def _outline(row: sa.Row[Any], target: str) -> Statement:
    foreign: dict[str | None, list[str]] = dict(row.foreign_code)
    columns = tuple(
        ColumnLineage(column=name, opaque=tuple(row.opaque.get(name, ())), foreign=tuple(foreign.get(name, ()))) for name in row.columns
    )
    return Statement(target=target, columns=columns, unknown=tuple(row.unknown), foreign=tuple(foreign.get(None, ())))


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
            found[row.node_id] = ColumnRef(row.name) if row.dataset is None else ColumnRef(row.dataset, row.name)
    return found


def known_tables(engine: Engine, names: Collection[str] | None = None) -> set[str]:
    """The data sets that are recorded, all of them or those among few names."""
    row = schema.node.c
    query = sa.select(row.name).where(row.dataset_id.is_(None))
    with reading(engine) as connection:
        if names is not None:
            query = query.where(among(connection, row.key, [key_of(ColumnRef(name)) for name in names]))
        return set(connection.execute(query).scalars())


def known_columns(engine: Engine, table: str) -> set[str]:
    """The columns of a data set that are recorded."""
    row, dataset = schema.node.c, schema.node.alias("dataset")
    query = sa.select(row.name).join_from(schema.node, dataset, dataset.c.node_id == row.dataset_id)
    with reading(engine) as connection:
        return set(connection.execute(query.where(dataset.c.key == key_of(ColumnRef(table)))).scalars())


def code_since(engine: Engine, producer: Producer, target: str, code: str) -> str | None:
    """The version of the first commit by this code of a producer's, where the table has rows by another one."""
    row = schema.writer.c
    with reading(engine) as connection:
        return connection.execute(sa.select(row.code_version).where(row.key == writer_key(producer, target), row.code == code)).scalar()


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


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A consumer of a column, or of a data set of which it is not told which columns it reads; times are milliseconds."""

    consumer: Consumer
    ref: ColumnRef
    first_ms: int
    last_ms: int
    owners: tuple[str, ...] = ()
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way by which reads and writes of others are told, since when by the store's clock, and what came by it."""

    name: str
    since_ms: int
    last_ms: int
    documents: int
    refused: int
    outside: int


@dataclass(frozen=True)
class SqlReads:
    """The readers of columns, in a store; of all deployments."""

    engine: Engine

    def of_table(self, table: str, since_ms: int | None = None) -> list[Reader]:
        """Who read a data set or columns of it, since a time; the last one first."""
        return self.of_tables([table], since_ms)

    def of_tables(self, tables: Collection[str], since_ms: int | None = None) -> list[Reader]:
        """Who read any of these data sets, or columns of them, since a time; the last one first."""
        found: list[Reader] = []
        names = sorted(set(tables))
        with reading(self.engine) as connection:
            for some in slices(names, MANY):
                found += _readers(connection, some, since_ms)
        return sorted(found, key=lambda one: (-one.last_ms, one.consumer, str(one.ref)))

    def ways(self) -> list[Way]:
        """By which ways reads are told; without one it is not known who reads, which is another thing than nobody."""
        with reading(self.engine) as connection:
            columns = [column for column in schema.way.c if column.name != "place"]
            return [Way(**row._asdict()) for row in connection.execute(sa.select(*columns).order_by(schema.way.c.name))]

    def since_ms(self) -> int | None:
        """Since when reads are told, by the store's clock; None if never."""
        return min((one.since_ms for one in self.ways()), default=None)


def place_of_way(engine: Engine, name: str) -> str | None:
    """Up to where a way was read; None where it never was."""
    with reading(engine) as connection:
        return connection.execute(sa.select(schema.way.c.place).where(schema.way.c.name == name)).scalar()


def _readers(connection: Connection, tables: Sequence[str], since_ms: int | None) -> list[Reader]:
    node = schema.node
    keys = [key_of(ColumnRef(name)) for name in tables]
    datasets = sa.select(node.c.node_id).where(among(connection, node.c.key, keys))
    columns = sa.select(node.c.node_id).where(node.c.dataset_id.in_(datasets))
    query = sa.select(schema.read, schema.consumer).join(schema.consumer, schema.consumer.c.consumer_id == schema.read.c.consumer_id)
    query = query.where(sa.or_(schema.read.c.node_id.in_(datasets), schema.read.c.node_id.in_(columns)))
    if since_ms is not None:
        query = query.where(schema.read.c.last_ms >= since_ms)
    rows = connection.execute(query).all()
    refs = refs_of(connection, {row.node_id for row in rows})
    return [
        Reader(
            consumer=Consumer(ConsumerKind(row.kind), row.namespace, row.name),
            ref=refs[row.node_id],
            first_ms=row.first_ms,
            last_ms=row.last_ms,
            owners=tuple(row.owners),
            link=row.link,
        )
        for row in rows
    ]
