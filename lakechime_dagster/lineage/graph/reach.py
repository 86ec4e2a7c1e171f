"""What can be reached from columns, layer by layer, along or against the edges of a network."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from lakechime_dagster.lineage.graph.csr import Nodes, none
from lakechime_dagster.lineage.graph.network import Network


class Certainty(IntEnum):
    """How far a search goes, and how surely something was hit.

    DIRECT: values come from there. INDIRECT: or they decide, on a value or on which rows there are. UNSURE: or nobody can tell.
    """

    DIRECT = 1
    INDIRECT = 2
    UNSURE = 3


@dataclass(frozen=True, eq=False)
class Reached:
    """Nodes that were reached and the layer of each: the fewest steps from a beginning, which itself is of layer 0.

    A data set among them means all its rows, and with them each of its columns.
    """

    nodes: Nodes
    layers: NDArray[np.int32]

    def by_node(self) -> dict[int, int]:
        return dict(zip(self.nodes.tolist(), self.layers.tolist(), strict=True))


def reach(network: Network, starts: Nodes, certainty: Certainty, *, upstream: bool = False, depth: int | None = None) -> Reached:
    """All that columns and data sets lead to, or with `upstream` all that leads to them, within so many steps."""
    step = _against if upstream else _along
    seen = np.zeros(len(network), np.bool_)
    first = np.empty(len(network), np.int32)
    layer, found, layers = _new(starts, seen, first), [], []
    while len(layer) and (depth is None or len(found) <= depth):
        if upstream and certainty >= Certainty.INDIRECT:  # rows of its data set come with each column
            layer = np.concatenate((layer, _new(network.datasets[layer], seen, first)))
        found.append(layer)
        layers.append(np.full(len(layer), len(layers), np.int32))
        layer = _new(step(network, layer, certainty), seen, first)
    return Reached(np.concatenate(found or [none()]), np.concatenate(layers or [none()]))


def _along(network: Network, layer: Nodes, certainty: Certainty) -> Nodes:
    several = [network.direct.next_of(layer)]
    if certainty >= Certainty.INDIRECT:
        several += [network.indirect.next_of(layer), network.reading.next_of(layer)]
    if certainty >= Certainty.UNSURE:
        several.append(network.maybe.next_of(np.unique(network.datasets[layer])))
    return np.concatenate(several)


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
    return np.concatenate([np.arange(table, network.columns_of(int(table)).stop, dtype=np.int32) for table in tables] or [none()])


def _new(nodes: Nodes, seen: NDArray[np.bool_], first: NDArray[np.int32]) -> Nodes:
    """Those that were not seen, each once; they are from now on."""
    new = nodes[~seen[nodes]]
    seen[new] = True
    order = np.arange(len(new), dtype=np.int32)
    first[new] = order
    return new[first[new] == order]
