"""The graph of data sets and columns as it holds at one time, in memory.

The node of a data set stands for its rows: which there are. A column that decides on the rows of a target leads to its node, and so
does each data set that is read; what follows from the rows of a data set follows for each of its columns.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.csr import Adjacency, Edges, Nodes, edges_from, joined_edges
from lakechime_dagster.lineage.graph.parts import Part, edges_of, is_unsure, parts_of
from lakechime_dagster.lineage.record import Statement

DIRECT_CODES = 3  # the codes of DIRECT kinds are one to three


@dataclass(frozen=True, eq=False)
class Network:
    """Data sets and their columns as nodes, those of one data set beside each other: first itself, then its columns.

    `inputs` lead from data set to data set, by the parts that they have. `edges` lead from a column, or a data set, to a column, or
    to a data set whose rows it decides on, by the codes of kinds. `unsure` lead from a data set to what may come from any of its
    columns.
    """

    tables: Mapping[str, int]
    labels: tuple[str, ...]
    datasets: Nodes  # of each node the node of its data set
    inputs: Edges
    edges: Edges
    unsure: Edges

    def __len__(self) -> int:
        return len(self.labels)

    def node(self, ref: ColumnRef) -> int | None:
        """The node of a data set or column, if it is there."""
        table = self.tables.get(ref.table)
        if table is None or ref.column is None:
            return table
        return next((node for node in self.columns_of(table) if self.labels[node] == ref.column), None)

    def ref(self, node: int) -> ColumnRef:
        table = int(self.datasets[node])
        return ColumnRef(self.labels[table], None if table == node else self.labels[node])

    def columns_of(self, table: int) -> range:
        """The nodes of the columns of a data set."""
        return range(table + 1, int(np.searchsorted(self.datasets, np.int32(table), side="right")))

    def having(self, refs: Iterable[ColumnRef]) -> "Network":
        """The network with nodes for such columns of its data sets as nothing was told of."""
        new = {ref for ref in refs if ref.column is not None and ref.table in self.tables and self.node(ref) is None}
        if not new:
            return self
        added = sorted((self.columns_of(self.tables[ref.table]).stop, str(ref.column)) for ref in new)
        places = np.array([place for place, _ in added], np.int32)
        moved = np.arange(len(self), dtype=np.int32) + np.searchsorted(places, np.arange(len(self)), side="right").astype(np.int32)
        labels = list(self.labels)
        for place, name in reversed(added):
            labels.insert(place, name)
        return Network(
            tables={name: int(moved[node]) for name, node in self.tables.items()}, labels=tuple(labels),
            datasets=moved[np.insert(self.datasets, places, self.datasets[places - 1])],
            inputs=_renumbered(self.inputs, moved), edges=_renumbered(self.edges, moved), unsure=_renumbered(self.unsure, moved),
        )  # fmt: skip

    @cached_property
    def direct(self) -> Adjacency:
        return Adjacency(self.edges.where(np.abs(self.edges.kinds) <= DIRECT_CODES), len(self))

    @cached_property
    def indirect(self) -> Adjacency:
        return Adjacency(self.edges.where(np.abs(self.edges.kinds) > DIRECT_CODES), len(self))

    @cached_property
    def reading(self) -> Adjacency:
        """From data set to data set: inputs that a run told of."""
        return Adjacency(self.inputs.where(self.inputs.kinds & Part.DECLARED == 0), len(self))

    @cached_property
    def declared(self) -> Adjacency:
        """From data set to data set: inputs that are declared, and no run told of."""
        return Adjacency(self.inputs.where(self.inputs.kinds & Part.DECLARED != 0), len(self))

    @cached_property
    def maybe(self) -> Adjacency:
        """From data set to a column or data set: what may come from any of its columns, and what is declared to read it."""
        return Adjacency(joined_edges([self.unsure, self.declared.edges]), len(self))

    @cached_property
    def leaving(self) -> tuple[Adjacency, Adjacency, Adjacency]:
        """Inputs, edges and unsure ones of all kinds, by where they begin."""
        inputs, edges, unsure = (Adjacency(one, len(self)) for one in (self.inputs, self.edges, self.unsure))
        return inputs, edges, unsure

    @cached_property
    def backwards(self) -> "Backwards":
        sides = (self.direct, self.indirect, self.reading, self.declared, self.maybe)
        return Backwards(*(Adjacency(one.edges.reversed(), len(self)) for one in sides))


@dataclass(frozen=True, eq=False)
class Backwards:
    """The edges of a network the other way round."""

    direct: Adjacency
    indirect: Adjacency
    reading: Adjacency
    declared: Adjacency
    maybe: Adjacency


class Drawing:
    """A network while it is drawn: nodes by the order in which they are met, edges by these numbers."""

    def __init__(self) -> None:
        self.tables: dict[str, int] = {}
        self.columns: dict[int, dict[str, int]] = {}
        self.labels: list[str] = []
        self.datasets: list[int] = []

    def table(self, name: str) -> int:
        """The node of a data set, made if it is new."""
        if (found := self.tables.get(name)) is not None:
            return found
        self.tables[name] = number = len(self.labels)
        self.columns[number] = {}
        self.labels.append(name)
        self.datasets.append(number)
        return number

    def column(self, table: int, name: str) -> int:
        """The node of a column, made if it is new."""
        held = self.columns[table]
        if (found := held.get(name)) is not None:
            return found
        held[name] = number = len(self.labels)
        self.labels.append(name)
        self.datasets.append(table)
        return number

    def ref(self, ref: ColumnRef) -> int:
        table = self.table(ref.table)
        return table if ref.column is None else self.column(table, ref.column)

    def network(self, inputs: Edges, edges: Edges, unsure: Edges) -> Network:
        """The network of these edges, whose nodes are numbered anew."""
        order = np.argsort(np.array(self.datasets, np.int32), kind="stable")
        new = np.empty(len(order), np.int32)
        new[order] = np.arange(len(order), dtype=np.int32)
        datasets = new[np.array(self.datasets, np.int32)[order]] if len(order) else np.empty(0, np.int32)
        return Network(
            tables={name: int(new[number]) for name, number in self.tables.items()},
            labels=tuple(self.labels[number] for number in order),
            datasets=datasets,
            inputs=_renumbered(inputs, new), edges=_renumbered(edges, new), unsure=_renumbered(unsure, new),
        )  # fmt: skip


Rows = list[tuple[int, int, int]]


def network_of(statements: Iterable[Statement], declared: Iterable[Statement] = (), told: Collection[str] | None = None) -> Network:
    """The network of statements, and of what is declared beside them (`declared_drawn`).

    `told` names the data sets whose own flows told of them: all of which there are statements, unless given.
    """
    drawing, inputs, edges, unsure = Drawing(), Rows(), Rows(), Rows()
    for one in statements:
        for rows, more in zip((inputs, edges, unsure), drawn(drawing, one), strict=True):
            rows += more
    known = {row[:2] for row in inputs if told is None or drawing.labels[row[1]] in told}
    for rows, more in zip((inputs, edges, unsure), declared_drawn(drawing, declared, known), strict=True):
        rows += more
    return drawing.network(edges_from(inputs), edges_from(edges), edges_from(unsure))


def drawn(drawing: Drawing, statement: Statement) -> tuple[Rows, Rows, Rows]:
    """The inputs, edges and unsure edges of a statement, as (source, target, kind)."""
    target = drawing.table(statement.target)
    for column in statement.columns:
        drawing.column(target, column.column)
    inputs = [(drawing.table(name), target, int(part)) for name, part in parts_of(statement).items()]
    edges = [(drawing.ref(source), drawing.ref(to), code) for source, to, code in edges_of(statement)]
    maybe = [drawing.column(target, column.column) for column in statement.columns if column.opaque]
    maybe += [target] if statement.unknown else []
    return inputs, edges, [(source, to, 0) for source, _, _ in inputs for to in maybe] if is_unsure(statement) else []


def declared_drawn(drawing: Drawing, declared: Iterable[Statement], known: Collection[tuple[int, int]]) -> tuple[Rows, Rows, Rows]:
    """What declared statements add to the inputs that their flows told: as (source, target, kind) of inputs, edges and unsure ones.

    One that tells columns, since it was planned, is drawn as if a run had told it, where no run of its flow told anything of its
    target; what others write there says nothing of it. Of others, and elsewhere, the inputs that are not known are declared ones.
    """
    inputs, edges, unsure = Rows(), Rows(), Rows()
    told, pairs = {target for _, target in known}, set(known)
    for one in sorted(declared, key=lambda one: not one.columns):
        target = drawing.table(one.target)
        if one.columns and target not in told:
            for rows, more in zip((inputs, edges, unsure), drawn(drawing, one), strict=True):
                rows += more
            pairs |= {row[:2] for row in inputs}
        new = [drawing.table(name) for name in parts_of(one)]
        inputs += [(source, target, int(Part.DECLARED)) for source in new if (source, target) not in pairs]
        pairs |= {(source, target) for source in new}
    return inputs, edges, unsure


def _renumbered(edges: Edges, new: NDArray[np.int32]) -> Edges:
    return Edges(new[edges.sources], new[edges.targets], edges.kinds) if len(edges) else edges
