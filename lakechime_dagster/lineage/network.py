"""The graph of data sets and columns in memory."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lakechime_dagster.lineage.columns import ColumnRef, Statement
from lakechime_dagster.lineage.graph import UNKNOWN, Part, code_of, parts_of
from lakechime_dagster.tables.names import folded

Nodes: TypeAlias = NDArray[np.int32]
Flags: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Edges:
    """Pairs of nodes, and a small number for each: what kind it is of."""

    sources: Nodes
    targets: Nodes
    kinds: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.sources)

    def where(self, chosen: Flags) -> "Edges":
        return Edges(self.sources[chosen], self.targets[chosen], self.kinds[chosen])

    def reversed(self) -> "Edges":
        return Edges(self.targets, self.sources, self.kinds)


@dataclass(frozen=True, eq=False)
class Adjacency:
    """The edges that leave each of `size` nodes."""

    edges: Edges
    size: int

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(self.edges.sources, kind="stable")

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        return np.concatenate(
            ([0], np.cumsum(np.bincount(self.edges.sources, minlength=self.size)))
        ).astype(np.int64)

    @cached_property
    def _targets(self) -> Nodes:
        return self.edges.targets[self._order]

    def next_of(self, nodes: Nodes) -> Nodes:
        """Where the edges of these nodes lead, as often as there are edges."""
        return self._targets[self._indexes(nodes)]

    def edges_of(self, nodes: Nodes) -> Edges:
        """The edges that leave these nodes."""
        indexes = self._order[self._indexes(nodes)]
        return Edges(
            self.edges.sources[indexes], self.edges.targets[indexes], self.edges.kinds[indexes]
        )

    def kinds_between(self, source: int, target: int) -> list[int]:
        """The numbers of the edges from one node to another, each once."""
        indexes = self._order[self._indexes(np.array([source], np.int32))]
        return sorted(
            {int(kind) for kind in self.edges.kinds[indexes[self.edges.targets[indexes] == target]]}
        )

    def _indexes(self, nodes: Nodes) -> NDArray[np.int64]:
        if len(nodes) == 1:  # as searches begin
            return np.arange(*self._offsets[nodes[0] : nodes[0] + 2])
        starts = self._offsets[nodes]
        counts = self._offsets[nodes + 1] - starts
        total = int(counts.sum())
        return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(
            total, dtype=np.int64
        )


def none() -> Nodes:
    return np.empty(0, np.int32)


def edges_from(rows: list[tuple[int, int, int]]) -> Edges:
    """Edges of (source, target, kind)."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    return Edges(
        table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), table[:, 2].astype(np.int8)
    )


def joined_edges(several: list[Edges]) -> Edges:
    """All of them."""
    if not several:
        return edges_from([])
    return Edges(
        *(
            np.concatenate([getattr(one, name) for one in several])
            for name in ("sources", "targets", "kinds")
        )
    )


DIRECT_CODES = 3  # the codes of DIRECT kinds are one to three


@dataclass(frozen=True, eq=False)
class Network:
    """Data sets and their columns as nodes, those of one data set in a row: first itself, then its
    columns.

    `inputs` lead from data set to data set, by the parts that they have. `edges` lead from a
    column, or a data set, to a column, or to a data set whose rows it decides on, by the codes of
    kinds. `unsure` lead from a data set to what may come from any of its columns.
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
        wanted = folded(ref.column)
        return next(
            (node for node in self.columns_of(table) if folded(self.labels[node]) == wanted), None
        )

    def ref(self, node: int) -> ColumnRef:
        table = int(self.datasets[node])
        return ColumnRef(self.labels[table], None if table == node else self.labels[node])

    def columns_of(self, table: int) -> range:
        """The nodes of the columns of a data set."""
        return range(table + 1, int(np.searchsorted(self.datasets, np.int32(table), side="right")))

    @cached_property
    def direct(self) -> Adjacency:
        return Adjacency(self.edges.where(np.abs(self.edges.kinds) <= DIRECT_CODES), len(self))

    @cached_property
    def indirect(self) -> Adjacency:
        return Adjacency(self.edges.where(np.abs(self.edges.kinds) > DIRECT_CODES), len(self))

    @cached_property
    def reading(self) -> Adjacency:
        """From data set to data set: inputs that a run recorded."""
        return Adjacency(self.inputs.where(self.inputs.kinds & Part.DECLARED == 0), len(self))

    @cached_property
    def maybe(self) -> Adjacency:
        """From data set to a column or data set: what may come from any of its columns, and what is
        declared to read it.
        """
        return Adjacency(
            joined_edges([self.unsure, self.inputs.where(self.inputs.kinds & Part.DECLARED != 0)]),
            len(self),
        )

    @cached_property
    def leaving(self) -> tuple[Adjacency, Adjacency, Adjacency]:
        """Inputs, edges and unsure ones of all kinds, by where they begin."""
        inputs, edges, unsure = (
            Adjacency(one, len(self)) for one in (self.inputs, self.edges, self.unsure)
        )
        return inputs, edges, unsure

    @cached_property
    def backwards(self) -> "Backwards":
        sides = (self.direct, self.indirect, self.reading, self.maybe)
        return Backwards(*(Adjacency(one.edges.reversed(), len(self)) for one in sides))


@dataclass(frozen=True, eq=False)
class Backwards:
    """The edges of a network the other way round."""

    direct: Adjacency
    indirect: Adjacency
    reading: Adjacency
    maybe: Adjacency


class Drawing:
    """A network while it is drawn: nodes by the order in which they are met, edges by these
    numbers.
    """

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
        """The node of a column, made if it is new; it has the name by which it is met first."""
        held, key = self.columns[table], folded(name)
        if (found := held.get(key)) is not None:
            return found
        held[key] = number = len(self.labels)
        self.labels.append(name)
        self.datasets.append(table)
        return number

    def ref(self, ref: ColumnRef) -> int:
        table = self.table(ref.table)
        return table if ref.column is None else self.column(table, ref.column)

    def network(self, inputs: Edges, edges: Edges) -> Network:
        """The network of these edges, whose nodes are renumbered."""
        is_unknown = edges.kinds == UNKNOWN
        order = np.argsort(np.array(self.datasets, np.int32), kind="stable")
        new = np.empty(len(order), np.int32)
        new[order] = np.arange(len(order), dtype=np.int32)
        datasets = (
            new[np.array(self.datasets, np.int32)[order]] if len(order) else np.empty(0, np.int32)
        )
        return Network(
            tables={name: int(new[number]) for name, number in self.tables.items()},
            labels=tuple(self.labels[number] for number in order),
            datasets=datasets,
            inputs=_renumbered(inputs, new),
            edges=_renumbered(edges.where(~is_unknown), new),
            unsure=_renumbered(edges.where(is_unknown), new),
        )


Rows = list[tuple[int, int, int]]


def network_of(
    statements: Iterable[Statement],
    declared: Iterable[Statement] = (),
    own: Collection[str] | None = None,
    columns: Iterable[ColumnRef] = (),
) -> Network:
    """The network of statements, of what is declared beside them (`declared_rows`), and of columns
    that neither may name.

    `own` names the data sets of which their own subscriptions recorded statements, looked at when
    all statements are read: all of which there are any, unless given.
    """
    drawing, inputs, edges = Drawing(), Rows(), Rows()
    for one in statements:
        for rows, more in zip((inputs, edges), rows_of(drawing, one), strict=True):
            rows += more
    known = {row[:2] for row in inputs if own is None or drawing.labels[row[1]] in own}
    for rows, more in zip((inputs, edges), declared_rows(drawing, declared, known), strict=True):
        rows += more
    for ref in columns:
        drawing.ref(ref)
    return drawing.network(edges_from(inputs), edges_from(edges))


def rows_of(drawing: Drawing, statement: Statement) -> tuple[Rows, Rows]:
    """The inputs and the edges of a statement, as (source, target, kind).

    Each source leads to the column that it takes part in, or to the target where it takes part in
    all of it. Where something is unknown, each data set that is read leads to each column, or to
    the target, that may derive from any column.
    """
    target = drawing.table(statement.target)
    nodes = [drawing.column(target, column.column) for column in statement.columns]
    inputs = [
        (drawing.table(name), target, int(part)) for name, part in parts_of(statement).items()
    ]
    edges = set[tuple[int, int, int]]()
    sides = [(target, statement.indirect)]
    sides += [(node, column.sources) for node, column in zip(nodes, statement.columns, strict=True)]
    for node, sources in sides:
        for one in sources:
            edges.add((drawing.ref(one.ref), node, code_of(one.kind, one.is_masking)))
    unknown = [node for node, column in zip(nodes, statement.columns, strict=True) if column.opaque]
    for node in [*unknown, target] if statement.unknown else unknown:
        edges.update((source, node, UNKNOWN) for source, _, _ in inputs)
    return inputs, [*edges]


def declared_rows(
    drawing: Drawing, declared: Iterable[Statement], known: Collection[tuple[int, int]]
) -> tuple[Rows, Rows]:
    """What declared statements add to the inputs that their subscriptions recorded: inputs and
    edges, as (source, target, kind).

    One with columns, since it was planned, is drawn as if a run had recorded it, where no run of
    its subscription recorded anything of its target; what others write there says nothing of it. In
    all other cases the inputs that are not known are declared ones.
    """
    inputs, edges = Rows(), Rows()
    own, pairs = {target for _, target in known}, set(known)
    for one in sorted(declared, key=lambda one: not one.columns):
        target = drawing.table(one.target)
        if one.columns and target not in own:
            for rows, more in zip((inputs, edges), rows_of(drawing, one), strict=True):
                rows += more
            pairs |= {row[:2] for row in inputs}
        new = [drawing.table(name) for name in parts_of(one)]
        inputs += [
            (source, target, int(Part.DECLARED)) for source in new if (source, target) not in pairs
        ]
        pairs |= {(source, target) for source in new}
    return inputs, edges


def _renumbered(edges: Edges, new: NDArray[np.int32]) -> Edges:
    return Edges(new[edges.sources], new[edges.targets], edges.kinds) if len(edges) else edges


class Certainty(IntEnum):
    """How far a search goes, and how surely something is affected.

    DIRECT: values derive from it. INDIRECT: or they decide, on a value or on which rows there are.
    UNSURE: or it is unknown.
    """

    DIRECT = 1
    INDIRECT = 2
    UNSURE = 3


@dataclass(frozen=True, eq=False)
class Reached:
    """Nodes that were reached and the layer of each: the fewest edges from a beginning, which
    itself is of layer 0.

    A data set among them means all its rows, and with them each of its columns.
    """

    nodes: Nodes
    layers: NDArray[np.int32]


def reach(
    network: Network,
    starts: Nodes,
    certainty: Certainty,
    *,
    upstream: bool = False,
    depth: int | None = None,
) -> Reached:
    """All that columns and data sets lead to, or with `upstream` all that leads to them, within so
    many edges.
    """
    following = _against if upstream else _along
    seen = np.zeros(len(network), np.bool_)
    first = np.empty(len(network), np.int32)
    layer, found, layers = _new(starts, seen, first), [], []
    while len(layer) and (depth is None or len(found) <= depth):
        # with each column the rows of its data set
        if upstream and certainty >= Certainty.INDIRECT:
            layer = np.concatenate((layer, _new(network.datasets[layer], seen, first)))
        found.append(layer)
        layers.append(np.full(len(layer), len(layers), np.int32))
        layer = _new(following(network, layer, certainty), seen, first)
    return Reached(np.concatenate(found or [none()]), np.concatenate(layers or [none()]))


def _along(network: Network, layer: Nodes, certainty: Certainty) -> Nodes:
    if certainty is Certainty.DIRECT:
        return network.direct.next_of(layer)
    several = [network.leaving[1].next_of(layer)]
    if len(network.reading.edges):
        several.append(network.reading.next_of(layer))
    if certainty >= Certainty.UNSURE and len(network.maybe.edges):
        several.append(network.maybe.next_of(np.unique(network.datasets[layer])))
    return several[0] if len(several) == 1 else np.concatenate(several)


def _against(network: Network, layer: Nodes, certainty: Certainty) -> Nodes:
    back = network.backwards
    several = [back.direct.next_of(layer)]
    if certainty >= Certainty.INDIRECT:
        several += [back.indirect.next_of(layer), back.reading.next_of(layer)]
    if certainty >= Certainty.UNSURE:
        several.append(_members(network, np.unique(back.maybe.next_of(layer))))
    return np.concatenate(several)


def _members(network: Network, tables: Nodes) -> Nodes:
    """Data sets with all their columns."""
    return np.concatenate(
        [np.arange(table, network.columns_of(int(table)).stop, dtype=np.int32) for table in tables]
        or [none()]
    )


def _new(nodes: Nodes, seen: NDArray[np.bool_], first: NDArray[np.int32]) -> Nodes:
    """Those that were not seen, each once; they are from now on."""
    new = nodes[~seen[nodes]]
    seen[new] = True
    order = np.arange(len(new), dtype=np.int32)
    first[new] = order
    return new[first[new] == order]
