"""What is around a data set, to be drawn: the nearest data sets, the edges between them, and how many more there are."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.network import Backwards, Network
from lakechime_dagster.lineage.graph.parts import Part, kind_of
from lakechime_dagster.lineage.graph.paths import DECLARED, READS, UNSURE


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A data set near another one; `layer` is negative upstream. `more` of its own neighbours are left out on its far side."""

    table: str
    layer: int
    columns: tuple[str, ...]
    more: int = 0


@dataclass(frozen=True, kw_only=True)
class Link:
    """An edge between two data sets that are shown, or between columns or rows of them, with the words for its kinds."""

    source: ColumnRef
    target: ColumnRef
    kinds: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Neighbourhood:
    """What is around a data set, itself at layer 0, and all edges between what is shown; `more` data sets are left out."""

    tables: tuple[Neighbour, ...]
    links: tuple[Link, ...]
    more: int = 0


def neighbourhood(network: Network, table: str, *, up: int = 1, down: int = 1, limit: int = 150) -> Neighbourhood:
    """The data sets within so many steps, the nearest ones first, and never more than `limit`; itself alone where no edge is known."""
    if table not in network.tables:
        return Neighbourhood(tables=(Neighbour(table=table, layer=0, columns=()),), links=())
    middle = network.tables[table]
    layers = {middle: 0}
    for sign, depth, reading in ((-1, up, network.backwards), (1, down, network)):
        for layer, nodes in enumerate(_layers(reading, middle, depth), start=1):
            layers |= {node: sign * layer for node in nodes if node not in layers}
    ordered = sorted(layers, key=lambda node: (abs(layers[node]), layers[node] < 0, network.labels[node]))
    shown = set(ordered[:limit])
    links = tuple(_links(network, shown))
    tables = tuple(
        Neighbour(
            table=network.labels[node], layer=layers[node], columns=tuple(network.labels[one] for one in network.columns_of(node)),
            more=_left_out(network, node, layers[node], shown),
        )
        for node in ordered[:limit]
    )  # fmt: skip
    return Neighbourhood(tables=tables, links=links, more=len(layers) - len(shown))


def everything(network: Network) -> Neighbourhood:
    """All data sets of a network, all at layer 0, without their columns."""
    tables = tuple(Neighbour(table=name, layer=0, columns=()) for name in sorted(network.tables))
    return Neighbourhood(tables=tables, links=tuple(_links(network, set(network.tables.values()))))


def _layers(side: Network | Backwards, middle: int, depth: int) -> Iterator[list[int]]:
    seen, layer = {middle}, [middle]
    for _ in range(depth):
        layer = sorted(set(_beside(side, layer)) - seen)
        if not layer:
            return
        seen |= set(layer)
        yield layer


def _beside(side: Network | Backwards, tables: Iterable[int]) -> list[int]:
    """The data sets next to others, by what was told and what was declared."""
    nodes = np.array(list(tables), np.int32)
    return np.concatenate([side.reading.next_of(nodes), side.declared.next_of(nodes)]).tolist()


def _left_out(network: Network, node: int, layer: int, shown: set[int]) -> int:
    sides = [network.backwards] * (layer <= 0) + [network] * (layer >= 0)
    return len({other for side in sides for other in _beside(side, [node])} - shown)


def _links(network: Network, shown: set[int]) -> Iterator[Link]:
    is_shown = np.zeros(len(network), np.bool_)
    is_shown[list(shown)] = True
    members = np.concatenate([np.arange(table, network.columns_of(table).stop, dtype=np.int32) for table in sorted(shown)])
    for leaving, word in zip(network.leaving, (_table_kinds, _column_kinds, _unsure_kinds), strict=True):
        edges = leaving.edges_of(members)
        edges = edges.where(is_shown[network.datasets[edges.targets]])
        kinds: dict[tuple[int, int], set[str]] = {}
        for source, target, code in zip(edges.sources.tolist(), edges.targets.tolist(), edges.kinds.tolist(), strict=True):
            kinds.setdefault((source, target), set()).update(word(code))
        for (source, target), several in sorted(kinds.items()):
            yield Link(source=network.ref(source), target=network.ref(target), kinds=tuple(sorted(several)))


def _table_kinds(parts: int) -> set[str]:
    words = {Part.DIRECT: "direct", Part.INDIRECT: "indirect", Part.UNSURE: UNSURE, Part.DECLARED: DECLARED}
    return {word for part, word in words.items() if part in Part(parts)} or {READS}


def _column_kinds(code: int) -> set[str]:
    return {kind_of(code).value}


def _unsure_kinds(code: int) -> set[str]:
    return {UNSURE}
