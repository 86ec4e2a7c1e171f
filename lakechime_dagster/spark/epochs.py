"""Epochs of the changes of a step: a source's positions go forward within a partition, or it is known why they do not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakechime_dagster.cdc.bronze_rows import key_text
from lakechime_dagster.cdc.change import Change
from lakechime_dagster.cdc.epoch import Assignment, Epochs, assigned
from lakechime_dagster.cdc.merging import Fate
from lakechime_dagster.cdc.order import Position
from lakechime_dagster.cdc.state import Role, StateRow, change_of
from lakechime_dagster.errors import LaneHeldError
from lakechime_dagster.spark.remembered import STATE_COLUMNS, Seen, opened_row, place_row

Event = tuple[str, int, Position, str, str | None]
Line = tuple[str, str, int]  # a source in a partition of a topic
PARTS = ("source", "line_topic", "line_partition")
INCREMENTAL = "incremental"  # the mark of a row that was read beside the log: its time is the connector's


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """The changes of a step in their epochs, and what is to be remembered of how far these have come."""

    told: DataFrame
    places: tuple[StateRow, ...]


def in_epochs(spark: SparkSession, name: str, told: DataFrame, bronze: DataFrame, before: Seen) -> Ordered:
    """The changes of a step, each in its epoch; what was delivered again is counted and goes no further.

    Args:
        spark: The session.
        name: The table, for errors.
        told: The rows of `change_rows.TOLD_DDL`, which are in memory.
        bronze: The bronze table up to the end of the step.
        before: What was remembered, how far the epochs of each source had come among it.

    Raises:
        LaneHeldError: positions of a source begin anew, and nobody has said that they may.
    """
    known = before.epochs
    lines = _with_places(spark, _lines(told), before)
    earlier = Window.partitionBy(*PARTS).orderBy("line_offset", "line_item").rowsBetween(Window.unboundedPreceding, -1)
    place = F.when(F.col("line_offset") > F.col("place_offset"), F.col("place"))
    lines = lines.withColumn("newest", F.greatest(F.max("position").over(earlier), place))
    lines = lines.withColumn("went_back", F.coalesce(F.col("position") < F.col("newest"), F.lit(False)))
    found = lines.groupBy(*PARTS).agg(
        F.max("position").alias("newest"), F.count_if("went_back").alias("back"), F.max("line_offset").alias("offset"),
        F.max(F.when(~F.col("snapshot").eqNullSafe(INCREMENTAL), F.col("ts_ms"))).alias("newest_ms"),
    ).collect()  # fmt: skip
    after = dict(known)
    odd = {tuple(row)[:3] for row in found if row["back"]}
    for row in found:
        if tuple(row)[:3] not in odd:
            after[row["source"]] = _moved(after.get(row["source"], Epochs()), tuple(row)[:3], tuple(row["newest"]))
    assignments = _assigned(spark, name, lines, bronze, odd, after) if odd else {}
    for source, assignment in assignments.items():
        after[source] = assignment.epochs
    return Ordered(
        told=_renumbered(spark, told, after, assignments),
        places=tuple(_places(before, after, {tuple(row)[:3]: (row["offset"], row["newest_ms"]) for row in found})),
    )


def _moved(epochs: Epochs, line: Line, newest: Position) -> Epochs:
    """The same with a partition that only went forward."""
    partition = line[1:]
    epoch, place = epochs.places.get(partition, (0, ()))
    return Epochs(opened=epochs.opened, places={**epochs.places, partition: (epoch, max(place, newest))})


def _lines(told: DataFrame) -> DataFrame:
    """Of each change that has a position where it stands."""
    order = F.col("order")

    def part(index: int) -> Column:
        return F.get_json_object(order, f"$[{index}]")

    changes = told.where(F.col("role").isin(Role.CHANGE.value, Role.TRUNCATION.value)).select(
        *STATE_COLUMNS, F.from_json(part(1), "array<bigint>").alias("position"), part(3).alias("line_topic"),
        part(4).cast("int").alias("line_partition"), part(5).cast("bigint").alias("line_offset"), part(6).cast("int").alias("line_item"),
    )  # fmt: skip
    return changes.where(F.size("position") > 0)


def _with_places(spark: SparkSession, lines: DataFrame, before: Seen) -> DataFrame:
    """The lines with the newest position before the step, and the offset up to which it is known of."""
    rows = [
        (source, *partition, list(place), before.offsets[source, *partition])
        for source, epochs in before.epochs.items()
        for partition, (_, place) in epochs.places.items()
    ]
    ddl = "source string, line_topic string, line_partition int, place array<bigint>, place_offset bigint"
    return lines.join(F.broadcast(spark.createDataFrame(rows, ddl)), list(PARTS), "left")


def _assigned(
    spark: SparkSession, name: str, lines: DataFrame, bronze: DataFrame, odd: Iterable[Line], known: Mapping[str, Epochs]
) -> dict[str, Assignment]:
    """By source the changes of those partitions in which positions went back, in the epochs that are known of."""
    is_odd = reduce(lambda a, b: a | b, [_is_line(line) for line in odd])
    light = [F.lit(None).cast("string").alias(one) if one in ("columns", "omitted") else F.col(one) for one in STATE_COLUMNS]
    changes = [change_of(StateRow(*row)) for row in lines.where(is_odd).select(*light).collect()]
    seen = _seen_before(spark, changes, bronze)
    assignments = {}
    for source in sorted({line[0] for line in odd}):
        mine = sorted((one for one in changes if one.source == source), key=lambda one: one.order[3:])
        told_here = dict[Event, int]()
        for change in mine:
            told_here.setdefault(_event(change), change.order.offset)

        def was_seen(change: Change, first: Mapping[Event, int] = told_here) -> bool:
            return _event(change) in seen or first[_event(change)] < change.order.offset

        assignment = assigned(known.get(source, Epochs()), mine, was_seen)
        if assignment.held:
            raise LaneHeldError(_evidence(name, source, assignment.held[0], known.get(source, Epochs()), mine))
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
        (F.col("topic_id") == F.col("w_topic")) & (F.col("partition") == F.col("w_partition")) & (F.col("offset") < F.col("w_offset"))
        & (F.col("position") == F.col("w_position")) & (F.col("op") == F.col("w_op")) & F.col("row_key").eqNullSafe(F.col("w_key"))
    )  # fmt: skip
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
        f"Take a whole new snapshot, or say that what follows is newer: `lakechime cdc epoch {name} --confirm`"
    )


def _renumbered(spark: SparkSession, told: DataFrame, epochs: Mapping[str, Epochs], assignments: Mapping[str, Assignment]) -> DataFrame:
    """The orders with their epochs, and the fate of what was delivered again."""
    begins = [(*_line(source, partition), 0, epoch) for source, one in epochs.items() for partition, (epoch, _) in one.places.items()]
    again: list[tuple[str, int, int]] = []
    for source, assignment in assignments.items():
        moved = {(source, change.order.topic, change.order.partition) for change in assignment.changes}
        begins = [one for one in begins if one[:3] not in moved]
        first: dict[tuple[str, int, int], int] = {}
        for change in assignment.changes:
            place = change.order.topic, change.order.partition, change.order.epoch
            first[place] = min(first.get(place, change.order.offset), change.order.offset)
        begins += [(source, topic, partition, offset, epoch) for (topic, partition, epoch), offset in first.items()]
        again += [(one.order.topic, one.order.partition, one.order.offset) for one in assignment.delivered_again]
    if again:
        told = _without(spark, told, again)
    if not any(epoch for *_, epoch in begins):
        return told
    topic, partition, offset = (F.get_json_object("order", f"$[{index}]") for index in (3, 4, 5))
    within = [
        F.when((F.col("source") == one[0]) & (topic == one[1]) & (partition == str(one[2])) & (offset.cast("bigint") >= one[3]), one[4])
        for one in begins
        if one[4]
    ]
    epoch = F.greatest(F.lit(0), F.lit(0), *within).cast("string")
    has_order = F.col("order").isNotNull() & F.col("role").isin(Role.CHANGE.value, Role.TRUNCATION.value)
    renumbered = F.concat(F.lit("["), epoch, F.expr("substring(`order`, 3)"))
    return told.withColumn("order", F.when(has_order, renumbered).otherwise(F.col("order")))


def _without(spark: SparkSession, told: DataFrame, again: Sequence[tuple[str, int, int]]) -> DataFrame:
    """The changes of these messages are there before: they are counted."""
    rows = spark.createDataFrame(list(dict.fromkeys(again)), "again_topic string, again_partition int, again_offset bigint")
    same = (
        (F.get_json_object("order", "$[3]") == F.col("again_topic")) & (F.col("partition") == F.col("again_partition"))
        & (F.col("offset") == F.col("again_offset"))
    )  # fmt: skip
    joined = told.join(F.broadcast(rows), same, "left")
    is_again = F.col("again_topic").isNotNull()
    counted = {"fate": F.when(is_again, F.lit(Fate.DELIVERED_AGAIN.value)).otherwise(F.col("fate"))}
    counted |= {"role": F.when(~is_again, F.col("role")), "continues": F.when(~is_again, F.col("continues"))}
    return joined.withColumns(counted).select(*told.columns)


def _places(before: Seen, after: Mapping[str, Epochs], lines: Mapping[Line, tuple[int, int | None]]) -> Iterable[StateRow]:
    """What of the places and the opened epochs is new."""
    for source, epochs in after.items():
        known = before.epochs.get(source, Epochs())
        if epochs.opened > known.opened:
            yield opened_row(source, epochs.opened)
        for partition, place in epochs.places.items():
            line = _line(source, partition)
            told, newest_ms = lines.get(line, (-1, None))
            offset = max(told, before.offsets.get(line, -1))
            times = [one for one in (newest_ms, before.newest_ms.get(source)) if one is not None]
            if place != known.places.get(partition) or offset != before.offsets.get(line):
                yield place_row(source, partition, place, offset, max(times, default=None))


def _line(source: str, partition: tuple[str, int]) -> Line:
    return source, *partition


def _is_line(line: Line) -> Column:
    return reduce(lambda a, b: a & b, [F.col(name) == value for name, value in zip(PARTS, line, strict=True)])
