"""The DCE store in a relational database: PostgreSQL or SQLite."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import DBAPIError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random

from lakechime_dagster.dce.event import DataChangeEvent, RegisteredEvent
from lakechime_dagster.dce.partition import PartitionLevels, PartitionValue, canonical_partition
from lakechime_dagster.dce.position import MAX_SEQ, Position
from lakechime_dagster.dce.store import Availability, EventQuery, FeedPage, Registration, Seen, TableRecord
from lakechime_dagster.store.compaction import kept_availability
from lakechime_dagster.store.dialect import high_water, now_ms
from lakechime_dagster.store.engine import at_once, reading, writing
from lakechime_dagster.store.queries import in_order, is_after, is_visible, matching, select_events
from lakechime_dagster.store.registration import last_number, register_batch, register_single
from lakechime_dagster.store.rekey import rekey
from lakechime_dagster.store.rows import event_of
from lakechime_dagster.store.schema import dce_event
from lakechime_dagster.store.tables import (
    TableKey,
    TableRow,
    changed_table,
    known_tables,
    locked_tables,
    locked_whole,
    tables_by_id,
)

Result = TypeVar("Result")


class _UndoneError(Exception):
    """The transaction is to be rolled back."""


def _lost_a_race(error: BaseException) -> bool:
    """Whether PostgreSQL ended the transaction to break a deadlock or a conflict; trying again is the answer."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in ("40P01", "40001")


class SqlDCEStore:
    """A `DCEStore` over an engine of `open_engine`; safe for threads and for many processes."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._tables: dict[TableKey, TableRow] = {}  # what was read last; each use proves that it still holds

    def register(self, events: Sequence[DataChangeEvent], seen: Sequence[Seen] = ()) -> Registration:
        """Register all events and the marks of capture, or none of them."""
        if len(events) == 1 and not seen and (table := self._tables.get((events[0].cluster, events[0].table))):
            with at_once(self.engine) as connection:
                stored = register_single(connection, events[0], table)
            if stored is not None:
                return Registration(registered=(stored,))
        if not events and not seen:
            return Registration()
        registration, tables = self._write(lambda connection: register_batch(connection, events, seen))
        self._tables.update(tables)
        return registration

    def would_register(
        self, events: Sequence[DataChangeEvent], seen: Sequence[Seen] = (), declared: Mapping[TableKey, PartitionLevels] | None = None
    ) -> Registration:
        """What `register` would answer, but for positions and times: nothing is kept.

        With `declared`, as after `declare` of these levels.

        Raises:
            InvalidValueError: what `register` would raise.
        """
        registration = Registration()
        with suppress(_UndoneError), writing(self.engine) as connection:
            for key, levels in (declared or {}).items():
                _declared(connection, key, levels)
            registration, _ = register_batch(connection, events, seen)
            raise _UndoneError
        return registration

    def fetch(self, query: EventQuery) -> list[RegisteredEvent]:
        """The events that meet every condition of the query, in commit order, oldest first."""
        with reading(self.engine) as connection:
            return fetch_within(connection, query)

    def feed(self, after: Position, limit: int = 1000) -> FeedPage:
        """The next events of all tables in commit order."""
        limit = max(limit, 1)
        with reading(self.engine) as connection:
            page = in_order(select_events().where(is_visible(), is_after(after))).limit(limit)
            events = tuple(event_of(row) for row in connection.execute(page))
            through = events[-1].position if len(events) == limit else max(head_within(connection), after)
        return FeedPage(events=events, through=through)

    def head(self) -> Position:
        """The newest position below which nothing can become visible any more."""
        with reading(self.engine) as connection:
            return head_within(connection)

    def now(self) -> int:
        """The store's clock in milliseconds since the epoch."""
        with at_once(self.engine) as connection:
            return now_ms(connection)

    def declare(self, table: str, levels: PartitionLevels, cluster: str = "") -> None:
        """Set the typed levels of a table and compare its events by them from now on, in one transaction."""
        key = (cluster, table)
        with at_once(self.engine) as connection:
            known = known_tables(connection, [key]).get(key)
        if known is None or known.levels != levels:
            self._tables[key] = self._write(lambda connection: _declared(connection, key, levels))

    def note_dropped(self, table: str, cluster: str = "") -> None:
        """Note that a table is dropped now."""
        with writing(self.engine) as connection:
            known = locked_tables(connection, [(cluster, table)])[cluster, table]
            locked_whole(connection, [known.table_id])
            changed_table(connection, known.table_id, dropped_ts=now_ms(connection))

    def table(self, name: str, cluster: str = "") -> TableRecord | None:
        """What the store knows of a table, or None for one it never heard of."""
        with reading(self.engine) as connection:
            records = _records(connection, name, cluster)
        return records[0] if records else None

    def tables(self) -> list[TableRecord]:
        """All tables by cluster and name."""
        with reading(self.engine) as connection:
            return _records(connection)

    def availability(self, table: str, cluster: str = "", partition: tuple[PartitionValue, ...] | None = None) -> list[Availability]:
        """What retention folded of this table, of one partition or of all."""
        with reading(self.engine) as connection:
            known = known_tables(connection, [(cluster, table)]).get((cluster, table))
            if known is None:
                return []
            chosen = None if partition is None else [canonical_partition(partition, known.levels)]
            return kept_availability(connection, known, chosen)

    def _write(self, work: Callable[[Connection], Result]) -> Result:
        for attempt in Retrying(retry=retry_if_exception(_lost_a_race), stop=stop_after_attempt(5), wait=wait_random(0, 0.1), reraise=True):
            with attempt, writing(self.engine) as connection:
                return work(connection)
        raise AssertionError("a retry ends by an answer or an error")


def fetch_within(connection: Connection, query: EventQuery) -> list[RegisteredEvent]:
    """Fetch in a transaction that reads more."""
    named = query.table is not None or query.cluster is not None
    tables = tables_by_id(connection, query.table, query.cluster) if named else {}
    if named and not tables:
        return []
    statement = matching(connection.dialect.name, query, tables)
    return [event_of(row) for row in connection.execute(statement)]


def head_within(connection: Connection) -> Position:
    """The head at the moment that a transaction of `reading` sees."""
    if connection.dialect.name == "postgresql":
        return Position(high_water(connection) - 1, MAX_SEQ)
    return Position(0, last_number(connection))


def _declared(connection: Connection, key: TableKey, levels: PartitionLevels) -> TableRow:
    table = locked_tables(connection, [key])[key]
    locked_whole(connection, [table.table_id])
    rekey(connection, table, levels)
    return changed_table(connection, table.table_id, levels=levels)


def _records(connection: Connection, name: str | None = None, cluster: str | None = None) -> list[TableRecord]:
    tables = tables_by_id(connection, name, cluster)
    summary: Any = select(dce_event.c.table_id, func.max(dce_event.c.event_ts), func.count()).group_by(dce_event.c.table_id)
    if name is not None:
        summary = summary.where(dce_event.c.table_id.in_(list(tables)))
    found = {table_id: (last, count) for table_id, last, count in connection.execute(summary)}
    return [
        TableRecord(
            name=table.name, cluster=table.cluster, levels=table.levels, table_uid=table.table_uid, seen=table.seen,
            last_event_ts=found.get(table_id, (None, 0))[0], events=found.get(table_id, (None, 0))[1], dropped_ts=table.dropped_ts,
        )
        for table_id, table in tables.items()
    ]  # fmt: skip
