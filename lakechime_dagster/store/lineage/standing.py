"""What recorded lineage says of few data sets, as statements; of all of them `network` makes a graph."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.lineage.columns import ColumnLineage, ColumnRef, Source
from lakechime_dagster.lineage.graph.parts import kind_of
from lakechime_dagster.lineage.graph.standing import Standing
from lakechime_dagster.lineage.record import Producer, Statement
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.lineage import schema
from lakechime_dagster.store.lineage.names import MANY, key_of
from lakechime_dagster.store.slices import slices


@dataclass(frozen=True)
class LineageStandings:
    """What holds of the writes of data sets, or held."""

    engine: Engine

    def all(self, at_ms: int | None = None) -> list[Standing]:
        """What holds now, or at a time in milliseconds, of every target."""
        with reading(self.engine) as connection:
            return _standings(connection, hold(at_ms))

    def of_targets(self, targets: Collection[str], at_ms: int | None = None) -> list[Standing]:
        """What holds of some targets."""
        names, found = sorted(set(targets)), []
        with reading(self.engine) as connection:
            for some in slices(names, MANY):
                is_of = schema.told.c.target_id.in_(_nodes(connection, some))
                found += _standings(connection, sa.and_(hold(at_ms), is_of))
        return found

    def of_inputs(self, inputs: Collection[str]) -> list[Standing]:
        """What holds now of the writes that read any of some data sets, each once."""
        told, found = set[int](), list[Standing]()
        with reading(self.engine) as connection:
            for some in slices(sorted(set(inputs)), MANY):
                reads = sa.select(schema.told_input.c.told_id).where(schema.told_input.c.source_id.in_(_nodes(connection, some)))
                told.update(connection.execute(reads.distinct()).scalars())
            for numbers in slices(sorted(told), MANY):
                found += _standings(connection, sa.and_(hold(None), among(connection, schema.told.c.told_id, numbers)))
        return found

    def outlines(self, targets: Collection[str], at_ms: int | None = None) -> dict[str, list[Statement]]:
        """What holds of the writes of some targets, by target, without sources and inputs: which columns, and what is not known."""
        told, node, found = schema.told, schema.node, dict[str, list[Statement]]()
        query = (
            sa.select(node.c.name, told.c.columns, told.c.opaque, told.c.unknown, told.c.foreign_code)
            .join_from(node, told, told.c.target_id == node.c.node_id)
            .join(schema.interval, schema.interval.c.told_id == told.c.told_id)
            .where(hold(at_ms))
            .order_by(schema.interval.c.from_ms, told.c.told_id)
        )
        with reading(self.engine) as connection:
            for some in slices(sorted(set(targets)), MANY):
                keys = [key_of(ColumnRef(name)) for name in some]
                for row in connection.execute(query.where(among(connection, node.c.key, keys))):
                    found.setdefault(row.name, []).append(_outline(row, row.name))
        return found

    def history(self, target: str) -> list[Standing]:
        """All that ever held of a target, by when it began."""
        with reading(self.engine) as connection:
            told = _standings(connection, schema.told.c.target_id.in_(_nodes(connection, [target])))
            return sorted(told, key=lambda one: (one.from_ms, one.producer.namespace, one.producer.job))


def _nodes(connection: Connection, names: Collection[str]) -> sa.Select[tuple[int]]:
    """The numbers of data sets."""
    return sa.select(schema.node.c.node_id).where(among(connection, schema.node.c.key, [key_of(ColumnRef(name)) for name in names]))


def hold(at_ms: int | None) -> sa.ColumnElement[bool]:
    """Which intervals hold now, or held at a time in milliseconds."""
    row = schema.interval.c
    if at_ms is None:
        return row.to_ms.is_(None)
    return sa.and_(row.from_ms <= at_ms, sa.or_(row.to_ms.is_(None), row.to_ms > at_ms))


def told_by_flows(connection: Connection, declared: Collection[str], namespace: str, which: sa.ColumnElement[bool]) -> set[str]:
    """Of the tables that a lake declares those of which one of its own flows told; what others write there too tells nothing of these."""
    found, writer, node = set[str](), schema.writer.c, schema.node.c
    query = (
        sa.select(node.name)
        .distinct()
        .join_from(schema.told, schema.node, node.node_id == schema.told.c.target_id)
        .join(schema.interval, schema.interval.c.told_id == schema.told.c.told_id)
        .join(schema.writer, writer.writer_id == schema.interval.c.writer_id)
        .where(which, writer.namespace == namespace)
    )
    flows = set(declared)
    for some in slices(sorted(key_of(ColumnRef(name)) for name in flows), MANY):
        rows = connection.execute(query.add_columns(writer.job).where(among(connection, node.key, some)))
        found.update(name for name, job in rows if job in flows)
    return found


def _standings(connection: Connection, which: sa.ColumnElement[bool]) -> list[Standing]:
    writer, run = schema.writer, schema.run
    query = (
        sa.select(schema.interval, writer.c.namespace, writer.c.job, writer.c.owners, writer.c.links, run.c.code)
        .join(writer, writer.c.writer_id == schema.interval.c.writer_id)
        .outerjoin(run, sa.and_(run.c.writer_id == schema.interval.c.writer_id, run.c.run_key == schema.interval.c.last_run))
        .join(schema.told, schema.told.c.told_id == schema.interval.c.told_id)
        .where(which)
        .order_by(writer.c.namespace, writer.c.job, schema.interval.c.from_ms, schema.interval.c.from_run)
    )
    rows = connection.execute(query).all()
    statements = _statements(connection, {row.told_id for row in rows})
    return [
        Standing(
            producer=Producer(namespace=row.namespace, job=row.job), statement=statements[row.told_id], from_ms=row.from_ms,
            last_ms=row.last_ms, to_ms=row.to_ms, owners=tuple(row.owners), links=row.links, code=row.code,
        )
        for row in rows
    ]  # fmt: skip


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
