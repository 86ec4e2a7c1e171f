"""Recorded lineage as a network in memory."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import among, high_water, reading, slices
from lakechime_dagster.lineage import schema
from lakechime_dagster.lineage.columns import ColumnRef, Statement
from lakechime_dagster.lineage.graph import parts_of
from lakechime_dagster.lineage.network import Drawing, Edges, Network, declared_rows, edges_from, joined_edges, network_of
from lakechime_dagster.lineage.recording import MANY, key_of
from lakechime_dagster.lineage.store import LineageStandings, columns_of, nodes_of_tables

ROWS = 100_000  # that are fetched at once
Rows = NDArray[np.int64]  # of (statement, source, target, kind), by the numbers of the drawing


class Held:
    """Nodes and edges that were read, and which of them hold."""

    def __init__(self) -> None:
        self.holds: dict[int, int] = {}  # statements, by writer
        self._drawing = Drawing()
        self._numbers: dict[int, int] = {}  # nodes of the drawing by those of the store
        self._read: set[int] = set()  # statements that are in the arrays
        self._inputs: list[Rows] = []
        self._edges: list[Rows] = []

    def hold(self, connection: Connection, holds: dict[int, int]) -> bool:
        """Let this be what holds; whether it was anything else."""
        is_changed, self.holds = holds != self.holds, holds
        if new := set(holds.values()) - self._read:
            self._read_statements(connection, sorted(new))
            self._read |= new
        return is_changed

    def network(self, declared: Iterable[Statement], told: Collection[str] | None = None, columns: Iterable[ColumnRef] = ()) -> Network:
        """The network of what holds, of what is declared, and of more columns; as `network_of` makes it of statements."""
        inputs, edges = (self._holding(rows) for rows in (self._inputs, self._edges))
        known = set(zip(inputs.sources.tolist(), inputs.targets.tolist(), strict=True))
        if told is not None:
            own = {number for name in told if (number := self._drawing.tables.get(name)) is not None}
            known = {pair for pair in known if pair[1] in own}
        more = declared_rows(self._drawing, declared, known)
        for ref in columns:
            self._drawing.ref(ref)
        return self._drawing.network(*(joined_edges([one, edges_from(rows)]) for one, rows in zip((inputs, edges), more, strict=True)))

    def _holding(self, several: list[Rows]) -> Edges:
        rows = np.concatenate([np.empty((0, 4), np.int64), *several])
        holds = np.zeros(max(self._read, default=0) + 1, np.bool_)
        holds[list(set(self.holds.values()))] = True
        rows = rows[holds[rows[:, 0]]]
        return Edges(rows[:, 1].astype(np.int32), rows[:, 2].astype(np.int32), rows[:, 3].astype(np.int8))

    def _read_statements(self, connection: Connection, new: list[int]) -> None:
        given, edge, target = schema.statement_input.c, schema.edge.c, schema.statement.c.target_id
        inputs = sa.select(given.statement_id, given.source_id, target, given.parts).join_from(schema.statement_input, schema.statement)
        edges = sa.select(edge.statement_id, edge.source_id, edge.target_id, edge.kind)
        found = _fetched(connection, inputs, given.statement_id, new), _fetched(connection, edges, edge.statement_id, new)
        self._read_nodes(connection)
        for kept, rows in zip((self._inputs, self._edges), found, strict=True):
            rows[:, 1:3] = self._numbered(rows[:, 1:3])
            kept.append(rows)

    def _read_nodes(self, connection: Connection) -> None:
        """Draw the nodes that are new, data sets before their columns; a smaller number may come later than a greater one."""
        count = connection.execute(sa.select(sa.func.count()).select_from(schema.node)).scalar_one()
        if count == len(self._numbers):
            return
        row = schema.node.c
        query = sa.select(row.node_id, row.dataset_id, row.name).order_by(row.dataset_id.isnot(None), row.node_id)
        for number, dataset, name in connection.execute(query.execution_options(yield_per=ROWS)):
            if number not in self._numbers:
                self._numbers[number] = self._drawing.table(name) if dataset is None else self._drawing.column(self._numbers[dataset], name)

    def _numbered(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers = np.zeros(max(self._numbers, default=0) + 1, np.int64)
        numbers[list(self._numbers)] = list(self._numbers.values())
        return numbers[nodes]


def _fetched(connection: Connection, query: sa.Select[Any], number: sa.Column[Any], statements: list[int]) -> Rows:
    """Rows of statements: by their numbers where these are few, else all of them."""
    if len(statements) > MANY:
        wanted = np.zeros(statements[-1] + 1, np.bool_)
        wanted[statements] = True
        found = connection.execute(query.where(number <= statements[-1]).execution_options(yield_per=ROWS)).partitions()
        return np.concatenate([np.empty((0, 4), np.int64), *(rows[wanted[rows[:, 0]]] for rows in map(_array, found))])
    return _array(connection.execute(query.where(among(connection, number, statements))).all())


def _array(rows: Sequence[sa.Row[Any]]) -> Rows:
    return np.fromiter(chain.from_iterable(rows), np.int64, 4 * len(rows)).reshape(-1, 4)


def network_at(
    engine: Engine, declared: Sequence[Statement] = (), namespace: str | None = None, columns: Iterable[ColumnRef] = ()
) -> Network:
    """What holds now; what is declared is in it beside what runs told, and so are more columns.

    `namespace` is that of the subscriptions that write what is declared: what others tell says nothing of them. None if anybody may.
    """
    row, held = schema.writer.c, Held()
    with reading(engine) as connection:
        held.hold(connection, dict(connection.execute(sa.select(row.writer_id, row.statement_id)).tuples().all()))
        told = _told_of(connection, declared, namespace)
    return held.network(declared, told, columns)


def _told_of(connection: Connection, declared: Iterable[Statement], namespace: str | None) -> set[str] | None:
    """The declared data sets of which their own subscriptions told, if these are known by a namespace."""
    if namespace is None:
        return None
    found, writer, node = set[str](), schema.writer.c, schema.node.c
    subscriptions = {one.target for one in declared}
    query = sa.select(node.name, writer.job).join_from(schema.writer, schema.node, node.node_id == writer.target_id)
    query = query.where(writer.namespace == namespace).distinct()
    for some in slices(sorted(key_of(ColumnRef(name)) for name in subscriptions), MANY):
        found.update(name for name, job in connection.execute(query.where(among(connection, node.key, some))) if job in subscriptions)
    return found


class CurrentNetwork:
    """What holds now, for a process that asks often: only what has changed since the last time is read."""

    def __init__(self, engine: Engine, declared: Sequence[Statement] = (), namespace: str | None = None) -> None:
        self._engine, self._declared, self._namespace = engine, declared, namespace
        self._told: set[str] | None = None
        self._lock, self._held, self._position = Lock(), Held(), 0
        self._network: Network | None = None

    def network(self) -> Network:
        """The network as the store has it at this moment; the same one again while nothing changes."""
        with self._lock:
            if self._has_changed() or self._network is None:
                self._network = self._held.network(self._declared, self._told)
            return self._network

    def _has_changed(self) -> bool:
        row = schema.writer.c
        query = sa.select(row.writer_id, row.statement_id, row.change).where(row.change >= self._position)
        with reading(self._engine) as connection:
            bound = high_water(connection)  # what is below it has ended: nothing more comes there
            changed = connection.execute(query).all()
            is_changed = self._held.hold(connection, {**self._held.holds, **{one.writer_id: one.statement_id for one in changed}})
            if is_changed or self._told is None:
                self._told = _told_of(connection, self._declared, self._namespace)
        newest = max((writer.change for writer in changed), default=self._position - 1)
        self._position = min(bound, newest + 1)
        return is_changed


LARGE = 5_000  # data sets: to look for more of them costs more than to read all


def network_around(
    engine: Engine,
    tables: Collection[str],
    *,
    upstream: bool = False,
    depth: int | None = None,
    declared: Iterable[Statement] = (),
    namespace: str | None = None,
    columns: Iterable[ColumnRef] = (),
    large: int = LARGE,
) -> Network | None:
    """What holds of what data sets lead to, or with `upstream` of what leads to them, within so many edges.

    What is asked of it in that direction has the answer of the whole network, since all that was told of each of its data sets is in
    it. None where more than `large` data sets are found. `namespace` and `columns` are as in `network_at`.
    """
    statements = list(declared)
    ahead = _declared_edges(statements, upstream=upstream)
    found, layer, edges = set(tables), set(tables), 0
    with reading(engine) as connection:
        while layer and edges != depth:
            near = _recorded_next(connection, layer, upstream) | {name for one in layer for name in ahead.get(one, ())}
            layer, edges = near - found, edges + 1
            found |= layer
            if len(found) > large:
                return None
        found |= {one.target for one in statements if one.columns and not found.isdisjoint(parts_of(one))}  # which name columns of these
        known = columns_of(connection, found)
    standings = LineageStandings(engine).of_targets(found)
    subscriptions = {one.target for one in statements}
    own = {one.statement.target for one in standings if one.producer.namespace == namespace and one.producer.job in subscriptions}
    return network_of(
        [one.statement for one in standings],
        [one for one in statements if one.target in found],
        None if namespace is None else own,
        [*known, *columns],
    )


def _recorded_next(connection: Connection, tables: Iterable[str], upstream: bool) -> set[str]:
    """The data sets that read others, or with `upstream` those that these read."""
    row, given, found = schema.writer.c, schema.statement_input.c, set[str]()
    here, there = (row.target_id, given.source_id) if upstream else (given.source_id, row.target_id)
    query = (
        sa.select(schema.node.c.name)
        .distinct()
        .join_from(schema.statement_input, schema.writer, row.statement_id == given.statement_id)
        .join(schema.node, schema.node.c.node_id == there)
    )
    for some in slices(sorted(tables), MANY):
        found.update(connection.execute(query.where(here.in_(nodes_of_tables(connection, some)))).scalars())
    return found


def _declared_edges(declared: Iterable[Statement], *, upstream: bool) -> Mapping[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for one in declared:
        for name in parts_of(one):
            start, end = (one.target, name) if upstream else (name, one.target)
            edges.setdefault(start, set()).add(end)
    return edges
