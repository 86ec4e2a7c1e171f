"""Changes as rows of Spark: messages parsed, rows of the table, and the changes of each key."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any

import orjson
import pyarrow as pa

from lakechime_dagster.cdc.canonical import text_of
from lakechime_dagster.cdc.change import (
    Change,
    Key,
    Operation,
    Order,
    encoded,
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
    ChangeOutcome,
    Ended,
    Kept,
    Merged,
    MergedKey,
    Need,
    Row,
    Span,
    Truncations,
    Window,
    merged,
    need_of,
    soft_need,
)
from lakechime_dagster.cdc.record import (
    Beat,
    Changes,
    Control,
    EnvelopeReader,
    OtherTable,
    Tombstone,
    TransactionEnd,
    Unreadable,
    record_of,
)
from lakechime_dagster.cdc.schema import doubled, why_not_taken
from lakechime_dagster.cdc.state import (
    Defaults,
    Role,
    Schema,
    StateRow,
    change_of,
    change_row,
    has_ended,
    known_of,
    remembered,
    row_state_text,
    span_of,
    span_text,
)
from lakechime_dagster.compat import UTC
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.spark.session import CHUNK, Batches, record_batches, rows_of
from lakechime_dagster.tables.names import (
    DELETED_AT,
    END_AT,
    END_SEQ,
    HIDDEN,
    OWN_COLUMNS,
    START_AT,
    START_SEQ,
    folded,
    spelled_as,
)
from lakechime_dagster.triggers.consumers import HOUR_MS

SPAN_TYPES = {START_AT: "timestamp", END_AT: "timestamp", START_SEQ: "string", END_SEQ: "string"}
MESSAGE = (
    "topic",
    "topic_id",
    "partition",
    "offset",
    "key",
    "value",
    "key_bytes",
    "value_bytes",
    "headers",
)
STATE_DDL = (
    "`role` string, `key` string, `source` string, `order` string, `op` string, `columns` string, "
    "`omitted` string, `continues` string, "
    "`transaction` bigint, `ts_ms` bigint, `snapshot` string, `span` string"
)
COORDINATE_DDL = "`topic` string, `partition` int, `offset` bigint"
SCHEMA_DDL = "`schema` string, `types` string, `defaults` string"
PARSED_DDL = (
    f"`outcome` string, {STATE_DDL}, {SCHEMA_DDL}, {COORDINATE_DDL}, `reason` string, `message` "
    f"string"
)
GROUPED_DDL = f"`group` string, {STATE_DDL}, `is_new` boolean, {COORDINATE_DDL}"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_SCHEMA = (None, None, None)
NOTHING = StateRow(*[None] * len(StateRow._fields))  # type: ignore[arg-type]


def table_columns(
    columns: Mapping[str, str], *, has_history: bool, keeps_deleted: bool
) -> dict[str, str]:
    """All columns of a table whose database's table has these."""
    kept = SPAN_TYPES if has_history else {DELETED_AT: "timestamp"} if keeps_deleted else {}
    return {**columns, **kept, HIDDEN: "string"}


def shared_columns(columns: Mapping[str, str], table_format: TableFormat) -> dict[str, str]:
    """The columns of a table that its database's table has too, without those that no table of the
    format can have.
    """
    return {
        name: ddl for name, ddl in columns.items() if not why_not_taken(name, ddl, table_format)
    }


def merged_ddl(columns: Mapping[str, str]) -> str:
    """What merging gives back: a table's row and its operation, what is to be remembered, what was
    refused, and counts.
    """
    row = ", ".join(f"`{name.replace('`', '``')}`: {ddl}" for name, ddl in columns.items())
    return (
        f"`what` string, `operation` string, `row` struct<{row}>, {STATE_DDL}, {COORDINATE_DDL}, "
        f"`reason` string, `count` bigint"
    )


class What:
    """The kinds of rows that merging gives back, and of counts: of operations, of refusals, of
    outcomes, of late changes by hour.
    """

    ROW, STATE, REFUSED = "row", "state", "refused"
    COUNTS = ROWS, REFUSALS, OUTCOME, LATE = "rows", "refusals", "outcome", "late"


Line = tuple[str, str, int]  # a source in a partition of a topic
Message = tuple[str, int, int]  # topic id, partition and offset


@dataclass(frozen=True)
class Numbering:
    """In which epochs changes are.

    Attributes:
        begins: Of lines beyond their first epoch the epochs, and the offset from which on each is.
        again: Messages that were delivered before: they are counted alone.
    """

    begins: Mapping[Line, Mapping[int, int]] = field(default_factory=dict)
    again: frozenset[Message] = frozenset()

    def numbered(self, change: Change) -> Change:
        """A change in its epoch."""
        order = change.order
        begins = self.begins.get((change.source, order.topic, order.partition))
        if not begins:
            return change
        epochs = [epoch for epoch, begin in begins.items() if order.offset >= begin]
        return replace(change, order=order._replace(epoch=max(epochs, default=0)))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the messages of a table are read: by a reader, which each process makes for itself.

    `names` are the table's names of columns that have others in the database; it `takes` some of
    them. `ignores_truncates` and `ignores_nulls` are what `CDCMerge` says; `has_bare_tombstones`
    says that a key without a value is a deletion, as nothing else reports it; `numbering` says in
    which epochs changes are, and `spelled` which names columns have that Spark takes for one.
    """

    out: pa.Schema
    reader: Callable[[], EnvelopeReader]
    takes: Callable[[str], bool]
    names: Mapping[str, str]
    ignores_truncates: bool = False
    ignores_nulls: bool = False
    has_bare_tombstones: bool = False
    numbering: Numbering = field(default_factory=Numbering)
    spelled: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, batches: Batches) -> Batches:
        """For each message of a batch (`MESSAGE`) the rows of `PARSED_DDL`: a row for each change,
        or one that says what else it is.
        """
        reader, schemas = self.reader(), dict[int, _Schema]()
        for batch in batches:
            rows: list[tuple[Any, ...]] = []
            for message in batch.select(list(MESSAGE)).to_pylist():
                rows += self._rows(reader, message, schemas)
            yield from record_batches(rows, self.out)

    def _rows(
        self, reader: EnvelopeReader, message: Mapping[str, Any], schemas: dict[int, "_Schema"]
    ) -> list[tuple[Any, ...]]:
        at = message["topic"], message["partition"], message["offset"]
        record = record_of(message)
        match reading := reader.read(record):
            case Changes(changes, types, defaults):
                schema = schemas.get(id(types)) or schemas.setdefault(
                    id(types), self._schema(types, defaults)
                )
                if schema.doubled and any(change.operation.is_upsert for change in changes):
                    one, other = schema.doubled
                    remedy = f"name one of them by names={{{other!r}: …}}"
                    return [
                        _unreadable(
                            message,
                            f"columns {one} and {other}, which differ in case alone, are one to "
                            f"Spark; {remedy}",
                        )
                    ]
                try:
                    rows = [self._row(change, schema) for change in changes]
                except (
                    TypeError,
                    ValueError,
                ) as problem:  # such as half of a surrogate in a text, which no table holds
                    return [_unreadable(message, f"value: it has no form in a table: {problem}")]
                shown: list[tuple[str | None, str | None]] = [(None, None)] * len(rows)
                if rows and not schema.is_shown:
                    shown[0], schema.is_shown = (
                        (schema.taken.types_text, schema.taken.defaults_text),
                        True,
                    )
                return [
                    (*row, schema.taken.name, *texts, *at, None, None)
                    for row, texts in zip(rows, shown, strict=True)
                ]
            case Tombstone() as tombstone:
                deletion = tombstone.deletion(record.topic) if self.has_bare_tombstones else None
                if deletion is not None:
                    return [(*self._numbered_row(deletion), *NO_SCHEMA, *at, None, None)]
                return [(ChangeOutcome.CONTROL.value, *NOTHING, *NO_SCHEMA, *at, None, None)]
            case Beat(server, ts_ms):
                return [
                    (
                        ChangeOutcome.CONTROL.value,
                        *NOTHING._replace(role=Role.BEAT.value, source=server, ts_ms=ts_ms),
                        *NO_SCHEMA,
                        *at,
                        None,
                        None,
                    )
                ]
            case Control() | TransactionEnd() | OtherTable():
                outcome = (
                    ChangeOutcome.OTHER_TABLE
                    if isinstance(reading, OtherTable)
                    else ChangeOutcome.CONTROL
                )
                return [(outcome.value, *NOTHING, *NO_SCHEMA, *at, None, None)]
            case Unreadable(reason):
                return [_unreadable(message, reason)]

    def _schema(self, types: Mapping[str, str], defaults: Mapping[str, Any]) -> "_Schema":
        spelled = spelled_as(self.names, {name: name for name in types})
        named = {name: self.names.get(there, there) for there, name in spelled.items()}
        clash = doubled(here for here in named.values() if self.takes(here))
        named = {there: self.spelled.get(folded(here), here) for there, here in named.items()}
        columns = {here: types[there] for there, here in named.items() if self.takes(here)}
        taken = Schema(
            columns,
            {
                here: defaults[there]
                for there, here in named.items()
                if there in defaults and here in columns
            },
        )
        names = None if columns == types else named
        return _Schema(types=types, columns=columns, names=names, taken=taken, doubled=clash)

    def _row(self, change: Change, schema: "_Schema") -> tuple[Any, ...]:
        """A change with its outcome, where that is known at once."""
        if change.operation is not Operation.TRUNCATE:
            return self._numbered_row(self._as_declared(change, schema))
        is_ignored = self.ignores_truncates
        outcome = ChangeOutcome.CONTROL if is_ignored else ChangeOutcome.APPLIED
        return self._numbered_row(change, outcome.value, Role.TRUNCATION)

    def _numbered_row(
        self, change: Change, outcome: str | None = None, role: Role = Role.CHANGE
    ) -> tuple[Any, ...]:
        order = change.order
        row = change_row(self.numbering.numbered(change), role)
        if (order.topic, order.partition, order.offset) in self.numbering.again:
            outcome = ChangeOutcome.DELIVERED_AGAIN.value
            row = row._replace(role=None, continues=None)
        return outcome, *row

    def _as_declared(self, change: Change, schema: "_Schema") -> Change:
        if not change.operation.is_upsert:
            return change
        columns, omitted = change.columns, change.omitted
        if schema.names is not None:
            columns = {
                here: value
                for name, value in columns.items()
                if (here := schema.names.get(name, name)) in schema.columns
            }
            omitted = tuple(
                here for name in omitted if (here := schema.names.get(name, name)) in schema.columns
            )
        if self.ignores_nulls and change.operation is Operation.UPDATE:
            columns = {name: value for name, value in columns.items() if value is not None}
        return replace(change, columns=columns, omitted=omitted)


@dataclass
class _Schema:
    """What a table makes of the columns of a schema; `types` is held, as it is known by its
    identity.
    """

    types: Mapping[str, str]
    columns: Mapping[str, str]
    names: Mapping[str, str] | None  # None where all columns are taken under their own names
    taken: Schema
    doubled: tuple[str, ...]  # two of its columns that Spark takes for one
    is_shown: bool = False


def _unreadable(message: Mapping[str, Any], reason: str) -> tuple[Any, ...]:
    raw = encoded({"key": message["key"], "value": message["value"]})
    at = message["topic"], message["partition"], message["offset"]
    return (ChangeOutcome.QUARANTINED.value, *NOTHING, *NO_SCHEMA, *at, reason, raw)


@dataclass(frozen=True)
class TargetRows:
    """The rows of a table as what merging starts from: `GROUPED_DDL`, each a group of its own."""

    out: pa.Schema
    keys: tuple[str, ...]

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            names = [name for name in batch.schema.names if name not in OWN_COLUMNS]
            types = {name: batch.schema.field(name).type for name in names}
            found = []
            for row in batch.to_pylist():
                values = {name: python_value(row[name], types[name]) for name in names}
                text = key_text(tuple(values[name] for name in self.keys))
                hidden, span = row[HIDDEN], row_span(row) if START_SEQ in row else None
                source = "" if hidden is None else orjson.loads(hidden)["source"]
                role = Role.CLOSED if hidden is None else Role.TARGET
                state_row = StateRow(
                    role.value, text, source, hidden or "", columns=row_text(values), span=span
                )
                found.append((text, *state_row, False, None, None, None))
            yield from record_batches(found, self.out)


@dataclass(frozen=True)
class KeyColumns:
    """Texts of keys as columns of the table's own types."""

    out: pa.Schema

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            keys = [key_of(text) for text in batch.column(0).to_pylist()]
            arrays = [
                pa.array([conformed(key[i], one.type) for key in keys], one.type)
                for i, one in enumerate(self.out)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.out)


@dataclass(frozen=True)
class AsText:
    """Rows of which some columns become text, since no other type holds all their values any
    more.
    """

    out: pa.Schema

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            yield pa.RecordBatch.from_arrays(
                [self._column(batch.column(one.name), one.type) for one in self.out],
                schema=self.out,
            )

    def _column(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        if values.type == kind:
            return values
        return pa.array(
            [conformed(python_value(value, values.type), kind) for value in values.to_pylist()],
            kind,
        )


@dataclass(frozen=True, kw_only=True)
class Merging:
    """Merges the changes of each group of keys, which come one group after another, into
    `merged_ddl`.

    A row has the defaults of columns that were added while it existed. A table holds histories
    where there are columns to `track`, or keeps deleted rows. Hours before `complete_ms` were
    complete before the execution; None counts no late changes.
    """

    out: pa.Schema
    keys: tuple[str, ...]
    truncated: Truncations
    low_watermarks: Mapping[str, Order] = field(default_factory=dict)
    defaults: Defaults = field(default_factory=Defaults)
    track: TrackHistory | None = None
    keeps_deleted: bool = False
    complete_ms: int | None = None

    def __call__(self, batches: Batches) -> Batches:
        counts, found = Counter[tuple[str, str | None]](), list[tuple[Any, ...]]()
        types = {one.name: one.type for one in self.out.field("row").type}
        for _, rows in groupby(rows_of(batches), key=lambda row: row[0]):
            found += self._merged([row[1:] for row in rows], types, counts)
            if len(found) >= CHUNK:
                yield from record_batches(found, self.out)
                found = []
        counted = [
            (*kind, None, *NOTHING, None, None, None, None, count) for kind, count in counts.items()
        ]
        yield from record_batches(found + counted, self.out)

    def _merged(
        self,
        rows: Sequence[tuple[Any, ...]],
        types: Mapping[str, pa.DataType],
        counts: Counter[tuple[str, str | None]],
    ) -> Iterator[tuple[Any, ...]]:
        size = len(StateRow._fields)
        known: dict[Key, Window] = {}
        rows_by_change: dict[int, tuple[Any, ...]] = {}
        changes: list[Change] = []
        targets: dict[str, list[StateRow]] = {}
        for text, of_key in groupby(sorted(rows, key=lambda row: row[1]), key=lambda row: row[1]):
            before: list[StateRow] = []
            for row in of_key:
                one = StateRow(*row[:size])
                if row[size]:
                    changes.append(change_of(one))
                    rows_by_change[id(changes[-1])] = row
                    continue
                if one.role != Role.CLOSED.value:
                    before.append(one)
                if one.role in (Role.TARGET.value, Role.CLOSED.value):
                    targets.setdefault(text, []).append(one)
            if (found := known_of(before)) is not None:
                known[key_of(text)] = found
        found = merged(
            known, changes, self.truncated, self.low_watermarks, keeps_deleted=self.keeps_deleted
        )
        for outcome, count in found.outcomes.items():
            counts[What.OUTCOME, outcome] += count
        counts[What.REFUSALS, None] += len(found.refused)
        for refused in found.refused:
            row = rows_by_change[id(refused.change)]
            yield (What.REFUSED, None, None, *row[:size], *row[size + 1 :], refused.reason, None)

        def as_it_came(change: Change) -> StateRow:
            return StateRow(*rows_by_change[id(change)][:size])

        has_changed = False
        for one in found.keys:
            for kept in remembered(one, known.get(one.key), as_it_came):
                yield (What.STATE, None, None, *kept, None, None, None, None, None)
            before = targets.get(key_text(one.key), [])
            for operation, row in (
                self._row(one, before, types)
                if self.track is None
                else self._history(one, before, found.kept, self.track, types)
            ):
                counts[What.ROWS, operation] += 1
                has_changed = has_changed or operation != Need.NOTHING
                yield (What.ROW, operation, row, *NOTHING, None, None, None, None, None)
        if has_changed and self.complete_ms is not None:
            counts.update(
                (What.LATE, str(hour))
                for hour in self._late_hours(found, self.complete_ms // HOUR_MS * HOUR_MS)
            )

    def _late_hours(self, found: Merged, end_ms: int) -> Iterator[int]:
        """The hour of each late change that these rows changed by. A time of zero is none.

        What newer changes said before says nothing new, but to a history or to a key that continues
        another one.
        """
        says_all = self.track is not None or len(found.keys) > 1
        for change, outcome in found.change_outcomes:
            if (
                change.event_ms
                and change.event_ms < end_ms
                and (says_all or outcome in (ChangeOutcome.APPLIED, ChangeOutcome.MERGED))
            ):
                yield change.event_ms // HOUR_MS

    def _row(
        self, merged_key: MergedKey, targets: Sequence[StateRow], types: Mapping[str, pa.DataType]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """What the row of a key needs."""
        row_state = merged_key.row_state
        given = self.defaults.given(
            merged_key.source, row_state.upserted or BEFORE_ALL, row_state.end
        )
        after = (
            self._columns({**given, **merged_key.after}, types)
            if merged_key.after is not None
            else None
        )
        now = row_state_text(row_state, merged_key.source)
        before = row_of(targets[0].columns or "{}") if targets else None
        need = need_of(before, after, bool(targets) and targets[0].order == now)
        if self.keeps_deleted:
            need = soft_need(
                need, bool(targets) and has_ended(targets[0].order), row_state.ended is not None
            )
        if need is not None:
            own = (
                {DELETED_AT: deleted_at(row_state.ended), HIDDEN: now}
                if self.keeps_deleted
                else {HIDDEN: now}
            )
            yield (
                need,
                {**after, **own} if after is not None else self._key_columns(merged_key.key, types),
            )

    def _history(
        self,
        merged_key: MergedKey,
        targets: Sequence[StateRow],
        kept: Kept,
        track: TrackHistory,
        types: Mapping[str, pa.DataType],
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """What the rows of a key's history need, by the order that each begins at."""
        found = history(kept, merged_key.key, track)
        old = {
            span.start_seq: (row, span)
            for row in targets
            if (span := span_of(row.span or "")).start_seq >= found.since
        }
        for one in found.rows:
            start, end = one.span.start_seq, one.span.end_seq
            row, span = old.pop(start, (None, None))
            given = self.defaults.given(merged_key.source, start, end or AFTER_ALL)
            after = self._columns({**given, **one.columns}, types)
            now = row_state_text(merged_key.row_state, merged_key.source) if one.is_open else None
            before = None if row is None else row_of(row.columns or "{}")
            is_same = row is not None and span == one.span and (row.order or None) == now
            yield (
                need_of(before, after, is_same) or Need.NOTHING,
                {**after, HIDDEN: now, **span_columns(one.span)},
            )
        for start in old:
            yield (
                Need.DELETE,
                {**self._key_columns(merged_key.key, types), START_SEQ: order_text(start)},
            )

    def _columns(self, row: Row, types: Mapping[str, pa.DataType]) -> dict[str, Any]:
        return {
            name: conformed(row.get(name), kind)
            for name, kind in types.items()
            if name not in OWN_COLUMNS
        }

    def _key_columns(self, key: Key, types: Mapping[str, pa.DataType]) -> dict[str, Any]:
        return {
            name: conformed(value, types[name]) for name, value in zip(self.keys, key, strict=True)
        }


def span_columns(span: Span) -> dict[str, Any]:
    """The columns of a row of a history that say when it was there."""
    start_at, end_at = (
        None if at is None else EPOCH + timedelta(milliseconds=at)
        for at in (span.start_at, span.end_at)
    )
    end_seq = None if span.end_seq is None else order_text(span.end_seq)
    return {
        START_AT: start_at,
        END_AT: end_at,
        START_SEQ: order_text(span.start_seq),
        END_SEQ: end_seq,
    }


def row_span(row: Mapping[str, Any]) -> str:
    """The same of a row, as text."""
    start_at, end_at = (
        None if at is None else (at - EPOCH) // timedelta(milliseconds=1)
        for at in (row[START_AT], row[END_AT])
    )
    end_seq = None if row[END_SEQ] is None else order_of(row[END_SEQ])
    return span_text(Span(order_of(row[START_SEQ]), start_at, end_seq, end_at))


def deleted_at(ended: Ended | None) -> datetime | None:
    """When the database deleted a row; the beginning of 1970 where its message has no time."""
    return None if ended is None else EPOCH + timedelta(milliseconds=ended.at or 0)


def conformed(value: Any, kind: pa.DataType) -> Any:
    """A value of a narrower type as one of the table's type, which is text where no other type
    holds all values of a column.
    """
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if type(value) is str else text_of(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_timestamp(kind) and type(value) is date:
        return datetime(value.year, value.month, value.day)
    return value


def python_value(value: Any, kind: pa.DataType) -> Any:
    """A value of Arrow's as the changes have it: maps are dicts."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {name: python_value(one, kind.item_type) for name, one in value}
    if pa.types.is_list(kind):
        return [python_value(one, kind.value_type) for one in value]
    if pa.types.is_struct(kind):
        return {one.name: python_value(value[one.name], one.type) for one in kind}
    return value
