"""A directed graph of numbered nodes as two arrays, which a search walks a whole layer at a time."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

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
        return np.concatenate(([0], np.cumsum(np.bincount(self.edges.sources, minlength=self.size)))).astype(np.int64)

    @cached_property
    def _targets(self) -> Nodes:
        return self.edges.targets[self._order]

    def next_of(self, nodes: Nodes) -> Nodes:
        """Where the edges of these nodes lead, as often as there are edges."""
        return self._targets[self._places(nodes)]

    def edges_of(self, nodes: Nodes) -> Edges:
        """The edges that leave these nodes."""
        places = self._order[self._places(nodes)]
        return Edges(self.edges.sources[places], self.edges.targets[places], self.edges.kinds[places])

    def kinds_between(self, source: int, target: int) -> list[int]:
        """The numbers of the edges from one node to another, each once."""
        places = self._order[self._places(np.array([source], np.int32))]
        return sorted({int(kind) for kind in self.edges.kinds[places[self.edges.targets[places] == target]]})

    def _places(self, nodes: Nodes) -> NDArray[np.int64]:
        starts = self._offsets[nodes]
        counts = self._offsets[nodes + 1] - starts
        total = int(counts.sum())
        return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(total, dtype=np.int64)


def none() -> Nodes:
    return np.empty(0, np.int32)


def edges_from(rows: list[tuple[int, int, int]]) -> Edges:
    """Edges of (source, target, kind)."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    return Edges(table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), table[:, 2].astype(np.int8))


def joined_edges(several: list[Edges]) -> Edges:
    """All of them."""
    if not several:
        return edges_from([])
    return Edges(*(np.concatenate([getattr(one, name) for one in several]) for name in ("sources", "targets", "kinds")))
