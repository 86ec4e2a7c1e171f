"""The inputs of an execution as its refresh mode reads them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StringType, TimestampNTZType, TimestampType

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.events import PartitionEvents, SnapshotId, TableFormat
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, Verdict
from lakechime_dagster.spark.hive import HiveSource
from lakechime_dagster.spark.iceberg import IcebergSource
from lakechime_dagster.spark.job import InputJob, SourceResult, TableJob
from lakechime_dagster.spark.ranges import (
    CHANGE,
    VERSION,
    DeltaSource,
    RangeRead,
    ReadMethod,
    Source,
    SwitchedSource,
    narrowed,
    net_changes,
    touched,
)
from lakechime_dagster.spark.session import column, comparable_row, grouped_by, is_comparable
from lakechime_dagster.tables.options import ReadMode
from lakechime_dagster.tables.tables import RefreshMode
from lakechime_dagster.triggers.consumers import Committed, Span, first_day_after

if TYPE_CHECKING:
    from lakechime_dagster.formats.delta import DeltaLog
    from lakechime_dagster.formats.hive import HiveLog
    from lakechime_dagster.formats.iceberg import IcebergLog

# gives the same distinct rows without ever computing them twice
Hold = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Input:
    """An input with what its range gave; `read` is None when nothing of it is new.

    `key_columns` are columns of the target that are more than a column of this input of the same
    name.
    """

    job: InputJob
    end: DataFrame
    snapshot: SnapshotId
    read: RangeRead | None
    key_columns: Mapping[str, Column] = field(default_factory=dict)

    @property
    def changes(self) -> DataFrame | None:
        """The changed rows of its range (`RangeRead.changes`)."""
        return None if self.read is None else self.read.changes

    @property
    def is_changed(self) -> bool:
        """Whether rows of it changed that affect the target."""
        return self.read is not None and self.read.method is not ReadMethod.NOTHING

    def source_columns(self, wanted: Sequence[str]) -> dict[str, Column]:
        """For columns of the target, what gives them in this input; those that it has nothing for
        are left out.
        """
        columns = {name: given for name, given in self.key_columns.items() if name in wanted}
        present = {name.lower() for name in self.end.columns}
        return {
            name: columns.get(name, column(name))
            for name in wanted
            if name in columns or name.lower() in present
        }

    def result(self) -> SourceResult | None:
        """How it was read, for the record of the run."""
        range_, read = self.job.range, self.read
        if range_ is None or read is None:
            return None
        return SourceResult(
            alias=self.job.alias,
            table=self.job.table,
            method=read.method.value,
            verdict=read.verdict,
            start=range_.start,
            end=read.snapshot,
            commits=read.commits,
            data_commits=read.data_commits,
            note=read.note,
        )


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which rows of the target an execution answers for: those whose `columns` hold one of the
    values.

    A row of the target in scope that is not computed again is gone. None as `values` is the whole
    target.
    """

    columns: tuple[str, ...] = ()
    values: DataFrame | None = None


@dataclass(frozen=True, kw_only=True)
class Work:
    """The frames to compute on, the scope of the outcome, and whether the whole target is to be
    replaced.

    `narrowed` names the frames that hold changed rows only.
    """

    frames: Mapping[str, DataFrame]
    narrowed: tuple[str, ...] = ()
    scope: Scope | None = None
    replace: bool = False
    notes: tuple[str, ...] = ()


def open_inputs(
    spark: SparkSession, job: TableJob, open_log: Callable[[str, str], "DeltaLog"]
) -> list[Input]:
    """Read the range of every input; `open_log` gives the log of a location and table."""
    rejoined = {one.rejoin for one in job.inputs if one.rejoin}
    opened = []
    for one in job.inputs:
        source = _source(spark, one, open_log)
        given = key_columns_of(spark, job, one)
        reads_changes = (
            one.mode is ReadMode.CHANGES or one.alias in rejoined or one.table in rejoined
        )
        if one.range is not None and reads_changes:
            read = source.read_range(one.range)
            opened.append(Input(one, read.end, read.snapshot, read, given))
            continue
        at = one.range.end if one.range is not None else one.pinned
        end, snapshot = source.read_snapshot(at)
        opened.append(Input(one, end, snapshot, None, given))
    return opened


def _source(
    spark: SparkSession, one: InputJob, open_log: Callable[[str, str], "DeltaLog"]
) -> Source:
    """How an input is read."""
    log = one.log if one.log is not None else open_log(one.location, one.table)
    source = source_of(spark, log, one.events)
    if one.switched is not None and one.events is not None:
        return SwitchedSource(spark, source, one.switched, one.events)
    return source


def source_of(
    spark: SparkSession,
    log: "DeltaLog | IcebergLog | HiveLog",
    events: PartitionEvents | None = None,
) -> Source:
    """How a table is read, by its format; `events` are those of `HiveSource`."""
    if log.table_format is TableFormat.HIVE:
        return HiveSource(spark, log, events)
    if log.table_format is TableFormat.ICEBERG:
        return IcebergSource(spark, log)
    return DeltaSource(spark, log)


def key_columns_of(spark: SparkSession, job: TableJob, one: InputJob) -> dict[str, Column]:
    """The columns of the target that an input gives by other names, or by terms of the job's
    SQL.
    """
    if job.sql is not None and one.key_columns:
        return grouped_by(spark, job.sql, one.key_columns)
    return {name: column(own) for name, given in one.key_columns.items() for own in given.values()}


def whole(inputs: Sequence[Input], note: str = "") -> Work:
    """Compute everything and replace the target."""
    return Work(frames=_ends(inputs), replace=True, notes=(note,) if note else ())


def fallback_note(inputs: Sequence[Input]) -> str:
    """Why nothing may be read incrementally, or "" if it may."""
    broken = [one for one in inputs if one.read is not None and one.read.must_replace]
    return "; ".join(
        f"{one.job.table} is {one.read.verdict.value} ({one.read.note}): read whole, and the "
        f"target is replaced"
        for one in broken
        if one.read
    )


def reread_note(job: TableJob, inputs: Sequence[Input], last: Committed | None) -> str:
    """Why increments do not fit what the target holds of its consumer, whose last commit there is
    `last`; "" where they do.
    """
    if last is None:
        lost = (
            f"{job.name} no longer holds what its consumer has committed: all is read, and the "
            f"target is replaced"
        )
        return lost if job.has_committed else ""
    end = last.commit_metadata.end
    again = [
        one.job.table
        for one in inputs
        if is_from_nothing(job, one)
        and (last.is_commit_metadata_lost or one.job.table in end.sources)
    ]
    if again:
        return f"{', '.join(again)} is read again from the beginning: the target is replaced"
    if (
        job.keys
        or job.refresh is not RefreshMode.ROWS
        or job.start is None
        or job.start.position >= end.position
    ):
        return ""
    rewound = [one.job.table for one in inputs if one.is_changed and one.job.table in end.sources]
    return (
        f"{', '.join(rewound)} is read again, and the target has no keys: it is replaced"
        if rewound
        else ""
    )


def is_from_nothing(job: TableJob, one: Input) -> bool:
    """Whether the checkpoint of the consumer has nothing of an input that is read."""
    if one.read is None or job.start is None:
        return one.read is not None and one.read.is_first
    return job.start.sources.get(one.job.table, SnapshotCheckpoint()).snapshot_id is None


def rows_work(job: TableJob, inputs: Sequence[Input], hold: Hold) -> Work:
    """The changed rows of each input read as changes, with those that it rejoins, and the keys that
    they answer for.
    """
    if not job.keys:
        stale = [
            one
            for one in inputs
            if one.is_changed
            and one.changes is not None
            and one.read
            and (one.read.repeat or not one.read.only_appends)
        ]
        if stale:
            return whole(
                inputs,
                f"{stale[0].job.table} changed rows, which a target without keys cannot merge: it "
                f"is replaced",
            )
    elif any(one.read is not None and one.read.partitions is not None for one in inputs):
        # what their rows were is not known: the target's rows of these partitions are computed again
        if any(one.job.rejoin for one in inputs):
            return whole(inputs, "partitions of a rejoined table changed: all rows are computed")
        return groups_work(inputs, job.keys, hold)
    frames = _ends(inputs)
    narrow: list[str] = []
    scopes: list[tuple[tuple[str, ...], DataFrame | None]] = []
    for one in inputs:
        if one.job.mode is not ReadMode.CHANGES:
            continue
        partner = _partner(inputs, one)
        if (one.read is not None and one.read.is_first) or (
            partner and partner.read and partner.read.is_first and one.read is None
        ):
            # from nothing: all of it is new, and the target has no row of it (`reread_note`)
            continue
        mapping = one.source_columns(job.keys)
        if job.keys and not mapping and one.read is not None and not one.read.only_appends:
            return whole(
                inputs,
                f"{one.job.table} changed rows, and none of the target's keys is among its "
                f"columns: it is replaced",
            )
        frame, values = _changed_rows(one, partner, mapping, hold)
        frames[one.job.alias] = frame
        narrow.append(one.job.alias)
        if values is not None:
            scopes.append((tuple(mapping), values))
    return Work(frames=frames, scope=_common(scopes, hold), narrowed=tuple(narrow))


def groups_work(inputs: Sequence[Input], columns: Sequence[str], hold: Hold) -> Work:
    """All rows of the groups, by the target's columns, that any input's range touched."""
    scopes: list[tuple[tuple[str, ...], DataFrame | None]] = []
    for one in inputs:
        read = one.read
        if (
            read is None
            or one.job.mode is not ReadMode.CHANGES
            or read.method is ReadMethod.NOTHING
        ):
            continue
        changed, mapping = read.changes, one.source_columns(columns)
        if read.partitions is not None:
            changed, mapping = read.partitions, _given_by(read.partitions, mapping)
        if changed is None or not mapping:
            of = "" if read.partitions is None else "partition "
            why = (
                "is read from nothing"
                if changed is None
                else f"has no {of}column for {', '.join(columns)}"
            )
            return whole(inputs, f"{one.job.table} {why}: all groups are computed")
        scopes.append(
            (
                tuple(mapping),
                hold(touched(changed, [source.alias(name) for name, source in mapping.items()])),
            )
        )
    if not scopes:
        nothing = inputs[0].end.select(*[F.lit(None).alias(name) for name in columns]).limit(0)
        return Work(
            frames=_within(inputs, empty := Scope(columns=tuple(columns), values=nothing)),
            scope=empty,
        )
    scope = _common(scopes, hold)
    if scope is None:
        return whole(inputs, "its inputs share no group column: all groups are computed")
    return Work(frames=_within(inputs, scope), scope=scope)


def _given_by(values: DataFrame, mapping: Mapping[str, Column]) -> dict[str, Column]:
    """Those columns of the target that these columns of an input alone give."""
    given = {}
    for name, source in mapping.items():
        with suppress(AnalysisException):  # it needs another column
            values.select(source)
            given[name] = source
    return given


def within_partitions(inputs: Sequence[Input], scope: Scope) -> Work:
    """All rows of given groups or partitions, whatever the ranges touched."""
    return Work(frames=_within(inputs, scope), scope=scope)


def _within(inputs: Sequence[Input], scope: Scope) -> dict[str, DataFrame]:
    """Each input narrowed to the scope, where it has all columns of it and is read as changes; the
    others whole.
    """
    frames = _ends(inputs)
    for one in inputs:
        mapping = one.source_columns(scope.columns)
        if (
            one.job.mode is ReadMode.CHANGES
            and scope.values is not None
            and set(mapping) == set(scope.columns)
        ):
            frames[one.job.alias] = narrowed(one.end, _with_empty(scope.values), mapping)
    return frames


def _with_empty(values: DataFrame) -> DataFrame:
    """The values with both null and the empty string where there is either: a partition of the
    target holds the rows of both.
    """
    for given in values.schema:
        if isinstance(given.dataType, StringType):
            value = column(given.name)
            both = F.array(F.lit(None).cast("string"), F.lit(""))
            is_none = F.coalesce(value == "", F.lit(True))
            values = values.withColumn(
                given.name, F.explode(F.when(is_none, both).otherwise(F.array(value)))
            )
    return values


def _changed_rows(
    one: Input, partner: Input | None, mapping: Mapping[str, Column], hold: Hold
) -> tuple[DataFrame, DataFrame | None]:
    """The rows of an input to compute again at the end snapshot, and the target keys of all that
    changed.
    """
    named = {f"__key_{i}": source for i, source in enumerate(mapping.values())}
    end = one.end.withColumns(named)
    keys = list(named)
    changes = None if one.changes is None else one.changes.withColumns(named)
    values = None if changes is None or not keys else hold(changes.select(*keys).distinct())
    frame = end.limit(0) if changes is None else _net_rows(one, end, changes, values)
    if (
        partner is not None
        and partner.read is not None
        and partner.read.method is not ReadMethod.NOTHING
    ):
        on = list(one.job.on)
        partner_rows = partner.end if partner.changes is None else partner.changes
        again = narrowed(
            end,
            touched(partner_rows, [column(name) for name in on]),
            {name: column(name) for name in on},
        )
        again_keys = again.select(*keys).distinct()
        known = values
        values = hold(again_keys if known is None else known.union(again_keys).distinct())
        if known is not None:
            condition = reduce(
                lambda a, b: a & b, [again[key].eqNullSafe(known[key]) for key in keys]
            )
            again = again.join(known, condition, "left_anti")
        frame = frame.unionByName(again)
    renamed = None if values is None else values.toDF(*mapping)
    return frame.drop(*keys), renamed


def _net_rows(
    one: Input, end: DataFrame, changes: DataFrame, values: DataFrame | None
) -> DataFrame:
    """What the changed rows of an input, whose target keys are the `values`, are at the end
    snapshot.

    Where its writer guarantees the key, the change feed has the net rows. Else rows with a changed
    key are looked up in the end snapshot, since a row that did not change may share the key; rows
    without a key are taken as they are.
    """
    read = one.read
    assert read is not None
    columns = [column(name) for name in end.columns]
    if read.only_appends:
        return changes.where(F.col(CHANGE) == 1).select(*columns)
    if one.job.keys and set(one.job.keys) <= set(one.end.columns):
        return net_changes(changes, one.job.keys)[0].select(*columns)
    assert values is not None  # changed rows are merged by key, or not at all
    keys = values.columns
    has_key = reduce(lambda a, b: a & b, [F.col(key).isNotNull() for key in keys])
    found = narrowed(end, values.where(has_key), {key: F.col(key) for key in keys})
    keyless, whole_row = changes.where(~has_key), end.columns
    if not is_comparable(end.schema):
        keyless, whole_row = (
            keyless.withColumn("__row", comparable_row(keyless, end.columns)),
            ["__row"],
        )
    return found.unionByName(net_changes(keyless, whole_row)[0].select(*columns))


def _partner(inputs: Sequence[Input], one: Input) -> Input | None:
    if one.job.rejoin is None:
        return None
    return next(other for other in inputs if one.job.rejoin in (other.job.alias, other.job.table))


def _common(scopes: Sequence[tuple[tuple[str, ...], DataFrame | None]], hold: Hold) -> Scope | None:
    """One scope over the columns that all of these, whose values are held, have; None when there
    are none.
    """
    given = [(columns, values) for columns, values in scopes if values is not None]
    if not given:
        return None
    shared = [name for name in given[0][0] if all(name in columns for columns, _ in given)]
    if not shared:
        return None
    if len(given) == 1:
        return Scope(columns=given[0][0], values=given[0][1])
    frames = [values.select(*[column(name) for name in shared]) for _, values in given]
    return Scope(
        columns=tuple(shared), values=hold(reduce(lambda a, b: a.union(b), frames).distinct())
    )


def _ends(inputs: Sequence[Input]) -> dict[str, DataFrame]:
    return {one.job.alias: one.end for one in inputs}


BEFORE = -1  # the version of an ordered row: before every change of the range


def with_ordered(job: TableJob, inputs: Sequence[Input]) -> list[Input]:
    """The inputs, with the ordered rows among the changes of those that are read as changes; one
    that is read whole stays so.

    Of a span whose tables the job does not read as changes, such as one read as a snapshot, the
    rows of all inputs read as changes are ordered: which of them the table's change reaches is not
    known.
    """
    spans = [_span_of(job, inputs, one) for one in job.ordered]
    return [
        _ordered(one, [span for span in spans if one.job.table in span.tables]) for one in inputs
    ]


def ordered_notes(job: TableJob) -> tuple[str, ...]:
    """What was ordered, in words."""
    return tuple(dict.fromkeys(f"taken again for a backfill: {span}" for span in job.ordered))


def _span_of(job: TableJob, inputs: Sequence[Input], span: Span) -> Span:
    changing_inputs = [one.job.table for one in inputs if _reads_changes(job, one)]
    if set(span.tables) <= set(changing_inputs):
        return span
    changing = [one.job.table for one in inputs if one.job.mode is ReadMode.CHANGES]
    return replace(span, tables=tuple(dict.fromkeys((*span.tables, *changing))))


def _reads_changes(job: TableJob, one: Input) -> bool:
    rejoined = {other.rejoin for other in job.inputs if other.rejoin}
    return (
        one.job.mode is ReadMode.CHANGES or one.job.alias in rejoined or one.job.table in rejoined
    )


def _ordered(one: Input, spans: Sequence[Span]) -> Input:
    read = one.read
    if not spans or (read is not None and read.changes is None):
        return one
    rows = _rows(one.end, spans).withColumns(
        {CHANGE: F.lit(1), VERSION: F.lit(BEFORE).cast("long")}
    )
    if read is None:
        read = RangeRead(
            snapshot=one.snapshot,
            method=ReadMethod.ORDERED,
            verdict=Verdict.CONTIGUOUS,
            end=one.end,
        )
        return replace(one, read=replace(read, changes=rows))
    assert read.changes is not None
    method = ReadMethod.ORDERED if read.method is ReadMethod.NOTHING else read.method
    partitions = read.partitions
    if partitions is not None:
        named = [column(name) for name in partitions.columns]
        partitions = partitions.union(rows.select(*named)).distinct()
    return replace(
        one,
        read=replace(
            read,
            method=method,
            changes=read.changes.unionByName(rows),
            only_appends=False,
            partitions=partitions,
            files=(),
        ),
    )


def _rows(frame: DataFrame, spans: Iterable[Span]) -> DataFrame:
    conditions = [_is_within(frame, span) for span in spans]
    return frame.where(reduce(lambda one, other: one | other, conditions))


def _is_within(frame: DataFrame, span: Span) -> Column:
    """Whether a row is of the span; of a table without its column each one is, also where that is
    no time.

    Bounds are read in the time zone of the session, in which the table's days are too, and not in
    that of the machine.
    """
    name = next(
        (
            name
            for name in frame.columns
            if span.column is not None and name.lower() == span.column.lower()
        ),
        None,
    )
    if name is None or not isinstance(
        frame.schema[name].dataType, DateType | TimestampType | TimestampNTZType
    ):
        return F.lit(True)
    kind, conditions = frame.schema[name].dataType, [F.lit(True)]
    since, until = (
        None if bound is None else datetime_of_iso(bound) for bound in (span.since, span.until)
    )
    if isinstance(kind, DateType):
        since, until = since and since.date(), until and first_day_after(until)
    if since is not None:
        conditions.append(column(name) >= F.lit(str(since)).cast(kind))
    if until is not None:
        conditions.append(column(name) < F.lit(str(until)).cast(kind))
    return reduce(lambda one, other: one & other, conditions)
