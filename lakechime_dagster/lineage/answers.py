"""Questions to the graph: impact, upstream, downstream, paths, readers."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lakechime_dagster.lineage.columns import ACTIVE_MS, ColumnRef, Consumer, Read
from lakechime_dagster.lineage.graph import Part, kind_of
from lakechime_dagster.lineage.network import (
    Adjacency,
    Certainty,
    Network,
    Nodes,
    Reached,
    none,
    reach,
)

READS, UNSURE, DECLARED = "reads", "not known", "declared"


@dataclass(frozen=True)
class PathEdge:
    """From a column, or the rows of a data set, to the next one; by kinds of sources, or as one of
    the words above.
    """

    source: ColumnRef
    target: ColumnRef
    kinds: tuple[str, ...]


class Paths:
    """Shortest paths between where a search began and what it reached; of several the first by
    names.

    They lead along the edges, also where the search went against them: from what it reached to
    where it began.
    """

    def __init__(
        self, network: Network, reached: Reached, certainty: Certainty, *, upstream: bool = False
    ) -> None:
        self._network, self._certainty, self._upstream = network, certainty, upstream
        self._layers = np.full(len(network), -1, np.int32)
        self._layers[reached.nodes] = reached.layers

    def of(self, node: int) -> tuple[PathEdge, ...] | None:
        """The edges between a node and where the search began; None if it was not reached."""
        if self._layers[node] < 0:
            node = int(self._network.datasets[node])  # the rows of its data set, perhaps
        if self._layers[node] < 0:
            return None
        edges: list[PathEdge] = []
        while self._layers[node] > 0:
            near = min(self._nearer(node), key=lambda one: one[:3], default=None)
            if near is None:  # rows that were reached with a column of theirs
                node = next(
                    column
                    for column in self._network.columns_of(node)
                    if self._layers[column] == self._layers[node]
                )
                continue
            other, between = near[3:]
            edges.append(self._edge(node, other, between))
            node = other
        return tuple(edges) if self._upstream else tuple(reversed(edges))

    def _nearer(self, node: int) -> Iterator[tuple[bool, bool, str, int, Adjacency]]:
        """The nodes one layer nearer to where the search began, by their rank: first what is known,
        and what names a column.
        """
        network, ahead = self._network, self._network if self._upstream else self._network.backwards
        sides = [(ahead.direct, network.direct)]
        if self._certainty >= Certainty.INDIRECT:
            sides += [(ahead.indirect, network.indirect), (ahead.reading, network.reading)]
        for side, edges in sides:
            for other in self._of_layer(side.next_of(np.array([node], np.int32)), node):
                yield False, other == network.datasets[other], str(network.ref(other)), other, edges
        if self._certainty >= Certainty.UNSURE:
            for other in self._of_layer(self._unsure(node), node):
                yield (
                    True,
                    other == network.datasets[other],
                    str(network.ref(other)),
                    other,
                    network.maybe,
                )

    def _unsure(self, node: int) -> Nodes:
        network = self._network
        if self._upstream:
            return network.maybe.next_of(network.datasets[[node]])
        tables = np.unique(network.backwards.maybe.next_of(np.array([node], np.int32)))
        return np.concatenate(
            [
                none(),
                *(
                    np.arange(one, network.columns_of(int(one)).stop, dtype=np.int32)
                    for one in tables
                ),
            ]
        )

    def _of_layer(self, nodes: Nodes, node: int) -> list[int]:
        return np.unique(nodes[self._layers[nodes] == self._layers[node] - 1]).tolist()

    def _edge(self, node: int, other: int, edges: Adjacency) -> PathEdge:
        network = self._network
        source, target = (node, other) if self._upstream else (other, node)
        if edges is network.reading:
            kinds: tuple[str, ...] = (READS,)
        elif edges is network.maybe:
            kinds = (_word(network, int(network.datasets[source]), target),)
        else:
            kinds = tuple(
                sorted({kind_of(code).value for code in edges.kinds_between(source, target)})
            )
        return PathEdge(network.ref(source), network.ref(target), kinds)


def _word(network: Network, table: int, target: int) -> str:
    return DECLARED if Part.DECLARED in network.maybe.kinds_between(table, target) else UNSURE


def nodes_of(network: Network, refs: list[ColumnRef]) -> Nodes:
    """The nodes of columns; a data set stands for its rows and all its columns."""
    found: list[int] = []
    for ref in refs:
        node = network.node(ref)
        if node is not None:
            found += [node] if ref.column is not None else [node, *network.columns_of(node)]
    return np.array(sorted(set(found)), np.int32)


@dataclass(frozen=True, kw_only=True)
class ReachedColumn:
    """A column that was reached."""

    name: str
    certainty: Certainty
    layer: int


@dataclass(frozen=True, kw_only=True)
class ReachedTable:
    """A data set that was reached.

    `certainty` and `layer` are the best of its columns and rows. With `rows` which rows there are
    depends on it, and so each column does, INDIRECT; `columns` are those alone that were reached by
    themselves. `path` is a shortest way.
    """

    table: str
    layer: int
    certainty: Certainty
    columns: tuple[ReachedColumn, ...]
    rows: Certainty | None
    path: tuple[PathEdge, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReachedTables:
    """The data sets that were reached, by layer and name; `more` are left out."""

    tables: tuple[ReachedTable, ...]
    more: int = 0

    def __len__(self) -> int:
        return len(self.tables) + self.more


def reached_tables(
    network: Network,
    refs: Iterable[ColumnRef],
    *,
    upstream: bool = False,
    depth: int | None = None,
    kind: Certainty | None = None,
    limit: int | None = None,
    with_paths: bool = True,
) -> ReachedTables:
    """What columns lead to, or what leads to them.

    `kind` keeps what was reached so surely and not surer. A data set among `refs` stands for all
    its columns and its rows.
    """
    starts = nodes_of(network, list(refs))
    widest = Certainty.UNSURE if kind is None else kind
    classes = [one for one in Certainty if one <= widest]
    found = {one: reach(network, starts, one, upstream=upstream, depth=depth) for one in classes}
    certainty = np.zeros(len(network), np.int8)
    for one in reversed(classes):
        certainty[found[one].nodes] = one
    is_affected = found[widest].layers > 0
    tables = _Tables(
        network, found[widest].nodes[is_affected], found[widest].layers[is_affected], certainty
    )
    chosen = tables.chosen(kind)
    shown = chosen if limit is None else chosen[:limit]
    ways = Paths(network, found[widest], widest, upstream=upstream) if with_paths else None
    return ReachedTables(
        tables=tuple(tables.table(at, ways) for at in shown), more=len(chosen) - len(shown)
    )


@dataclass(frozen=True, kw_only=True)
class UnaffectedTable:
    """A data set further down that is unaffected, and why."""

    table: str
    reason: str


def unaffected_tables(
    network: Network, refs: Iterable[ColumnRef], found: ReachedTables
) -> tuple[UnaffectedTable, ...]:
    """What reads the data sets of columns, or reads what reads them, and is unaffected by these
    columns; `found` are all affected ones.
    """
    wanted = list(refs)
    beginnings = {ref.table for ref in wanted}
    affected = {one.table: {column.name for column in one.columns} for one in found.tables}
    subjects = {
        table: {str(ref.column) for ref in wanted if ref.table == table} for table in beginnings
    }
    readers = reached_tables(network, [ColumnRef(table) for table in beginnings], with_paths=False)
    several = [
        one.table
        for one in readers.tables
        if one.table not in affected and one.table not in beginnings
    ]
    return tuple(
        UnaffectedTable(table=table, reason=_why_not(network, table, affected | subjects))
        for table in several
    )


def _why_not(network: Network, table: str, changed: Mapping[str, set[str]]) -> str:
    node = network.tables[table]
    members = np.arange(node, network.columns_of(node).stop, dtype=np.int32)
    back = network.backwards
    read = [
        network.ref(int(one))
        for one in np.unique(
            np.concatenate([side.next_of(members) for side in (back.direct, back.indirect)])
        )
    ]
    inputs = [network.labels[one] for one in np.unique(back.reading.next_of(members[:1])).tolist()]
    parts: list[str] = []
    for name in sorted(set(inputs) & set(changed)):
        columns = sorted(
            str(ref.column) for ref in read if ref.table == name and ref.column is not None
        )
        parts.append(
            f"of {name} it reads {_listed(columns) if columns else 'only the rows'}, not "
            f"{_listed(sorted(changed[name]))}"
        )
    return "; ".join(parts) or f"it reads {_listed(inputs)}, which is unaffected"


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class _Tables:
    """Reached nodes by their data sets, without a look at each before it is known which are
    shown.
    """

    def __init__(
        self, network: Network, nodes: Nodes, layers: Nodes, certainty: NDArray[np.int8]
    ) -> None:
        order = np.argsort(nodes)
        self._network, self._certainty = network, certainty
        self._nodes, self._layers = nodes[order], layers[order]
        self._tables, self._first = np.unique(network.datasets[self._nodes], return_index=True)
        self._end = np.append(self._first[1:], len(nodes))

    def chosen(self, kind: Certainty | None) -> list[int]:
        """The indexes of the data sets of that certainty, by layer and name."""
        if not len(self._nodes):
            return []
        layers = np.minimum.reduceat(self._layers, self._first)
        best = np.minimum.reduceat(self._certainty[self._nodes], self._first)
        indexes = np.arange(len(self._tables)) if kind is None else np.flatnonzero(best == kind)
        return sorted(
            indexes.tolist(),
            key=lambda at: (int(layers[at]), self._network.labels[self._tables[at]]),
        )

    def table(self, at: int, ways: Paths | None) -> ReachedTable:
        network, part = self._network, slice(self._first[at], self._end[at])
        nodes, layers = self._nodes[part].tolist(), self._layers[part].tolist()
        table = int(self._tables[at])
        several = [
            ReachedColumn(name=network.labels[node], certainty=self._sure(node), layer=layer)
            for node, layer in zip(nodes, layers, strict=True)
            if node != table
        ]
        best = min(
            zip(nodes, layers, strict=True),
            key=lambda one: (one[1], self._sure(one[0]), network.labels[one[0]]),
        )[0]
        return ReachedTable(
            table=network.labels[table],
            layer=min(layers),
            certainty=min(map(self._sure, nodes)),
            columns=tuple(sorted(several, key=lambda one: (one.certainty, one.name))),
            rows=self._sure(table) if table in nodes else None,
            path=(ways.of(best) or ()) if ways is not None else (),
        )

    def _sure(self, node: int) -> Certainty:
        return Certainty(int(self._certainty[node]))


@dataclass(frozen=True, kw_only=True)
class AffectedConsumer:
    """A consumer that is affected by the columns that it reads, and how surely at best; `last_ms`
    is when it read one of them last.
    """

    consumer: Consumer
    certainty: Certainty
    refs: tuple[ColumnRef, ...]
    last_ms: int
    owners: tuple[str, ...] = ()
    link: str = ""

    def is_active(self, now_ms: int) -> bool:
        """Whether it read of them in the last day."""
        return now_ms - self.last_ms <= ACTIVE_MS


def affected_consumers(
    changed: Collection[ColumnRef], found: ReachedTables, reads: Iterable[Read]
) -> tuple[AffectedConsumer, ...]:
    """The affected consumers, the surest and those that read last first; `found` is what the
    changed columns lead to.
    """
    affected = certainties(changed, found)
    consumers: dict[Consumer, list[tuple[Certainty, ColumnRef, Read]]] = {}
    for one in reads:
        for ref in one.refs:
            if (certainty := _of(ref, affected)) is not None:
                consumers.setdefault(one.consumer, []).append((certainty, ref, one))
    several = [_consumer(consumer, why) for consumer, why in consumers.items()]
    return tuple(sorted(several, key=lambda one: (one.certainty, -one.last_ms, one.consumer)))


def certainties(changed: Collection[ColumnRef], found: ReachedTables) -> dict[ColumnRef, Certainty]:
    """How surely columns and rows of data sets are affected; those that are changed themselves are
    DIRECT.
    """
    affected = {
        ColumnRef(one.table, column.name).folded: column.certainty
        for one in found.tables
        for column in one.columns
    }
    affected |= {ColumnRef(one.table): one.rows for one in found.tables if one.rows is not None}
    return affected | dict.fromkeys((one.folded for one in changed), Certainty.DIRECT)


def _of(ref: ColumnRef, affected: Mapping[ColumnRef, Certainty]) -> Certainty | None:
    """How surely a read is affected: by its column, by the rows of its data set, or perhaps where
    its columns are unknown.
    """
    known = [
        certainty
        for one in (ref.folded, ColumnRef(ref.table))
        if (certainty := affected.get(one)) is not None
    ]
    if known:
        return min(known)
    is_perhaps = ref.column is None and any(one.table == ref.table for one in affected)
    return Certainty.UNSURE if is_perhaps else None


def _consumer(consumer: Consumer, why: list[tuple[Certainty, ColumnRef, Read]]) -> AffectedConsumer:
    newest = max((read for _, _, read in why), key=lambda read: read.at_ms)
    return AffectedConsumer(
        consumer=consumer,
        certainty=min(certainty for certainty, _, _ in why),
        refs=tuple(sorted({ref for _, ref, _ in why})),
        last_ms=newest.at_ms,
        owners=newest.owners,
        link=newest.link,
    )


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A data set near another one; `layer` is negative upstream. `more` of its own neighbours are
    left out on its far side.
    """

    table: str
    layer: int
    columns: tuple[str, ...]
    more: int = 0


@dataclass(frozen=True, kw_only=True)
class Link:
    """An edge between two data sets that are shown, or between columns or rows of them, with the
    words for its kinds.
    """

    source: ColumnRef
    target: ColumnRef
    kinds: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Neighbourhood:
    """What is around a data set, itself at layer 0, and all edges between what is shown; `more`
    data sets are left out.
    """

    tables: tuple[Neighbour, ...]
    links: tuple[Link, ...]
    more: int = 0


Beside = Callable[[Collection[str], bool], Mapping[str, set[str]]]
"""By data set its readers, or if asked for what is upstream its inputs."""


def neighbourhood(
    table: str,
    beside: Beside,
    draw: Callable[[Collection[str]], Network],
    *,
    up: int = 1,
    down: int = 1,
    limit: int = 150,
) -> Neighbourhood:
    """The data sets within so many edges, the nearest ones first, and never more than `limit`;
    `draw` gives their network.
    """
    layers = {table: 0}
    for is_upstream, depth in ((True, up), (False, down)):
        layer, seen = {table}, {table}
        for distance in range(1, depth + 1):
            layer = set[str]().union(*beside(layer, is_upstream).values()) - seen
            seen |= layer
            layers |= {
                name: -distance if is_upstream else distance for name in layer if name not in layers
            }
            if not layer:
                break
    ordered = sorted(layers, key=lambda name: (abs(layers[name]), layers[name] < 0, name))
    shown, network = ordered[:limit], draw(ordered[:limit])
    beyond = [
        beside([name for name in shown if layers[name] <= 0], True),
        beside([name for name in shown if layers[name] >= 0], False),
    ]
    tables = tuple(
        Neighbour(
            table=name,
            layer=layers[name],
            columns=tuple(network.labels[one] for one in network.columns_of(network.tables[name]))
            if name in network.tables
            else (),
            more=len(set[str]().union(*(side.get(name, ()) for side in beyond)).difference(shown)),
        )
        for name in shown
    )
    links = tuple(
        _links(network, {network.tables[name] for name in shown if name in network.tables})
    )
    return Neighbourhood(tables=tables, links=links, more=len(layers) - len(shown))


def _links(network: Network, shown: set[int]) -> Iterator[Link]:
    is_shown = np.zeros(len(network), np.bool_)
    is_shown[list(shown)] = True
    members = np.concatenate(
        [
            none(),
            *(
                np.arange(table, network.columns_of(table).stop, dtype=np.int32)
                for table in sorted(shown)
            ),
        ]
    )
    for leaving, word in zip(
        network.leaving, (_table_kinds, _column_kinds, _unsure_kinds), strict=True
    ):
        edges = leaving.edges_of(members)
        edges = edges.where(is_shown[network.datasets[edges.targets]])
        kinds: dict[tuple[int, int], set[str]] = {}
        for source, target, code in zip(
            edges.sources.tolist(), edges.targets.tolist(), edges.kinds.tolist(), strict=True
        ):
            kinds.setdefault((source, target), set()).update(word(code))
        for (source, target), several in sorted(kinds.items()):
            yield Link(
                source=network.ref(source), target=network.ref(target), kinds=tuple(sorted(several))
            )


def _table_kinds(parts: int) -> set[str]:
    words = {
        Part.DIRECT: "direct",
        Part.INDIRECT: "indirect",
        Part.UNSURE: UNSURE,
        Part.DECLARED: DECLARED,
    }
    return {word for part, word in words.items() if part in Part(parts)} or {READS}


def _column_kinds(code: int) -> set[str]:
    return {kind_of(code).value}


def _unsure_kinds(code: int) -> set[str]:
    return {UNSURE}
