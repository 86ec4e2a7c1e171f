"""Parses the messages of an execution on Spark's workers: each change in its epoch, with what was
kept before.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.cdc.change import Change, Operation, Order, Position, order_of, order_text
from lakechime_dagster.cdc.job import CDCJob
from lakechime_dagster.cdc.merge import BEFORE_ALL, ChangeOutcome, Need
from lakechime_dagster.cdc.record import key_text
from lakechime_dagster.cdc.schema import Evolution
from lakechime_dagster.cdc.spark_changes import (
    SCHEMA_DDL,
    STATE_DDL,
    Line,
    Message,
    Numbering,
    What,
)
from lakechime_dagster.cdc.spark_remembered import STATE_COLUMNS, Seen, position_row
from lakechime_dagster.cdc.spark_rows import Rows
from lakechime_dagster.cdc.state import (
    MARKS,
    OPENED,
    Assignment,
    Defaults,
    Role,
    Schema,
    SourceEpochs,
    StateRow,
    TableSchema,
    assigned,
    change_of,
    opened_row,
)
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.spark.ranges import RangeRead, ReadMethod
from lakechime_dagster.spark.rows import REASON
from lakechime_dagster.spark.session import Batches, arrow_of, record_batches, rows_of
from lakechime_dagster.triggers.consumers import HOUR_MS

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
    for values in runs:
        plain: list[Any] = [tuple(one) if isinstance(one, list) else one for one in values]
        run = Run(*plain)
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


EVENT = ("topic_id", "partition", "position", "op", "row_key")  # columns of the bronze table
Event = tuple[str, int, Position, str, str]


def in_epochs(
    spark: SparkSession,
    name: str,
    parse: Callable[[Numbering], Rows],
    bronze: DataFrame,
    before: Seen,
) -> tuple[Rows, Seen]:
    """The changes of an execution, each in its epoch, and what they report, how far the epochs have
    come among it; what was delivered again is counted and goes no further.

    Args:
        spark: The session.
        name: The table, for errors.
        parse: Gives the rows of `PARSED_DDL`, which are kept, by what is known of epochs.
        bronze: The bronze table up to the end of the execution.
        before: What was remembered, how far the epochs of each source had come among it.

    Raises:
        ConsumerBlockedError: positions of a source restart, and nobody has confirmed that.
    """
    rows = parse(_numbering(before.epochs, {}))
    look = looked(rows, before)
    changes = _changes(rows, {line for line, came in look.lines.items() if came.may_go_back})
    odd = {line: of_line for line, of_line in changes.items() if _goes_back(line, of_line, before)}
    after = dict(before.epochs)
    for line, came in look.lines.items():
        if line not in odd:
            after[line[0]] = _moved(after.get(line[0], SourceEpochs()), line, came.newest)
    seen = look.seen
    if odd:
        assignments = _assigned(spark, name, odd, bronze, after)
        after |= {source: assignment.epochs for source, assignment in assignments.items()}
        rows = parse(_numbering(after, assignments))
        seen = looked(rows, before).seen
    return rows, replace(seen, positions=tuple(_positions(before, after, look.lines)))


def _moved(epochs: SourceEpochs, line: Line, newest: Position) -> SourceEpochs:
    """The same with a partition that only went forward."""
    partition = line[1:]
    epoch, position = epochs.positions.get(partition, (0, ()))
    return SourceEpochs(
        opened=epochs.opened,
        positions={**epochs.positions, partition: (epoch, max(position, newest))},
    )


def _changes(rows: Rows, lines: set[Line]) -> dict[Line, list[Change]]:
    """The changes of these lines that have a position, in their order and without their columns."""
    found: dict[Line, list[Change]] = {}
    if lines:
        of_sources = rows.where({"source": sorted({source for source, *_ in lines})})
        bare = of_sources.shaped(STATE_DDL, values={"columns": None, "omitted": None})
        for values in bare.tuples(*StateRow._fields):
            row = StateRow(*values)
            if row.role in WITH_ORDER and (change := change_of(row)).order.position:
                line = change.source, change.order.topic, change.order.partition
                found.setdefault(line, []).append(change)
    return {line: sorted(found[line], key=lambda one: one.order[3:]) for line in lines}


def _goes_back(line: Line, changes: Iterable[Change], before: Seen) -> bool:
    """Whether a position is lower than one before it, or than where its line had come."""
    source, *_ = line
    position, offset = (
        before.epochs.get(source, SourceEpochs()).positions.get(line[1:], (0, ()))[1],
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
    known: Mapping[str, SourceEpochs],
) -> dict[str, Assignment]:
    """By source the changes of those partitions in which positions went back, in the epochs that
    are known of.
    """
    seen = _seen_before(spark, [change for of_line in odd.values() for change in of_line], bronze)
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

        epochs = known.get(source, SourceEpochs())
        assignments[source] = assignment = assigned(epochs, mine, was_seen)
        if assignment.held:
            raise ConsumerBlockedError(_evidence(name, source, assignment.held[0], epochs, mine))
    return assignments


def _seen_before(spark: SparkSession, changes: Iterable[Change], bronze: DataFrame) -> set[Event]:
    """The events of these changes that the bronze table holds at a lower offset than the first of
    them in their partition.
    """
    first: dict[tuple[str, int], int] = {}
    for change in changes:
        partition = change.order.topic, change.order.partition
        first[partition] = min(first.get(partition, change.order.offset), change.order.offset)
    wanted = spark.createDataFrame(
        [(*event, first[event[:2]]) for event in {_event(change) for change in changes}],
        "topic_id string, partition int, position array<bigint>, op string, row_key string, "
        "first bigint",
    )
    held = bronze.withColumn("row_key", F.coalesce("row_key", F.lit("")))
    found = held.join(F.broadcast(wanted), [*EVENT]).where(F.col("offset") < F.col("first"))
    return {
        (topic, partition, tuple(position), op, key)
        for topic, partition, position, op, key in found.select(*EVENT).distinct().collect()
    }


def _event(change: Change) -> Event:
    """What is the same of a change that comes again, as the bronze table has it; of a truncation
    the key is empty.
    """
    order, key = change.order, key_text(change.key) if change.key else ""
    return order.topic, order.partition, order.position, change.operation.value, key


def _evidence(
    name: str, source: str, first: Change, epochs: SourceEpochs, changes: Sequence[Change]
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


def _numbering(
    epochs: Mapping[str, SourceEpochs], assignments: Mapping[str, Assignment]
) -> Numbering:
    """From which offset on each line is in which epoch, and what was delivered again."""
    begins: dict[Line, dict[int, int]] = {
        (source, *partition): {epoch: 0}
        for source, one in epochs.items()
        for partition, (epoch, _) in one.positions.items()
        if epoch
    }
    again: set[Message] = set()
    for source, assignment in assignments.items():
        first: dict[Line, dict[int, int]] = {}
        for change in assignment.changes:
            order = change.order
            offsets = first.setdefault((source, order.topic, order.partition), {})
            offsets[order.epoch] = min(offsets.get(order.epoch, order.offset), order.offset)
        begins |= first
        again |= {
            (one.order.topic, one.order.partition, one.order.offset)
            for one in assignment.delivered_again
        }
    return Numbering(begins, frozenset(again))


def _positions(
    before: Seen, after: Mapping[str, SourceEpochs], lines: Mapping[Line, Came]
) -> Iterable[StateRow]:
    """What of the positions and the opened epochs is new."""
    for source, epochs in after.items():
        known = before.epochs.get(source, SourceEpochs())
        if epochs.opened > known.opened:
            yield opened_row(source, epochs.opened)
        for partition, position in epochs.positions.items():
            line = source, *partition
            came = lines.get(line)
            offset = max(-1 if came is None else came.offset, before.offsets.get(line, -1))
            times = [
                one
                for one in (came and came.newest_ms, before.newest_ms.get(source))
                if one is not None
            ]
            if position != known.positions.get(partition) or offset != before.offsets.get(line):
                yield position_row(source, partition, position, offset, max(times, default=None))


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
