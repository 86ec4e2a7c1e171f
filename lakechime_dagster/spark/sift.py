"""Sifts computed rows before they are written: bad ones to quarantine, repeats away, one row per key left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakechime_dagster.spark.narrow import column, same
from lakechime_dagster.spark.ranges import is_comparable

REASON = "__lakechime_reason"


@dataclass(frozen=True, kw_only=True)
class Sifted:
    """`good` rows may be written; `bad` ones carry why not in the column REASON. `kept` is in memory until unpersisted."""

    kept: DataFrame
    good: DataFrame
    bad: DataFrame | None
    computed: int
    deduplicated: int
    quarantined: int


def reason_column(keys: Sequence[str], expect: Mapping[str, str]) -> Column:
    """Why a row is refused, or null: a null key, or a constraint that is not true of it."""
    checks = [F.when(column(key).isNull(), F.lit(f"key {key} is null")) for key in keys]
    checks += [F.when(~F.coalesce(F.expr(condition), F.lit(False)), F.lit(f"{name}: {condition}")) for name, condition in expect.items()]
    return F.coalesce(*checks, F.lit(None).cast("string"))


def sift(computed: DataFrame, keys: Sequence[str], expect: Mapping[str, str]) -> Sifted:
    """Sort computed rows into good and bad ones.

    Exact repeats of a keyed row count once. Rows with one key and different values are a tie that nothing decides: all
    of them are bad. Constraints must be true: false and unknown are both refused, as Delta's own do.
    """
    judged = computed.withColumn(REASON, reason_column(keys, expect)).persist(StorageLevel.MEMORY_AND_DISK)
    row = judged.agg(F.count(F.lit(1)).alias("all"), F.count(REASON).alias("bad")).collect()[0]
    total, refused = int(row["all"]), int(row["bad"])
    passed = judged.where(F.col(REASON).isNull()).drop(REASON)
    failed = judged.where(F.col(REASON).isNotNull()) if refused else None
    if not keys:
        return Sifted(kept=judged, good=passed, bad=failed, computed=total, deduplicated=0, quarantined=refused)
    distinct = passed.dropDuplicates() if is_comparable(passed.schema) else _without_repeats(passed)
    per_key = distinct.groupBy(*[column(key) for key in keys]).agg(F.count(F.lit(1)).alias("__rows"))
    row = per_key.agg(F.sum("__rows").alias("rows"), F.sum(F.when(F.col("__rows") > 1, F.col("__rows"))).alias("tied")).collect()[0]
    kept, tied = int(row["rows"] or 0), int(row["tied"] or 0)
    if tied:
        ties = per_key.where(F.col("__rows") > 1).select(*[column(key).alias(f"__tie_{i}") for i, key in enumerate(keys)])
        condition = [same(column(key), F.col(f"__tie_{i}")) for i, key in enumerate(keys)]
        tie = distinct.join(ties, condition, "left_semi")
        distinct = distinct.join(ties, condition, "left_anti")
        why = F.lit(f"another row has the same key ({', '.join(keys)}) and other values")
        failed = tie.withColumn(REASON, why) if failed is None else failed.unionByName(tie.withColumn(REASON, why))
    repeats = total - refused - kept
    if not repeats and not tied:
        distinct = passed
    return Sifted(kept=judged, good=distinct, bad=failed, computed=total, deduplicated=repeats, quarantined=refused + tied)


def _without_repeats(rows: DataFrame) -> DataFrame:
    """Exact repeats away where Spark cannot compare the columns themselves, by their text."""
    return rows.withColumn("__text", F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).dropDuplicates(["__text"]).drop("__text")
