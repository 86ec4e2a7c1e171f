"""Parses the messages of an execution on Spark's workers: each change in its epoch, with what was
kept before.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.cdc.change import Change, Operation, Order, Position
from lakechime_dagster.cdc.job import CDCJob
from lakechime_dagster.cdc.merge import BEFORE_ALL, ChangeOutcome, Need
from lakechime_dagster.cdc.record import key_text
from lakechime_dagster.cdc.schema import Evolution, spellings
from lakechime_dagster.cdc.spark_changes import (
    MESSAGE,
    PARSED_DDL,
    SCHEMA_DDL,
    STATE_DDL,
    Reading,
    Respelled,
    What,
)
from lakechime_dagster.cdc.spark_remembered import (
    STATE_COLUMNS,
    Seen,
    columns_in,
    position_row,
    seen_before,
)
from lakechime_dagster.cdc.spark_rows import Computing, Rows
from lakechime_dagster.cdc.state import (
    MARKS,
    OPENED,
    Assignment,
    Defaults,
    Epochs,
    Role,
    Schema,
    StateRow,
    TableSchema,
    assigned,
    change_of,
    opened_row,
)
from lakechime_dagster.cdc.wire import order_of, order_text
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.spark.commit import Target
from lakechime_dagster.spark.ranges import CHANGE, RangeRead, ReadMethod, pinned
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.rows import REASON
from lakechime_dagster.spark.session import Batches, arrow_of, record_batches, rows_of
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.triggers.consumers import HOUR_MS, Committed

Line = tuple[str, str, int]  # a source in a partition of a topic
Checkpoint = tuple[int, int]  # an offset, and which of several changes of its message
PART_DDL = "`part` string, `json` string"  # of some rows: a kind of finding, and its JSON
LOOKED_DDL = f"`outcome` string, {STATE_DDL}, {SCHEMA_DDL}"
INCREMENTAL = (
    "incremental"  # the mark of a row that was read beside the log: its time is the connector's
)
WITH_ORDER = (Role.CHANGE.value, Role.TRUNCATION.value)


class Run(NamedTuple):
    """Changes of a line that were looked at together."""

    line: Line
    first: Checkpoint
    last: Checkpoint
    least: Position
    newest: Position
    least_new: Position | None  # of those above the offset up to which the line was known
    goes_back: bool
    newest_ms: int | None


@dataclass(frozen=True)
class Came:
    """How far a line has come by an execution; `may_go_back` where some position may be lower than
    one before it.
    """

    newest: Position
    offset: int
    newest_ms: int | None
    may_go_back: bool


@dataclass(frozen=True)
class Looked:
    """What all of them have."""

    seen: Seen
    lines: Mapping[Line, Came]


def looked(rows: Rows, before: Seen) -> Looked:
    """One look at the rows of `PARSED_DDL`, given what was remembered."""
    rows = rows.shaped(LOOKED_DDL, values={"columns": None})
    found = rows.on_batches(Look(arrow_of(PART_DDL), before.offsets), PART_DDL, keep=False)
    return looked_at(found.tuples("part", "json"), before)


def looked_at(found: Iterable[tuple[str, str]], before: Seen) -> Looked:
    """What looks at all parts of the rows found together."""
    parts: dict[str, list[Any]] = {}
    for kind, text in found:
        parts.setdefault(kind, []).append(orjson.loads(text))
    return Looked(_seen(parts), _lines(parts.get("run", []), before))


def _seen(parts: Mapping[str, Sequence[Any]]) -> Seen:
    outcomes, used, beats = Counter[str](), dict[tuple[str, str], Order](), dict[str, int]()
    for outcome, count in parts.get("outcome", ()):
        outcomes[outcome] += count
    for source, schema, text in parts.get("used", ()):
        order = order_of(text)
        used[source, schema] = min(order, used.get((source, schema), order))
    for server, at in parts.get("beat", ()):
        beats[server] = max(at, beats.get(server, at))
    return Seen(
        schemas=tuple(
            Schema.of_texts(*texts) for texts in dict.fromkeys(map(tuple, parts.get("schema", ())))
        ),
        used=used,
        links=tuple(dict.fromkeys(map(tuple, parts.get("link", ())))),
        outcomes={outcome.value: outcomes[outcome.value] for outcome in ChangeOutcome},
        truncations=tuple(StateRow(*row) for row in parts.get("truncation", ())),
        marks=tuple(StateRow(*row) for row in parts.get("mark", ())),
        beats=tuple(
            StateRow(Role.BEAT.value, None, server, order_text(BEFORE_ALL), ts_ms=at)
            for server, at in beats.items()
        ),
    )


def _lines(runs: Iterable[Any], before: Seen) -> dict[Line, Came]:
    positions = {
        (source, *partition): position
        for source, one in before.epochs.items()
        for partition, (_, position) in one.positions.items()
    }
    lines: dict[Line, list[Run]] = {}
    for line, first, last, least, newest, least_new, goes_back, newest_ms in runs:
        new = None if least_new is None else tuple(least_new)
        run = Run(
            tuple(line),
            tuple(first),
            tuple(last),
            tuple(least),
            tuple(newest),
            new,
            goes_back,
            newest_ms,
        )
        lines.setdefault(run.line, []).append(run)
    return {
        line: _came(sorted(mine, key=lambda run: run.first), positions.get(line, ()))
        for line, mine in lines.items()
    }


def _came(runs: Sequence[Run], position: Position) -> Came:
    """All runs of a line, in their order; where two of them overlap nobody knows whether it went
    back.
    """
    newest, last, may_go_back = Position(), (-1, -1), False
    for run in runs:
        is_below = run.least < newest or (run.least_new is not None and run.least_new < position)
        may_go_back = may_go_back or run.goes_back or is_below or run.first <= last
        newest, last = max(newest, run.newest), max(last, run.last)
    times = [run.newest_ms for run in runs if run.newest_ms is not None]
    return Came(newest, last[0], max(times, default=None), may_go_back)


@dataclass(frozen=True)
class Look:
    """The findings of some rows (`PART_DDL`); `offsets` are those up to which each line was
    known.
    """

    out: pa.Schema
    offsets: Mapping[Line, int]

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            yield from record_batches(
                [(kind, orjson.dumps(tuple(value)).decode()) for kind, value in self._parts(batch)],
                self.out,
            )

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
        outcomes, used, beats = Counter[str](), dict[tuple[str, str], Order](), dict[str, int]()
        lines: dict[Line, list[tuple[Checkpoint, Position, int | None]]] = {}
        for outcome, *values, schema, types, defaults in rows_of(iter([batch])):
            row = StateRow(*values)
            if outcome is not None:
                outcomes[outcome] += 1
            if types is not None:
                yield "schema", (types, defaults)
            if row.continues is not None:
                yield "link", (row.key, row.continues)
            if row.role == Role.BEAT.value and row.ts_ms is not None:
                beats[row.source] = max(row.ts_ms, beats.get(row.source, row.ts_ms))
            if row.order is None:
                continue
            order = order_of(row.order)
            if schema is not None:
                used[row.source, schema] = min(order, used.get((row.source, schema), order))
            if row.role in WITH_ORDER and order.position:
                at = None if row.snapshot == INCREMENTAL else row.ts_ms
                lines.setdefault((row.source, order.topic, order.partition), []).append(
                    ((order.offset, order.item), order.position, at)
                )
            if row.role == Role.TRUNCATION.value and outcome == ChangeOutcome.APPLIED.value:
                yield "truncation", row
            elif row.op == Operation.READ.value and row.snapshot in MARKS:
                yield "mark", row
        yield from (("outcome", one) for one in outcomes.items())
        yield from (("used", (*one, order_text(order))) for one, order in used.items())
        yield from (("beat", one) for one in beats.items())
        yield from (
            ("run", self._run(line, sorted(changes, key=lambda one: one[0])))
            for line, changes in lines.items()
        )

    def _run(self, line: Line, changes: Sequence[tuple[Checkpoint, Position, int | None]]) -> Run:
        known = self.offsets.get(line, -1)
        positions = [position for _, position, _ in changes]
        return Run(
            line=line,
            first=changes[0][0],
            last=changes[-1][0],
            least=min(positions),
            newest=max(positions),
            least_new=min(
                (position for (offset, _), position, _ in changes if offset > known), default=None
            ),
            goes_back=any(one > other for one, other in pairwise(positions)),
            newest_ms=max((at for *_, at in changes if at is not None), default=None),
        )


Event = tuple[str, int, Position, str, str | None]
Message = tuple[str, int, int]  # topic id, partition and offset


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """The changes of an execution in their epochs, what they report, and what is to be remembered
    of how far these have come.
    """

    rows: Rows
    seen: Seen
    positions: tuple[StateRow, ...]


def in_epochs(
    spark: SparkSession, name: str, rows: Rows, bronze: DataFrame, before: Seen
) -> Ordered:
    """The changes of an execution, each in its epoch; what was delivered again is counted and goes
    no further.

    Args:
        spark: The session.
        name: The table, for errors.
        rows: The rows of `PARSED_DDL`, which are kept.
        bronze: The bronze table up to the end of the execution.
        before: What was remembered, how far the epochs of each source had come among it.

    Raises:
        ConsumerBlockedError: positions of a source restart, and nobody has confirmed that.
    """
    look = looked(rows, before)
    changes = _changes(rows, {line for line, came in look.lines.items() if came.may_go_back})
    odd = {line for line, of_line in changes.items() if _goes_back(line, of_line, before)}
    after = dict(before.epochs)
    for line, came in look.lines.items():
        if line not in odd:
            after[line[0]] = _moved(after.get(line[0], Epochs()), line, came.newest)
    assignments = _assigned(spark, name, {line: changes[line] for line in odd}, bronze, after)
    for source, assignment in assignments.items():
        after[source] = assignment.epochs
    renumbering = _renumbering(after, assignments)
    if renumbering.changes_any:
        rows = rows.on_batches(renumbering, PARSED_DDL)
        look = Looked(looked(rows, before).seen, look.lines)
    return Ordered(
        rows=rows, seen=look.seen, positions=tuple(_positions(before, after, look.lines))
    )


def _moved(epochs: Epochs, line: Line, newest: Position) -> Epochs:
    """The same with a partition that only went forward."""
    partition = line[1:]
    epoch, position = epochs.positions.get(partition, (0, ()))
    return Epochs(
        opened=epochs.opened,
        positions={**epochs.positions, partition: (epoch, max(position, newest))},
    )


def _changes(rows: Rows, lines: set[Line]) -> dict[Line, list[Change]]:
    """The changes of these lines that have a position, in their order and without their columns."""
    found: dict[Line, list[Change]] = {}
    if lines:
        rows = rows.shaped(STATE_DDL, values={"columns": None, "omitted": None})
        for row in rows.on_batches(
            OfLines(arrow_of(STATE_DDL), frozenset(lines)), STATE_DDL, keep=False
        ).tuples(*StateRow._fields):
            change = change_of(StateRow(*row))
            found.setdefault(
                (change.source, change.order.topic, change.order.partition), []
            ).append(change)
    return {line: sorted(mine, key=lambda one: one.order[3:]) for line, mine in found.items()}


@dataclass(frozen=True)
class OfLines:
    """The changes of some lines that have a position."""

    out: pa.Schema
    lines: frozenset[Line]

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            yield from record_batches(
                [row for row in rows_of(iter([batch])) if self._is_of_lines(StateRow(*row))],
                self.out,
            )

    def _is_of_lines(self, row: StateRow) -> bool:
        if row.role not in WITH_ORDER:
            return False
        order = order_of(row.order)
        return bool(order.position) and (row.source, order.topic, order.partition) in self.lines


def _goes_back(line: Line, changes: Iterable[Change], before: Seen) -> bool:
    """Whether a position is lower than one before it, or than where its line had come."""
    source, *_ = line
    position, offset = (
        before.epochs.get(source, Epochs()).positions.get(line[1:], (0, ()))[1],
        before.offsets.get(line, -1),
    )
    newest = Position()
    for change in changes:
        known = max(newest, position) if change.order.offset > offset else newest
        if change.order.position < known:
            return True
        newest = max(newest, change.order.position)
    return False


def _assigned(
    spark: SparkSession,
    name: str,
    odd: Mapping[Line, Sequence[Change]],
    bronze: DataFrame,
    known: Mapping[str, Epochs],
) -> dict[str, Assignment]:
    """By source the changes of those partitions in which positions went back, in the epochs that
    are known of.
    """
    seen = (
        _seen_before(spark, [change for of_line in odd.values() for change in of_line], bronze)
        if odd
        else set()
    )
    assignments = {}
    for source in sorted({line[0] for line in odd}):
        mine = sorted(
            (one for line, changes in odd.items() if line[0] == source for one in changes),
            key=lambda one: one.order[3:],
        )
        first_seen = dict[Event, int]()
        for change in mine:
            first_seen.setdefault(_event(change), change.order.offset)

        def was_seen(change: Change, first: Mapping[Event, int] = first_seen) -> bool:
            return _event(change) in seen or first[_event(change)] < change.order.offset

        assignment = assigned(known.get(source, Epochs()), mine, was_seen)
        if assignment.held:
            raise ConsumerBlockedError(
                _evidence(name, source, assignment.held[0], known.get(source, Epochs()), mine)
            )
        assignments[source] = assignment
    return assignments


def _seen_before(spark: SparkSession, changes: Iterable[Change], bronze: DataFrame) -> set[Event]:
    """The events of these changes that the bronze table holds at a lower offset than the first of
    them in their partition.
    """
    first: dict[tuple[str, int], int] = {}
    events: dict[Event, None] = {}
    for change in changes:
        line = change.order.topic, change.order.partition
        first[line] = min(first.get(line, change.order.offset), change.order.offset)
        events[_event(change)] = None
    rows = [
        (topic, partition, list(position), op, key, first[topic, partition])
        for topic, partition, position, op, key in events
    ]
    wanted = spark.createDataFrame(
        rows,
        "w_topic string, w_partition int, w_position array<bigint>, w_op string, w_key string, "
        "w_offset bigint",
    )
    same = (
        (F.col("topic_id") == F.col("w_topic"))
        & (F.col("partition") == F.col("w_partition"))
        & (F.col("offset") < F.col("w_offset"))
        & (F.col("position") == F.col("w_position"))
        & (F.col("op") == F.col("w_op"))
        & F.col("row_key").eqNullSafe(F.col("w_key"))
    )
    found = (
        bronze.join(F.broadcast(wanted), same)
        .select("w_topic", "w_partition", "w_position", "w_op", "w_key")
        .distinct()
    )
    return {(row[0], row[1], tuple(row[2]), row[3], row[4]) for row in found.collect()}


def _event(change: Change) -> Event:
    """What is the same of a change that comes again, as the bronze table has it."""
    order = change.order
    return (
        order.topic,
        order.partition,
        order.position,
        change.operation.value,
        key_text(change.key) if change.key else None,
    )


def _evidence(
    name: str, source: str, first: Change, epochs: Epochs, changes: Sequence[Change]
) -> str:
    """Where the positions of a source went back, and what may be done about it."""
    order = first.order
    line = order.topic, order.partition
    earlier = [
        one.order
        for one in changes
        if (one.order.topic, one.order.partition) == line and one.order.offset < order.offset
    ]
    newest = max([one.position for one in earlier] + [epochs.positions.get(line, (0, ()))[1]])
    return (
        f"{name}: in partition {order.partition} of {order.topic} the position of {source} goes "
        f"back from {list(newest)} to "
        f"{list(order.position)} at offset {order.offset}, and it was not there before: its log "
        f"restarted, or another server writes it. "
        f"Take a whole new snapshot, or say that what follows is newer: `lakechime cdc epoch "
        f"{name}`"
    )


def _renumbering(
    epochs: Mapping[str, Epochs], assignments: Mapping[str, Assignment]
) -> "Renumbering":
    """From which offset on each line is in which epoch, and what was delivered again."""
    begins = {
        _line(source, partition): {(0, epoch)}
        for source, one in epochs.items()
        for partition, (epoch, _) in one.positions.items()
    }
    again: set[Message] = set()
    for source, assignment in assignments.items():
        first: dict[Line, dict[int, int]] = {}
        for change in assignment.changes:
            offsets = first.setdefault(
                _line(source, (change.order.topic, change.order.partition)), {}
            )
            offsets[change.order.epoch] = min(
                offsets.get(change.order.epoch, change.order.offset), change.order.offset
            )
        begins |= {
            line: {(offset, epoch) for epoch, offset in offsets.items()}
            for line, offsets in first.items()
        }
        again |= {
            (one.order.topic, one.order.partition, one.order.offset)
            for one in assignment.delivered_again
        }
    later = {
        line: tuple(of_line)
        for line, of_line in begins.items()
        if any(epoch for _, epoch in of_line)
    }
    return Renumbering(arrow_of(PARSED_DDL), later, frozenset(again))


@dataclass(frozen=True)
class Renumbering:
    """The orders of changes (`PARSED_DDL`) with their epochs; those of messages that came `again`
    are counted alone.
    """

    out: pa.Schema
    # of lines beyond their first epoch offsets, and the epoch from each on
    begins: Mapping[Line, Sequence[tuple[int, int]]]
    again: frozenset[Message]

    @property
    def changes_any(self) -> bool:
        return bool(self.begins or self.again)

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            yield from record_batches(list(self._renumbered(batch)), self.out)

    def _renumbered(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        for outcome, *values, topic, partition, offset, reason, message in rows_of(iter([batch])):
            row, others = (
                StateRow(*values[: len(StateRow._fields)]),
                values[len(StateRow._fields) :],
            )
            order = None if row.order is None else order_of(row.order)
            if order is not None and (order.topic, partition, offset) in self.again:
                outcome, row = (
                    ChangeOutcome.DELIVERED_AGAIN.value,
                    row._replace(role=None, continues=None),
                )
            elif order is not None and row.role in WITH_ORDER:
                begins = self.begins.get((row.source, order.topic, order.partition), ())
                epochs = [epoch for begin, epoch in begins if order.offset >= begin]
                row = row._replace(order=order_text(order._replace(epoch=max(epochs, default=0))))
            yield outcome, *row, *others, topic, partition, offset, reason, message


def _positions(
    before: Seen, after: Mapping[str, Epochs], lines: Mapping[Line, Came]
) -> Iterable[StateRow]:
    """What of the positions and the opened epochs is new."""
    for source, epochs in after.items():
        known = before.epochs.get(source, Epochs())
        if epochs.opened > known.opened:
            yield opened_row(source, epochs.opened)
        for partition, position in epochs.positions.items():
            line = _line(source, partition)
            came = lines.get(line)
            offset = max(-1 if came is None else came.offset, before.offsets.get(line, -1))
            times = [
                one
                for one in (came and came.newest_ms, before.newest_ms.get(source))
                if one is not None
            ]
            if position != known.positions.get(partition) or offset != before.offsets.get(line):
                yield position_row(source, partition, position, offset, max(times, default=None))


def _line(source: str, partition: tuple[str, int]) -> Line:
    return source, *partition


def remembered_schemas(state: DataFrame) -> list[TableSchema]:
    """The columns of the database's tables in a table of state."""
    rows = state.where(F.col("role") == Role.SCHEMA.value).select(*STATE_COLUMNS).collect()
    return [TableSchema.of_row(StateRow(*row)) for row in rows]


BAD = ("topic", "partition", "offset", "key", "message", REASON)


def bad_rows(parsed: DataFrame, merged: DataFrame) -> DataFrame:
    """What is quarantined, with its coordinate and the reason (`BAD`)."""
    unreadable = (
        parsed.where(F.col("outcome") == ChangeOutcome.QUARANTINED.value)
        .withColumn(REASON, F.col("reason"))
        .select(*BAD)
    )
    refused = merged.where(F.col("what") == What.REFUSED).withColumn("message", F.col("columns"))
    return unreadable.unionByName(refused.withColumn(REASON, F.col("reason")).select(*BAD))


Counted = Mapping[tuple[str, str | None], int]  # rows by what they are, and their operation


@dataclass(frozen=True)
class Parsed:
    """The messages of an execution, and what was known before it.

    Attributes:
        read: How they were read.
        rows: Their changes (`PARSED_DDL`), each change in its epoch.
        before: What was remembered before the execution; None of a table that begins.
        seen: What of the messages concerns more than their own keys.
        known: The same of what was remembered.
        has_more: The source held more than was read of it: what follows may be older, and belong to
            a snapshot that has ended.
    """

    read: RangeRead
    rows: Rows
    before: Rows | None
    seen: Seen
    known: Seen
    has_more: bool = False

    @property
    def is_new(self) -> bool:
        """Whether the table is made of these messages alone."""
        return self.read.changes is None

    @cached_property
    def ended(self) -> list[StateRow]:
        """The truncations that snapshots mean which are complete now; none before all of their rows
        are read for certain.
        """
        return [] if self.has_more else self.seen.ended(self.known)

    @property
    def ends(self) -> tuple[StateRow, ...]:
        """All truncations."""
        return (*self.seen.truncations, *self.known.truncations, *self.ended)

    @property
    def marks(self) -> tuple[StateRow, ...]:
        """The first and last rows of snapshots, without their columns."""
        return tuple(one._replace(role=Role.MARK.value, columns=None) for one in self.seen.marks)

    @cached_property
    def defaults(self) -> Defaults:
        """What rows got that were there when a column was added."""
        return Defaults.of([*self.known.columns, *self.seen.columns])

    @cached_property
    def concerns_all(self) -> bool:
        """Whether rows may change without a message."""
        return bool(self.seen.truncations or self.ended) or self.defaults.concern_others(
            Defaults.of(self.known.columns)
        )

    def late_ends(self, complete_ms: int) -> list[int]:
        """The hour (since 1970) of each truncation among the messages whose hour was complete
        before; one without a time has none.
        """
        end_ms = complete_ms // HOUR_MS * HOUR_MS
        return [
            row.ts_ms // HOUR_MS
            for row in (*self.seen.truncations, *self.ended)
            if row.ts_ms and row.ts_ms < end_ms
        ]

    @property
    def of_sources(self) -> list[StateRow]:
        """What is to be remembered of whole sources."""
        seen = self.seen
        return [
            *seen.truncations,
            *self.ended,
            *self.marks,
            *seen.positions,
            *seen.beats,
            *seen.columns,
            *seen.tables,
        ]


@dataclass(frozen=True)
class Merge:
    """What merging made of them.

    Attributes:
        found: The rows of `merged_ddl`.
        counted: How many of them there are of each kind (`What.COUNTS`).
        evolution: What becomes of the table's columns.
        groups: Of each key that continues another one, or is continued, the group that is merged
            together.
    """

    found: Rows
    counted: Counted
    evolution: Evolution
    groups: Mapping[str, str]

    def rows(self, *needs: str) -> int:
        """How many rows of the table need one of these."""
        return sum(self.counted.get((What.ROWS, need), 0) for need in needs)

    @property
    def inserted(self) -> int:
        return self.rows(Need.INSERT, Need.RETURN)

    @property
    def updated(self) -> int:
        return self.rows(Need.UPDATE, Need.AMEND)

    @property
    def deleted(self) -> int:
        """How many rows the database deleted, whether they stay or not."""
        return self.rows(Need.DELETE, Need.END)

    @property
    def unchanged(self) -> int:
        return self.rows(Need.NOTHING)

    @property
    def changed(self) -> int:
        return self.inserted + self.updated + self.deleted

    @property
    def late(self) -> dict[int, int]:
        """How many changes came later than their hour was complete, by that hour (since 1970), the
        oldest first.
        """
        return dict(
            sorted(
                (int(hour or 0), count)
                for (what, hour), count in self.counted.items()
                if what == What.LATE
            )
        )

    def outcomes(self, parsed: Parsed, quarantined: int) -> dict[str, int]:
        """How many changes met which outcome."""
        found = {
            outcome.value: parsed.seen.outcomes[outcome.value]
            + self.counted.get((What.OUTCOME, outcome.value), 0)
            for outcome in ChangeOutcome
        }
        return found | {ChangeOutcome.QUARANTINED.value: quarantined}


AS_OF = "state"  # among the facts of a commit of the state: the version that it was computed from


@dataclass(frozen=True)
class Parsing:
    """What one attempt parses its messages with.

    Attributes:
        spark: The session.
        job: How messages are read.
        state: The table of what is remembered.
        decided: The commit by which another attempt remembered the execution.
        number: Its number.
        open_log: Gives the log of a table.
        compute: By whom plain functions are called.
    """

    spark: SparkSession
    job: CDCJob
    state: Target
    decided: Committed | None
    number: int
    open_log: OpenLog
    compute: Computing

    def parsed(self, read: RangeRead, columns: Iterable[str]) -> Parsed:
        """The messages of a range; names of columns that differ from those of the table in case
        alone are the table's.

        Raises:
            ConsumerBlockedError: positions restart.
        """
        before = None if read.changes is None else self._state_before()
        known = Seen() if before is None else seen_before(before)
        messages = read.end if read.changes is None else read.changes.where(F.col(CHANGE) == 1)
        tables = self._tables(known) if self.job.format.is_typed_externally else []
        apart = (
            spread(messages.select(*MESSAGE), read)
            if self.compute is self.compute.workers
            else messages.select(*MESSAGE)
        )
        rows = self._rows(apart, [TableSchema.of_row(row) for row in known.tables] + tables)
        ordered = in_epochs(self.spark, self.job.name, rows, read.end, known)
        names = spellings([*columns, *self.job.merge.named], ordered.seen.columns_met())
        found, rows = ordered.seen, ordered.rows
        if names:
            schemas = {one.name: one.spelled(names).name for one in found.schemas}
            found, rows = (
                found.spelled(names),
                rows.on_batches(Respelled(arrow_of(PARSED_DDL), names, schemas), PARSED_DDL),
            )
        seen = replace(
            found,
            positions=ordered.positions,
            columns=columns_in(found, known),
            tables=tuple(one.row for one in tables),
        )
        fed = self.open_log(self.job.bronze.location, self.job.bronze.table).fed(int(read.snapshot))
        return Parsed(read, rows, before, seen, known, has_more=fed is not None and fed.has_more)

    def _tables(self, known: Seen) -> list[TableSchema]:
        """What an execution adds to what is known of the columns of the database's tables, the same
        for every attempt.

        A table that is rebuilt keeps the readings of the one before.
        """
        if self.decided is not None:
            of_execution = pinned(self.spark, self.state.location, int(self.decided.version)).where(
                F.col("number") == self.number
            )
            return remembered_schemas(of_execution)
        is_rebuilt = not known.tables and self.state.log.exists()
        earlier = (
            remembered_schemas(pinned(self.spark, self.state.location, self.state.log.version))
            if is_rebuilt
            else []
        )
        return [*earlier, *([] if self.job.reading is None else [self.job.reading])]

    def _rows(self, rows: DataFrame, tables: Sequence[TableSchema]) -> Rows:
        merge, envelope = self.job.merge, self.job.format.envelope
        messages = (
            replace(self.job.format, tables=tuple(tables))
            if self.job.format.is_typed_externally
            else self.job.format
        )
        reading = Reading(
            out=arrow_of(PARSED_DDL),
            reader=messages.reader,
            takes=merge.takes,
            names=dict(self.job.names),
            ignores_truncates=not merge.apply_as_truncates,
            ignores_nulls=merge.ignore_null_updates,
            has_bare_tombstones=isinstance(envelope, Debezium) and envelope.tombstones_delete,
        )
        return self.compute.rows(rows, are_few=True).on_batches(reading, PARSED_DDL)

    def _state_before(self) -> Rows | None:
        """What was remembered before the execution: by the version that the attempt which decided
        it read, else by the newest.
        """
        version = self.version_before()
        if version is None:
            return None
        compute = (
            self.compute if self.state.log.size(version) <= self.job.few else self.compute.workers
        )
        return compute.of_version(self.state.log, version, STATE_DDL)

    def version_before(self) -> int | None:
        """The version of what was remembered that the execution is computed from; None where there
        was none.
        """
        if self.decided is not None:
            return self.decided.commit_metadata.facts.get(AS_OF)
        return self.state.log.version if self.state.log.exists() else None


def spread(messages: DataFrame, read: RangeRead) -> DataFrame:
    """The messages of a range in as many parts as there are cores: those of one file would be read
    by one of them.

    Those of a partition of a topic stay beside each other: where their positions go back they would
    all be looked at here.
    """
    cores = messages.sparkSession.sparkContext.defaultParallelism
    if read.method is not ReadMethod.LOG_FILES or len(read.files) >= cores:
        return messages
    return messages.repartitionByRange(cores, "topic_id", "partition", "offset")


def known_until(job: CDCJob, parsed: Parsed) -> int | None:
    """Up to when, in milliseconds, nothing of any source can come any more; None where that is not
    known.

    That is the newest time of each source less the longest that a transaction lasts. It is not
    known while the source holds more: of what one partition reports, another one may have earlier
    changes there.
    """
    known, seen = parsed.known, parsed.seen
    # of a source in both the one of now is the later one
    newest = known.beaten({**known.newest_ms, **seen.newest_ms})
    sources = {row.source for row in (*known.positions, *seen.positions) if row.op != OPENED}
    if (
        job.merge.max_transaction is None
        or parsed.has_more
        or not newest
        or sources - newest.keys()
    ):
        return None
    return min(newest.values()) - job.merge.max_transaction // timedelta(milliseconds=1)
