"""The shortest way from some columns to another one, with how each step leads on."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.csr import Adjacency, Nodes, none
from lakechime_dagster.lineage.graph.network import Network
from lakechime_dagster.lineage.graph.parts import Part, kind_of
from lakechime_dagster.lineage.graph.reach import Certainty, Reached

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
            near = min(self._nearer(node), key=lambda one: one[:3], default=None)
            if near is None:  # rows that came with a column of theirs
                node = next(column for column in self._network.columns_of(node) if self._layers[column] == self._layers[node])
                continue
            other, edges = near[3:]
            steps.append(self._step(node, other, edges))
            node = other
        return tuple(steps) if self._upstream else tuple(reversed(steps))

    def _nearer(self, node: int) -> Iterator[tuple[bool, bool, str, int, Adjacency]]:
        """The nodes one layer nearer to where the search began, by their rank: first what is known, and what tells a column."""
        network, ahead = self._network, self._network if self._upstream else self._network.backwards
        sides = [(ahead.direct, network.direct)]
        if self._certainty >= Certainty.INDIRECT:
            sides += [(ahead.indirect, network.indirect), (ahead.reading, network.reading)]
        for side, edges in sides:
            for other in self._of_layer(side.next_of(np.array([node], np.int32)), node):
                yield False, other == network.datasets[other], str(network.ref(other)), other, edges
        if self._certainty >= Certainty.UNSURE:
            for other in self._of_layer(self._unsure(node), node):
                yield True, other == network.datasets[other], str(network.ref(other)), other, network.maybe

    def _unsure(self, node: int) -> Nodes:
        network = self._network
        if self._upstream:
            return network.maybe.next_of(network.datasets[[node]])
        tables = np.unique(network.backwards.maybe.next_of(np.array([node], np.int32)))
        return np.concatenate([none(), *(np.arange(one, network.columns_of(int(one)).stop, dtype=np.int32) for one in tables)])

    def _of_layer(self, nodes: Nodes, node: int) -> list[int]:
        return np.unique(nodes[self._layers[nodes] == self._layers[node] - 1]).tolist()

    def _step(self, node: int, other: int, edges: Adjacency) -> Step:
        network = self._network
        source, target = (node, other) if self._upstream else (other, node)
        if edges is network.reading:
            kinds: tuple[str, ...] = (READS,)
        elif edges is network.maybe:
            kinds = (_word(network, int(network.datasets[source]), target),)
        else:
            kinds = tuple(sorted({kind_of(code).value for code in edges.kinds_between(source, target)}))
        return Step(network.ref(source), network.ref(target), kinds)


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
