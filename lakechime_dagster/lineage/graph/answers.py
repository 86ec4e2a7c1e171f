"""What is asked of a network, and what it answers, as plain values: who is hit, how surely, by which way, and who is not and why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.csr import Nodes
from lakechime_dagster.lineage.graph.network import Network
from lakechime_dagster.lineage.graph.paths import Paths, Step, nodes_of
from lakechime_dagster.lineage.graph.reach import Certainty, reach


@dataclass(frozen=True, kw_only=True)
class ColumnHit:
    """A column that was reached."""

    name: str
    certainty: Certainty
    layer: int


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A data set that was reached.

    `certainty` and `layer` are the best of its columns and rows. With `rows` which rows there are depends on it, and so each column
    does, INDIRECT; `columns` are those alone that were reached by themselves. `path` is a shortest way.
    """

    table: str
    layer: int
    certainty: Certainty
    columns: tuple[ColumnHit, ...]
    rows: Certainty | None
    path: tuple[Step, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Hits:
    """The data sets that were reached, by layer and name; `more` are left out."""

    hits: tuple[Hit, ...]
    more: int = 0

    def __len__(self) -> int:
        return len(self.hits) + self.more


def hits(
    network: Network, refs: Iterable[ColumnRef], *, upstream: bool = False, depth: int | None = None, kind: Certainty | None = None,
    limit: int | None = None, with_paths: bool = True,
) -> Hits:  # fmt: skip
    """What columns lead to, or what leads to them.

    `kind` keeps what was reached so surely and not surer. A data set among `refs` stands for all its columns and its rows.
    """
    starts = nodes_of(network, list(refs))
    widest = Certainty.UNSURE if kind is None else kind
    classes = [one for one in Certainty if one <= widest]
    found = {one: reach(network, starts, one, upstream=upstream, depth=depth) for one in classes}
    certainty = np.zeros(len(network), np.int8)
    for one in reversed(classes):
        certainty[found[one].nodes] = one
    is_hit = found[widest].layers > 0
    tables = _Tables(network, found[widest].nodes[is_hit], found[widest].layers[is_hit], certainty)
    chosen = tables.chosen(kind)
    shown = chosen if limit is None else chosen[:limit]
    ways = Paths(network, found[widest], widest, upstream=upstream) if with_paths else None
    return Hits(hits=tuple(tables.hit(at, ways) for at in shown), more=len(chosen) - len(shown))


@dataclass(frozen=True, kw_only=True)
class NotHit:
    """A data set further down that is not hit, and why not."""

    table: str
    reason: str


def not_hit(network: Network, refs: Iterable[ColumnRef], found: Hits) -> tuple[NotHit, ...]:
    """What reads the data sets of columns, or reads what reads them, and is not hit by these columns; `found` are all that are."""
    wanted = list(refs)
    beginnings = {ref.table for ref in wanted}
    hit = {one.table: {column.name for column in one.columns} for one in found.hits}
    subjects = {table: {str(ref.column) for ref in wanted if ref.table == table} for table in beginnings}
    readers = hits(network, [ColumnRef(table) for table in beginnings], with_paths=False)
    several = [one.table for one in readers.hits if one.table not in hit and one.table not in beginnings]
    return tuple(NotHit(table=table, reason=_why_not(network, table, hit | subjects)) for table in several)


def _why_not(network: Network, table: str, changed: Mapping[str, set[str]]) -> str:
    node = network.tables[table]
    members = np.arange(node, network.columns_of(node).stop, dtype=np.int32)
    back = network.backwards
    read = [network.ref(int(one)) for one in np.unique(np.concatenate([side.next_of(members) for side in (back.direct, back.indirect)]))]
    inputs = [network.labels[one] for one in np.unique(back.reading.next_of(members[:1])).tolist()]
    parts: list[str] = []
    for name in sorted(set(inputs) & set(changed)):
        columns = sorted(str(ref.column) for ref in read if ref.table == name and ref.column is not None)
        parts.append(f"of {name} it reads {_listed(columns) if columns else 'only the rows'}, not {_listed(sorted(changed[name]))}")
    return "; ".join(parts) or f"it reads {_listed(inputs)}, which is not hit"


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class _Tables:
    """Reached nodes by their data sets, without a look at each before it is known which are shown."""

    def __init__(self, network: Network, nodes: Nodes, layers: Nodes, certainty: NDArray[np.int8]) -> None:
        order = np.argsort(nodes)
        self._network, self._certainty = network, certainty
        self._nodes, self._layers = nodes[order], layers[order]
        self._tables, self._first = np.unique(network.datasets[self._nodes], return_index=True)
        self._end = np.append(self._first[1:], len(nodes))

    def chosen(self, kind: Certainty | None) -> list[int]:
        """The places of the data sets of that certainty, by layer and name."""
        if not len(self._nodes):
            return []
        layers = np.minimum.reduceat(self._layers, self._first)
        best = np.minimum.reduceat(self._certainty[self._nodes], self._first)
        places = np.arange(len(self._tables)) if kind is None else np.flatnonzero(best == kind)
        return sorted(places.tolist(), key=lambda at: (int(layers[at]), self._network.labels[self._tables[at]]))

    def hit(self, at: int, ways: Paths | None) -> Hit:
        network, part = self._network, slice(self._first[at], self._end[at])
        nodes, layers = self._nodes[part].tolist(), self._layers[part].tolist()
        table = int(self._tables[at])
        several = [
            ColumnHit(name=network.labels[node], certainty=self._sure(node), layer=layer)
            for node, layer in zip(nodes, layers, strict=True)
            if node != table
        ]
        best = min(zip(nodes, layers, strict=True), key=lambda one: (one[1], self._sure(one[0]), network.labels[one[0]]))[0]
        return Hit(
            table=network.labels[table], layer=min(layers), certainty=min(map(self._sure, nodes)),
            columns=tuple(sorted(several, key=lambda one: (one.certainty, one.name))),
            rows=self._sure(table) if table in nodes else None, path=(ways.of(best) or ()) if ways is not None else (),
        )  # fmt: skip

    def _sure(self, node: int) -> Certainty:
        return Certainty(int(self._certainty[node]))
