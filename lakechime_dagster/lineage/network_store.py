"""Recorded lineage as a network in memory: all of it, or what is around data sets."""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import among, reading, slices
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import ColumnRef, Statement
from lakechime_dagster.lineage.graph import parts_of
from lakechime_dagster.lineage.network import (
    Drawing,
    Edges,
    Network,
    declared_rows,
    edges_from,
    joined_edges,
    network_of,
)
from lakechime_dagster.lineage.recording import MANY, key_of
from lakechime_dagster.lineage.store import LineageStandings, columns_of, nodes_of_tables

ROWS = 100_000  # that are fetched at once


def network_at(
    engine: Engine,
    declared: Sequence[Statement] = (),
    namespace: str | None = None,
    columns: Iterable[ColumnRef] = (),
) -> Network:
    """What holds now; what is declared is in it beside what runs recorded, and so are more columns.

    `namespace` is that of the subscriptions that write what is declared: what others record says
    nothing of them. None if anybody may.
    """
    given, edge, statement, drawing, numbers = (
        schema.statement_input.c,
        schema.edge.c,
        schema.statement.c,
        Drawing(),
        dict[int, int](),
    )
    holding = sa.select(schema.writer.c.statement_id)
    inputs = sa.select(given.source_id, statement.target_id, given.parts).join_from(
        schema.statement_input, schema.statement
    )
    edges = sa.select(edge.source_id, edge.target_id, edge.kind)
    with reading(engine) as connection:
        row = schema.node.c
        nodes = sa.select(row.node_id, row.dataset_id, row.name).order_by(
            row.dataset_id.isnot(None), row.node_id
        )
        for number, dataset, name in connection.execute(nodes.execution_options(yield_per=ROWS)):
            numbers[number] = (
                drawing.table(name) if dataset is None else drawing.column(numbers[dataset], name)
            )
        recorded = [
            _edges(connection, query.where(number.in_(holding)), numbers)
            for query, number in ((inputs, given.statement_id), (edges, edge.statement_id))
        ]
        own = _own_of(connection, declared, namespace)
    known = set(zip(recorded[0].sources.tolist(), recorded[0].targets.tolist(), strict=True))
    if own is not None:
        known = {pair for pair in known if drawing.labels[pair[1]] in own}
    more = declared_rows(drawing, declared, known)
    for ref in columns:
        drawing.ref(ref)
    return drawing.network(
        *(joined_edges([one, edges_from(rows)]) for one, rows in zip(recorded, more, strict=True))
    )


def _edges(connection: Connection, query: sa.Select[Any], numbers: dict[int, int]) -> Edges:
    """Rows of (source, target, kind), by the numbers of the drawing."""
    several = [
        _array(rows)
        for rows in connection.execute(query.execution_options(yield_per=ROWS)).partitions()
    ]
    found = np.concatenate([np.empty((0, 3), np.int64), *several])
    new = np.zeros(max(numbers, default=0) + 1, np.int32)
    new[list(numbers)] = list(numbers.values())
    return Edges(new[found[:, 0]], new[found[:, 1]], found[:, 2].astype(np.int8))


def _array(rows: Sequence[sa.Row[Any]]) -> NDArray[np.int64]:
    return np.fromiter(chain.from_iterable(rows), np.int64, 3 * len(rows)).reshape(-1, 3)


def _own_of(
    connection: Connection, declared: Iterable[Statement], namespace: str | None
) -> set[str] | None:
    """The declared data sets that their own subscriptions wrote, if these are known by a
    namespace.
    """
    if namespace is None:
        return None
    found, writer, node = set[str](), schema.writer.c, schema.node.c
    subscriptions = {one.target for one in declared}
    query = sa.select(node.name, writer.job).join_from(
        schema.writer, schema.node, node.node_id == writer.target_id
    )
    query = query.where(writer.namespace == namespace).distinct()
    for some in slices(sorted(key_of(ColumnRef(name)) for name in subscriptions), MANY):
        found.update(
            name
            for name, job in connection.execute(query.where(among(connection, node.key, some)))
            if job in subscriptions
        )
    return found


LARGE = 5_000  # data sets: to look for more of them costs more than to read all


def network_around(
    engine: Engine,
    tables: Collection[str],
    *,
    upstream: bool = False,
    depth: int | None = None,
    declared: Sequence[Statement] = (),
    namespace: str | None = None,
    columns: Iterable[ColumnRef] = (),
    large: int = LARGE,
) -> Network | None:
    """What holds of what data sets lead to, or with `upstream` of what leads to them, within so
    many edges.

    What is asked of it in that direction has the answer of the whole network, since all that was
    recorded of each of its data sets is in it. None where more than `large` data sets are found.
    `namespace` and `columns` are as in `network_at`.
    """
    found, layer, edges = set(tables), set(tables), 0
    while layer and edges != depth:
        layer, edges = (
            set[str]().union(*neighbours(engine, layer, declared, upstream=upstream).values())
            - found,
            edges + 1,
        )
        found |= layer
        if len(found) > large:
            return None
    # which name columns of these
    found |= {one.target for one in declared if one.columns and not found.isdisjoint(parts_of(one))}
    return network_among(engine, found, declared, namespace, columns)


def neighbours(
    engine: Engine, tables: Collection[str], declared: Iterable[Statement], *, upstream: bool
) -> dict[str, set[str]]:
    """By data set those that read it, or with `upstream` those that it reads, as it is recorded and
    as it is declared.
    """
    found: dict[str, set[str]] = {}
    for one in declared:
        for name in parts_of(one):
            near, far = (one.target, name) if upstream else (name, one.target)
            if near in tables:
                found.setdefault(near, set()).add(far)
    row, given = schema.writer.c, schema.statement_input.c
    near, far = schema.node.alias("near"), schema.node.alias("far")
    here, there = (row.target_id, given.source_id) if upstream else (given.source_id, row.target_id)
    query = (
        sa.select(near.c.name, far.c.name)
        .distinct()
        .join_from(schema.statement_input, schema.writer, row.statement_id == given.statement_id)
        .join(near, near.c.node_id == here)
        .join(far, far.c.node_id == there)
    )
    with reading(engine) as connection:
        for some in slices(sorted(set(tables)), MANY):
            for name, other in connection.execute(
                query.where(here.in_(nodes_of_tables(connection, some)))
            ):
                found.setdefault(name, set()).add(other)
    return found


def network_among(
    engine: Engine,
    tables: Collection[str],
    declared: Sequence[Statement] = (),
    namespace: str | None = None,
    columns: Iterable[ColumnRef] = (),
) -> Network:
    """What holds of these data sets, with all of their columns; `namespace` and `columns` are as in
    `network_at`.
    """
    with reading(engine) as connection:
        known = columns_of(connection, tables)
    standings = LineageStandings(engine).of_targets(tables)
    subscriptions = {one.target for one in declared}
    own = {
        one.statement.target
        for one in standings
        if one.producer.namespace == namespace and one.producer.job in subscriptions
    }
    return network_of(
        [one.statement for one in standings],
        [one for one in declared if one.target in tables],
        None if namespace is None else own,
        [*known, *columns],
    )
