"""The DCE store on SQLite or PostgreSQL: registers, fetches and tails events in commit order."""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import DBAPIError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random

from lakechime_dagster.dce.engine import at_once, high_water, now_ms, reading, writing
from lakechime_dagster.dce.events import (
    MAX_SEQ,
    DataChangeEvent,
    EventQuery,
    FeedPage,
    OperationType,
    PartitionEvents,
    Position,
    RegisteredEvent,
    Registration,
    Seen,
    SnapshotId,
    TableFormat,
    TableRecord,
    TableUid,
    TagConditions,
)
from lakechime_dagster.dce.migration import switches_of
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.queries import (
    FORMAT_CODES,
    FORMATS,
    OPERATIONS,
    TableKey,
    TableRow,
    changed_table,
    changes_data,
    delta_version,
    event_of,
    in_order,
    is_after,
    is_new,
    is_through,
    is_visible,
    known_tables,
    listing_of,
    locked_tables,
    locked_whole,
    matching,
    select_events,
    table_ids,
    tables_by_id,
)
from lakechime_dagster.dce.registration import (
    StaleTransactionError,
    last_number,
    register_batch,
    register_single,
    rekey,
)
from lakechime_dagster.dce.schema import HISTORY
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint

Result = TypeVar("Result")


class _UndoneError(Exception):
    """The transaction is to be rolled back."""


def _lost_a_race(error: BaseException) -> bool:
    """Whether the transaction was ended to break a deadlock or a conflict, or began too early;
    trying again is the answer.
    """
    return isinstance(error, StaleTransactionError) or (
        isinstance(error, DBAPIError)
        and getattr(error.orig, "sqlstate", None) in ("40P01", "40001")
    )


class DCEStore:
    """A store of data change events, over an engine of `open_engine`; safe for threads and for many
    processes.

    Registration is atomic per call and idempotent (see `DataChangeEvent.identity_at`): a repeat is
    a duplicate; a repeat with other tags an amendment, registered at a new position with the tags
    merged. Fetching returns events in commit order, oldest first.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        # what was read last; each use proves that it still holds
        self._tables: dict[TableKey, TableRow] = {}

    def register(
        self, events: Sequence[DataChangeEvent], seen: Sequence[Seen] = ()
    ) -> Registration:
        """Register all events and the progress of capture, or none of them.

        Raises:
            OvertakenError: a capture was overtaken by another, or by a first push; nothing was
                registered.
        """
        if (
            len(events) == 1
            and not seen
            and (table := self._tables.get((events[0].cluster, events[0].table)))
        ):
            with at_once(self.engine) as connection:
                stored = register_single(connection, events[0], table)
            if stored is not None:
                return Registration(registered=(stored,))
        if not events and not seen:
            return Registration()
        registration, tables = self._write(
            lambda connection: register_batch(connection, events, seen)
        )
        self._tables.update(tables)
        return registration

    def would_register(
        self,
        events: Sequence[DataChangeEvent],
        seen: Sequence[Seen] = (),
        declared: Mapping[TableKey, PartitionLevels] | None = None,
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
            through = (
                events[-1].position if len(events) == limit else max(head_within(connection), after)
            )
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
        """Set the typed levels of a table and compare its events by them from now on, in one
        transaction.
        """
        key = (cluster, table)
        with at_once(self.engine) as connection:
            known = known_tables(connection, [key]).get(key)
        if known is None or known.levels != levels:
            self._tables[key] = self._write(lambda connection: _declared(connection, key, levels))

    def note_dropped(self, table: str, cluster: str = "") -> None:
        """Note that a table is dropped now; one that is made again has its declared format."""
        with writing(self.engine) as connection:
            known = locked_tables(connection, [(cluster, table)])[cluster, table]
            locked_whole(connection, [known.table_id])
            changed_table(
                connection,
                known.table_id,
                dropped_ts=now_ms(connection),
                format=None,
                migration=None,
            )

    def captured(self, name: str | None = None) -> dict[TableKey, TableRow]:
        """By cluster and name how far the tables are captured, of all or of those of a name; their
        events are not counted.
        """
        with reading(self.engine) as connection:
            return {row.key: row for row in tables_by_id(connection, name).values()}

    def table(self, name: str, cluster: str = "") -> TableRecord | None:
        """What the store knows of a table, or None for one it does not know."""
        with reading(self.engine) as connection:
            records = _records(connection, name, cluster)
        return records[0] if records else None

    def listing(
        self, table: str, cluster: str = "", keys: Collection[str] | None = None
    ) -> dict[str, str]:
        """What the files of each partition, or of some, are remembered by, of a table that is
        captured by listing files (`Seen.listing`).
        """
        with reading(self.engine) as connection:
            return listing_of(connection, (cluster, table), keys)

    def tables(self) -> list[TableRecord]:
        """All tables by cluster and name."""
        with reading(self.engine) as connection:
            return _records(connection)

    def _write(self, work: Callable[[Connection], Result]) -> Result:
        for attempt in Retrying(
            retry=retry_if_exception(_lost_a_race),
            stop=stop_after_attempt(5),
            wait=wait_random(0, 0.1),
            reraise=True,
        ):
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


def _records(
    connection: Connection, name: str | None = None, cluster: str | None = None
) -> list[TableRecord]:
    tables = tables_by_id(connection, name, cluster)
    events = Counter[int]()
    last_ts: dict[int, int] = {}
    for event in HISTORY:
        summary = select(
            event.c.table_id, func.count().label("events"), func.max(event.c.event_ts).label("last")
        ).group_by(event.c.table_id)
        if name is not None:
            summary = summary.where(event.c.table_id.in_(list(tables)))
        for row in connection.execute(summary):
            events[row.table_id] += row.events
            last_ts[row.table_id] = max(row.last, last_ts.get(row.table_id, row.last))
    return [
        TableRecord(
            name=table.name,
            cluster=table.cluster,
            levels=table.levels,
            table_uid=table.table_uid,
            seen=table.seen,
            last_event_ts=last_ts.get(table_id),
            events=events[table_id],
            dropped_ts=table.dropped_ts,
            format=table.format,
        )
        for table_id, table in tables.items()
    ]


def newest_snapshot(
    connection: Connection,
    table: TableKey,
    tags: TagConditions,
    checkpoint: Position,
    through: Position,
    uid: TableUid | None = None,
) -> tuple[SnapshotCheckpoint, TableFormat] | None:
    """The newest snapshot of a table in (checkpoint, through] that the tags vouch for, with its
    format, or None; of the table as it is now, or of that with a uid.

    An event with the tags vouches for its own snapshot; a marker or amendment that brings them for
    all that was registered before it, also before the checkpoint: what nobody vouched for was not
    read then. Registration may come in any order: Delta versions are compared as numbers; of other
    formats a snapshot that is the predecessor of another is not the newest, then their times decide.
    A Hive table has no snapshots: the position of an event stands for one.
    """
    found = table_ids(connection, [table])
    if table not in found:
        return None
    table_id, current = found[table]
    uid = uid or current
    mark = _newest_mark(connection, table_id, tags, checkpoint, through) if tags else None

    def is_vouched(event: sa.FromClause) -> sa.ColumnElement[bool]:
        if not tags:
            return is_after(checkpoint, event)
        brings = is_new(connection.dialect.name, tags, event)
        return sa.or_(
            sa.and_(is_after(checkpoint, event), brings),
            sa.false() if mark is None else is_through(mark, event),
        )

    known = sa.union_all(
        *(
            sa.select(event.c.table_format, event.c.tx_id, event.c.seq)
            .add_columns(
                delta_version(event).label("version"),
                *(
                    sa.case((sa.not_(_is_hive(event)), event.c[name])).label(name)
                    for name in ("snapshot_id", "prev_snapshot_id", "snapshot_ts")
                ),
            )
            .where(*_of_table(event, table_id, uid, through), is_vouched(event))
            for event in HISTORY
        )
    ).cte()
    followed = sa.select(known.c.prev_snapshot_id).where(known.c.prev_snapshot_id.is_not(None))
    newest_first = [
        known.c.version.desc().nulls_last(),
        sa.case((known.c.snapshot_id.in_(followed), 1), else_=0),
        known.c.snapshot_ts.desc().nulls_last(),
        known.c.tx_id.desc(),
        known.c.seq.desc(),
    ]
    row = connection.execute(sa.select(known).order_by(*newest_first).limit(1)).one_or_none()
    if row is None:
        return None
    snapshot = SnapshotId(row.snapshot_id or str(Position(row.tx_id, row.seq)))
    return SnapshotCheckpoint(table_uid=uid, snapshot_id=snapshot), FORMATS[row.table_format]


def partition_events(
    engine: Engine, table: TableKey, uid: TableUid | None, start: Position, end: Position
) -> PartitionEvents:
    """What the events of a table with this uid, or with that of a side that it was migrated from or
    to, say of its partitions up to a position, whatever their tags: those of the range `start`,
    exclusive, to `end`, inclusive, and the partitions that were named before.
    """
    before = set[str]()
    changed: dict[str, frozenset[OperationType]] = {}
    with reading(engine) as connection:
        ids = table_ids(connection, [table])
        switches = switches_of(connection, table)
        uids = {uid, *(of for one in switches for of in (one.from_uid, one.to_uid))}
        for event, of in itertools.product(HISTORY if ids else (), uids):
            is_within = sa.case((is_after(start, event), 1), else_=0).label("is_within")
            named = (
                sa.select(event.c.partition_key, event.c.operation_type, is_within)
                .where(*_of_table(event, ids[table][0], of, end))
                .distinct()
            )
            for row in connection.execute(named):
                key, operation = row.partition_key, OPERATIONS[row.operation_type]
                if row.is_within:
                    changed[key] = changed.get(key, frozenset()) | {operation}
                else:
                    before.add(key)
    return PartitionEvents(before=frozenset(before), changed=changed)


def without_snapshot(
    connection: Connection, tables: Sequence[TableKey], through: Position
) -> list[str]:
    """The tables of which no snapshot is known yet, so that nothing can read them."""
    ids = table_ids(connection, tables)
    return [
        table[1]
        for table in tables
        if table not in ids
        or not (_has_snapshot(connection, *ids[table], through) or switches_of(connection, table))
    ]


def _has_snapshot(
    connection: Connection, table_id: int, uid: TableUid | None, through: Position
) -> bool:
    there = [
        sa.exists(sa.select(1).where(*_of_table(event, table_id, uid, through)))
        for event in HISTORY
    ]
    return bool(connection.execute(sa.select(sa.or_(*there))).scalar())


def _of_table(
    event: sa.FromClause, table_id: int, uid: TableUid | None, through: Position
) -> list[sa.ColumnElement[bool]]:
    """That an event names a snapshot of the table as it is now, not of one that had its name
    before, or changes data of a Hive table, which has none.
    """
    same_table = event.c.table_uid == uid if uid else event.c.table_uid.is_(None)
    is_snapshot = sa.case(
        (_is_hive(event), event.c.amends_seq.is_(None)), else_=event.c.snapshot_id.is_not(None)
    )
    return [event.c.table_id == table_id, is_through(through, event), is_snapshot, same_table]


def _is_hive(event: sa.FromClause) -> sa.ColumnElement[bool]:
    return event.c.table_format == FORMAT_CODES[TableFormat.HIVE]


def _newest_mark(
    connection: Connection,
    table_id: int,
    tags: TagConditions,
    checkpoint: Position,
    through: Position,
) -> Position | None:
    """The newest marker or amendment in (checkpoint, through] that brings the tags."""
    marks = sa.union_all(
        *(
            sa.select(event.c.tx_id, event.c.seq)
            .where(
                event.c.table_id == table_id,
                is_after(checkpoint, event),
                is_through(through, event),
            )
            .where(is_new(connection.dialect.name, tags, event), sa.not_(changes_data(event)))
            for event in HISTORY
        )
    ).subquery()
    row = connection.execute(
        sa.select(marks).order_by(marks.c.tx_id.desc(), marks.c.seq.desc()).limit(1)
    ).one_or_none()
    return Position(row.tx_id, row.seq) if row else None
