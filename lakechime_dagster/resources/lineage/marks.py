"""What the page shows on tables beside their columns: who reads them, and changes that are planned and reach them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.network import Network
from lakechime_dagster.lineage.graph.paths import nodes_of
from lakechime_dagster.lineage.graph.reach import Certainty, reach
from lakechime_dagster.lineage.notices.changes import ChangeState
from lakechime_dagster.lineage.reads import ACTIVE_MS, Consumer
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.lineage.reads import SqlReads
from lakechime_dagster.store.notices.changes import KeptChange, Notices

MAX_CHANGES = 100  # that are looked at, the newest first


@dataclass(frozen=True, kw_only=True)
class TableReader:
    """Who reads a table without writing any, by which columns, the last time at `last_ms`; without columns it is not told which."""

    consumer: Consumer
    columns: tuple[str, ...]
    last_ms: int
    is_active: bool
    owners: tuple[str, ...]
    link: str


def readers_of(platform: Platform, tables: Collection[str]) -> dict[str, list[TableReader]]:
    """By table who reads it, the last one first."""
    now, found = platform.store.now(), dict[tuple[str, Consumer], TableReader]()
    for one in SqlReads(platform.store.engine).of_tables(tables):  # the last one first
        key = (one.ref.table, one.consumer)
        before = found.get(key)
        columns = {*(before.columns if before else ()), *([one.ref.column] if one.ref.column else [])}
        last = before.last_ms if before else one.last_ms
        found[key] = TableReader(
            consumer=one.consumer, columns=tuple(sorted(columns)), last_ms=last, is_active=now - last <= ACTIVE_MS, owners=one.owners,
            link=one.link,
        )  # fmt: skip
    by_table: dict[str, list[TableReader]] = {}
    for (table, _), one in found.items():
        by_table.setdefault(table, []).append(one)
    return by_table


@dataclass(frozen=True, kw_only=True)
class PlannedChange:
    """A change that is planned or announced, and reaches a table, surely or perhaps."""

    kept: KeptChange
    is_sure: bool


@dataclass(frozen=True, eq=False)
class _Reach:
    """Which data sets a change reaches in a network, by their nodes."""

    network: Network
    sure: frozenset[int]
    unsure: frozenset[int]


@dataclass
class PlannedChanges:
    """The changes that are planned, with what they reach, which is looked up once for each network that it is asked about."""

    platform: Platform
    _known: dict[tuple[int, int], _Reach] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def of(self, tables: Iterable[str], network: Network) -> dict[str, list[PlannedChange]]:
        """By table the changes that reach it, the newest first."""
        wanted, found = list(tables), dict[str, list[PlannedChange]]()
        changes = Notices(self.platform.store.engine, self.platform.ledger.deployment).changes(ChangeState.PLANNED, ChangeState.ANNOUNCED)
        for kept in changes[:MAX_CHANGES]:
            reached, own = self._reach(kept, network), {ref.table for ref in kept.change.refs}
            for table in wanted:
                node = network.tables.get(table, -1)
                if table in own or node in reached.sure:
                    found.setdefault(table, []).append(PlannedChange(kept=kept, is_sure=True))
                elif node in reached.unsure:
                    found.setdefault(table, []).append(PlannedChange(kept=kept, is_sure=False))
        return found

    def _reach(self, kept: KeptChange, network: Network) -> _Reach:
        with self._lock:
            key = (kept.change_id, kept.version)
            known = self._known.get(key)
            if known is None or known.network is not network:
                if len(self._known) > 2 * MAX_CHANGES:
                    self._known.clear()
                refs = list(kept.change.refs)
                known = _Reach(network, *(_datasets(network, refs, one) for one in (Certainty.INDIRECT, Certainty.UNSURE)))
                self._known[key] = known
            return known


def _datasets(network: Network, refs: list[ColumnRef], certainty: Certainty) -> frozenset[int]:
    return frozenset(np.unique(network.datasets[reach(network, nodes_of(network, refs), certainty).nodes]).tolist())
