"""The shortest way from some columns to another one, with how each step leads on."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.csr import Adjacency, Nodes
from lakechime_dagster.lineage.network import Network
from lakechime_dagster.lineage.parts import Part, kind_of
from lakechime_dagster.lineage.reach import Certainty, Reached

READS, UNSURE, DECLARED = "reads", "not known", "declared"


@dataclass(frozen=True)
class Step:
    """From a column, or the rows of a data set, to the next one; by kinds of sources, or as one of the words above."""

    source: ColumnRef
    target: ColumnRef
    kinds: tuple[str, ...]


class Paths:
    """Shortest paths between where a search began and what it reached; of several the first by names.

    They lead along the edges, also where the search went against them: from what it reached to where it began.
    """

    def __init__(self, network: Network, reached: Reached, certainty: Certainty, *, upstream: bool = False) -> None:
        self._network, self._certainty, self._upstream = network, certainty, upstream
        self._layers = np.full(len(network), -1, np.int32)
        self._layers[reached.nodes] = reached.layers

    def of(self, node: int) -> tuple[Step, ...] | None:
        """The steps between a node and where the search began; None if it was not reached."""
        if self._layers[node] < 0:
            node = int(self._network.datasets[node])  # the rows of its data set, perhaps
        if self._layers[node] < 0:
            return None
        steps: list[Step] = []
        while self._layers[node] > 0:
            near = [(kinds, other) for kinds, other in self._beside(node) if self._layers[other] == self._layers[node] - 1]
            if not near:  # rows that came with a column of theirs
                node = next(column for column in self._network.columns_of(node) if self._layers[column] == self._layers[node])
                continue
            kinds, other = min(near, key=self._rank)
            steps.append(self._step(node, other, kinds))
            node = other
        return tuple(steps) if self._upstream else tuple(reversed(steps))

    def _rank(self, found: tuple[tuple[str, ...], int]) -> tuple[bool, bool, str]:
        """Before others what is known, and what tells a column."""
        ref = self._network.ref(found[1])
        return found[0] in ((UNSURE,), (DECLARED,)), ref.column is None, str(ref)

    def _step(self, node: int, other: int, kinds: tuple[str, ...]) -> Step:
        source, target = (node, other) if self._upstream else (other, node)
        return Step(self._network.ref(source), self._network.ref(target), kinds)

    def _beside(self, node: int) -> Iterator[tuple[tuple[str, ...], int]]:
        """The nodes from which an edge leads to this one; where the search went against edges, those that it leads to."""
        network, upstream = self._network, self._upstream
        ahead = network if upstream else network.backwards
        for other in _each(ahead.direct, node):
            yield self._kinds(network.direct, node, other), other
        if self._certainty >= Certainty.INDIRECT:
            for other in _each(ahead.indirect, node):
                yield self._kinds(network.indirect, node, other), other
            for other in _each(ahead.reading, node):
                yield (READS,), other
        if self._certainty >= Certainty.UNSURE:
            yield from self._unsure(node)

    def _unsure(self, node: int) -> Iterator[tuple[tuple[str, ...], int]]:
        network = self._network
        if self._upstream:
            table = int(network.datasets[node])
            for other in _each(network.maybe, table):
                yield (_word(network, table, other),), other
            return
        for table in _each(network.backwards.maybe, node):
            for other in (table, *network.columns_of(table)):
                yield (_word(network, table, node),), other

    def _kinds(self, edges: Adjacency, node: int, other: int) -> tuple[str, ...]:
        source, target = (node, other) if self._upstream else (other, node)
        return tuple(sorted({kind_of(code).value for code in edges.kinds_between(source, target)}))


def _word(network: Network, table: int, target: int) -> str:
    return DECLARED if Part.DECLARED in network.maybe.kinds_between(table, target) else UNSURE


def _each(edges: Adjacency, node: int) -> list[int]:
    return np.unique(edges.next_of(np.array([node], np.int32))).tolist()


def nodes_of(network: Network, refs: list[ColumnRef]) -> Nodes:
    """The nodes of columns; a data set stands for its rows and all its columns."""
    found: list[int] = []
    for ref in refs:
        node = network.node(ref)
        if node is not None:
            found += [node] if ref.column is not None else [node, *network.columns_of(node)]
    return np.array(sorted(set(found)), np.int32)
