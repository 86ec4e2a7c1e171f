"""Recorded lineage, as it is asked for: what holds, who reads, and since when."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import among, reading, slices
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import (
    ColumnRef,
    Consumer,
    ConsumerKind,
    Producer,
    Read,
    statement_from,
)
from lakechime_dagster.lineage.graph import Standing, TableFacts
from lakechime_dagster.lineage.recording import MANY, key_of, refs_of


@dataclass(frozen=True)
class LineageStandings:
    """What holds of the writes of data sets: what the newest run of each producer recorded."""

    engine: Engine

    def all(self) -> list[Standing]:
        """What holds of every target."""
        return [*self.each()]

    def of_targets(self, targets: Collection[str]) -> list[Standing]:
        """What holds of some targets."""
        return [*self.each(targets)]

    def each(self, targets: Collection[str] | None = None) -> Iterator[Standing]:
        """What holds of every target, or of some, as it is read: all at once may be large."""
        with reading(self.engine) as connection:
            if targets is None:
                yield from _standings(connection, sa.true())
                return
            for some in slices(sorted(set(targets)), MANY):
                yield from _standings(
                    connection, schema.writer.c.target_id.in_(nodes_of_tables(connection, some))
                )

    def of_inputs(self, inputs: Collection[str]) -> list[Standing]:
        """What holds now of the writes that read any of some data sets, each once."""
        given, statements, found = schema.statement_input.c, set[int](), list[Standing]()
        with reading(self.engine) as connection:
            for some in slices(sorted(set(inputs)), MANY):
                reads = sa.select(given.statement_id).where(
                    given.source_id.in_(nodes_of_tables(connection, some))
                )
                statements.update(connection.execute(reads.distinct()).scalars())
            for numbers in slices(sorted(statements), MANY):
                found += _standings(
                    connection, among(connection, schema.writer.c.statement_id, numbers)
                )
        return found


def nodes_of_tables(connection: Connection, names: Collection[str]) -> sa.Select[tuple[int]]:
    """The numbers of data sets."""
    return sa.select(schema.node.c.node_id).where(
        among(connection, schema.node.c.key, [key_of(ColumnRef(name)) for name in names])
    )


def _standings(connection: Connection, which: sa.ColumnElement[bool]) -> Iterator[Standing]:
    writer = schema.writer.c
    query = sa.select(schema.writer, schema.statement.c.statement).join_from(
        schema.writer, schema.statement, schema.statement.c.statement_id == writer.statement_id
    )
    ordered = query.where(which).order_by(writer.namespace, writer.job, writer.target_id)
    for row in connection.execute(ordered.execution_options(yield_per=MANY)):
        yield Standing(
            producer=Producer(namespace=row.namespace, job=row.job),
            statement=statement_from(row.statement),
            last_ms=row.at_ms,
            owners=tuple(row.owners),
            links=row.links,
            code=row.code,
        )


def known_tables(engine: Engine, names: Collection[str] | None = None) -> set[str]:
    """The data sets that are recorded, all of them or those among few names."""
    row = schema.node.c
    query = sa.select(row.name).where(row.dataset_id.is_(None))
    with reading(engine) as connection:
        if names is not None:
            query = query.where(
                among(connection, row.key, [key_of(ColumnRef(name)) for name in names])
            )
        return set(connection.execute(query).scalars())


def tables_like(engine: Engine, text: str, most: int) -> list[str]:
    """The recorded data sets with this text in their names, at most so many, those first that begin
    with it; letter case is ignored.
    """
    name, wanted = schema.node.c.name, text.lower()
    is_first = sa.case((sa.func.lower(name).startswith(wanted, autoescape=True), 0), else_=1)
    query = sa.select(name).where(
        schema.node.c.dataset_id.is_(None), sa.func.lower(name).contains(wanted, autoescape=True)
    )
    with reading(engine) as connection:
        return list(connection.execute(query.order_by(is_first, name).limit(most)).scalars())


def known_columns(engine: Engine, table: str) -> set[str]:
    """The columns of a data set that are recorded."""
    with reading(engine) as connection:
        return {str(ref.column) for ref in columns_of(connection, [table])}


def columns_of(connection: Connection, tables: Collection[str] | None) -> list[ColumnRef]:
    """The columns of data sets that are recorded, or of all of them."""
    row, dataset, found = schema.node.c, schema.node.alias("dataset"), list[ColumnRef]()
    query = sa.select(dataset.c.name, row.name).join_from(
        schema.node, dataset, dataset.c.node_id == row.dataset_id
    )
    queries = (
        [query]
        if tables is None
        else [
            query.where(row.dataset_id.in_(nodes_of_tables(connection, some)))
            for some in slices(sorted(set(tables)), MANY)
        ]
    )
    for one in queries:
        found += [ColumnRef(table, name) for table, name in connection.execute(one)]
    return found


def recorded_since(engine: Engine) -> int | None:
    """When the first run that is recorded succeeded, in milliseconds; None before any did."""
    with reading(engine) as connection:
        return connection.execute(sa.select(sa.func.min(schema.writer.c.first_ms))).scalar()


def facts_of(engine: Engine, tables: Collection[str]) -> dict[str, TableFacts]:
    """What is recorded of the writers of data sets; nothing of one that no run wrote."""
    writer, node = schema.writer.c, schema.node.c
    query = (
        sa.select(
            node.name, writer.namespace, writer.job, writer.owners, writer.links, writer.at_ms
        )
        .join_from(schema.node, schema.writer, writer.target_id == node.node_id)
        .order_by(writer.namespace, writer.job)
    )
    found: dict[str, TableFacts] = {}
    with reading(engine) as connection:
        for some in slices(sorted(key_of(ColumnRef(name)) for name in set(tables)), MANY):
            for row in connection.execute(query.where(among(connection, schema.node.c.key, some))):
                one = TableFacts(
                    owners=tuple(row.owners),
                    jobs=(f"{row.namespace}/{row.job}",),
                    links=row.links,
                    last_ms=row.at_ms,
                )
                found[row.name] = found[row.name].joined(one) if row.name in found else one
    return found


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way by which other programs report, since when and when last by the store's clock."""

    name: str
    since_ms: int
    last_ms: int


@dataclass(frozen=True)
class SqlReads:
    """The readers of columns, in a store; of all deployments."""

    engine: Engine

    def of_tables(self, tables: Collection[str]) -> list[Read]:
        """The last read by each consumer of each of these data sets, and of each of their columns;
        the last one first.
        """
        found: list[Read] = []
        names = sorted(set(tables))
        with reading(self.engine) as connection:
            for some in slices(names, MANY):
                found += _readers(connection, some)
        return sorted(found, key=lambda one: (-one.at_ms, one.consumer, str(one.refs[0])))

    def ways(self) -> list[Way]:
        """The ways by which reads are reported; without one it is unknown who reads, which is
        another answer than nobody.
        """
        with reading(self.engine) as connection:
            row = schema.way.c
            ways = sa.select(row.name, row.since_ms, row.last_ms).order_by(row.name)
            return [Way(**one._asdict()) for one in connection.execute(ways)]


def checkpoint_of_way(engine: Engine, name: str) -> str | None:
    """Up to where a way was read; None where it never was."""
    with reading(engine) as connection:
        return connection.execute(
            sa.select(schema.way.c.checkpoint).where(schema.way.c.name == name)
        ).scalar()


def _readers(connection: Connection, tables: Sequence[str]) -> list[Read]:
    node, datasets = schema.node, nodes_of_tables(connection, tables)
    columns = sa.select(node.c.node_id).where(node.c.dataset_id.in_(datasets))
    query = sa.select(schema.read, schema.consumer).join(
        schema.consumer, schema.consumer.c.consumer_id == schema.read.c.consumer_id
    )
    query = query.where(
        sa.or_(schema.read.c.node_id.in_(datasets), schema.read.c.node_id.in_(columns))
    )
    rows = connection.execute(query).all()
    refs = refs_of(connection, {row.node_id for row in rows})
    return [
        Read(
            consumer=Consumer(ConsumerKind(row.kind), row.namespace, row.name),
            refs=(refs[row.node_id],),
            at_ms=row.last_ms,
            owners=tuple(row.owners),
            link=row.link,
        )
        for row in rows
    ]
