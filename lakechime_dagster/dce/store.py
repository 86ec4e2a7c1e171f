"""The DCE store on SQLite or PostgreSQL: registers, fetches and tails events in commit order."""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random

from lakechime_dagster.dce.engine import (
    StoreNow,
    TransactionId,
    among,
    at_once,
    high_water,
    insert_if_absent,
    now_ms,
    reading,
    slices,
    writing,
)
from lakechime_dagster.dce.events import (
    MAX_SEQ,
    DataChangeEvent,
    EventQuery,
    FeedPage,
    Position,
    RegisteredEvent,
    Registration,
    Seen,
    TableUid,
)
from lakechime_dagster.dce.migration import Migration, beside_of, name_beside
from lakechime_dagster.dce.partitions import (
    PartitionLevels,
    canonical_json,
    canonical_partition,
    fitting_canonical,
    recanonical,
)
from lakechime_dagster.dce.queries import (
    TableKey,
    TableRow,
    amendment_key,
    captured,
    changed_table,
    event_of,
    fresh_key,
    in_order,
    is_after,
    is_visible,
    known_tables,
    listing_of,
    locked_tables,
    locked_whole,
    matching,
    row_of,
    select_events,
    sent_text,
    tables_by_id,
    values_of,
)
from lakechime_dagster.dce.schema import (
    HISTORY,
    dce_compacted,
    dce_event,
    dce_table,
    lc_consumer_partition,
)
from lakechime_dagster.dce.snapshots import meant_uid

PAGE = 5_000


def rekey(
    connection: Connection, table: TableRow, levels: PartitionLevels, adopt: TableUid | None = None
) -> None:
    """Compare the events of a table that is locked whole by these levels, compacted ones too.

    `adopt` is given to the events that were registered without a uid. Positions stay. Of two events
    that get one identity by it, the later becomes an amendment of the first. Values that do not fit
    the levels stay as they were sent.
    """
    firsts: dict[bytes, Position] = {}
    changes: dict[Table, list[dict[str, Any]]] = {history: [] for history in HISTORY}
    pages = [_all_events(connection, history, table) for history in HISTORY]
    for history, stored, key in heapq.merge(*pages, key=lambda one: one[1].position):
        event = stored.event.at_table(stored.event.table_uid or adopt)
        canonical = fitting_canonical(event.partition, levels)
        identity = event.identity_at(canonical)
        first = firsts.setdefault(identity, stored.position) if identity else stored.position
        amends = first if first != stored.position else None
        new_key = (
            key
            if identity is None
            else amendment_key(identity, stored.position)
            if amends
            else identity
        )
        if (canonical, event.table_uid, new_key, amends) != (
            stored.canonical,
            stored.event.table_uid,
            key,
            stored.amends,
        ):
            changed = {
                "partition_key": canonical,
                "partition_sent": sent_text(event.partition, canonical),
                "table_uid": event.table_uid,
                "event_key": new_key,
                "amends_tx": amends.tx_id if amends else None,
                "amends_seq": amends.seq if amends else None,
            }
            changes[history].append({"at": stored.position.seq, **changed})
    for history, rows in changes.items():
        _apply(connection, history, rows)
    _rekey_consumers(connection, table, levels)


def _rekey_consumers(connection: Connection, table: TableRow, levels: PartitionLevels) -> None:
    """The partitions that consumers stand for, which late events are compared with."""
    c = lc_consumer_partition.c
    mine = and_(c.cluster == table.cluster, c.table_name == table.name)
    for canonical in (
        connection.execute(select(c.partition_key).where(mine).distinct()).scalars().all()
    ):
        if (other := recanonical(canonical, levels)) != canonical:
            moving = select(c.consumer_id, c.cluster, c.table_name, literal(other)).where(
                mine, c.partition_key == canonical
            )
            names = ["consumer_id", "cluster", "table_name", "partition_key"]
            connection.execute(
                insert_if_absent(connection, lc_consumer_partition).from_select(names, moving)
            )
            connection.execute(
                delete(lc_consumer_partition).where(mine, c.partition_key == canonical)
            )


def _all_events(
    connection: Connection, history: Table, table: TableRow
) -> Iterator[tuple[Table, RegisteredEvent, bytes]]:
    after = Position(-1, 0)
    while True:
        page = in_order(
            select_events(history).where(
                history.c.table_id == table.table_id, is_after(after, history)
            ),
            history,
        )
        rows = connection.execute(page.limit(PAGE)).all()
        for row in rows:
            yield history, event_of(row), row.event_key
        if len(rows) < PAGE:
            return
        after = Position(rows[-1].tx_id, rows[-1].seq)


def _apply(connection: Connection, history: Table, changes: list[dict[str, Any]]) -> None:
    """Through fresh keys, since one row's new key may still be another's old one."""
    if not changes:
        return
    at_row = update(history).where(history.c.seq == bindparam("at"))
    columns = [name for name in changes[0] if name != "at"]
    connection.execute(
        at_row.values(event_key=bindparam("key")),
        [{"at": change["at"], "key": fresh_key()} for change in changes],
    )
    connection.execute(
        at_row.values({name: bindparam(f"new_{name}") for name in columns}),
        [
            {"at": change["at"], **{f"new_{name}": change[name] for name in columns}}
            for change in changes
        ],
    )


COLUMNS = tuple(column.name for column in dce_event.columns)


class StaleTransactionError(Exception):
    """Events of this transaction would be before what a migration has copied; begin another."""


class ConflictError(Exception):
    """A row of one of these keys was committed by somebody else; nothing was appended."""


def reserved(connection: Connection, count: int) -> list[int]:
    """Sequence numbers in rising order that nobody else gets; those not used stay gaps."""
    if connection.dialect.name == "postgresql":
        numbers = text(
            "SELECT nextval(pg_get_serial_sequence('dce_event', 'seq')) FROM generate_series(1, "
            ":count)"
        )
        return sorted(connection.execute(numbers, {"count": count}).scalars())
    last = last_number(connection)
    return list(range(last + 1, last + 1 + count))


def last_number(connection: Connection) -> int:
    """On SQLite, the number of the newest event that ever was, compacted or not; 0 before the
    first.
    """
    return (
        connection.execute(
            text("SELECT seq FROM sqlite_sequence WHERE name = 'dce_event'")
        ).scalar()
        or 0
    )


def appended(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Append rows with all their columns.

    Raises:
        ConflictError: when a key is there already; the transaction goes on.
    """
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        _copied(connection, rows)
    else:
        connection.execute(insert(dce_event), list(rows))


def _copied(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """By COPY, four times as fast as statements with parameters."""
    # a twentieth of a second that no process with a SQLite store should pay
    from psycopg import errors, sql

    driver: Any = connection.connection.driver_connection
    copying = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(dce_event.name), sql.SQL(", ").join(sql.Identifier(name) for name in COLUMNS)
    )
    try:
        with connection.begin_nested(), driver.cursor() as cursor, cursor.copy(copying) as copy:
            for row in rows:
                copy.write_row(
                    [canonical_json(row[name]) if name == "tags" else row[name] for name in COLUMNS]
                )
    except errors.UniqueViolation as error:
        raise ConflictError from error


CHUNK = 10_000  # keys per statement; SQLite binds at most 32,766 values
Key = TypeVar("Key", bytes, int)


@dataclass
class Version:
    """An identity that is there: where it was registered first, and its newest version."""

    first: Position
    newest: RegisteredEvent


def versions_of(connection: Connection, identities: Sequence[bytes]) -> dict[bytes, Version]:
    """Those of the identities that the store knows, compacted ones included."""
    known: dict[bytes, Version] = {}
    for keys, history in itertools.product(slices(sorted(set(identities)), CHUNK), HISTORY):
        for row in connection.execute(
            select_events(history).where(among(connection, history.c.event_key, keys))
        ):
            known[row.event_key] = Version(Position(row.tx_id, row.seq), event_of(row))
    firsts = {version.first.seq: key for key, version in known.items()}
    for numbers, history in itertools.product(slices(sorted(firsts), CHUNK), HISTORY):
        for row in connection.execute(
            select_events(history).where(among(connection, history.c.amends_seq, numbers))
        ):
            version = known[firsts[row.amends_seq]]
            version.newest = max(version.newest, event_of(row), key=lambda one: one.position)
    return known


_SENT = (
    "partition_key",
    "partition_sent",
    "snapshot_id",
    "snapshot_ts",
    "prev_snapshot_id",
    "table_uid",
    "table_format",
    "operation_type",
    "tags",
    "producer_key",
    "added_bytes",
    "event_key",
)


def register_single(
    connection: Connection, event: DataChangeEvent, table: TableRow
) -> RegisteredEvent | None:
    """Register a new event by a statement that is a transaction of its own.

    None if it is a repeat, or if the table has changed since `table` was read: nothing was
    registered then, and the batch path finds out which it is.
    """
    if event.table_uid is not None and table.table_uid is None:
        return None
    if table.format is not None:  # which side it is of is for the batch path to find out
        return None
    resolved = event.at_table(meant_uid(event.table_uid, table.table_uid))
    canonical = canonical_partition(event.partition, table.levels)
    values = values_of(resolved, canonical)
    values["event_key"] = resolved.identity_at(canonical) or fresh_key()
    guard = {"of_cluster": table.cluster, "of_name": table.name, "of_version": table.version}
    try:
        row = connection.execute(_STATEMENT, values | guard).one_or_none()
    except IntegrityError:
        return None  # somebody else registers the same event at this moment
    if row is None:
        return None
    return RegisteredEvent(
        event=resolved,
        event_ts=row.event_ts,
        position=Position(row.tx_id, row.seq),
        canonical=canonical,
    )


def _statement() -> Any:
    """INSERT … SELECT from the table's row, which must have the version that we know and stays so
    until the commit.

    Without ON CONFLICT, whose statements are compiled again each time: that would double the cost.
    """
    key = bindparam("event_key", type_=dce_event.c.event_key.type)
    there = exists(select(1).select_from(dce_event).where(dce_event.c.event_key == key))
    compacted = exists(select(1).select_from(dce_compacted).where(dce_compacted.c.event_key == key))
    source = (
        select(
            dce_table.c.table_id,
            *(bindparam(name, type_=dce_event.c[name].type).label(name) for name in _SENT),
        )
        .where(
            dce_table.c.cluster == bindparam("of_cluster"),
            dce_table.c.name == bindparam("of_name"),
            dce_table.c.version == bindparam("of_version"),
            ~there,
            ~compacted,
        )
        .with_for_update(read=True, key_share=True, of=dce_table)
    )
    return (
        insert(dce_event)
        .from_select(["table_id", *_SENT], source)
        .returning(dce_event.c.seq, dce_event.c.tx_id, dce_event.c.event_ts)
    )


_STATEMENT = _statement()


@dataclass(frozen=True)
class _Incoming:
    """An event on its way in: resolved, with its canonical partition and the key by which a repeat
    is known.
    """

    event: DataChangeEvent
    canonical: str
    identity: bytes | None
    table_id: int


@dataclass
class _Plan:
    """What a batch comes to: rows to append, and what to answer."""

    rows: list[dict[str, Any]]
    registered: list[RegisteredEvent]
    duplicates: list[RegisteredEvent]


def register_batch(
    connection: Connection, events: Sequence[DataChangeEvent], seen: Sequence[Seen] = ()
) -> tuple[Registration, dict[TableKey, TableRow]]:
    """Register within a transaction of `writing`; also what is known of the tables, good once that
    is committed.
    """
    tables = locked_tables(
        connection,
        [(event.cluster, event.table) for event in events]
        + [(mark.cluster, mark.table) for mark in seen],
    )
    for mark in seen:
        known = tables[mark.cluster, mark.table]
        mark.check_current(known.table_uid, known.seen, known.format)
    events = _by_sides(connection, tables, events)
    _raise_uids(connection, tables, events, seen)
    incoming = [_resolved(event, tables[event.cluster, event.table]) for event in events]
    if not incoming:
        return Registration(), tables
    tx_id, now = connection.execute(select(TransactionId(), StoreNow())).one()
    numbers = reserved(connection, len(incoming))
    migrated = [table for table in tables.values() if table.migration is not None]
    migrations = [found for table in migrated if (found := Migration.of(table))]
    copied = [at for migration in migrations for at in migration.copied.values()]
    if copied and Position(tx_id, numbers[0]) <= max(copied):
        raise StaleTransactionError
    while True:
        known = versions_of(connection, [item.identity for item in incoming if item.identity])
        plan = _plan(incoming, known, [Position(tx_id, number) for number in numbers], now)
        try:
            appended(connection, plan.rows)
        except ConflictError:
            continue  # somebody else committed one of these events meanwhile: now it is a repeat
        return Registration(
            registered=tuple(plan.registered), duplicates=tuple(plan.duplicates)
        ), tables


def _by_sides(
    connection: Connection, tables: dict[TableKey, TableRow], events: Sequence[DataChangeEvent]
) -> list[DataChangeEvent]:
    """The events, of which changes of the other side of a migrated table get its name, and so do
    repeats of what was registered as such before the switch.
    """
    found = list(events)
    repeated: dict[int, DataChangeEvent] = {}
    for place, event in enumerate(events):
        table = tables[event.cluster, event.table]
        if table.format is None:  # it was never migrated
            continue
        if name := beside_of(event, table):
            found[place] = replace(event, table=name)
        elif table.format is event.table_format and not event.is_marker:
            beside = name_beside(event.table, event.table_format)
            repeated[place] = replace(event, table=beside)
    keys = {(one.cluster, one.table) for one in (*found, *repeated.values())}
    tables |= locked_tables(connection, keys - tables.keys())
    identities = {
        place: _resolved(event, tables[event.cluster, event.table]).identity
        for place, event in repeated.items()
    }
    known = versions_of(connection, [one for one in identities.values() if one])
    for place, identity in identities.items():
        if identity in known:
            found[place] = repeated[place]
    return found


def _raise_uids(
    connection: Connection,
    tables: dict[TableKey, TableRow],
    events: Sequence[DataChangeEvent],
    seen: Sequence[Seen],
) -> None:
    """Move the tables to the uids that capture saw; a table without one takes the first that is
    named.
    """
    first: dict[TableKey, TableUid] = {}
    for mark in seen:
        first.setdefault((mark.cluster, mark.table), mark.table_uid)
    for event in events:
        if event.table_uid is not None:
            first.setdefault((event.cluster, event.table), event.table_uid)
    current = {key: uid for key, uid in first.items() if tables[key].table_uid is None}
    newest = {(mark.cluster, mark.table): mark.table_uid for mark in seen}
    moving = [
        key
        for key in {**current, **newest}
        if tables[key].table_uid != newest.get(key, current.get(key))
    ]
    locked_whole(connection, [tables[key].table_id for key in moving])
    for key in moving:
        if key in current:
            rekey(connection, tables[key], tables[key].levels, adopt=current[key])
        tables[key] = changed_table(
            connection, tables[key].table_id, table_uid=newest.get(key, current.get(key))
        )
    for key, mark in {(mark.cluster, mark.table): mark for mark in seen}.items():
        captured(connection, tables[key].table_id, mark)


def _resolved(event: DataChangeEvent, table: TableRow) -> _Incoming:
    resolved = event.at_table(meant_uid(event.table_uid, table.table_uid))
    canonical = canonical_partition(event.partition, table.levels)
    return _Incoming(resolved, canonical, resolved.identity_at(canonical), table.table_id)


def _plan(
    incoming: Sequence[_Incoming],
    known: dict[bytes, Version],
    positions: Sequence[Position],
    now: int,
) -> _Plan:
    """Sort events into new ones, amendments and duplicates, in their order; repeats within the
    batch too.
    """
    plan = _Plan([], [], [])
    for item, position in zip(incoming, positions, strict=True):
        version = known.get(item.identity) if item.identity else None
        if version is None:
            stored = RegisteredEvent(
                event=item.event, event_ts=now, position=position, canonical=item.canonical
            )
            key = item.identity or fresh_key()
            if item.identity:
                known[item.identity] = Version(first=position, newest=stored)
        else:
            before = version.newest
            if before.event.tags.carries(item.event.tags):
                plan.duplicates.append(before)
                continue
            amended = before.event.tagged(before.event.tags.merged(item.event.tags))
            stored = replace(
                before, event=amended, event_ts=now, position=position, amends=version.first
            )
            key = amendment_key(item.identity, position) if item.identity else fresh_key()
            version.newest = stored
        plan.rows.append(row_of(stored, item.table_id, key))
        plan.registered.append(stored)
    return plan


Result = TypeVar("Result")


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
        with writing(self.engine, keep=False) as connection:
            for key, levels in (declared or {}).items():
                _declared(connection, key, levels)
            registration, _ = register_batch(connection, events, seen)
        return registration

    def fetch(self, query: EventQuery) -> list[RegisteredEvent]:
        """The events that meet every condition of the query, in commit order, oldest first."""
        named = query.table is not None or query.cluster is not None
        with reading(self.engine) as connection:
            tables = tables_by_id(connection, query.table, query.cluster) if named else {}
            if named and not tables:
                return []
            statement = matching(connection.dialect.name, query, tables)
            return [event_of(row) for row in connection.execute(statement)]

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

    def table(self, name: str, cluster: str = "") -> TableRow | None:
        """A table with its events counted, or None for one that the store does not know."""
        with reading(self.engine) as connection:
            records = _counted(connection, name, cluster)
        return records[0] if records else None

    def listing(
        self, table: str, cluster: str = "", keys: Collection[str] | None = None
    ) -> dict[str, str]:
        """What the files of each partition, or of some, are remembered by, of a table that is
        captured by listing files (`Seen.listing`).
        """
        with reading(self.engine) as connection:
            return listing_of(connection, (cluster, table), keys)

    def tables(self) -> list[TableRow]:
        """All tables by cluster and name, with their events counted."""
        with reading(self.engine) as connection:
            return _counted(connection)

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


def _counted(
    connection: Connection, name: str | None = None, cluster: str | None = None
) -> list[TableRow]:
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
        replace(table, events=events[table_id], last_event_ts=last_ts.get(table_id))
        for table_id, table in tables.items()
    ]
