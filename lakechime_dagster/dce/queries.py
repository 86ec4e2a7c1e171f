"""Statements that read events and their tables, and events as rows."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Numeric,
    Row,
    Select,
    Table,
    Text,
    and_,
    case,
    cast,
    collate,
    column,
    delete,
    exists,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    true,
    tuple_,
    type_coerce,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine

from lakechime_dagster.dce.engine import (
    PARAMETERS,
    IsAfter,
    IsThrough,
    VisibleBelow,
    insert_if_absent,
    reading,
    slices,
)
from lakechime_dagster.dce.events import (
    NUMBER,
    DataChangeEvent,
    EventQuery,
    OperationType,
    Position,
    RegisteredEvent,
    Seen,
    SnapshotId,
    TableFormat,
    TableUid,
    TagConditions,
    Tags,
    digest,
    revived,
)
from lakechime_dagster.dce.partitions import (
    UNPARTITIONED,
    LevelType,
    PartitionLevels,
    PartitionValue,
    canonical_json,
    canonical_partition,
    checked_partition,
)
from lakechime_dagster.dce.schema import HISTORY, dce_event, dce_listing, dce_switch, dce_table
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, SnapshotRange

FORMAT_CODES = {TableFormat.HIVE: 1, TableFormat.ICEBERG: 2, TableFormat.DELTA: 3}
OPERATION_CODES = {OperationType.APPEND: 1, OperationType.DELETE: 2, OperationType.UPDATE: 3}
FORMATS = {code: member for member, code in FORMAT_CODES.items()}
OPERATIONS = {code: member for member, code in OPERATION_CODES.items()}


def values_of(event: DataChangeEvent, canonical: str) -> dict[str, Any]:
    """The columns that the event itself fills; tags as a map."""
    return {
        "partition_key": canonical,
        "partition_sent": sent_text(event.partition, canonical),
        "snapshot_id": event.snapshot_id,
        "snapshot_ts": event.snapshot_ts,
        "prev_snapshot_id": event.prev_snapshot_id,
        "table_uid": event.table_uid,
        "table_format": FORMAT_CODES[event.table_format],
        "operation_type": OPERATION_CODES[event.operation_type],
        "tags": dict(event.tags),
        "producer_key": event.event_key,
        "added_bytes": event.added_bytes,
    }


def row_of(stored: RegisteredEvent, table_id: int, event_key: bytes) -> dict[str, Any]:
    """All columns of an event whose position is known."""
    position, amends = stored.position, stored.amends
    return {
        "seq": position.seq,
        "tx_id": position.tx_id,
        "event_ts": stored.event_ts,
        "table_id": table_id,
        **values_of(stored.event, stored.canonical),
        "event_key": event_key,
        "amends_tx": amends.tx_id if amends else None,
        "amends_seq": amends.seq if amends else None,
    }


def event_of(row: Row[Any]) -> RegisteredEvent:
    """The event of a row of `dce_event` joined with `cluster` and `name` of its table."""
    event = revived(
        {
            "table": row.name,
            "table_format": FORMATS[row.table_format],
            "operation_type": OPERATIONS[row.operation_type],
            "partition": partition_of(row.partition_key, row.partition_sent),
            "snapshot_id": row.snapshot_id,
            "snapshot_ts": row.snapshot_ts,
            "prev_snapshot_id": row.prev_snapshot_id,
            "tags": Tags(row.tags),
            "cluster": row.cluster,
            "table_uid": row.table_uid,
            "event_key": row.producer_key,
            "added_bytes": row.added_bytes,
        }
    )
    return RegisteredEvent(
        event=event,
        event_ts=row.event_ts,
        position=Position(row.tx_id, row.seq),
        canonical=row.partition_key,
        amends=None if row.amends_seq is None else Position(row.amends_tx, row.amends_seq),
    )


def sent_text(partition: tuple[PartitionValue, ...] | None, canonical: str) -> str | None:
    """The partition as it was sent, where its canonical text does not say it already."""
    sent = UNPARTITIONED if partition is None else canonical_json(partition)
    return None if sent == canonical else sent


def partition_of(canonical: str, sent: str | None) -> tuple[PartitionValue, ...] | None:
    text = canonical if sent is None else sent
    return None if text == UNPARTITIONED else checked_partition(json.loads(text))


def fresh_key() -> bytes:
    """The key of an event that is never known again."""
    return os.urandom(16)


def amendment_key(identity: bytes, position: Position) -> bytes:
    """The key of an amendment: unique, since no two rows share a position."""
    return digest(["amends", identity.hex(), position.seq])


TableKey = tuple[str, str]  # cluster and name
CHUNK = 200  # tables per statement


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """A table as the store knows it; `dropped_ts` is when it was dropped last, be it there again or
    not. Its events are counted where that is asked for.
    """

    table_id: int
    cluster: str
    name: str
    levels: PartitionLevels
    table_uid: TableUid | None
    seen: SnapshotId | None
    version: int
    dropped_ts: int | None
    format: TableFormat | None = None  # that triggers read, of a table that was migrated
    migration: Mapping[str, Any] | None = None
    events: int = 0
    last_event_ts: int | None = None

    @property
    def key(self) -> TableKey:
        return (self.cluster, self.name)


def known_tables(connection: Connection, keys: Iterable[TableKey]) -> dict[TableKey, TableRow]:
    """Those of the tables that the store knows."""
    return _selected(connection, _columns(), keys)


def table_ids(
    connection: Connection, tables: Sequence[TableKey]
) -> dict[TableKey, tuple[int, TableUid | None]]:
    """The ids and current uids of the tables that the store knows."""
    names = {name for _, name in tables}
    found: dict[TableKey, tuple[int, TableUid | None]] = {}
    for chunk in slices(sorted(names), PARAMETERS):
        query = select(
            dce_table.c.cluster, dce_table.c.name, dce_table.c.table_id, dce_table.c.table_uid
        ).where(dce_table.c.name.in_(chunk))
        found |= {
            (row.cluster, row.name): (row.table_id, row.table_uid and TableUid(row.table_uid))
            for row in connection.execute(query)
        }
    return {table: found[table] for table in tables if table in found}


def tables_by_id(
    connection: Connection, name: str | None = None, cluster: str | None = None
) -> dict[int, TableRow]:
    """All tables, or those of a name or cluster."""
    query = _columns().order_by(dce_table.c.cluster, dce_table.c.name)
    if name is not None:
        query = query.where(dce_table.c.name == name)
    if cluster is not None:
        query = query.where(dce_table.c.cluster == cluster)
    return {row.table_id: _table_row(row) for row in connection.execute(query)}


def locked_tables(connection: Connection, keys: Iterable[TableKey]) -> dict[TableKey, TableRow]:
    """The tables, made known where they are new, locked against others who register several events
    or change the table.
    """
    wanted = sorted(set(keys))
    locking = _columns().with_for_update(key_share=True)
    tables = _selected(connection, locking, wanted)
    if missing := [key for key in wanted if key not in tables]:
        rows = [{"cluster": cluster, "name": name} for cluster, name in missing]
        connection.execute(insert_if_absent(connection, dce_table), rows)
        tables |= _selected(connection, locking, missing)
    return tables


def locked_whole(connection: Connection, table_ids: Iterable[int]) -> None:
    """Lock tables against everyone who registers or changes."""
    ids = sorted(set(table_ids))
    for chunk in slices(ids, CHUNK):
        connection.execute(
            select(dce_table.c.table_id)
            .where(dce_table.c.table_id.in_(chunk))
            .order_by(dce_table.c.table_id)
            .with_for_update()
        )


def changed_table(connection: Connection, table_id: int, **values: Any) -> TableRow:
    """Change what the store knows of a table that is locked whole, and raise its version."""
    if isinstance(levels := values.get("levels"), PartitionLevels):
        values["levels"] = [
            [name, kind.value] for name, kind in zip(levels.names, levels.types, strict=True)
        ]
    changing = (
        update(dce_table)
        .where(dce_table.c.table_id == table_id)
        .values(version=dce_table.c.version + 1, **values)
        .returning(*dce_table.c)
    )
    return _table_row(connection.execute(changing).one())


def captured(connection: Connection, table_id: int, mark: Seen) -> None:
    """Every commit of the table up to this snapshot is registered; who registers need not know."""
    connection.execute(
        update(dce_table).where(dce_table.c.table_id == table_id).values(seen=mark.snapshot_id)
    )
    c = dce_listing.c
    for keys in slices(sorted(mark.listing), PARAMETERS):
        connection.execute(
            delete(dce_listing).where(c.table_id == table_id, c.partition_key.in_(keys))
        )
    rows = [
        {"table_id": table_id, "partition_key": key, "files": files}
        for key, files in mark.listing.items()
        if files is not None
    ]
    if rows:
        connection.execute(insert(dce_listing), rows)


def listing_of(
    connection: Connection, key: TableKey, partitions: Collection[str] | None
) -> dict[str, str]:
    """What the files of each partition of a table, or of some, are remembered by."""
    listed = (
        select(dce_listing.c.partition_key, dce_listing.c.files)
        .join(dce_table, dce_table.c.table_id == dce_listing.c.table_id)
        .where(dce_table.c.cluster == key[0], dce_table.c.name == key[1])
    )
    if partitions is not None:
        listed = listed.where(dce_listing.c.partition_key.in_(partitions))
    return {row.partition_key: row.files for row in connection.execute(listed)}


def _columns() -> Select[Any]:
    return select(dce_table)


def _selected(
    connection: Connection, query: Select[Any], keys: Iterable[TableKey]
) -> dict[TableKey, TableRow]:
    wanted = sorted(set(keys))
    found: dict[TableKey, TableRow] = {}
    for chunk in slices(wanted, CHUNK):
        matching = query.where(tuple_(dce_table.c.cluster, dce_table.c.name).in_(chunk)).order_by(
            dce_table.c.table_id
        )
        found.update((row.key, row) for row in map(_table_row, connection.execute(matching)))
    return found


def _table_row(row: Row[Any]) -> TableRow:
    return TableRow(
        table_id=row.table_id,
        cluster=row.cluster,
        name=row.name,
        levels=_levels(row.levels),
        table_uid=row.table_uid,
        seen=row.seen,
        version=row.version,
        dropped_ts=row.dropped_ts,
        format=None if row.format is None else FORMATS[row.format],
        migration=row.migration,
    )


def _levels(stored: list[list[str]] | None) -> PartitionLevels:
    levels: Mapping[str, LevelType] = {name: LevelType(kind) for name, kind in stored or ()}
    return PartitionLevels(tuple(levels), tuple(levels.values()))


def changes_data(event: FromClause) -> ColumnElement[bool]:
    """Whether the event may have changed rows: neither a marker nor an amendment."""
    has_snapshot = or_(
        event.c.snapshot_id.is_not(None), event.c.table_format == FORMAT_CODES[TableFormat.HIVE]
    )
    return and_(event.c.amends_seq.is_(None), has_snapshot)


def select_events(event: Table = dce_event) -> Select[Any]:
    """Events with cluster and name of their table."""
    return select(event, dce_table.c.cluster, dce_table.c.name).join(
        dce_table, dce_table.c.table_id == event.c.table_id
    )


def in_order(query: Select[Any], event: FromClause = dce_event) -> Select[Any]:
    """In commit order, oldest first."""
    return query.order_by(event.c.tx_id, event.c.seq)


def is_visible(event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether every transaction up to the event's has ended, so that nothing can appear before
    it.
    """
    return event.c.tx_id < select(VisibleBelow()).scalar_subquery()


def is_after(position: Position, event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether the event is after a position."""
    return IsAfter(event.c.tx_id, event.c.seq, *_numbers(position))


def is_through(position: Position, event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether the event is at a position or before it."""
    return IsThrough(event.c.tx_id, event.c.seq, *_numbers(position))


def delta_version(event: FromClause = dce_event) -> ColumnElement[int]:
    """The Delta version of the event as a number, NULL where it has none."""
    return case(
        (
            event.c.table_format == FORMAT_CODES[TableFormat.DELTA],
            cast(event.c.snapshot_id, BigInteger),
        )
    )


def is_delete(event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether the event says that nothing of its partition is left."""
    return event.c.operation_type == OPERATION_CODES[OperationType.DELETE]


def is_drop(event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether the event drops its whole partition; the amendment of a drop does not do so once
    more.
    """
    return and_(is_delete(event), event.c.amends_seq.is_(None))


def is_dropped(through: Position, event: FromClause = dce_event) -> ColumnElement[bool]:
    """Whether the event's partition was dropped after it, by the drops up to a position.

    By Delta versions of the same table, since registration may come in any order; by position where
    one has no version.
    """
    return or_(*(_is_dropped_by(history.alias("dropping"), event, through) for history in HISTORY))


def _is_dropped_by(drop: FromClause, event: FromClause, through: Position) -> ColumnElement[bool]:
    versions = (delta_version(drop), delta_version(event))
    same_table = drop.c.table_uid.is_not_distinct_from(event.c.table_uid)
    are_versions = and_(same_table, *(version.is_not(None) for version in versions))
    is_later = IsAfter(drop.c.tx_id, drop.c.seq, event.c.tx_id, event.c.seq)
    after = case((are_versions, versions[0] > versions[1]), else_=is_later)
    mine = (drop.c.table_id == event.c.table_id, drop.c.partition_key == event.c.partition_key)
    return exists(
        select(1)
        .select_from(drop)
        .where(*mine, is_through(through, drop), is_drop(drop), after)
        .correlate_except(drop)
    )


def fits(
    dialect: str, conditions: TagConditions, event: FromClause = dce_event
) -> ColumnElement[bool]:
    """Whether the tags of the event meet conditions."""
    if not conditions:
        return true()
    if dialect == "sqlite":
        return func.lakechime_fit(event.c.tags, conditions.to_text(), type_=Boolean)
    equal = type_coerce(event.c.tags, JSONB).contains(dict(conditions.equal))
    return (
        and_(equal, _compares(event, literal(conditions.compared, JSONB)))
        if conditions.compared
        else equal
    )


def _compares(event: FromClause, compared: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the tags of the event meet what `TagConditions.compared` says, on PostgreSQL."""
    kinds: dict[str, TypeEngine[Any]] = {"key": Text(), "operator": Text(), "values": JSONB()}
    wanted = (
        func.jsonb_to_recordset(compared)
        .table_valued(*(column(name, kind) for name, kind in kinds.items()))
        .render_derived(name="wanted", with_types=True)
    )
    operator, values = wanted.c.operator, wanted.c["values"]
    given: ColumnElement[str] = type_coerce(event.c.tags, JSONB).op("->>", return_type=Text())(
        wanted.c.key
    )
    value: ColumnElement[str] = values[0].astext
    is_in = values.contains(func.to_jsonb(given))
    sides = (given, value)
    are_numbers = and_(*(side.regexp_match(f"^{NUMBER}$") for side in sides))
    numbers, texts = ([cast(one, Numeric) for one in sides], [collate(one, "C") for one in sides])
    order = case(
        (are_numbers, func.sign(numbers[0] - numbers[1])),
        (texts[0] < texts[1], -1),
        (texts[0] > texts[1], 1),
        else_=0,
    )
    holds = case(
        (operator == "exists", given.is_not(None) == (value == "true")),
        (given.is_(None), operator.in_(["!=", "not in"])),
        (operator == "in", is_in),
        (operator.in_(["!=", "not in"]), not_(is_in)),
        (operator == "<", order < 0),
        (operator == "<=", order <= 0),
        (operator == ">", order > 0),
        else_=order >= 0,
    )
    return not_(exists(select(1).select_from(wanted).where(not_(holds))))


def is_new(
    dialect: str, conditions: TagConditions, event: FromClause = dce_event
) -> ColumnElement[bool]:
    """Whether the event says something new to who asked for these tags; where an event without tags
    meets the conditions, only changes of data do.
    """
    if conditions.fit({}):
        return and_(changes_data(event), fits(dialect, conditions, event))
    return for_the_first_time(lambda event: fits(dialect, conditions, event), event)


def for_the_first_time(
    holds: Callable[[FromClause], ColumnElement[bool]], event: FromClause = dce_event
) -> ColumnElement[bool]:
    """Whether something holds of the event that held of no earlier version of it: an amendment
    repeats the tags it had before.
    """
    repeated = (_held_before(holds, history.alias("earlier"), event) for history in HISTORY)
    return and_(holds(event), or_(event.c.amends_seq.is_(None), not_(or_(*repeated))))


def _held_before(
    holds: Callable[[FromClause], ColumnElement[bool]], earlier: FromClause, event: FromClause
) -> ColumnElement[bool]:
    is_version = or_(
        earlier.c.seq == event.c.amends_seq, earlier.c.amends_seq == event.c.amends_seq
    )
    before = (
        select(1)
        .select_from(earlier)
        .where(is_version, earlier.c.seq < event.c.seq, holds(earlier))
    )
    # correlated to all else: `holds` may speak of who asks, in a statement around
    return exists(before.correlate_except(earlier))


def matching(dialect: str, query: EventQuery, tables: dict[int, TableRow]) -> Select[Any]:
    """The statement of a query; `tables` are those that it names."""
    statement = in_order(select_events().where(is_visible()))
    if query.partition is not None:
        statement = statement.where(_of_partition(query, tables))
    elif query.table is not None or query.cluster is not None:
        statement = statement.where(dce_event.c.table_id.in_(list(tables)))
    conditions: list[tuple[object, Any]] = [
        (query.after, lambda: is_after(query.after or Position.ORIGIN)),
        (query.through, lambda: is_through(query.through or Position.ORIGIN)),
        (query.since, lambda: dce_event.c.event_ts >= query.since),
        (query.until, lambda: dce_event.c.event_ts < query.until),
        (query.tags or None, lambda: fits(dialect, TagConditions(query.tags))),
        (query.only_new or None, lambda: is_new(dialect, TagConditions(query.tags))),
    ]
    for given, condition in conditions:
        if given is not None:
            statement = statement.where(condition())
    return statement.limit(query.limit) if query.limit is not None else statement


def _of_partition(query: EventQuery, tables: dict[int, TableRow]) -> ColumnElement[bool]:
    """By table and canonical text, since tables of one name in several clusters may declare
    different levels.
    """
    return or_(
        *(
            and_(
                dce_event.c.table_id == table_id,
                dce_event.c.partition_key == canonical_partition(query.partition, table.levels),
            )
            for table_id, table in tables.items()
        )
    )


def _numbers(position: Position) -> tuple[ColumnElement[int], ColumnElement[int]]:
    return (
        literal(position.tx_id, dce_event.c.tx_id.type),
        literal(position.seq, dce_event.c.seq.type),
    )


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A table became one of another format: what is up to the position is of the old one."""

    position: Position
    from_format: TableFormat
    to_format: TableFormat
    from_uid: TableUid
    to_uid: TableUid
    to_snapshot: SnapshotId

    @property
    def checkpoint(self) -> SnapshotCheckpoint:
        """What a consumer has read that had read all before it."""
        return SnapshotCheckpoint(table_uid=self.to_uid, snapshot_id=self.to_snapshot)


def switches_of(connection: Connection, table: TableKey) -> list[Switch]:
    """The switches of a table, oldest first."""
    query = (
        sa.select(dce_switch)
        .join(dce_table, dce_table.c.table_id == dce_switch.c.table_id)
        .where(dce_table.c.cluster == table[0], dce_table.c.name == table[1])
        .order_by(dce_switch.c.switch_id)
    )
    return [
        Switch(
            position=Position(row.tx_id, row.seq),
            from_format=FORMATS[row.from_format],
            to_format=FORMATS[row.to_format],
            from_uid=row.from_uid,
            to_uid=row.to_uid,
            to_snapshot=row.to_snapshot,
        )
        for row in connection.execute(query)
    ]


def side_of(engine: Engine, table: TableKey, uid: TableUid | None = None) -> TableFormat | None:
    """The format of a table with this uid, by default of the one that its name stands for; None where
    it was never migrated.
    """
    with reading(engine) as connection:
        known = known_tables(connection, [table]).get(table)
        for one in switches_of(connection, table) if uid else ():
            if uid in (one.from_uid, one.to_uid):
                return one.from_format if uid == one.from_uid else one.to_format
    return known.format if known else None


def switched_since(engine: Engine, table: TableKey, range_: SnapshotRange) -> Position | None:
    """The position of the start of a range in which a table became one of another format; None where
    it did not, or not in steps that lead from the start to the end.
    """
    if range_.start is None:
        return None
    start = SnapshotCheckpoint(table_uid=range_.start_uid, snapshot_id=range_.start)
    with reading(engine) as connection:
        if not (switches := switches_of(connection, table)):
            return None
        reached = [at for at, one in enumerate(switches, 1) if one.checkpoint == start]
        if reached:
            position, later = switches[reached[-1] - 1].position, switches[reached[-1] :]
        else:
            is_hive = any(
                TableFormat.HIVE is of and start.table_uid == uid
                for one in switches
                for of, uid in ((one.from_format, one.from_uid), (one.to_format, one.to_uid))
            )
            position = (
                Position.parse(range_.start) if is_hive else _registered(connection, table, start)
            )
            later = [one for one in switches if one.position >= position]
    uid = start.table_uid or (later[0].from_uid if later else None)
    for one in later:
        if one.from_uid != uid:
            return None
        uid = one.to_uid
    return position if later and uid == range_.table_uid else None


def _registered(connection: Connection, table: TableKey, at: SnapshotCheckpoint) -> Position:
    """The position of the first event of a snapshot; that before all where it has none."""
    (known,) = known_tables(connection, [table]).values()
    found: list[Position] = []
    for event in HISTORY:
        named = sa.select(event.c.tx_id, event.c.seq).where(
            event.c.table_id == known.table_id,
            event.c.snapshot_id == at.snapshot_id,
            event.c.table_uid == at.table_uid,
            event.c.amends_seq.is_(None),
        )
        found += [Position(*row) for row in connection.execute(named)]
    return min(found, default=Position.ORIGIN)
