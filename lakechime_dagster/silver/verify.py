"""Compares typed tables with the events of their stream."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from zlib import crc32

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.silver.results import Example, Fault, TypeResult, Verified, value_faults
from lakechime_dagster.silver.rows import rows_of
from lakechime_dagster.silver.schema import NOWHERE, KnownType, TypeCheckpoint
from lakechime_dagster.silver.slices import Slices, TypeTables, of_types
from lakechime_dagster.silver.store import SqlEventTypes
from lakechime_dagster.spark.driver import described
from lakechime_dagster.spark.inputs import source_of
from lakechime_dagster.spark.session import in_threads

MAX_EXAMPLES = 10  # of each fault of a type
SAMPLED_TYPES = 4  # of which an execution compares rows with their events
SAMPLED_ROWS = 10  # of each
AT_ONCE = 4  # tables that are looked at at a time


@dataclass(frozen=True, kw_only=True)
class _Pinned:
    """A snapshot of a type's table, and the version of the stream's table up to which it holds its
    events.
    """

    snapshot: SnapshotId
    checkpoint: TypeCheckpoint


@dataclass(frozen=True, kw_only=True)
class GroupVerifier:
    """Looks at types of a group.

    Attributes:
        discarded: Events of each type that contracts discarded and no replay brought back, as its
            executions counted.
        sample: Rows of a type of which each value is looked at.
        seed: By which these are chosen: the same ones with the same seed.
    """

    spark: SparkSession
    slices: Slices
    tables: TypeTables
    repository: SqlEventTypes
    discarded: Mapping[str, int] = field(default_factory=dict)
    sample: int = 100
    seed: int = 0

    def verified(self, names: set[str] | None = None) -> list[Verified]:
        """What is found of these types, or of all, by name; one that never had a table is left
        out.
        """
        group = self.tables.job.group
        types = {
            name: one
            for name, one in self.repository.types(group.name).items()
            if names is None or name in names
        }
        found, at = dict[str, Verified](), dict[str, _Pinned]()
        for name, one in types.items():
            try:
                if (held := self._pinned(one)) is not None:
                    at[name] = held
            except LakeChimeError as error:
                found[name] = unread(one, error)
        # by now, so that each column of a pinned version is known
        known = self.repository.types(group.name)
        looked = in_threads(
            self.spark, AT_ONCE, lambda name: self._looked(known[name], at[name]), sorted(at)
        )
        found |= {one.type: one for one in looked}
        return [found[name] for name in sorted(found)]

    def _pinned(self, one: KnownType) -> _Pinned | None:
        """The newest version of a type's table; None where it never had one.

        Raises:
            LakeChimeError: its table is gone, or it or its events cannot be looked at.
        """
        log = self.tables.target(one).log
        if not log.exists():
            if one.checkpoint.commits:
                raise LakeChimeError(f"{one.table} is not there; put it back")
            return None
        snapshot, last = log.newest, self.tables.last_committed(one)
        while snapshot != log.newest:  # somebody wrote meanwhile
            snapshot, last = log.newest, self.tables.last_committed(one)
        if last is None and not one.checkpoint.commits:
            return None  # it is another's
        checkpoint, held = one.checkpoint, None
        if last is not None and not last.is_commit_metadata_lost:
            held = last.commit_metadata.end.sources.get(self.tables.job.group.stream.table.name)
        if last is not None and held is not None:
            reached = TypeCheckpoint(uid=held.table_uid, version=int(held.snapshot_id or NOWHERE))
            checkpoint = (
                reached
                if checkpoint.uid != reached.uid or checkpoint.version < reached.version
                else checkpoint
            )
        if checkpoint.uid != self.slices.end.table_uid:
            raise LakeChimeError(
                f"{self.slices.table} was recreated since {one.table} was written last"
            )
        return _Pinned(snapshot=snapshot, checkpoint=checkpoint)

    def _looked(self, one: KnownType, at: _Pinned) -> Verified:
        try:
            with described():
                return self._counted(one, at)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other types are looked at
            return unread(one, error)

    def _counted(self, one: KnownType, at: _Pinned) -> Verified:
        events = of_types(self.slices.rows(-1, at.checkpoint.version), [one.type])
        held, _ = source_of(self.spark, self.tables.target(one).log).read_snapshot(at.snapshot)
        beside = _beside(events, held)
        sums = (F.count("*").alias("n"), _sum("events"), _sum("rows"))
        counts = {row["fault"]: row for row in beside.groupBy("fault").agg(*sums).collect()}
        faults = Counter(
            {Fault(name): row["n"] for name, row in counts.items() if name is not None}
        )
        examples, discarded, gone = list[Example](), 0, 0
        if faults[Fault.LOST]:
            lost, examples = self._lost(one, events, held)
            discarded, faults[Fault.LOST] = faults[Fault.LOST] - lost, lost
        if faults[Fault.FOREIGN]:
            gone = self._gone(beside, at)
            faults[Fault.FOREIGN] -= gone
        for fault in (Fault.FOREIGN, Fault.DOUBLED, Fault.OTHER):
            if faults[fault]:
                examples += _named(fault, beside.where(F.col("fault") == fault.value))
        sampled, wrong = self._values(one, events, held)
        faults.update({example.source: example.fault for example in wrong}.values())
        return Verified(
            type=one.type,
            table=one.table,
            version=int(at.snapshot),
            checkpoint=at.checkpoint.version,
            events=sum(row["events"] for row in counts.values()),
            rows=sum(row["rows"] for row in counts.values()),
            discarded=discarded,
            gone=gone,
            sampled=sampled,
            faults=+faults,
            examples=(*examples, *wrong),
        )

    def _lost(
        self, one: KnownType, events: DataFrame, held: DataFrame
    ) -> tuple[int, list[Example]]:
        """How many events without a row no contract discards, neither today's nor an earlier one;
        with some of them.
        """
        missing = events.join(held.select("_src"), "_src", "left_anti")
        kept = rows_of(missing, one, self.tables.job.group.contract_of(one.type), [])
        discarded, left = missing.count(), kept.count()
        earlier = max(0, self.discarded.get(one.type, 0) - (discarded - left))
        lost = max(0, left - earlier)
        return lost, _named(Fault.LOST, kept) if lost else []

    def _gone(self, beside: DataFrame, at: _Pinned) -> int:
        """How many rows without an event are older than all that the stream's table still holds."""
        oldest = (
            self.slices.rows(-1, at.checkpoint.version)
            .agg(F.min("_ingested_at").alias("oldest"))
            .collect()[0]["oldest"]
        )
        foreign = beside.where(F.col("fault") == Fault.FOREIGN.value)
        return (
            foreign.where(F.col("at") < F.lit(oldest)).count()
            if oldest is not None
            else foreign.count()
        )

    def _values(
        self, one: KnownType, events: DataFrame, held: DataFrame
    ) -> tuple[int, list[Example]]:
        """How many rows were compared with their events, and what is wrong with their values."""
        chosen = held.orderBy(F.xxhash64("_src", F.lit(self.seed)), "_src").limit(self.sample)
        rows = chosen.select("_src", F.to_json(F.struct("*")).alias("row"))
        found = events.select("_src", "payload").join(F.broadcast(rows), "_src").collect()
        return len(found), _wrong_values(
            self.tables, one, [(row["_src"], row["row"], row["payload"]) for row in found]
        )


def _wrong_values(
    tables: TypeTables, one: KnownType, rows: Iterable[tuple[str, str, str | None]]
) -> list[Example]:
    """What is wrong with the values of rows, each by its `_src`, its JSON, and the payload of its
    event.
    """
    contract, wrong = tables.job.group.contract_of(one.type), list[Example]()
    for source, row, payload in rows:
        foreign = [Example(fault=Fault.FOREIGN, source=source)]
        wrong += (
            foreign
            if payload is None
            else value_faults(payload, json.loads(row), source, one.schema, contract)
        )
    return wrong


def sampled(
    spark: SparkSession,
    slices: Slices,
    tables: TypeTables,
    wrote: Sequence[tuple[KnownType, TypeResult]],
    seed: int,
) -> tuple[Verified, ...]:
    """What is found in a few rows of the last commits of some types that an execution wrote, beside
    their events, by two jobs.

    Which types and rows these are depends on the seed.
    """
    chosen = sorted(wrote, key=lambda one: crc32(f"{seed} {one[0].type}".encode()))[:SAMPLED_TYPES]
    if not chosen:
        return ()
    rows: dict[str, dict[str, str]] = {known.type: {} for known, _ in chosen}
    for row in reduce(
        DataFrame.union, [_few_rows(spark, tables, *one, seed) for one in chosen]
    ).collect():
        rows[row["_type"]][row["_src"]] = row["_row"]
    sources = sorted({source for several in rows.values() for source in several})
    start, end = min(done.start for _, done in chosen), max(done.end for _, done in chosen)
    events = of_types(slices.rows(start, end), sorted(rows)).where(F.col("_src").isin(sources))
    payloads = {
        (row["type"], row["_src"]): row["payload"]
        for row in events.select("type", "_src", "payload").collect()
    }
    found = []
    for known, done in chosen:
        of_type = [
            (source, row, payloads.get((known.type, source)))
            for source, row in rows[known.type].items()
        ]
        wrong = _wrong_values(tables, known, of_type)
        found.append(
            Verified(
                type=known.type,
                table=known.table,
                checkpoint=done.end,
                rows=done.written,
                sampled=len(of_type),
                faults=Counter({example.source: example.fault for example in wrong}.values()),
                examples=tuple(wrong),
            )
        )
    return tuple(found)


def _few_rows(
    spark: SparkSession, tables: TypeTables, known: KnownType, done: TypeResult, seed: int
) -> DataFrame:
    target = tables.target(known)
    assert done.committed is not None
    rows = target.added(spark, done.committed)
    some = rows.sample(min(1.0, 3 * SAMPLED_ROWS / max(1, done.written)), seed).limit(SAMPLED_ROWS)
    return some.select(
        F.lit(known.type).alias("_type"), "_src", F.to_json(F.struct("*")).alias("_row")
    )


def unread(known: KnownType, error: Exception) -> Verified:
    """A type of which nothing could be found out."""
    return Verified(
        type=known.type,
        table=known.table,
        unread=f"{type(error).__name__}: {error}".splitlines()[0],
    )


def _beside(events: DataFrame, held: DataFrame) -> DataFrame:
    """The events and the rows of each `_src`, how many of both there are, and what is wrong with
    them.
    """
    sent = events.groupBy("_src").agg(
        F.count("*").alias("events"),
        F.min("hash").alias("hash"),
        F.min("_ingested_at").alias("sent"),
    )
    there = held.groupBy("_src").agg(
        F.count("*").alias("rows"), F.min("_hash").alias("_hash"), F.min("_ingested_at").alias("at")
    )
    is_same = F.col("hash").eqNullSafe(F.col("_hash")) & F.col("sent").eqNullSafe(F.col("at"))
    fault = (
        F.when(F.col("rows").isNull(), Fault.LOST.value)
        .when(F.col("events").isNull(), Fault.FOREIGN.value)
        .when(F.col("rows") > 1, Fault.DOUBLED.value)
        .when(~is_same, Fault.OTHER.value)
    )
    return sent.join(there, "_src", "full").withColumn("fault", fault)


def _sum(name: str) -> Column:
    return F.coalesce(F.sum(name), F.lit(0)).alias(name)


def _named(fault: Fault, rows: DataFrame) -> list[Example]:
    return [
        Example(fault=fault, source=row["_src"])
        for row in rows.select("_src").orderBy("_src").limit(MAX_EXAMPLES).collect()
    ]
