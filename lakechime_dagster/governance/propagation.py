"""Propagates tags of personal columns along column lineage."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lakechime_dagster.governance.tags import Reach, Tagged, are_of_one, is_within, lower
from lakechime_dagster.lineage.columns import ColumnRef, Kind
from lakechime_dagster.lineage.graph import code_of
from lakechime_dagster.lineage.network import DIRECT_CODES, Network, Nodes
from lakechime_dagster.tables.names import folded

NOWHERE = 127  # of a node that no tag has reached
_IDENTITY, _AGGREGATION = code_of(Kind.IDENTITY), code_of(Kind.AGGREGATION)
_OF_MORE = frozenset(".:[$")  # characters of names that lead into a column


def propagated(
    network: Network,
    tags: Mapping[ColumnRef, str],
    cleared: Collection[ColumnRef] = (),
    within: Collection[str] | None = None,
) -> tuple[Tagged, ...]:
    """All columns that tags reach, each once a category by the surest path, in the order of names.

    Args:
        network: What columns are computed from.
        tags: Categories of columns that are personal; behind a name `:$.path` leads into a JSON
            text, `.field` into a struct.
        cleared: Columns that a person decided are not personal: no tag reaches or passes them.
        within: Only the columns of these data sets; all unless given.
    """
    found: list[Tagged] = []
    for category in sorted(set(tags.values())):
        starts = sorted(ref for ref, one in tags.items() if one == category)
        walk = _Walk(network, starts, {*cleared} - {*starts})
        own = (ref for ref in starts if within is None or ref.table in within)
        found += [
            Tagged(ref=ref, category=category, reach=Reach.PERSONAL, path=(ref,)) for ref in own
        ]
        found += [
            Tagged(
                ref=network.ref(node),
                category=category,
                reach=Reach(int(walk.reach[node])),
                path=walk.path(node),
            )
            for node in walk.found(within)
        ]
    return tuple(sorted(found, key=lambda one: (one.ref, one.reach, one.category)))


class _Walk:
    """How the tags of some columns reach each node of a network; nothing passes `cleared`
    columns.
    """

    def __init__(
        self, network: Network, starts: Sequence[ColumnRef], cleared: Collection[ColumnRef]
    ) -> None:
        self._network, self._starts = network, starts
        self.reach: NDArray[np.int8] = np.full(len(network), NOWHERE, np.int8)
        # -2 and below: the starts, in their order
        self._parents: NDArray[np.int32] = np.full(len(network), -1, np.int32)
        self._begun: set[int] = set()  # nodes that are starts themselves
        self._barred = np.zeros(len(network), np.bool_)
        self._barred[
            [
                node
                for ref in cleared
                for node, name in self._columns(ref.table)
                if name == lower(ref)
            ]
        ] = True
        self._relatives: dict[int, Mapping[int, list[tuple[int, bool]]]] = {}
        self._waiting: dict[Reach, list[tuple[Nodes, Nodes]]] = {reach: [] for reach in Reach}
        self._begin()
        self._walk()

    def found(self, within: Collection[str] | None = None) -> list[int]:
        """The nodes that were reached, in order, without the starts; those of some data sets, or
        all.
        """
        nodes = np.flatnonzero(self.reach != NOWHERE)
        if within is not None:
            tables = [
                node for name in within if (node := self._network.tables.get(name)) is not None
            ]
            nodes = nodes[np.isin(self._network.datasets[nodes], tables)]
        return [node for node in nodes.tolist() if node not in self._begun]

    def path(self, node: int) -> tuple[ColumnRef, ...]:
        """From a start to a node; both are in it."""
        way: list[ColumnRef] = []
        while node >= 0:
            if node not in self._begun:
                way.append(self._network.ref(node))
            node = int(self._parents[node])
        return (self._starts[-2 - node], *reversed(way))

    def _begin(self) -> None:
        for number, ref in enumerate(self._starts):
            table = self._network.tables.get(ref.table)
            if table is None:
                continue
            own, origin = lower(ref), np.array([-2 - number], np.int32)
            for node, name in self._columns(ref.table):
                here = np.array([node], np.int32)
                if name == own:
                    self._begun.add(node)
                    self.reach[node], self._parents[node] = Reach.PERSONAL, origin[0]
                if are_of_one(name, own):
                    self._spread(
                        here,
                        origin,
                        Reach.PERSONAL,
                        is_part=not (name == own or is_within(name, own)),
                    )
            self._spread_whole(np.array([table], np.int32), origin, Reach.PERSONAL)

    def _walk(self) -> None:
        for reach in Reach:
            while self._waiting[reach]:
                nodes, parents = (
                    np.concatenate(several) for several in zip(*self._waiting[reach], strict=True)
                )
                self._waiting[reach] = []
                is_new = (self.reach[nodes] == NOWHERE) & ~self._barred[nodes]
                nodes, first = np.unique(nodes[is_new], return_index=True)
                self.reach[nodes], self._parents[nodes] = reach, parents[is_new][first]
                if reach is not Reach.INDIRECT and len(nodes):
                    self._leave(nodes, reach)

    def _leave(self, nodes: Nodes, reach: Reach) -> None:
        """From some nodes on, each once and in order."""
        datasets = self._network.datasets[nodes]
        self._spread(nodes, nodes, reach, is_part=False)
        tables, first = np.unique(datasets, return_index=True)
        self._spread_whole(tables, nodes[first], reach)
        for table in nodes[datasets == nodes].tolist():  # it may be in any of the columns
            columns = np.array(self._network.columns_of(table), np.int32)
            self._spread(columns, np.full(len(columns), table, np.int32), reach, is_part=True)
        related = {table: found for table in tables.tolist() if (found := self._related(table))}
        for node, table in zip(nodes.tolist(), datasets.tolist(), strict=True) if related else ():
            for other, is_part in related.get(table, {}).get(node, ()):
                self._spread(
                    np.array([other], np.int32), np.array([node], np.int32), reach, is_part=is_part
                )

    def _spread(self, sources: Nodes, origins: Nodes, reach: Reach, *, is_part: bool) -> None:
        """Over the edges from some nodes, which are in order; of a mere part of one there is more
        in it.
        """
        edges = self._network.leaving[1].edges_of(sources)
        if not len(edges):
            return
        parents = origins[np.searchsorted(sources, edges.sources)]
        codes = np.abs(edges.kinds)
        comes = np.full(len(edges), reach, np.int8)
        comes[codes != _IDENTITY] = max(reach, Reach.DERIVED)
        if is_part:
            comes[codes != _IDENTITY] = max(reach, Reach.UNSURE)
        is_masked = edges.kinds < 0
        comes[is_masked] = max(reach, Reach.PSEUDONYM)
        comes[is_masked & (codes == _AGGREGATION)] = NOWHERE
        comes[codes > DIRECT_CODES] = Reach.INDIRECT
        for one in Reach:
            if (chosen := comes == one).any():
                self._waiting[one].append((edges.targets[chosen], parents[chosen]))

    def _spread_whole(self, tables: Nodes, origins: Nodes, reach: Reach) -> None:
        """Over edges from whole data sets, and from any of their columns."""
        self._spread(tables, origins, reach, is_part=True)
        maybe = self._network.maybe.edges_of(tables)
        if len(maybe):
            self._waiting[Reach.UNSURE].append(
                (maybe.targets, origins[np.searchsorted(tables, maybe.sources)])
            )

    def _columns(self, table: str) -> Iterable[tuple[int, str]]:
        """The nodes of the columns of a data set, with their names in small letters."""
        node = self._network.tables.get(table)
        return (
            ()
            if node is None
            else (
                (one, folded(self._network.labels[one])) for one in self._network.columns_of(node)
            )
        )

    def _related(self, table: int) -> Mapping[int, list[tuple[int, bool]]]:
        """By column the others that are the same but for the case, a part of it, or what it is a
        part of (`is_part`).
        """
        if table not in self._relatives:
            columns = self._network.columns_of(table)
            names = self._network.labels[columns.start : columns.stop]
            lowered = [folded(name) for name in names]
            found: dict[int, list[tuple[int, bool]]] = {}
            if lowered != [*names] or not _OF_MORE.isdisjoint("".join(names)):
                for at, one in enumerate(lowered):
                    several = [
                        (columns[to], is_within(one, other))
                        for to, other in enumerate(lowered)
                        if to != at and are_of_one(one, other)
                    ]
                    if several:
                        found[columns[at]] = several
            self._relatives[table] = found
        return self._relatives[table]
