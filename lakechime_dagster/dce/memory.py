"""A DCE store in memory: the contract in its plainest form, for tests, notebooks and as the measure of the others."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from lakechime_dagster.dce.event import DataChangeEvent, RegisteredEvent, SnapshotId, TableUid
from lakechime_dagster.dce.partition import PartitionLevels, PartitionValue, canonical_partition, fitting_canonical
from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.snapshots import meant_uid
from lakechime_dagster.dce.store import Availability, EventQuery, FeedPage, Registration, Seen, TableRecord


@dataclass
class _Table:
    """What the store knows of a table."""

    name: str
    cluster: str
    levels: PartitionLevels = field(default_factory=PartitionLevels)
    table_uid: TableUid | None = None
    seen: SnapshotId | None = None


@dataclass
class _Known:
    """An identity that is there: where it came first, and its newest version."""

    first: Position
    newest: RegisteredEvent


class InMemoryDCEStore:
    """A `DCEStore` that lives as long as its process; safe for threads."""

    def __init__(self, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._tables: dict[tuple[str, str], _Table] = {}
        self._events: list[RegisteredEvent] = []
        self._known: dict[bytes, _Known] = {}

    def register(self, events: Sequence[DataChangeEvent], seen: Sequence[Seen] = ()) -> Registration:
        """Register all events and the marks of capture, or none of them."""
        with self._lock:
            for mark in seen:
                table = self._tables.get((mark.cluster, mark.table))
                mark.check_current(table.table_uid if table else None, table.seen if table else None)
            for event in events:
                canonical_partition(event.partition, self._levels(event))
            self._see(seen)
            for event in events:
                table = self._table(event.cluster, event.table)
                if table.table_uid is None and event.table_uid is not None:
                    self._adopt(table, event.table_uid)
            registered: list[RegisteredEvent] = []
            duplicates: list[RegisteredEvent] = []
            now = self._clock()
            for event in events:
                stored, is_new = self._register_one(event, now)
                (registered if is_new else duplicates).append(stored)
            return Registration(registered=tuple(registered), duplicates=tuple(duplicates))

    def fetch(self, query: EventQuery) -> list[RegisteredEvent]:
        """The events that meet every condition of the query, in commit order, oldest first."""
        with self._lock:
            found = [event for event in self._events if self._meets(event, query)]
        return found[: query.limit]

    def feed(self, after: Position, limit: int = 1000) -> FeedPage:
        """The next events of all tables in commit order."""
        limit = max(limit, 1)
        with self._lock:
            page = [event for event in self._events if event.position > after][:limit]
            through = page[-1].position if len(page) == limit else max(self.head(), after)
        return FeedPage(events=tuple(page), through=through)

    def head(self) -> Position:
        """The newest position."""
        return Position(0, len(self._events))

    def now(self) -> int:
        """The clock given to the store, in milliseconds since the epoch."""
        return self._clock()

    def declare(self, table: str, levels: PartitionLevels, cluster: str = "") -> None:
        """Set the typed levels of a table and compare its events by them from now on."""
        with self._lock:
            record = self._table(cluster, table)
            if record.levels != levels:
                record.levels = levels
                self._change(record, lambda event: replace(event, canonical=fitting_canonical(event.event.partition, levels)))

    def table(self, name: str, cluster: str = "") -> TableRecord | None:
        """What the store knows of a table, or None for one it never heard of."""
        with self._lock:
            table = self._tables.get((cluster, name))
            return self._record(table) if table else None

    def tables(self) -> list[TableRecord]:
        """All tables by cluster and name."""
        with self._lock:
            return [self._record(table) for _, table in sorted(self._tables.items())]

    def availability(self, table: str, cluster: str = "", partition: tuple[PartitionValue, ...] | None = None) -> list[Availability]:
        """Nothing: memory is never folded."""
        return []

    def _register_one(self, event: DataChangeEvent, now: int) -> tuple[RegisteredEvent, bool]:
        table = self._table(event.cluster, event.table)
        event = event.at_table(meant_uid(event.table_uid, table.table_uid))
        canonical = canonical_partition(event.partition, table.levels)
        identity = event.identity_at(canonical)
        known = self._known.get(identity) if identity else None
        position = Position(0, len(self._events) + 1)
        if known is None:
            stored = RegisteredEvent(event=event, event_ts=now, position=position, canonical=canonical)
            if identity:
                self._known[identity] = _Known(position, stored)
        elif known.newest.event.tags.carries(event.tags):
            return known.newest, False
        else:
            amended = known.newest.event.tagged(known.newest.event.tags.merged(event.tags))
            stored = replace(known.newest, event=amended, event_ts=now, position=position, amends=known.first)
            known.newest = stored
        self._events.append(stored)
        return stored, True

    def _see(self, seen: Sequence[Seen]) -> None:
        for mark in seen:
            table = self._table(mark.cluster, mark.table)
            if table.table_uid is None:
                self._adopt(table, mark.table_uid)
            table.table_uid, table.seen = mark.table_uid, mark.snapshot_id

    def _adopt(self, table: _Table, uid: TableUid) -> None:
        """The uid of a table becomes known: its events that came without one are of that uid."""
        table.table_uid = uid
        self._change(table, lambda event: replace(event, event=event.event.at_table(event.event.table_uid or uid)))

    def _change(self, table: _Table, change: Callable[[RegisteredEvent], RegisteredEvent]) -> None:
        """Change the events of a table; of two that get one identity by it, the later amends the first."""
        self._known = {}
        for index, event in enumerate(self._events):
            if (event.event.cluster, event.event.table) == (table.cluster, table.name):
                event = change(event)
            identity = event.event.identity_at(event.canonical)
            if identity in self._known:
                event = replace(event, amends=self._known[identity].first)
                self._known[identity].newest = event
            elif identity is not None:
                event = replace(event, amends=None)
                self._known[identity] = _Known(event.position, event)
            self._events[index] = event

    def _meets(self, registered: RegisteredEvent, query: EventQuery) -> bool:
        event, position = registered.event, registered.position
        return (
            (query.table is None or event.table == query.table)
            and (query.cluster is None or event.cluster == query.cluster)
            and (query.partition is None or registered.canonical == canonical_partition(query.partition, self._levels(event)))
            and event.tags.carries(query.tags)
            and (query.after is None or position > query.after)
            and (query.through is None or position <= query.through)
            and (query.since is None or registered.event_ts >= query.since)
            and (query.until is None or registered.event_ts < query.until)
            and (not query.only_new or self._is_new(registered, query))
        )

    def _is_new(self, registered: RegisteredEvent, query: EventQuery) -> bool:
        if not query.tags or registered.amends is None:
            return bool(query.tags) or registered.changes_data
        earlier = [event for event in self._events if event.position < registered.position]
        versions = [event for event in earlier if registered.amends in (event.position, event.amends)]
        return not any(version.event.tags.carries(query.tags) for version in versions)

    def _levels(self, event: DataChangeEvent) -> PartitionLevels:
        table = self._tables.get((event.cluster, event.table))
        return table.levels if table else PartitionLevels()

    def _table(self, cluster: str, name: str) -> _Table:
        return self._tables.setdefault((cluster, name), _Table(name, cluster))

    def _record(self, table: _Table) -> TableRecord:
        events = [event for event in self._events if (event.event.cluster, event.event.table) == (table.cluster, table.name)]
        return TableRecord(
            name=table.name, cluster=table.cluster, levels=table.levels, table_uid=table.table_uid, seen=table.seen,
            last_event_ts=events[-1].event_ts if events else None, events=len(events),
        )  # fmt: skip
