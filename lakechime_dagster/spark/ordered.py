"""Rows of inputs that a backfill ordered to be taken again: they join what changed, as if their last change were within the range."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.snapshots import Verdict
from lakechime_dagster.lake.reads import ReadMode
from lakechime_dagster.spark.inputs import Input
from lakechime_dagster.spark.job import TableJob
from lakechime_dagster.spark.names import column
from lakechime_dagster.spark.ranges import CHANGE, VERSION, RangeRead, ReadMethod
from lakechime_dagster.triggers.orders import Span, first_day_after

BEFORE = -1  # the version of an ordered row: before every change of the range, which say what the row is since


def with_ordered(job: TableJob, inputs: Sequence[Input]) -> list[Input]:
    """The inputs, with the ordered rows among the images of those whose changes are followed; one that is read whole stays so.

    Of a span whose tables the job does not follow, such as one read as a snapshot, the rows of all inputs read as changes are
    ordered: which of them the table's change reaches is not known.
    """
    spans = [_span_of(job, inputs, one) for one in job.ordered]
    return [_ordered(one, [span for span in spans if one.job.table in span.tables]) for one in inputs]


def ordered_notes(job: TableJob) -> tuple[str, ...]:
    """What was ordered, in words."""
    return tuple(dict.fromkeys(f"taken again for a backfill: {span}" for span in job.ordered))


def _span_of(job: TableJob, inputs: Sequence[Input], span: Span) -> Span:
    followed = [one.job.table for one in inputs if _is_followed(job, one)]
    if set(span.tables) <= set(followed):
        return span
    changing = [one.job.table for one in inputs if one.job.mode is ReadMode.CHANGES]
    return replace(span, tables=tuple(dict.fromkeys((*span.tables, *changing))))


def _is_followed(job: TableJob, one: Input) -> bool:
    rejoined = {other.rejoin for other in job.inputs if other.rejoin}
    return one.job.mode is ReadMode.CHANGES or one.job.alias in rejoined or one.job.table in rejoined


def _ordered(one: Input, spans: Sequence[Span]) -> Input:
    read = one.read
    if not spans or (read is not None and read.images is None):
        return one
    rows = _rows(one.end, spans).withColumns({CHANGE: F.lit(1), VERSION: F.lit(BEFORE).cast("long")})
    if read is None:
        location = one.job.location
        read = RangeRead(location=location, version=one.version, method=ReadMethod.ORDERED, verdict=Verdict.CONTIGUOUS, end=one.end)
        return replace(one, read=replace(read, images=rows))
    assert read.images is not None
    method = ReadMethod.ORDERED if read.method is ReadMethod.NOTHING else read.method
    return replace(one, read=replace(read, method=method, images=read.images.unionByName(rows), only_appends=False, files=()))


def _rows(frame: DataFrame, spans: Iterable[Span]) -> DataFrame:
    conditions = [_is_within(frame, span) for span in spans]
    return frame.where(reduce(lambda one, other: one | other, conditions))


def _is_within(frame: DataFrame, span: Span) -> Column:
    """Whether a row is of the span; of a table without its column each one is, also where that is no time.

    Bounds are read in the time zone of the session, in which the table's days are told too, and not in that of the machine.
    """
    name = next((name for name in frame.columns if span.column is not None and name.lower() == span.column.lower()), None)
    if name is None or not isinstance(frame.schema[name].dataType, DateType | TimestampType | TimestampNTZType):
        return F.lit(True)
    kind, conditions = frame.schema[name].dataType, [F.lit(True)]
    since, until = (None if bound is None else datetime_of_iso(bound) for bound in (span.since, span.until))
    if isinstance(kind, DateType):
        since, until = since and since.date(), until and first_day_after(until)
    if since is not None:
        conditions.append(column(name) >= F.lit(str(since)).cast(kind))
    if until is not None:
        conditions.append(column(name) < F.lit(str(until)).cast(kind))
    return reduce(lambda one, other: one & other, conditions)
