"""Recorded lineage, as it is asked for."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import among, reading, slices
from lakechime_dagster.dce.partitions import storable
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import ColumnLineage, ColumnRef, Consumer, ConsumerKind, Producer, Source, Statement
from lakechime_dagster.lineage.external import MOST, ForeignTable, Outside, UsedConsumer, most_lately
from lakechime_dagster.lineage.graph import Standing, kind_of
from lakechime_dagster.lineage.nodes import MANY, digest, key_of


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


READ, NODE = schema.read.c, schema.node.c
INPUT, WRITER = schema.told_input.c, schema.writer.c
DATASET = sa.func.coalesce(NODE.dataset_id, NODE.node_id)


def outside_of(engine: Engine, lake: Collection[str], deployment: str, since_ms: int, most: int = MOST) -> Outside:
    """What is outside of the tables of a lake. Data sets that runs of ours write are not: they are assets of some code location."""
    with reading(engine) as connection:
        consumers, readers = _consumers(connection, since_ms, most)
        tables, others = _tables(connection, set(lake), deployment, since_ms, most)
        return most_lately(consumers, tables, readers + others, most)


def _consumers(connection: Connection, since_ms: int, most: int) -> tuple[list[UsedConsumer], int]:
    """Who read since then, the last one first, and how many did."""
    last = sa.func.max(READ.last_ms).label("last_ms")
    used = sa.select(READ.consumer_id, last).where(READ.last_ms >= since_ms).group_by(READ.consumer_id).subquery()
    total = connection.execute(sa.select(sa.func.count()).select_from(used)).scalar_one()
    query = (
        sa.select(schema.consumer, used.c.last_ms)
        .join(used, used.c.consumer_id == schema.consumer.c.consumer_id)
        .order_by(used.c.last_ms.desc(), used.c.consumer_id)
        .limit(most)
    )
    rows = connection.execute(query).all()
    of = sa.select(READ.consumer_id, DATASET).join_from(schema.read, schema.node, NODE.node_id == READ.node_id).distinct()
    pairs = _pairs(connection, of.where(READ.last_ms >= since_ms), READ.consumer_id, [row.consumer_id for row in rows])
    return [
        UsedConsumer(
            consumer=Consumer(ConsumerKind(row.kind), row.namespace, row.name),
            tables=pairs.get(row.consumer_id, ()),
            last_ms=row.last_ms,
            owners=tuple(row.owners),
            link=row.link,
        )
        for row in rows
    ], total


def _tables(connection: Connection, lake: set[str], deployment: str, since_ms: int, most: int) -> tuple[list[ForeignTable], int]:
    """The data sets of which was told since then that they are written elsewhere, or that they are read, and how many there are."""
    ours = sa.or_(WRITER.namespace == deployment, WRITER.consumer.is_not(None))
    holds = WRITER.at_ms >= since_ms
    written = sa.select(WRITER.target_id.label("node_id"), WRITER.at_ms.label("last_ms"))
    given = sa.select(INPUT.source_id.label("node_id"), WRITER.at_ms.label("last_ms")).join_from(
        schema.writer, schema.told_input, INPUT.told_id == WRITER.told_id
    )
    both = sa.union_all(written.where(holds, ~ours), given.where(holds)).subquery()
    by_us = sa.select(WRITER.target_id).where(ours)
    used = sa.select(both.c.node_id, sa.func.max(both.c.last_ms).label("last_ms")).where(both.c.node_id.not_in(by_us))
    used = used.group_by(both.c.node_id).subquery()
    query = sa.select(NODE.node_id, NODE.name, used.c.last_ms).join_from(used, schema.node, NODE.node_id == used.c.node_id)
    rows = connection.execute(query.order_by(used.c.last_ms.desc(), used.c.node_id).limit(most + len(lake))).all()
    found = [row for row in rows if row.name not in lake][:most]
    total = connection.execute(sa.select(sa.func.count()).select_from(used)).scalar_one()
    keys = [key_of(ColumnRef(name)) for name in sorted(lake)]
    known = sa.select(sa.func.count()).join_from(used, schema.node, NODE.node_id == used.c.node_id)
    total -= sum(connection.execute(known.where(among(connection, NODE.key, some))).scalar_one() for some in slices(keys, MANY))
    return _described(connection, found, sa.and_(holds, ~ours), holds), total


def _described(
    connection: Connection, found: Sequence[sa.Row[Any]], elsewhere: sa.ColumnElement[bool], holds: sa.ColumnElement[bool]
) -> list[ForeignTable]:
    """Data sets with what they are written from elsewhere, what is written from them, and whose they are."""
    numbers = [row.node_id for row in found]
    into = sa.select(WRITER.target_id, INPUT.source_id).join_from(schema.writer, schema.told_input, INPUT.told_id == WRITER.told_id)
    inputs = _pairs(connection, into.where(elsewhere), WRITER.target_id, numbers)
    out = sa.select(INPUT.source_id, WRITER.target_id).join_from(schema.writer, schema.told_input, INPUT.told_id == WRITER.told_id)
    readers = _pairs(connection, out.where(holds), INPUT.source_id, numbers)
    owners: dict[int, list[str]] = {}
    for some in slices(numbers, MANY):
        for row in connection.execute(sa.select(WRITER.target_id, WRITER.owners).where(among(connection, WRITER.target_id, some))):
            owners.setdefault(row.target_id, []).extend(row.owners)
    return [
        ForeignTable(
            table=row.name,
            last_ms=row.last_ms,
            inputs=inputs.get(row.node_id, ()),
            readers=readers.get(row.node_id, ()),
            owners=tuple(sorted(set(owners.get(row.node_id, ())))),
        )
        for row in found
    ]


def _pairs(connection: Connection, query: sa.Select[Any], number: sa.Column[Any], numbers: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """By a number the names of the data sets beside it; the query tells a number and that of a data set."""
    pairs: dict[int, set[int]] = {}
    for some in slices(list(numbers), MANY):
        for one, dataset in connection.execute(query.where(among(connection, number, some))):
            pairs.setdefault(one, set()).add(dataset)
    names: dict[int, str] = {}
    for some in slices(sorted({dataset for several in pairs.values() for dataset in several}), MANY):
        names |= dict(connection.execute(sa.select(NODE.node_id, NODE.name).where(among(connection, NODE.node_id, some))).tuples().all())
    return {one: tuple(sorted(names[dataset] for dataset in several)) for one, several in pairs.items()}


def code_since(engine: Engine, producer: Producer, target: str, code: str) -> str | None:
    """The version of the first commit by this code of a producer's, where the table has rows by another one."""
    row = schema.writer.c
    with reading(engine) as connection:
        return connection.execute(sa.select(row.code_version).where(*_of(producer, target), row.code == code)).scalar()


def forget_code_on(connection: Connection, producer: Producer, target: str) -> None:
    """Let no row be by another code than the one of now, as all rows were replaced; in a transaction that writes."""
    connection.execute(sa.update(schema.writer).where(*_of(producer, target)).values(code_version=None))


def _of(producer: Producer, target: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (schema.writer.c.key == digest(producer.namespace, producer.job, storable(target)),)
