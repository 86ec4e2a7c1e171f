"""Recorded lineage as a network in memory."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from lakechime_dagster.lineage.graph import Part, parts_of
from lakechime_dagster.lineage.network import Drawing, Edges, Network, declared_drawn, edges_from, joined_edges
from lakechime_dagster.lineage.recording import MANY, key_of
from lakechime_dagster.lineage.store import told_by_subscriptions

ROWS = 100_000  # that are fetched at once
Told = NDArray[np.int64]  # rows of (what was told, source, target, kind), by the numbers of the drawing


class Held:
    """Nodes and edges that were read, and which of them hold.

    Args:
        datasets: Those whose columns are all among the nodes, beside all that is met on edges; all there are unless given.
    """

    def __init__(self, datasets: Collection[int] | None = None) -> None:
        self._datasets = datasets
        self.holds: dict[int, int] = {}  # what was told, by writer
        self._drawing = Drawing()
        self._numbers: dict[int, int] = {}  # nodes of the drawing by those of the store
        self._read: set[int] = set()  # what was told and is in the arrays
        self._inputs: list[Told] = []
        self._edges: list[Told] = []
        self._unsure: list[Told] = []

    def hold(self, connection: Connection, holds: dict[int, int]) -> bool:
        """Let this be what holds; whether it was anything else."""
        is_changed, self.holds = holds != self.holds, holds
        self._read_datasets(connection, self._datasets or ())
        if new := set(holds.values()) - self._read:
            self._read_told(connection, sorted(new))
            self._read |= new
        return is_changed

    def network(self, declared: Iterable[Statement], told: Collection[str] | None = None) -> Network:
        """The network of what holds, and of what is declared (`declared_drawn`).

        `told` names the data sets whose own subscriptions told of them: of which anybody told, unless given.
        """
        inputs, edges, unsure = (self._holding(rows) for rows in (self._inputs, self._edges, self._unsure))
        known = set(zip(inputs.sources.tolist(), inputs.targets.tolist(), strict=True))
        if told is not None:
            own = {number for name in told if (number := self._drawing.tables.get(name)) is not None}
            known = {pair for pair in known if pair[1] in own}
        more = [edges_from(rows) for rows in declared_drawn(self._drawing, declared, known)]
        whole = [joined_edges([recorded, beside]) for recorded, beside in zip((inputs, edges, unsure), more, strict=True)]
        return self._drawing.network(*whole)

    def _holding(self, several: list[Told]) -> Edges:
        rows = np.concatenate([np.empty((0, 4), np.int64), *several])
        holds = np.zeros(max(self._read, default=0) + 1, np.bool_)
        holds[list(set(self.holds.values()))] = True
        rows = rows[holds[rows[:, 0]]]
        return Edges(rows[:, 1].astype(np.int32), rows[:, 2].astype(np.int32), rows[:, 3].astype(np.int8))

    def _read_told(self, connection: Connection, new: list[int]) -> None:
        given, edge, told = schema.told_input.c, schema.told_edge.c, schema.told.c
        of_inputs = sa.select(given.told_id, given.source_id, told.target_id, given.parts).join_from(schema.told_input, schema.told)
        of_edges = sa.select(edge.told_id, edge.source_id, edge.target_id, edge.kind)
        inputs = _fetched(connection, of_inputs, given.told_id, new)
        edges = _fetched(connection, of_edges, edge.told_id, new)
        if self._datasets is None:
            self._read_nodes(connection)
        else:
            self._read_datasets(connection, inputs[:, 1].tolist())
        inputs[:, 1:3] = self._numbered(inputs[:, 1:3])
        edges[:, 1:3] = self._numbered(edges[:, 1:3])
        self._inputs.append(inputs)
        self._edges.append(edges)
        self._unsure.append(self._unsure_of(connection, inputs[inputs[:, 3] & Part.UNSURE != 0]))

    def _read_nodes(self, connection: Connection) -> None:
        """Add the nodes that are new; a smaller number may come later than a greater one."""
        count = connection.execute(sa.select(sa.func.count()).select_from(schema.node)).scalar_one()
        if count != len(self._numbers):
            self._draw(connection, sa.true())

    def _read_datasets(self, connection: Connection, datasets: Iterable[int]) -> None:
        """Add these data sets with their columns."""
        keys = schema.node.c.node_id, schema.node.c.dataset_id
        for some in slices(sorted(set(datasets) - self._numbers.keys()), MANY):
            self._draw(connection, sa.or_(*(among(connection, key, some) for key in keys)))

    def _draw(self, connection: Connection, which: sa.ColumnElement[bool]) -> None:
        """Add nodes, data sets before their columns."""
        row = schema.node.c
        query = sa.select(row.node_id, row.dataset_id, row.name).where(which).order_by(row.dataset_id.isnot(None), row.node_id)
        for number, dataset, name in connection.execute(query.execution_options(yield_per=ROWS)):
            if number not in self._numbers:
                table = self._drawing.table(name) if dataset is None else self._numbers[dataset]
                self._numbers[number] = table if dataset is None else self._drawing.column(table, name)

    def _numbered(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers = np.zeros(max(self._numbers, default=0) + 1, np.int64)
        numbers[list(self._numbers)] = list(self._numbers.values())
        return numbers[nodes]

    def _unsure_of(self, connection: Connection, inputs: Told) -> Told:
        """From each data set that takes part in an unknown way to the columns of which it may be a source, or to all of its target."""
        sources: dict[int, list[int]] = {}
        for number, source, _, _ in inputs.tolist():
            sources.setdefault(number, []).append(source)
        told = schema.told.c
        query = sa.select(told.told_id, told.target_id, told.opaque, told.unknown)
        rows: list[tuple[int, int, int, int]] = []
        for some in slices(sorted(sources), MANY):
            for one in connection.execute(query.where(among(connection, told.told_id, some))):
                target = self._numbers[one.target_id]
                nodes = [self._drawing.column(target, name) for name in one.opaque] + ([target] if one.unknown else [])
                rows += [(one.told_id, source, node, 0) for source in sources[one.told_id] for node in nodes]
        return np.array(rows, np.int64).reshape(-1, 4)


def _fetched(connection: Connection, query: sa.Select[Any], number: sa.Column[Any], told: list[int]) -> Told:
    """Rows of what was told: by their numbers where these are few, else all of them."""
    if len(told) > MANY:
        wanted = np.zeros(told[-1] + 1, np.bool_)
        wanted[told] = True
        several = [
            _array(some) for some in connection.execute(query.where(number <= told[-1]).execution_options(yield_per=ROWS)).partitions()
        ]
        return np.concatenate([np.empty((0, 4), np.int64), *(rows[wanted[rows[:, 0]]] for rows in several)])
    return _array(connection.execute(query.where(among(connection, number, told))).all())


def _array(rows: Sequence[sa.Row[Any]]) -> Told:
    return np.fromiter(chain.from_iterable(rows), np.int64, 4 * len(rows)).reshape(-1, 4)


def network_at(engine: Engine, declared: Sequence[Statement] = (), namespace: str | None = None) -> Network:
    """What holds now; what is declared is in it beside what runs told.

    `namespace` is that of the subscriptions that write what is declared: what others tell says nothing of them. None if anybody may.
    """
    row, held = schema.writer.c, Held()
    with reading(engine) as connection:
        held.hold(connection, dict(connection.execute(sa.select(row.writer_id, row.told_id)).tuples().all()))
        told = told_of(connection, declared, namespace)
    return held.network(declared, told)


def told_of(connection: Connection, declared: Iterable[Statement], namespace: str | None) -> set[str] | None:
    """The declared data sets of which their own subscriptions told, if these are known by a namespace."""
    return None if namespace is None else told_by_subscriptions(connection, {one.target for one in declared}, namespace)


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
        query = sa.select(row.writer_id, row.told_id, row.change).where(row.change >= self._position)
        with reading(self._engine) as connection:
            bound = high_water(connection)  # what is below it has ended: nothing more comes there
            changed = connection.execute(query).all()
            is_changed = self._held.hold(connection, {**self._held.holds, **{writer.writer_id: writer.told_id for writer in changed}})
            if is_changed or self._told is None:
                self._told = told_of(connection, self._declared, self._namespace)
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
    large: int = LARGE,
) -> Network | None:
    """What holds of what data sets lead to, or with `upstream` of what leads to them, within so many steps.

    What is asked of it in that direction has the answer of the whole network, since all that was told of each of its data sets is in
    it. None where more than `large` data sets are found. `namespace` is as in `network_at`.
    """
    statements = list(declared)
    with reading(engine) as connection:
        search = _Search(connection, _declared_steps(statements, upstream=upstream), upstream)
        found = search.found(tables, depth, large)
        if found is None:
            return None
        planned = {one.target for one in statements if one.columns and not found.names.isdisjoint(parts_of(one))}
        search.add(found, planned - found.names)  # which columns of these data sets are known, they tell too
        held = Held(found.numbers)
        held.hold(connection, search.told_of(found.numbers))
        beside = [one for one in statements if one.target in found.names]
        told = told_of(connection, beside, namespace)
    return held.network(beside, told)


@dataclass(frozen=True)
class _Found:
    """Data sets by name, and the numbers of those that are recorded."""

    names: set[str]
    numbers: set[int]


@dataclass(frozen=True)
class _Search:
    """Goes from data sets to those that read them, or to those that they read, as it is recorded and as it is declared."""

    connection: Connection
    declared: Mapping[str, Collection[str]]
    upstream: bool

    def found(self, tables: Collection[str], depth: int | None, large: int) -> _Found | None:
        found, low_watermark, steps = _Found(set(tables), set()), set(tables), 0
        while low_watermark:
            numbers = self._numbers_of(low_watermark)
            found.numbers.update(numbers)
            if len(found.numbers) > large:
                return None
            if steps == depth:
                break
            near = self._recorded_steps(numbers) | {name for one in low_watermark for name in self.declared.get(one, ())}
            low_watermark, steps = near - found.names, steps + 1
            found.names.update(low_watermark)
        return found

    def add(self, found: _Found, names: Collection[str]) -> None:
        """Add data sets to those that were found."""
        found.names.update(names)
        found.numbers.update(self._numbers_of(names))

    def told_of(self, targets: Collection[int]) -> dict[int, int]:
        """What holds of targets, by writer."""
        row, found = schema.writer.c, dict[int, int]()
        for some in slices(sorted(targets), MANY):
            query = sa.select(row.writer_id, row.told_id).where(among(self.connection, row.target_id, some))
            found |= dict(self.connection.execute(query).tuples().all())
        return found

    def _recorded_steps(self, numbers: Collection[int]) -> set[str]:
        row, given = schema.writer.c, schema.told_input.c
        here, there = (row.target_id, given.source_id) if self.upstream else (given.source_id, row.target_id)
        query = (
            sa.select(schema.node.c.name)
            .distinct()
            .join_from(schema.told_input, schema.writer, row.told_id == given.told_id)
            .join(schema.node, schema.node.c.node_id == there)
        )
        several = (self.connection.execute(query.where(among(self.connection, here, some))) for some in slices(sorted(numbers), MANY))
        return {name for rows in several for (name,) in rows}

    def _numbers_of(self, names: Iterable[str]) -> set[int]:
        found, row = set[int](), schema.node.c
        for some in slices(sorted(key_of(ColumnRef(name)) for name in names), MANY):
            found.update(self.connection.execute(sa.select(row.node_id).where(among(self.connection, row.key, some))).scalars())
        return found


def _declared_steps(declared: Iterable[Statement], *, upstream: bool) -> dict[str, set[str]]:
    steps: dict[str, set[str]] = {}
    for one in declared:
        for name in parts_of(one):
            start, end = (one.target, name) if upstream else (name, one.target)
            steps.setdefault(start, set()).add(end)
    return steps
