"""What recorded lineage says, read into arrays: what was told, which of it holds, and the nodes between which it leads."""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection

from lakechime_dagster.lineage.graph.csr import Edges, edges_from, joined_edges
from lakechime_dagster.lineage.graph.network import Drawing, Network, declared_drawn
from lakechime_dagster.lineage.graph.parts import Part
from lakechime_dagster.lineage.record import Statement
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.lineage import schema
from lakechime_dagster.store.lineage.names import MANY
from lakechime_dagster.store.slices import slices

ROWS = 100_000  # that are fetched at once
Told = NDArray[np.int64]  # rows of (what was told, source, target, kind), by the numbers of the drawing


class Held:
    """Nodes and edges that were read, and which of them hold.

    Args:
        datasets: Those whose columns are all among the nodes, beside all that is met on edges; all there are unless given.
    """

    def __init__(self, datasets: Collection[int] | None = None) -> None:
        self._datasets = datasets
        self.holds: dict[int, int] = {}  # what was told, by interval
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

        `told` names the data sets whose own flows told of them: of which anybody told, unless given.
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
