"""What is kept of changes beside a table's rows, how far each source has been read, its epochs, and
what may be forgotten.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.change import (
    BEFORE_READ,
    Change,
    Key,
    Operation,
    Order,
    Position,
    key_of,
    key_text,
    order_of,
    order_text,
    row_of,
    row_text,
)
from lakechime_dagster.cdc.history import TrackHistory, history
from lakechime_dagster.cdc.merge import (
    AFTER_ALL,
    BEFORE_ALL,
    Ended,
    Kept,
    MergedKey,
    RowState,
    Span,
    Truncations,
    Window,
    final_state,
    merged,
)
from lakechime_dagster.compat import StrEnum

_FIRST = ("first", "first_in_data_collection")
_LAST = ("last", "last_in_data_collection")
MARKS = _FIRST + _LAST


# by source, and the order that comes before all of its rows: whether an end of a snapshot is the
# last one, and its time
Snapshots = Mapping[tuple[str, Order], Mapping[bool, int | None]]


def snapshots_in(changes: Iterable[Change]) -> Snapshots:
    """The snapshots of which these changes are an end.

    The rows that a snapshot read share one position. The connector marks its first and its last row
    of a table; of a table with a single row it marks one end alone, and of an empty table none: of
    such a snapshot it is not known whether it is complete. An incremental snapshot has no such
    marks.
    """
    found: dict[tuple[str, Order], dict[bool, int | None]] = {}
    for change in changes:
        order = change.order
        is_end = change.operation is Operation.READ and change.snapshot in MARKS
        if is_end and order.position:
            before_rows = Order(order.epoch, order.position, BEFORE_READ)
            ends = found.setdefault((change.source, before_rows), {})
            ends.setdefault(change.snapshot in _LAST, change.event_ms)
    return found


def completed_in(changes: Iterable[Change]) -> list[Change]:
    """For each snapshot of which both ends are among these changes the truncation that it means.

    A complete snapshot speaks for its whole source: a row that it does not hold was deleted before
    it. The truncation stands below all rows of the snapshot and above all before it, at the time of
    the first one.
    """
    return [
        Change(source=source, operation=Operation.TRUNCATE, order=order, event_ms=ends[False])
        for (source, order), ends in snapshots_in(changes).items()
        if len(ends) == 2
    ]


Partition = tuple[str, int]  # a topic's id and a partition of it, within which positions go forward


@dataclass(frozen=True, kw_only=True)
class SourceEpochs:
    """How far the epochs of a source have come.

    Attributes:
        opened: The newest epoch that may be entered.
        positions: By partition the epoch that it is in and the newest position there; a partition
            enters an epoch by itself.
    """

    opened: int = 0
    positions: Mapping[Partition, tuple[int, Position]] = field(default_factory=dict)

    def confirmed(self) -> "SourceEpochs":
        """With one more epoch that may be entered."""
        return replace(self, opened=self.opened + 1)


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What some messages are by their epochs.

    Attributes:
        epochs: How far they have come by that.
        changes: The changes whose epoch is known, in it.
        delivered_again: Those that were there before.
        held: Those whose position went back and that were not there before, and all that follow
            them in their partitions.
    """

    epochs: SourceEpochs
    changes: tuple[Change, ...] = ()
    delivered_again: tuple[Change, ...] = ()
    held: tuple[Change, ...] = ()


def assigned(
    epochs: SourceEpochs, changes: Sequence[Change], was_seen: Callable[[Change], bool]
) -> Assignment:
    """The epochs of changes of one source.

    Args:
        epochs: How far they had come.
        changes: In the order of their offsets within each partition, from the first one that is not
            assigned.
        was_seen: Whether a change of the same position and content was there before, at a lower
            offset.
    """
    found = _assigned(epochs, changes, was_seen)
    opens = completed_in(found.held)
    return _assigned(epochs.confirmed(), changes, was_seen) if opens else found


def _assigned(
    epochs: SourceEpochs, changes: Sequence[Change], was_seen: Callable[[Change], bool]
) -> Assignment:
    positions, done, again, held = (
        dict(epochs.positions),
        list[Change](),
        list[Change](),
        list[Change](),
    )
    closed = set[Partition]()
    for change in changes:
        partition = change.order.topic, change.order.partition
        epoch, newest = positions.get(partition, (0, ()))
        position = change.order.position
        if partition in closed:
            held.append(change)
        elif position and position < newest and was_seen(change):
            again.append(change)
        elif position and position < newest and epoch == epochs.opened:
            closed.add(partition)
            held.append(change)
        else:
            reached = (
                (epoch + 1, position)
                if position and position < newest
                else (epoch, position or newest)
            )
            positions[partition] = reached
            done.append(replace(change, order=change.order._replace(epoch=reached[0])))
    return Assignment(
        epochs=replace(epochs, positions=positions),
        changes=tuple(done),
        delivered_again=tuple(again),
        held=tuple(held),
    )


class Role(StrEnum):
    """What a row of the state is.

    Attributes:
        TARGET: The table's own row of a key, with its history the open one; it is never remembered.
        CLOSED: A row of the table's history that ended; neither is it.
        BASE: What was known of a key before its changes here.
        CHANGE: A change of a key.
        TRUNCATION: A truncation of a source.
        MARK: A snapshot's first or last row, as a change without columns.
        POSITION: How far a partition of a source has come, or which epoch of a source may be
            entered.
        BEAT: How far the log of a server had come.
        COLUMNS: Since when a source has the columns of a schema (`defaults.Schema`).
        SCHEMA: The columns of a database's table at a position of its log
            (`table_schema.TableSchema`).
        LOW_WATERMARK: The order of a source below which it is forgotten which rows were deleted.
    """

    TARGET = "target"
    CLOSED = "closed"
    BASE = "base"
    CHANGE = "change"
    TRUNCATION = "truncation"
    MARK = "mark"
    POSITION = "position"
    BEAT = "beat"
    COLUMNS = "columns"
    SCHEMA = "schema"
    LOW_WATERMARK = "low_watermark"


class StateRow(NamedTuple):
    """One of them; keys, orders and columns are text (`wire`)."""

    role: str
    key: str | None
    source: str
    order: str  # of a base and of the table's row: what is known beside the values of the columns
    op: str | None = None  # of Role.COLUMNS the schema's name
    columns: str | None = (
        None  # of Role.COLUMNS those that have a default, with it; of Role.SCHEMA the types
    )
    omitted: str | None = None  # a JSON array; of Role.COLUMNS all of the schema
    continues: str | None = None
    transaction: int | None = None
    ts_ms: int | None = None
    snapshot: str | None = None  # of Role.SCHEMA the database's dialect
    span: str | None = (
        # of a row of a history, or of a base whose row is open: when it begins and ends
        # (`wire.Span`)
        None
    )


COLUMNS = {
    "number": "bigint",  # which remembered it
    "role": "string",
    "key": "string",
    "source": "string",
    "order": "string",
    "op": "string",
    "columns": "string",
    "omitted": "string",
    "continues": "string",
    "transaction": "bigint",
    "ts_ms": "bigint",
    "snapshot": "string",
    "span": "string",
}


def change_row(change: Change, role: Role = Role.CHANGE) -> StateRow:
    """A change as it is remembered."""
    has_row = role is Role.CHANGE and change.operation.is_upsert
    return StateRow(
        role=role.value,
        key=key_text(change.key) if change.key else None,
        source=change.source,
        order=order_text(change.order),
        op=change.operation.value,
        columns=row_text(change.columns) if has_row else None,
        omitted=orjson.dumps(sorted(change.omitted)).decode() if change.omitted else None,
        continues=None if change.continues is None else key_text(change.continues),
        transaction=change.transaction,
        ts_ms=change.event_ms,
        snapshot=change.snapshot,
    )


def change_of(row: StateRow) -> Change:
    """The change that a row remembers."""
    return Change(
        source=row.source,
        operation=Operation(row.op),
        order=order_of(row.order),
        key=() if row.key is None else key_of(row.key),
        columns={} if row.columns is None else row_of(row.columns),
        omitted=_names(row.omitted),
        continues=None if row.continues is None else key_of(row.continues),
        transaction=row.transaction,
        event_ms=row.ts_ms,
        snapshot=row.snapshot,
    )


def known_of(rows: Iterable[StateRow]) -> Window | None:
    """What is known of the key that all these rows are of; None of a key that is new."""
    by_role: dict[str, list[StateRow]] = {}
    for row in rows:
        by_role.setdefault(row.role, []).append(row)
    targets, bases, changes = (
        by_role.get(role, []) for role in (Role.TARGET, Role.BASE, Role.CHANGE)
    )
    known_rows = [*bases, *changes, *targets]
    if not known_rows:
        return None
    window = Window(source=known_rows[0].source, changes=tuple(map(change_of, changes)))
    for one in bases or ([] if changes else targets):
        _, base = row_state_of(one.order, row_of(one.columns or "{}"))
        span = None if one.span is None else span_of(one.span)
        window = replace(window, base=base, waiting=frozenset(_names(one.omitted)), span=span)
    return window


def windows_of(rows: Iterable[StateRow]) -> dict[Key, Window]:
    """What is known of each key of these rows."""
    by_key: dict[str, list[StateRow]] = {}
    for row in rows:
        by_key.setdefault(row.key or "", []).append(row)
    return {
        key_of(text): found
        for text, of_key in by_key.items()
        if (found := known_of(of_key)) is not None
    }


def remembered(
    merged_key: MergedKey,
    known: Window | None,
    row_of_change: Callable[[Change], StateRow] = change_row,
) -> list[StateRow]:
    """What is to be remembered of a key after an execution: its new changes, and before the first
    of them what was known.
    """
    rows = [row_of_change(change) for change in merged_key.added]
    # of a history: a later execution may end the row below the truncation that ended it now
    is_ended = known is not None and known.span is not None and merged_key.after is None
    if (
        not (rows or is_ended)
        or known is None
        or known.changes
        or not (known.base.upserted or known.base.deleted > BEFORE_ALL)
    ):
        return rows
    return [base_row(merged_key.key, known), *rows]


def base_row(key: Key, window: Window, role: Role = Role.BASE) -> StateRow:
    """What is known of a key, but for its changes."""
    values = {name: value for name, (_, value) in window.base.columns.items()}
    return StateRow(
        role.value,
        key_text(key),
        window.source,
        row_state_text(window.base, window.source),
        columns=row_text(values),
        omitted=orjson.dumps(sorted(window.waiting)).decode() if window.waiting else None,
        span=None if window.span is None else span_text(window.span),
    )


def span_text(span: Span) -> str:
    """A span as text."""
    end = span.end_seq and order_text(span.end_seq)
    return orjson.dumps([order_text(span.start_seq), span.start_at, end, span.end_at]).decode()


def span_of(text: str) -> Span:
    """The span of a text."""
    start, start_at, end, end_at = orjson.loads(text)
    return Span(order_of(start), start_at, end and order_of(end), end_at)


def row_state_text(row_state: RowState, source: str) -> str:
    """What is known of a key, but for the values of its columns: the source that feeds it, and the
    orders.

    Of columns that the newest upsert carried, which most are, none is written. Those that it
    carried as null are named: a table shows the same for one that nobody carried. Of a row that
    ended its end is written too, and its last deletion where there was one: each row of a table has
    such a text.
    """
    at = {
        name: order_text(order)
        for name, (order, _) in row_state.columns.items()
        if order != row_state.upserted
    }
    null = [
        name for name, (_, value) in row_state.columns.items() if value is None and name not in at
    ]
    upserted = row_state.upserted and order_text(row_state.upserted)
    parts: dict[str, Any] = {"source": source, "at": upserted}
    if row_state.deleted != BEFORE_ALL:
        parts["deleted"] = order_text(row_state.deleted)
    if at:
        parts["columns"] = at
    if null:
        parts["null"] = null
    if row_state.ended is not None:
        parts["ended"] = [order_text(row_state.ended.order), row_state.ended.at]
    return orjson.dumps(parts).decode()


def row_state_of(text: str, columns: Mapping[str, Any]) -> tuple[str, RowState]:
    """The source that feeds a key, and what is known of it, given the values of its columns and
    null for what it does not know.
    """
    parts = orjson.loads(text)
    upserted = None if parts["at"] is None else order_of(parts["at"])
    deleted = order_of(parts["deleted"]) if "deleted" in parts else BEFORE_ALL
    at, null = (
        {name: order_of(order) for name, order in parts.get("columns", {}).items()},
        parts.get("null", ()),
    )
    if upserted is not None:
        at |= {
            name: upserted
            for name, value in columns.items()
            if name not in at and (value is not None or name in null)
        }
    known = {name: (order, columns[name]) for name, order in at.items()}
    ended = None if (end := parts.get("ended")) is None else Ended(order_of(end[0]), end[1])
    return parts["source"], RowState(upserted=upserted, deleted=deleted, columns=known, ended=ended)


def has_ended(text: str) -> bool:
    """Whether the text of a row state is of a row that ended."""
    return '"ended"' in text and "ended" in orjson.loads(text)


def _names(omitted: str | None) -> tuple[str, ...]:
    return () if omitted is None else tuple(orjson.loads(omitted))


OPENED = "opened"  # of a row of Role.POSITION that says which epoch of its source may be entered


@dataclass(frozen=True, kw_only=True)
class PartitionPosition:
    """How far a partition of a source has come: its epoch, the newest position there, and the
    offset up to which that is known.
    """

    source: str
    topic: str  # its id
    partition: int
    epoch: int
    position: Position
    offset: int


def opened_row(source: str, epoch: int) -> StateRow:
    """That an epoch of a source may be entered."""
    return StateRow(Role.POSITION.value, None, source, order_text(Order(epoch=epoch)), op=OPENED)


def positions_of(rows: Iterable[StateRow]) -> list[PartitionPosition]:
    """The newest position of each partition, in the order of sources and topics."""
    newest: dict[tuple[str, str, int], tuple[int, Position, int]] = {}
    for row in rows:
        if row.role == Role.POSITION and row.op != OPENED:
            order = order_of(row.order)
            line = row.source, order.topic, order.partition
            epoch, position, offset = newest.get(line, (0, (), -1))
            newest[line] = (
                *max((epoch, position), (order.epoch, order.position)),
                max(offset, order.offset),
            )
    return [
        PartitionPosition(
            source=source,
            topic=topic,
            partition=partition,
            epoch=epoch,
            position=position,
            offset=offset,
        )
        for (source, topic, partition), (epoch, position, offset) in sorted(newest.items())
    ]


def opened_epochs(rows: Iterable[StateRow]) -> dict[str, int]:
    """By source the newest epoch that may be entered."""
    opened: dict[str, int] = {}
    for row in rows:
        if row.role == Role.POSITION:
            opened[row.source] = max(opened.get(row.source, 0), order_of(row.order).epoch)
    return dict(sorted(opened.items()))


@dataclass(frozen=True)
class Schema:
    """The columns of changes: the type of each, and the default of those that have a constant
    one.
    """

    types: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def types_text(self) -> str:
        """In the order of the columns."""
        return orjson.dumps(dict(self.types)).decode()

    @cached_property
    def defaults_text(self) -> str | None:
        return row_text(self.defaults) if self.defaults else None

    @cached_property
    def name(self) -> str:
        """A short one, which no other schema has."""
        return hashlib.blake2b(
            f"{self.types_text}{self.defaults_text or ''}".encode(), digest_size=8
        ).hexdigest()

    @classmethod
    def of_texts(cls, types: str, defaults: str | None) -> "Schema":
        return cls(orjson.loads(types), {} if defaults is None else row_of(defaults))

    def row(self, source: str, since: Order) -> StateRow:
        """What is remembered of it: since when a source has it."""
        columns = orjson.dumps(sorted(self.types)).decode()
        return StateRow(
            Role.COLUMNS.value,
            None,
            source,
            order_text(since),
            op=self.name,
            columns=self.defaults_text,
            omitted=columns,
        )


@dataclass(frozen=True)
class Added:
    """Since when a source has a column, and what rows got by it; they got null where it
    `has_default` not.
    """

    since: Order
    has_default: bool
    value: Any = None


@dataclass(frozen=True)
class Defaults:
    """By source and column when columns were added."""

    columns: Mapping[str, Mapping[str, Added]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[StateRow]) -> "Defaults":
        """By the rows of `Role.COLUMNS`, in any order."""
        columns: dict[str, dict[str, Added]] = {}
        for row in rows:
            since, of_source = order_of(row.order), columns.setdefault(row.source, {})
            defaults = {} if row.columns is None else row_of(row.columns)
            for name in orjson.loads(row.omitted or "[]"):
                if name not in of_source or since < of_source[name].since:
                    of_source[name] = Added(since, name in defaults, defaults.get(name))
        return cls(columns)

    def given(self, source: str, since: Order, until: Order = AFTER_ALL) -> dict[str, Any]:
        """What a row got that was written at an order, and existed up to another."""
        added = self.columns.get(source, {}).items()
        return {
            name: one.value for name, one in added if one.has_default and since < one.since <= until
        }

    def concern_others(self, before: "Defaults") -> bool:
        """Whether rows may be there that got a default of which nothing was known before."""
        return any(
            one.has_default and name not in before.columns[source]
            for source in self.columns.keys() & before.columns.keys()
            for name, one in self.columns[source].items()
        )


def truncations_of(rows: Iterable[StateRow]) -> dict[str, dict[Order, int | None]]:
    """By source its truncations, and the time of each."""
    found: dict[str, dict[Order, int | None]] = {}
    for row in rows:
        found.setdefault(row.source, {})[order_of(row.order)] = row.ts_ms
    return found


def waiting_keys(rows: Sequence[StateRow]) -> list[Key]:
    """The keys whose row waits, by all that is remembered of them, of the keys that they continue,
    and of truncations.
    """
    truncated = truncations_of(row for row in rows if row.role == Role.TRUNCATION)
    known = windows_of(row for row in rows if row.role in (Role.BASE, Role.CHANGE))
    return [one.key for one in merged(known, (), truncated, {}).keys if one.waits]


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """The columns that a database's table had at a position of its log.

    Attributes:
        table: Its name with that of its database, in PostgreSQL its schema, as messages have them.
        order: The position in the log.
        columns: By name the type in the database's words, in the table's order.
        dialect: The database's.
    """

    table: str
    order: Order
    columns: Mapping[str, str]
    dialect: Dialect

    @property
    def row(self) -> StateRow:
        """How it is remembered."""
        columns = orjson.dumps(dict(self.columns)).decode()
        return StateRow(
            Role.SCHEMA.value,
            None,
            self.table,
            order_text(self.order),
            columns=columns,
            snapshot=self.dialect.value,
        )

    @classmethod
    def of_row(cls, row: StateRow) -> "TableSchema":
        """The one that a row remembers."""
        columns, dialect = orjson.loads(row.columns or "{}"), Dialect(row.snapshot)
        return cls(table=row.source, order=order_of(row.order), columns=columns, dialect=dialect)


def needed(schemas: Iterable[TableSchema]) -> list[TableSchema]:
    """Those that say more than their neighbours: of readings that agree, one after another, the
    first and the last.
    """
    tables: dict[str, list[TableSchema]] = {}
    for one in sorted(schemas, key=lambda schema: schema.order):
        known = tables.setdefault(one.table, [])
        if len(known) > 1 and all(each.columns == one.columns for each in known[-2:]):
            known.pop()
        known.append(one)
    return [one for known in tables.values() for one in known]


def low_watermark_before(young: Order) -> Order | None:
    """The order that a source may be collected up to whose oldest change that is not completed is
    this one; it cuts no transaction.

    None of changes without a position, which stand in as many orders as there are partitions.
    """
    if not young.position:
        return None
    if len(young.position) == 2:  # PostgreSQL: its transaction's position, then its own
        return Order(epoch=young.epoch, position=young.position[:1])
    return Order(epoch=young.epoch, position=young.position, rank=BEFORE_READ)


def collected_rows(
    rows: Iterable[StateRow],
    truncated: Truncations,
    low_watermarks: Mapping[str, Order],
    track: TrackHistory | None = None,
    *,
    keeps_deleted: bool = False,
) -> list[StateRow]:
    """What is still to be remembered of keys that are merged together, once nothing is expected
    below the low watermarks: changes below them become part of the bases.

    A low watermark stands between two transactions, and never goes back. What comes below it all
    the same is taken for a key that is known, and refused for another: its row may have been
    deleted since.

    Of a key without a later change nothing is remembered: its row in the table says all, and of a
    deleted one nothing need be known. A row that waits for a column stays, as it is not in the
    table. Where the table holds histories, `track` says of which columns.
    """
    kept = Kept(windows=windows_of(rows), truncated=truncated)
    rest: list[StateRow] = []
    for key, window in kept.windows.items():
        low_watermark = low_watermarks.get(window.source)
        if low_watermark is not None:
            state = final_state(kept, key, low_watermark, keeps_deleted=keeps_deleted)
            open_rows = () if track is None else history(kept, key, track, low_watermark).rows[-1:]
            window = Window(
                source=window.source,
                base=state.row_state,
                waiting=state.waiting,
                span=next((row.span for row in open_rows if row.is_open), None),
                changes=tuple(one for one in window.changes if one.order >= low_watermark),
            )
        # of a history: a truncation above has ended its row, and what is still to come may end it
        # below that
        is_ended = window.span is not None and any(
            low_watermark is None or one >= low_watermark
            for one in truncated.get(window.source, ())
        )
        is_waiting = bool(window.waiting) and window.base.ended is None
        if not (window.changes or is_waiting or is_ended):
            continue
        if window.base.upserted is not None or window.base.deleted > BEFORE_ALL:
            rest.append(base_row(key, window))
        rest += [change_row(change) for change in window.changes]
    return rest


def compacted(rows: Iterable[StateRow], low_watermarks: Mapping[str, Order]) -> list[StateRow]:
    """Of what is remembered of whole sources what still matters: newest positions, low watermarks,
    late truncations, open snapshots.
    """
    newest: dict[tuple[str, ...], StateRow] = {}
    marks: list[StateRow] = []
    found: list[StateRow] = []
    schemas: list[TableSchema] = []
    for row in rows:
        order = order_of(row.order)
        match row.role:
            case Role.POSITION.value:
                name = row.source, row.op or "", order.topic, str(order.partition)
                if name not in newest or order_of(newest[name].order) < order:
                    newest[name] = row
            case Role.BEAT.value:
                name = (row.source,)
                newest[name] = max(newest.get(name, row), row, key=lambda one: one.ts_ms or 0)
            case Role.TRUNCATION.value if order >= low_watermarks.get(row.source, BEFORE_ALL):
                found.append(row)
            case Role.MARK.value:
                marks.append(row)
            case Role.COLUMNS.value:
                found.append(row)
            case Role.SCHEMA.value:
                schemas.append(TableSchema.of_row(row))
            case _:
                pass
    opened = _opened(marks)
    for row in marks:
        order = order_of(row.order)
        if (row.source, Order(order.epoch, order.position, BEFORE_READ)) in opened:
            found.append(row)
    low_watermark_rows = [
        StateRow(Role.LOW_WATERMARK.value, None, source, order_text(order))
        for source, order in low_watermarks.items()
    ]
    return [*found, *newest.values(), *low_watermark_rows, *(one.row for one in needed(schemas))]


def open_snapshots(marks: Sequence[StateRow]) -> set[str]:
    """The sources of which a snapshot is being taken, or was left off."""
    return {source for source, _ in _opened(marks)}


def _opened(marks: Iterable[StateRow]) -> set[tuple[str, Order]]:
    found = snapshots_in(map(change_of, marks))
    return {snapshot for snapshot, ends in found.items() if len(ends) == 1}
