"""Epochs of the changes of an execution, and what of its messages concerns more than their own keys."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.cdc.change import Change, Operation, Order, Position
from lakechime_dagster.cdc.epochs import MARKS, Assignment, Epochs, assigned
from lakechime_dagster.cdc.incremental_merge import Fate
from lakechime_dagster.cdc.merge import BEFORE_ALL
from lakechime_dagster.cdc.record import key_text
from lakechime_dagster.cdc.spark_changes import SCHEMA_DDL, STATE_DDL, TOLD_DDL
from lakechime_dagster.cdc.spark_remembered import Seen, opened_row, place_row
from lakechime_dagster.cdc.spark_rows import Rows
from lakechime_dagster.cdc.state import Role, Schema, StateRow, change_of
from lakechime_dagster.cdc.wire import order_of, order_text
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.spark.session import Batches, arrow_of, record_batches, rows_of

Line = tuple[str, str, int]  # a source in a partition of a topic
Checkpoint = tuple[int, int]  # an offset, and which of several changes of its message
PART_DDL = "`part` string, `told` string"  # what a look at some rows found: its kind, and JSON
LOOKED_DDL = f"`fate` string, {STATE_DDL}, {SCHEMA_DDL}"
INCREMENTAL = "incremental"  # the mark of a row that was read beside the log: its time is the connector's
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
    """How far a line has come by a step; `may_go_back` where some position may be lower than one before it."""

    newest: Position
    offset: int
    newest_ms: int | None
    may_go_back: bool


@dataclass(frozen=True)
class Looked:
    """What all of them told."""

    seen: Seen
    lines: Mapping[Line, Came]


def looked(told: Rows, before: Seen) -> Looked:
    """One look at the rows of `change_rows.TOLD_DDL`, given what was remembered."""
    rows = told.shaped(LOOKED_DDL, values={"columns": None})
    found = rows.on_batches(Look(arrow_of(PART_DDL), before.offsets), PART_DDL, keep=False)
    return looked_at(found.tuples("part", "told"), before)


def looked_at(found: Iterable[tuple[str, str]], before: Seen) -> Looked:
    """What looks at all parts of the rows found together."""
    parts: dict[str, list[Any]] = {}
    for kind, text in found:
        parts.setdefault(kind, []).append(orjson.loads(text))
    return Looked(_seen(parts), _lines(parts.get("run", []), before))


def _seen(parts: Mapping[str, Sequence[Any]]) -> Seen:
    fates, used, beats = Counter[str](), dict[tuple[str, str], Order](), dict[str, int]()
    for fate, count in parts.get("fate", ()):
        fates[fate] += count
    for source, schema, text in parts.get("used", ()):
        order = order_of(text)
        used[source, schema] = min(order, used.get((source, schema), order))
    for server, at in parts.get("beat", ()):
        beats[server] = max(at, beats.get(server, at))
    return Seen(
        schemas=tuple(Schema.of_texts(*texts) for texts in dict.fromkeys(map(tuple, parts.get("schema", ())))),
        used=used,
        links=tuple(dict.fromkeys(map(tuple, parts.get("link", ())))),
        fates={fate.value: fates[fate.value] for fate in Fate},
        truncations=tuple(StateRow(*row) for row in parts.get("truncation", ())),
        marks=tuple(StateRow(*row) for row in parts.get("mark", ())),
        beats=tuple(StateRow(Role.BEAT.value, None, server, order_text(BEFORE_ALL), ts_ms=at) for server, at in beats.items()),
    )


def _lines(runs: Iterable[Any], before: Seen) -> dict[Line, Came]:
    places = {(source, *partition): place for source, one in before.epochs.items() for partition, (_, place) in one.places.items()}
    lines: dict[Line, list[Run]] = {}
    for line, first, last, least, newest, least_new, goes_back, newest_ms in runs:
        new = None if least_new is None else tuple(least_new)
        run = Run(tuple(line), tuple(first), tuple(last), tuple(least), tuple(newest), new, goes_back, newest_ms)
        lines.setdefault(run.line, []).append(run)
    return {line: _came(sorted(mine, key=lambda run: run.first), places.get(line, ())) for line, mine in lines.items()}


def _came(runs: Sequence[Run], place: Position) -> Came:
    """All runs of a line, in their order; where two of them overlap nobody knows whether it went back."""
    newest, last, may_go_back = Position(), (-1, -1), False
    for run in runs:
        is_below = run.least < newest or (run.least_new is not None and run.least_new < place)
        may_go_back = may_go_back or run.goes_back or is_below or run.first <= last
        newest, last = max(newest, run.newest), max(last, run.last)
    times = [run.newest_ms for run in runs if run.newest_ms is not None]
    return Came(newest, last[0], max(times, default=None), may_go_back)


@dataclass(frozen=True)
class Look:
    """What some rows told (`PART_DDL`); `offsets` are those up to which each line was known."""

    out: pa.Schema
    offsets: Mapping[Line, int]

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            yield from record_batches([(kind, orjson.dumps(tuple(value)).decode()) for kind, value in self._parts(batch)], self.out)

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
        fates, used, beats = Counter[str](), dict[tuple[str, str], Order](), dict[str, int]()
        lines: dict[Line, list[tuple[Checkpoint, Position, int | None]]] = {}
        for fate, *values, schema, types, defaults in rows_of(iter([batch])):
            row = StateRow(*values)
            if fate is not None:
                fates[fate] += 1
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
                lines.setdefault((row.source, order.topic, order.partition), []).append(((order.offset, order.item), order.position, at))
            if row.role == Role.TRUNCATION.value and fate == Fate.APPLIED.value:
                yield "truncation", row
            elif row.op == Operation.READ.value and row.snapshot in MARKS:
                yield "mark", row
        yield from (("fate", one) for one in fates.items())
        yield from (("used", (*one, order_text(order))) for one, order in used.items())
        yield from (("beat", one) for one in beats.items())
        yield from (("run", self._run(line, sorted(changes, key=lambda one: one[0]))) for line, changes in lines.items())

    def _run(self, line: Line, changes: Sequence[tuple[Checkpoint, Position, int | None]]) -> Run:
        known = self.offsets.get(line, -1)
        positions = [position for _, position, _ in changes]
        return Run(
            line=line,
            first=changes[0][0],
            last=changes[-1][0],
            least=min(positions),
            newest=max(positions),
            least_new=min((position for (offset, _), position, _ in changes if offset > known), default=None),
            goes_back=any(one > other for one, other in pairwise(positions)),
            newest_ms=max((at for *_, at in changes if at is not None), default=None),
        )


Event = tuple[str, int, Position, str, str | None]
Message = tuple[str, int, int]  # topic id, partition and offset


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """The changes of a step in their epochs, what they tell, and what is to be remembered of how far these have come."""

    told: Rows
    seen: Seen
    places: tuple[StateRow, ...]


def in_epochs(spark: SparkSession, name: str, told: Rows, bronze: DataFrame, before: Seen) -> Ordered:
    """The changes of a step, each in its epoch; what was delivered again is counted and goes no further.

    Args:
        spark: The session.
        name: The table, for errors.
        told: The rows of `change_rows.TOLD_DDL`, which are kept.
        bronze: The bronze table up to the end of the step.
        before: What was remembered, how far the epochs of each source had come among it.

    Raises:
        ConsumerBlockedError: positions of a source begin anew, and nobody has said that they may.
    """
    look = looked(told, before)
    changes = _changes(told, {line for line, came in look.lines.items() if came.may_go_back})
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
        told = told.on_batches(renumbering, TOLD_DDL)
        look = Looked(looked(told, before).seen, look.lines)
    return Ordered(told=told, seen=look.seen, places=tuple(_places(before, after, look.lines)))


def _moved(epochs: Epochs, line: Line, newest: Position) -> Epochs:
    """The same with a partition that only went forward."""
    partition = line[1:]
    epoch, place = epochs.places.get(partition, (0, ()))
    return Epochs(opened=epochs.opened, places={**epochs.places, partition: (epoch, max(place, newest))})


def _changes(told: Rows, lines: set[Line]) -> dict[Line, list[Change]]:
    """The changes of these lines that have a position, in their order and without their columns."""
    found: dict[Line, list[Change]] = {}
    if lines:
        rows = told.shaped(STATE_DDL, values={"columns": None, "omitted": None})
        for row in rows.on_batches(OfLines(arrow_of(STATE_DDL), frozenset(lines)), STATE_DDL, keep=False).tuples(*StateRow._fields):
            change = change_of(StateRow(*row))
            found.setdefault((change.source, change.order.topic, change.order.partition), []).append(change)
    return {line: sorted(mine, key=lambda one: one.order[3:]) for line, mine in found.items()}


@dataclass(frozen=True)
class OfLines:
    """The changes of some lines that have a position."""

    out: pa.Schema
    lines: frozenset[Line]

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            yield from record_batches([row for row in rows_of(iter([batch])) if self._is_of_lines(StateRow(*row))], self.out)

    def _is_of_lines(self, row: StateRow) -> bool:
        if row.role not in WITH_ORDER:
            return False
        order = order_of(row.order)
        return bool(order.position) and (row.source, order.topic, order.partition) in self.lines


def _goes_back(line: Line, changes: Iterable[Change], before: Seen) -> bool:
    """Whether a position is lower than one before it, or than where its line had come."""
    source, *_ = line
    place, offset = before.epochs.get(source, Epochs()).places.get(line[1:], (0, ()))[1], before.offsets.get(line, -1)
    newest = Position()
    for change in changes:
        known = max(newest, place) if change.order.offset > offset else newest
        if change.order.position < known:
            return True
        newest = max(newest, change.order.position)
    return False


def _assigned(
    spark: SparkSession, name: str, odd: Mapping[Line, Sequence[Change]], bronze: DataFrame, known: Mapping[str, Epochs]
) -> dict[str, Assignment]:
    """By source the changes of those partitions in which positions went back, in the epochs that are known of."""
    seen = _seen_before(spark, [change for of_line in odd.values() for change in of_line], bronze) if odd else set()
    assignments = {}
    for source in sorted({line[0] for line in odd}):
        mine = sorted((one for line, changes in odd.items() if line[0] == source for one in changes), key=lambda one: one.order[3:])
        told_here = dict[Event, int]()
        for change in mine:
            told_here.setdefault(_event(change), change.order.offset)

        def was_seen(change: Change, first: Mapping[Event, int] = told_here) -> bool:
            return _event(change) in seen or first[_event(change)] < change.order.offset

        assignment = assigned(known.get(source, Epochs()), mine, was_seen)
        if assignment.held:
            raise ConsumerBlockedError(_evidence(name, source, assignment.held[0], known.get(source, Epochs()), mine))
        assignments[source] = assignment
    return assignments


def _seen_before(spark: SparkSession, changes: Iterable[Change], bronze: DataFrame) -> set[Event]:
    """The events of these changes that the bronze table holds at a lower offset than the first of them in their partition."""
    first: dict[tuple[str, int], int] = {}
    events: dict[Event, None] = {}
    for change in changes:
        line = change.order.topic, change.order.partition
        first[line] = min(first.get(line, change.order.offset), change.order.offset)
        events[_event(change)] = None
    rows = [(topic, partition, list(position), op, key, first[topic, partition]) for topic, partition, position, op, key in events]
    wanted = spark.createDataFrame(
        rows, "w_topic string, w_partition int, w_position array<bigint>, w_op string, w_key string, w_offset bigint"
    )
    same = (
        (F.col("topic_id") == F.col("w_topic"))
        & (F.col("partition") == F.col("w_partition"))
        & (F.col("offset") < F.col("w_offset"))
        & (F.col("position") == F.col("w_position"))
        & (F.col("op") == F.col("w_op"))
        & F.col("row_key").eqNullSafe(F.col("w_key"))
    )
    found = bronze.join(F.broadcast(wanted), same).select("w_topic", "w_partition", "w_position", "w_op", "w_key").distinct()
    return {(row[0], row[1], tuple(row[2]), row[3], row[4]) for row in found.collect()}


def _event(change: Change) -> Event:
    """What is the same of a change that comes again, as the bronze table has it."""
    order = change.order
    return order.topic, order.partition, order.position, change.operation.value, key_text(change.key) if change.key else None


def _evidence(name: str, source: str, first: Change, epochs: Epochs, changes: Sequence[Change]) -> str:
    """Where the positions of a source went back, and what may be done about it."""
    order = first.order
    line = order.topic, order.partition
    earlier = [one.order for one in changes if (one.order.topic, one.order.partition) == line and one.order.offset < order.offset]
    newest = max([one.position for one in earlier] + [epochs.places.get(line, (0, ()))[1]])
    return (
        f"{name}: in partition {order.partition} of {order.topic} the position of {source} goes back from {list(newest)} to "
        f"{list(order.position)} at offset {order.offset}, and it was not there before: its log began anew, or another server writes it. "
        f"Take a whole new snapshot, or say that what follows is newer: `lakechime cdc epoch {name}`"
    )


def _renumbering(epochs: Mapping[str, Epochs], assignments: Mapping[str, Assignment]) -> "Renumbering":
    """From which offset on each line is in which epoch, and what was delivered again."""
    begins = {_line(source, partition): {(0, epoch)} for source, one in epochs.items() for partition, (epoch, _) in one.places.items()}
    again: set[Message] = set()
    for source, assignment in assignments.items():
        first: dict[Line, dict[int, int]] = {}
        for change in assignment.changes:
            offsets = first.setdefault(_line(source, (change.order.topic, change.order.partition)), {})
            offsets[change.order.epoch] = min(offsets.get(change.order.epoch, change.order.offset), change.order.offset)
        begins |= {line: {(offset, epoch) for epoch, offset in offsets.items()} for line, offsets in first.items()}
        again |= {(one.order.topic, one.order.partition, one.order.offset) for one in assignment.delivered_again}
    later = {line: tuple(of_line) for line, of_line in begins.items() if any(epoch for _, epoch in of_line)}
    return Renumbering(arrow_of(TOLD_DDL), later, frozenset(again))


@dataclass(frozen=True)
class Renumbering:
    """The orders of changes (`change_rows.TOLD_DDL`) with their epochs; those of messages that came `again` are counted alone."""

    out: pa.Schema
    begins: Mapping[Line, Sequence[tuple[int, int]]]  # of lines beyond their first epoch offsets, and the epoch from each on
    again: frozenset[Message]

    @property
    def changes_any(self) -> bool:
        return bool(self.begins or self.again)

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            yield from record_batches(list(self._renumbered(batch)), self.out)

    def _renumbered(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        for fate, *values, topic, partition, offset, reason, message in rows_of(iter([batch])):
            row, others = StateRow(*values[: len(StateRow._fields)]), values[len(StateRow._fields) :]
            order = None if row.order is None else order_of(row.order)
            if order is not None and (order.topic, partition, offset) in self.again:
                fate, row = Fate.DELIVERED_AGAIN.value, row._replace(role=None, continues=None)
            elif order is not None and row.role in WITH_ORDER:
                begins = self.begins.get((row.source, order.topic, order.partition), ())
                epochs = [epoch for begin, epoch in begins if order.offset >= begin]
                row = row._replace(order=order_text(order._replace(epoch=max(epochs, default=0))))
            yield fate, *row, *others, topic, partition, offset, reason, message


def _places(before: Seen, after: Mapping[str, Epochs], lines: Mapping[Line, Came]) -> Iterable[StateRow]:
    """What of the places and the opened epochs is new."""
    for source, epochs in after.items():
        known = before.epochs.get(source, Epochs())
        if epochs.opened > known.opened:
            yield opened_row(source, epochs.opened)
        for partition, place in epochs.places.items():
            line = _line(source, partition)
            came = lines.get(line)
            offset = max(-1 if came is None else came.offset, before.offsets.get(line, -1))
            times = [one for one in (came and came.newest_ms, before.newest_ms.get(source)) if one is not None]
            if place != known.places.get(partition) or offset != before.offsets.get(line):
                yield place_row(source, partition, place, offset, max(times, default=None))


def _line(source: str, partition: tuple[str, int]) -> Line:
    return source, *partition
