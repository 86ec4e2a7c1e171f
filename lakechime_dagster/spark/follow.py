"""Brings a table up to what its database's table is: reads the new messages, merges their changes, and commits twice.

First what is to be remembered of the changes, which decides the range of the step, then the table. Both commits carry the
lane and the step. What was remembered is read as of before the step, so that every attempt at it computes the same.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import orjson
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lakechime_dagster.cdc.drift import Evolution, evolved, widened
from lakechime_dagster.cdc.merging import Fate
from lakechime_dagster.cdc.order import Order
from lakechime_dagster.cdc.readers import reader_of
from lakechime_dagster.cdc.snapshot import MARKS, Snapshots
from lakechime_dagster.cdc.state import COLUMNS, Role, StateRow, change_of, change_row
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lake.change_tables import STATE
from lakechime_dagster.spark.change_job import ChangeJob
from lakechime_dagster.spark.change_rows import (
    GROUPED_DDL,
    HIDDEN,
    MESSAGE,
    TOLD_DDL,
    KeyColumns,
    Merging,
    OnBatches,
    Reading,
    TargetImages,
    What,
    merged_ddl,
    schema_name,
    schema_text,
)
from lakechime_dagster.spark.commit import (
    Target,
    append,
    append_nothing,
    commit,
    commit_at,
    create_if_missing,
    is_own,
    merge,
    newest_commit,
    replace_all,
)
from lakechime_dagster.spark.compare import OPERATION
from lakechime_dagster.spark.job import Counts, Outcome, SourceResult, TableResult
from lakechime_dagster.spark.names import column
from lakechime_dagster.spark.narrow import narrowed
from lakechime_dagster.spark.phases import Phases
from lakechime_dagster.spark.quarantine import quarantine, quarantine_location
from lakechime_dagster.spark.ranges import CHANGE, RangeRead, read_range
from lakechime_dagster.spark.refresh import OpenLog, skipped
from lakechime_dagster.spark.sift import REASON
from lakechime_dagster.triggers.lanes import CommitStamp, Committed

STATE_COLUMNS = [name for name in COLUMNS if name != "step"]
TARGET_PROPERTIES = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
STATE_PROPERTIES: Mapping[str, str] = {}


def follow(spark: SparkSession, job: ChangeJob, stamp: CommitStamp, open_log: OpenLog) -> TableResult:
    """One attempt at one step: merge the changes of the range and commit the outcome under the stamp, at most once ever.

    An attempt that finds the step remembered by another one takes that one's range.

    Args:
        spark: The session; its confs are as before when this returns.
        job: What to read and how to merge.
        stamp: Lane, step, attempt and the end that the commits will record.
        open_log: Gives the log of a table by location and table name, such as `capture.delta.DeltaLog`.

    Raises:
        LaneConflictError: the lane has moved on.
        TableUnreadableError: the bronze table, or the snapshot to read of it, is not there.
        DeclarationError: the columns changed in a way that the declaration does not allow.
    """
    keys, state_location = job.merge.keys, job.location.rstrip("/") + STATE
    target = Target(name=job.name, location=job.location, log=open_log(job.location, job.name), keys=keys, comment=job.comment)
    state = Target(name=job.name + STATE, location=state_location, log=open_log(state_location, job.name + STATE))
    while True:
        last = newest_commit(target, stamp)
        if last and last.stamp.step == stamp.step:
            return skipped(last)
        decided = newest_commit(state, stamp)
        if decided and decided.stamp.step == stamp.step and not decided.is_stamp_lost:
            stamp = replace(stamp, end=decided.stamp.end)
        with Step(spark, job, stamp, target, state, open_log) as step:
            result = step.run()
        if result is not None:
            return result


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What of some changes concerns more than their own keys: schemas, key changes, truncations, ends of snapshots."""

    types: tuple[Mapping[str, str], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    truncations: tuple[StateRow, ...] = ()
    marks: tuple[StateRow, ...] = ()
    fates: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Step:
    """The frames of one attempt; what it keeps in memory is let go when it ends."""

    spark: SparkSession
    job: ChangeJob
    stamp: CommitStamp
    target: Target
    state: Target
    open_log: OpenLog
    held: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self._phase = Phases(self.spark, self.job.name)

    def __enter__(self) -> "Step":
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()

    def run(self) -> TableResult | None:
        """The attempt's result; None when another attempt remembered the step first, with another end."""
        with self._phase("read"):
            read = self._read()
            is_new = read.images is None
            rows = read.end if read.images is None else read.images.where(F.col(CHANGE) == 1)
            told = self._keep(self._told(rows))
            seen, known = _seen(told), Seen() if is_new else self._remembered()
        with self._phase("merge"):
            evolution = self._evolution(seen, is_new)
            conflicting = told.where(_conflicting(seen, evolution)) if evolution.conflicts else None
            good = told if conflicting is None else told.where(~_conflicting(seen, evolution))
            ended = _ended(seen, known)
            found = self._keep(self._merged(good, seen, known, ended, evolution, is_new))
            counted = {(row["what"], row["operation"]): row["rows"] for row in _counted(found)}
        with self._phase("quarantine"):
            bad = _bad(told, conflicting, found)
            quarantined = seen.fates.get(Fate.QUARANTINED, 0) + counted.get((What.REFUSED, None), 0)
            quarantined += conflicting.count() if conflicting is not None else 0
            if quarantined:
                self._quarantine(bad)
        with self._phase("remember"):
            committed = self._remember(found, seen, ended, counted.get((What.STATE, None), 0), is_new)
            if committed is not None and committed.stamp.end != self.stamp.end and not committed.is_stamp_lost:
                return None
        with self._phase("write"):
            held = self._write(found, counted, evolution, is_new)
        fates = dict(seen.fates) | {Fate.QUARANTINED.value: quarantined}
        for fate in Fate:
            fates[fate.value] = fates.get(fate.value, 0) + (counted.get((What.FATE, fate.value), 0) if fate is not Fate.QUARANTINED else 0)
        return self._result(read, held, counted, fates, quarantined, evolution)

    # Reading

    def _read(self) -> RangeRead:
        """The range of the bronze table up to the end that the stamp records."""
        bronze, end = self.job.bronze, self.stamp.end.sources.get(self.job.bronze.table)
        range_ = bronze.range
        if range_ is None:
            raise DeclarationError(self.job.name, "range", f"has nothing to read of {bronze.table}")
        if end is not None and end.snapshot_id is not None:
            range_ = replace(range_, end=end.snapshot_id, table_uid=end.table_uid)
        return read_range(self.spark, self.open_log(bronze.location, bronze.table), range_)

    def _told(self, rows: DataFrame) -> DataFrame:
        merge_, types = self.job.merge, dict(self.job.types)
        reading = Reading(
            out=_arrow(TOLD_DDL), reader=partial(reader_of, self.job.envelope, merge_.keys, types),
            ignores_truncates=not merge_.apply_as_truncates, ignores_nulls=merge_.ignore_null_updates,
        )  # fmt: skip
        return on_batches(rows.select(*MESSAGE), reading, TOLD_DDL)

    def _remembered(self) -> Seen:
        return _seen(self._state()) if self.state.log.exists() else Seen()

    def _state(self) -> DataFrame:
        """What was remembered before the step."""
        return self.state.read(self.spark).where(F.col("step") < self.stamp.step)

    def _evolution(self, seen: Seen, is_new: bool) -> Evolution:
        known = {} if is_new or not self.target.log.exists() else _columns(self.target.read(self.spark).schema)
        evolution = evolved(known, seen.types, self.job.on_drift)
        if evolution.refused:
            raise DeclarationError(self.job.name, "on_drift", "; ".join(evolution.refused))
        return evolution

    # Merging

    def _merged(self, told: DataFrame, seen: Seen, known: Seen, ended: Sequence[StateRow], evolution: Evolution, is_new: bool) -> DataFrame:
        """The changes of each key, merged with what is known of it and of all keys that continue it."""
        new = told.where(F.col("role") == Role.CHANGE.value)
        new = new.select(F.col("key").alias("group"), *STATE_COLUMNS, F.lit(True).alias("is_new"), "topic", "partition", "offset")
        groups = self._groups([*seen.links, *known.links])
        rows = [new]
        has_target, has_state = (not is_new and table.log.exists() for table in (self.target, self.state))
        if has_target or has_state:
            touched = None if [*seen.truncations, *ended] else self._keep(_touched(new, groups))
            if has_state:
                rows.append(self._state_rows(touched))
            if has_target:
                rows.append(self._target_rows(touched, evolution))
        together = reduce(lambda a, b: a.unionByName(b), rows)
        if groups is not None:
            named = groups.withColumnRenamed("member", "key").withColumnRenamed("group", "linked")
            together = together.join(F.broadcast(named), "key", "left").withColumn("group", F.coalesce("linked", "group")).drop("linked")
        ends = [*seen.truncations, *known.truncations, *ended]
        truncated: dict[str, frozenset[Order]] = {}
        for one in map(change_of, ends):
            truncated[one.source] = truncated.get(one.source, frozenset()) | {one.order}
        ddl = merged_ddl({**evolution.columns, HIDDEN: "string"})
        merging = Merging(out=_arrow(ddl), keys=self.job.merge.keys, truncated=truncated)
        sorted_ = together.select(*struct_of(GROUPED_DDL).names).repartition("group").sortWithinPartitions("group")
        return on_batches(sorted_, merging, ddl)

    def _groups(self, links: Sequence[tuple[str, str]]) -> DataFrame | None:
        """Of each key that continues another one, or is continued, the group that is merged together."""
        if not links:
            return None
        return self.spark.createDataFrame(list(components(links).items()), "member string, `group` string")

    def _state_rows(self, touched: DataFrame | None) -> DataFrame:
        rows = self._state().where(F.col("role").isin(Role.BASE.value, Role.CHANGE.value))
        rows = rows if touched is None else rows.join(touched, "key", "left_semi")
        return rows.select(F.col("key").alias("group"), *STATE_COLUMNS, F.lit(False).alias("is_new"), *_no_coordinates())

    def _target_rows(self, touched: DataFrame | None, evolution: Evolution) -> DataFrame:
        rows, keys = self.target.read(self.spark), self.job.merge.keys
        if touched is not None:
            ddl = _ddl({name: evolution.columns[name] for name in keys})
            values = self._keep(on_batches(touched.select("key"), KeyColumns(_arrow(ddl)), ddl))
            rows = narrowed(rows, values, {name: column(name) for name in keys})
        return on_batches(rows, TargetImages(_arrow(GROUPED_DDL), keys), GROUPED_DDL)

    # Writing

    def _remember(self, found: DataFrame, seen: Seen, ended: Sequence[StateRow], count: int, is_new: bool) -> Committed | None:
        """Commit what is to be remembered; None where there is nothing."""
        others = [*seen.truncations, *ended, *(one._replace(role=Role.MARK.value, columns=None) for one in seen.marks)]
        if not others and not count:
            return None
        rows = found.where(F.col("what") == What.STATE).select(*STATE_COLUMNS)
        if others:
            schema = struct_of(_ddl({name: COLUMNS[name] for name in STATE_COLUMNS}))
            rows = rows.unionByName(self.spark.createDataFrame([tuple(one) for one in others], schema))
        rows = rows.withColumn("step", F.lit(self.stamp.step).cast("long")).select(*COLUMNS)
        create_if_missing(self.spark, self.state, rows.schema, STATE_PROPERTIES)
        write = replace_all if is_new else append
        return commit(self.spark, self.state, self.stamp, lambda: lambda: write(rows, self.state))

    def _write(
        self, found: DataFrame, counted: Mapping[tuple[str, str | None], int], evolution: Evolution, is_new: bool
    ) -> Committed | None:
        """The one commit of the table; None where it holds all already."""
        schema = struct_of(_ddl({**evolution.columns, HIDDEN: "string"}))
        if not evolution.columns:
            return None
        create_if_missing(self.spark, self.target, schema, TARGET_PROPERTIES)
        changes = found.where((F.col("what") == What.ROW) & (F.col("operation") != "="))
        changes = changes.select("row.*", F.col("operation").alias(OPERATION))
        has_rows = any(counted.get((What.ROW, operation), 0) for operation in "IUD")

        def prepare() -> Any:
            if is_new and _has_rows(self.target):
                return lambda: replace_all(changes.drop(OPERATION), self.target)
            if evolution.widened:
                return lambda: replace_all(self._rewritten(changes, schema), self.target)
            if has_rows or (evolution.added and not is_new):
                return lambda: merge(self.spark, self.target, changes, is_bounded=True)
            return None if self.job.may_settle_empty else lambda: append_nothing(self.spark, self.target)

        return commit(self.spark, self.target, self.stamp, prepare)

    def _rewritten(self, changes: DataFrame, schema: StructType) -> DataFrame:
        """All rows in the types that the columns have now: no reader needs to know how Delta widens a column in place."""
        now, keys = self.target.read(self.spark), list(self.job.merge.keys)
        there = {one.name for one in now.schema}
        cast = [(column(one.name) if one.name in there else F.lit(None)).cast(one.dataType).alias(one.name) for one in schema]
        stays = now.select(*cast).join(changes.select(*map(column, keys)), keys, "left_anti").select(*map(column, schema.names))
        return stays.unionByName(changes.where(F.col(OPERATION) != "D").drop(OPERATION))

    def _quarantine(self, bad: DataFrame) -> None:
        location, name = quarantine_location(self.job.location), f"{self.job.name}__quarantine"
        table = Target(name=name, location=location, log=self.open_log(location, name), comment=f"Changes that {self.job.name} refused")
        quarantine(self.spark, table, self.stamp, bad)

    def _result(
        self, read: RangeRead, held: Committed | None, counted: Mapping[tuple[str, str | None], int], fates: Mapping[str, int],
        quarantined: int, evolution: Evolution,
    ) -> TableResult:  # fmt: skip
        if held is not None and not is_own(held, self.stamp):
            return skipped(held)
        inserted, updated, deleted, unchanged = (counted.get((What.ROW, operation), 0) for operation in "IUD=")
        counts = Counts(
            rows_in=sum(fates.values()), returned=inserted + updated + deleted + unchanged + quarantined, inserted=inserted,
            updated=updated, deleted=deleted, unchanged=unchanged, quarantined=quarantined,
        )  # fmt: skip
        record = commit_at(self.target.log, int(held.version)) if held is not None else None
        outcome = Outcome.NOTHING if held is None else Outcome.COMMITTED if counts.changed or evolution.added else Outcome.FENCED
        bronze, range_ = self.job.bronze, self.job.bronze.range
        source = SourceResult(
            alias=bronze.alias, table=bronze.table, method=read.method.value, verdict=read.verdict, start=range_.start if range_ else None,
            end=str(read.version), commits=read.commits, data_commits=read.data_commits, note=read.note,  # type: ignore[arg-type]
        )  # fmt: skip
        return TableResult(
            outcome=outcome, committed=held, counts=counts, sources=(source,), events={name: n for name, n in fates.items() if n},
            partitions=record.partitions if record else (), files=len(record.added) if record else 0,
            bytes=sum(file.size for file in record.added) if record else 0, schema=tuple(evolution.columns.items()),
            seconds=dict(self._phase.seconds), notes=_notes(evolution),
        )  # fmt: skip

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.held.callback(kept.unpersist)
        return kept


def on_batches(rows: DataFrame, function: OnBatches, ddl: str) -> DataFrame:
    """The rows that a plain function over Arrow's batches makes of these."""
    return rows.mapInArrow(function, ddl)  # type: ignore[arg-type]


def components(links: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Of each linked key the group that it is in, named by one of its keys."""
    parents: dict[str, str] = {}

    def root(key: str) -> str:
        while (parent := parents.setdefault(key, key)) != key:
            parents[key] = parents[parent]
            key = parents[key]
        return key

    for one, other in links:
        first, second = sorted((root(one), root(other)))
        parents[second] = first
    return {key: root(key) for key in list(parents)}


def _seen(rows: DataFrame) -> Seen:
    """What of rows that tell or remember changes concerns more than their keys; of those that tell, their fates too."""
    told = "fate" in rows.columns
    one = F.struct(*STATE_COLUMNS)
    is_truncation = F.col("role") == Role.TRUNCATION.value
    is_mark = (
        (F.col("role") == Role.MARK.value) | ((F.col("op") == "r") & F.col("snapshot").isin(*MARKS)) if told else F.col("role") == "mark"
    )
    measures = [
        F.collect_list(F.when(F.col("continues").isNotNull(), F.struct("key", "continues"))).alias("links"),
        F.collect_list(F.when(is_truncation & ((F.col("fate") == Fate.APPLIED.value) if told else F.lit(True)), one)).alias("truncations"),
        F.collect_list(F.when(is_mark, one)).alias("marks"),
    ]
    if told:
        measures += [F.collect_set("types").alias("types")]
        measures += [F.count_if(F.col("fate") == fate.value).alias(fate.value) for fate in Fate]
        measures += [F.count_if(F.col("fate").isNull()).alias("changes")]
    found = rows.agg(*measures).collect()[0]
    return Seen(
        types=tuple(orjson.loads(text) for text in found["types"]) if told else (),
        links=tuple({(link["key"], link["continues"]) for link in found["links"]}),
        truncations=tuple(StateRow(*row) for row in found["truncations"]),
        marks=tuple(StateRow(*row) for row in found["marks"]),
        fates={fate.value: found[fate.value] for fate in Fate} if told else {},
    )


def _ended(seen: Seen, known: Seen) -> list[StateRow]:
    """The truncations that snapshots mean which are complete now."""
    before, _ = Snapshots().with_changes(map(change_of, known.marks))
    _, complete = before.with_changes(map(change_of, seen.marks))
    return [change_row(change, Role.TRUNCATION) for change in complete]


def _touched(new: DataFrame, groups: DataFrame | None) -> DataFrame:
    """The keys of new changes, and all that are merged together with one."""
    keys = new.select("key").distinct()
    if groups is None:
        return keys
    members = groups.join(groups.join(keys.withColumnRenamed("key", "member"), "member").select("group").distinct(), "group", "left_semi")
    return keys.union(members.select(F.col("member").alias("key"))).distinct()


def _conflicting(seen: Seen, evolution: Evolution) -> Column:
    """Whether a change is of a schema of which the table cannot hold a column."""
    bad = []
    for types in seen.types:
        for name in evolution.conflicts:
            holds = evolution.columns.get(name)
            if name in types and (holds is None or widened(holds, types[name]) != holds):
                bad.append(dict(types))
                break
    names = [schema_name(schema_text(one)) for one in bad]
    return F.coalesce(F.col("schema").isin(names) & F.col("columns").isNotNull(), F.lit(False))


def _bad(told: DataFrame, conflicting: DataFrame | None, found: DataFrame) -> DataFrame:
    """What is quarantined, with the reason: a message that cannot be read, a change that does not fit or that was refused."""
    names = ["topic", "partition", "offset", "key", "message", REASON]
    unreadable = told.where(F.col("fate") == Fate.QUARANTINED.value).withColumn(REASON, F.col("reason")).select(*names)
    refused = found.where(F.col("what") == What.REFUSED)
    refused = refused.withColumn("message", F.col("columns")).withColumn(REASON, F.col("reason")).select(*names)
    bad = unreadable.unionByName(refused)
    if conflicting is not None:
        why = F.lit("its columns are of types that the table cannot hold: ")
        told_as = conflicting.withColumn("message", F.col("columns")).withColumn(REASON, F.concat(why, F.coalesce("types", "schema")))
        bad = bad.unionByName(told_as.select(*names))
    return bad


def _counted(found: DataFrame) -> list[Any]:
    """Rows by what they are; of fates how often each was met."""
    rows = F.when(F.col("what") == What.FATE, F.sum("count")).otherwise(F.count(F.lit(1))).alias("rows")
    return found.groupBy("what", "operation").agg(rows).collect()


def _has_rows(target: Target) -> bool:
    return target.log.version > 0


def _notes(evolution: Evolution) -> tuple[str, ...]:
    notes = [f"column {name} was added, as {ddl}" for name, ddl in evolution.added.items()]
    notes += [f"column {name} was widened to {ddl}; all rows were written anew" for name, ddl in evolution.widened.items()]
    notes += [f"column {name}: {why}" for name, why in evolution.conflicts.items()]
    return tuple(notes)


def _columns(schema: StructType) -> dict[str, str]:
    return {one.name: one.dataType.simpleString() for one in schema if one.name != HIDDEN}


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name.replace('`', '``')}` {ddl}" for name, ddl in columns.items())


def _arrow(ddl: str) -> pa.Schema:
    return to_arrow_schema(struct_of(ddl))


def struct_of(ddl: str) -> StructType:
    """The schema of a list of columns."""
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def _no_coordinates() -> list[Column]:
    return [F.lit(None).cast(kind).alias(name) for name, kind in (("topic", "string"), ("partition", "int"), ("offset", "bigint"))]
