"""The network flattened: each pair of which the first leads to the second."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lakechime_dagster.lineage.graph import Part
from lakechime_dagster.lineage.network import Adjacency, Certainty, Edges, Network, Nodes, none, reach

CHUNK = 1_000_000  # pairs that are handed out at once, or a few more


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of nodes; layers from 1 on, and certainties by their numbers."""

    sources: Nodes
    targets: Nodes
    layers: NDArray[np.int32]
    kinds: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.sources)


def table_pairs(network: Network) -> Iterator[Pairs]:
    """All pairs of different data sets, by source."""
    tables = np.unique(network.datasets)
    sources, targets = (np.searchsorted(tables, side).astype(np.int32) for side in (network.inputs.sources, network.inputs.targets))
    edges = Edges(sources, targets, network.inputs.kinds)
    is_direct, is_told = edges.kinds & Part.DIRECT != 0, edges.kinds & Part.DECLARED == 0
    whole = _Search(Adjacency(edges, len(tables)))
    widest = Certainty.INDIRECT if is_told.all() else Certainty.UNSURE
    surer = {Certainty.DIRECT: _Search(Adjacency(edges.where(is_direct), len(tables)))}
    if widest is Certainty.UNSURE:
        surer = {Certainty.INDIRECT: _Search(Adjacency(edges.where(is_told), len(tables))), **surer}
    certainty = np.zeros(len(tables), np.int8)

    def found() -> Iterator[Pairs]:
        for source in np.unique(edges.sources).tolist():
            targets, layers = whole.of(source)
            certainty[targets] = widest
            for one, search in surer.items():
                certainty[search.of(source)[0]] = one
            yield Pairs(np.full(len(targets), tables[source], np.int32), tables[targets], layers, certainty[targets])

    return _by_chunks(found())


def column_pairs(network: Network) -> Iterator[Pairs]:
    """All pairs that begin with a column and end in another data set: with a column, or with its rows."""
    certainty = np.zeros(len(network), np.int8)

    def found() -> Iterator[Pairs]:
        for source in np.flatnonzero(network.datasets != np.arange(len(network))).tolist():
            start = np.array([source], np.int32)
            whole = reach(network, start, Certainty.UNSURE)
            if len(whole.nodes) == 1:
                continue
            certainty[whole.nodes] = Certainty.UNSURE
            for one in (Certainty.INDIRECT, Certainty.DIRECT):
                certainty[reach(network, start, one).nodes] = one
            is_other = network.datasets[whole.nodes] != network.datasets[source]
            targets = whole.nodes[is_other]
            yield Pairs(np.full(len(targets), source, np.int32), targets, whole.layers[is_other], certainty[targets])

    return _by_chunks(found())


class _Search:
    """Searches one after another over the same edges, without an array anew for each."""

    def __init__(self, adjacency: Adjacency) -> None:
        self._adjacency = adjacency
        self._seen = np.full(adjacency.size, -1, np.int32)
        self._first = np.empty(adjacency.size, np.int32)

    def of(self, source: int) -> tuple[Nodes, NDArray[np.int32]]:
        """What a node leads to, apart from itself, with the layers."""
        self._seen[source] = source
        layer, found, layers = np.array([source], np.int32), [], []
        while len(layer := self._new(self._adjacency.next_of(layer), source)):
            found.append(layer)
            layers.append(np.full(len(layer), len(found), np.int32))
        return (np.concatenate(found), np.concatenate(layers)) if found else (none(), none())

    def _new(self, nodes: Nodes, source: int) -> Nodes:
        new = nodes[self._seen[nodes] != source]
        self._seen[new] = source
        order = np.arange(len(new), dtype=np.int32)
        self._first[new] = order
        return new[self._first[new] == order]


def _by_chunks(found: Iterable[Pairs]) -> Iterator[Pairs]:
    several: list[Pairs] = []
    rows = 0
    for one in found:
        several.append(one)
        rows += len(one)
        if rows >= CHUNK:
            yield _together(several)
            several, rows = [], 0
    if rows:
        yield _together(several)


def _together(several: list[Pairs]) -> Pairs:
    sources, targets, layers, kinds = (
        np.concatenate([getattr(one, name) for one in several]) for name in ("sources", "targets", "layers", "kinds")
    )
    return Pairs(sources, targets, layers, kinds)
