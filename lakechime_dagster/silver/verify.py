"""Compares typed tables with the events of their stream."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from zlib import crc32

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.silver.results import Example, Fault, TypeResult, Verified, value_faults
from lakechime_dagster.silver.rows import rows_of
from lakechime_dagster.silver.schema import KnownType, SchemaRepository, TypeCheckpoint
from lakechime_dagster.silver.slices import Slices, TypeTables, of_types
from lakechime_dagster.spark.commit import commit_at
from lakechime_dagster.spark.driver import described
from lakechime_dagster.spark.ranges import files_frame, pinned
from lakechime_dagster.spark.session import in_threads
from lakechime_dagster.tables.events import Contract

MAX_EXAMPLES = 10  # of each fault of a type
SAMPLED_TYPES = 4  # of which an execution compares rows with their events
SAMPLED_ROWS = 10  # of each
AT_ONCE = 4  # tables that are looked at at a time


@dataclass(frozen=True, kw_only=True)
class _Pinned:
    """A version of a type's table, and the version of the stream's table up to which it holds its events."""

    version: int
    checkpoint: TypeCheckpoint


@dataclass(frozen=True, kw_only=True)
class GroupVerifier:
    """Looks at types of a group.

    Attributes:
        discarded: Events of each type that contracts discarded and no replay brought back, as its steps counted.
        sample: Rows of a type of which each value is looked at.
        seed: By which these are chosen: the same ones with the same seed.
    """

    spark: SparkSession
    slices: Slices
    tables: TypeTables
    repository: SchemaRepository
    discarded: Mapping[str, int] = field(default_factory=dict)
    sample: int = 100
    seed: int = 0

    def verified(self, names: set[str] | None = None) -> list[Verified]:
        """What is found of these types, or of all, by name; one that never had a table is left out."""
        group = self.tables.job.group
        types = {name: one for name, one in self.repository.types(group.name).items() if names is None or name in names}
        found, at = dict[str, Verified](), dict[str, _Pinned]()
        for name, one in types.items():
            try:
                if (held := self._pinned(one)) is not None:
                    at[name] = held
            except LakeChimeError as error:
                found[name] = unread(one, self.tables, error)
        known = self.repository.types(group.name)  # by now, so that each column of a pinned version is known
        looked = in_threads(self.spark, AT_ONCE, lambda name: self._looked(known[name], at[name]), sorted(at))
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
                raise LakeChimeError(f"{self.tables.target(one).name} is not there; put it back, or forget the type")
            return None
        version, last = log.version, self.tables.last_committed(one)
        if last is None and not one.checkpoint.commits:
            return None  # it is another's
        held = (
            None
            if last is None or last.is_commit_metadata_lost
            else last.commit_metadata.end.sources.get(self.tables.job.group.stream.table.name)
        )
        checkpoint = one.checkpoint
        if last is not None and held is not None and held.snapshot_id is not None:
            version = max(version, int(last.version))
            is_further = checkpoint.uid != held.table_uid or checkpoint.version < int(held.snapshot_id)
            checkpoint = TypeCheckpoint(uid=held.table_uid, version=int(held.snapshot_id)) if is_further else checkpoint
        if checkpoint.uid != self.slices.end.table_uid:
            raise LakeChimeError(f"{self.slices.table} was made anew since {self.tables.target(one).name} was written last")
        return _Pinned(version=version, checkpoint=checkpoint)

    def _looked(self, one: KnownType, at: _Pinned) -> Verified:
        try:
            with described():
                return self._counted(one, at)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other types are looked at
            return unread(one, self.tables, error)

    def _counted(self, one: KnownType, at: _Pinned) -> Verified:
        events = of_types(self.slices.segment(-1, at.checkpoint.version), [one.type])
        held = pinned(self.spark, self.tables.target(one).location, at.version)
        beside = _beside(events, held)
        counts = {row["fault"]: row for row in beside.groupBy("fault").agg(F.count("*").alias("n"), *map(_sum, ("told", "held"))).collect()}
        faults = {Fault(name): row["n"] for name, row in counts.items() if name is not None}
        result = Verified(
            type=one.type,
            table=self.tables.target(one).name,
            version=at.version,
            checkpoint=at.checkpoint.version,
            events=sum(row["told"] for row in counts.values()),
            rows=sum(row["held"] for row in counts.values()),
        )
        examples = list[Example]()
        if faults.get(Fault.LOST):
            lost, told = self._lost(one, events, held)
            result = replace(result, discarded=faults.pop(Fault.LOST) - lost)
            faults |= {Fault.LOST: lost} if lost else {}
            examples += told if lost else []
        if faults.get(Fault.FOREIGN):
            gone = self._gone(beside, at)
            result = replace(result, gone=gone)
            faults[Fault.FOREIGN] -= gone
        for fault in (Fault.FOREIGN, Fault.DOUBLED, Fault.OTHER):
            if faults.get(fault):
                examples += _named(fault, beside.where(F.col("fault") == fault.value))
        sampled, told = self._values(one, events, held)
        values = Counter({example.source: example.fault for example in told}.values())
        return replace(
            result,
            sampled=sampled,
            faults={fault: n for fault, n in {**faults, **values}.items() if n},
            examples=(*examples, *told),
        )

    def _lost(self, one: KnownType, events: DataFrame, held: DataFrame) -> tuple[int, list[Example]]:
        """How many events without a row no contract discards, neither today's nor an earlier one; with some of them."""
        missing = events.join(held.select("_src"), "_src", "left_anti")
        kept = rows_of(missing, one, self._contract(one), [])
        discarded, left = missing.count(), kept.count()
        earlier = max(0, self.discarded.get(one.type, 0) - (discarded - left))
        lost = max(0, left - earlier)
        return lost, _named(Fault.LOST, kept) if lost else []

    def _gone(self, beside: DataFrame, at: _Pinned) -> int:
        """How many rows without an event are older than all that the stream's table still holds."""
        oldest = self.slices.segment(-1, at.checkpoint.version).agg(F.min("_ingested_at").alias("oldest")).collect()[0]["oldest"]
        foreign = beside.where(F.col("fault") == Fault.FOREIGN.value)
        return foreign.where(F.col("at") < F.lit(oldest)).count() if oldest is not None else foreign.count()

    def _values(self, one: KnownType, events: DataFrame, held: DataFrame) -> tuple[int, list[Example]]:
        """How many rows were looked at, and what is wrong with their values."""
        chosen = held.orderBy(F.xxhash64("_src", F.lit(self.seed)), "_src").limit(self.sample)
        rows = chosen.select("_src", F.to_json(F.struct("*")).alias("_row"))  # which tells what a VARIANT holds too
        payloads = events.select("_src", F.col("payload").alias("_payload"))
        found, contract = payloads.join(F.broadcast(rows), "_src").collect(), self._contract(one)
        told = list[Example]()
        for row in found:
            told += value_faults(row["_payload"], json.loads(row["_row"]), row["_src"], one.schema, contract)
        return len(found), told

    def _contract(self, one: KnownType) -> Contract:
        return self.tables.job.group.contract_of(one.type)


def sampled(
    spark: SparkSession, slices: Slices, tables: TypeTables, wrote: Sequence[tuple[KnownType, TypeResult]], seed: int
) -> tuple[Verified, ...]:
    """What is found in a few rows of the last commits of some types that a step wrote, beside their events, by two jobs.

    Which types and rows these are depends on the seed.
    """
    chosen = sorted(wrote, key=lambda one: crc32(f"{seed} {one[0].type}".encode()))[:SAMPLED_TYPES]
    if not chosen:
        return ()
    rows: dict[str, dict[str, str]] = {known.type: {} for known, _ in chosen}
    for row in reduce(DataFrame.union, [_few_rows(spark, tables, *one, seed) for one in chosen]).collect():
        rows[row["_type"]][row["_src"]] = row["_row"]
    sources = sorted({source for several in rows.values() for source in several})
    start, end = min(done.start for _, done in chosen), max(done.end for _, done in chosen)
    events = of_types(slices.between(start, end), sorted(rows)).where(F.col("_src").isin(sources))
    payloads = {(row["type"], row["_src"]): row["payload"] for row in events.select("type", "_src", "payload").collect()}
    return tuple(_sampled(known, done, tables, rows[known.type], payloads) for known, done in chosen)


def _few_rows(spark: SparkSession, tables: TypeTables, known: KnownType, done: TypeResult, seed: int) -> DataFrame:
    target = tables.target(known)
    assert done.committed is not None
    record = commit_at(target.log, int(done.committed.version))
    rows = files_frame(spark, target.location, record.version, record.added)
    some = rows.sample(min(1.0, 3 * SAMPLED_ROWS / max(1, done.written)), seed).limit(SAMPLED_ROWS)
    return some.select(F.lit(known.type).alias("_type"), "_src", F.to_json(F.struct("*")).alias("_row"))


def _sampled(
    known: KnownType, done: TypeResult, tables: TypeTables, rows: Mapping[str, str], payloads: Mapping[tuple[str, str], str]
) -> Verified:
    contract, told = tables.job.group.contract_of(known.type), list[Example]()
    for source, row in rows.items():
        payload = payloads.get((known.type, source))
        if payload is None:
            told.append(Example(fault=Fault.FOREIGN, source=source))
        else:
            told += value_faults(payload, json.loads(row), source, known.schema, contract)
    faults = Counter({example.source: example.fault for example in told}.values())
    version = int(done.committed.version) if done.committed is not None else -1
    return Verified(
        type=known.type,
        table=tables.target(known).name,
        version=version,
        checkpoint=done.end,
        rows=done.written,
        sampled=len(rows),
        faults=dict(faults),
        examples=tuple(told),
    )


def unread(known: KnownType, tables: TypeTables, error: Exception) -> Verified:
    """A type of which nothing could be found out."""
    return Verified(type=known.type, table=tables.target(known).name, unread=f"{type(error).__name__}: {error}".splitlines()[0])


def _beside(events: DataFrame, held: DataFrame) -> DataFrame:
    """The events and the rows of each `_src`, how many of both there are, and what is wrong with them."""
    told = events.groupBy("_src").agg(F.count("*").alias("told"), F.min("hash").alias("hash"), F.min("_ingested_at").alias("came"))
    there = held.groupBy("_src").agg(F.count("*").alias("held"), F.min("_hash").alias("_hash"), F.min("_ingested_at").alias("at"))
    is_same = F.col("hash").eqNullSafe(F.col("_hash")) & F.col("came").eqNullSafe(F.col("at"))
    fault = (
        F.when(F.col("held").isNull(), Fault.LOST.value)
        .when(F.col("told").isNull(), Fault.FOREIGN.value)
        .when(F.col("held") > 1, Fault.DOUBLED.value)
        .when(~is_same, Fault.OTHER.value)
    )
    return told.join(there, "_src", "full").withColumn("fault", fault)


def _sum(name: str) -> Column:
    return F.coalesce(F.sum(name), F.lit(0)).alias(name)


def _named(fault: Fault, rows: DataFrame) -> list[Example]:
    return [Example(fault=fault, source=row["_src"]) for row in rows.select("_src").orderBy("_src").limit(MAX_EXAMPLES).collect()]
