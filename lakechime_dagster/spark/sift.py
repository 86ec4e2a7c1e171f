"""Sifts computed rows before they are written: bad ones to quarantine, repeats away, one row per key left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakechime_dagster.spark.comparable import comparable_row, is_comparable
from lakechime_dagster.spark.names import column
from lakechime_dagster.spark.narrow import same

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
    per_key = _per_key(judged, keys)
    found = per_key.agg(
        F.sum("__rows").alias("total"), F.sum(F.when(F.col("__ok"), F.col("__different"))).alias("kept"),
        F.sum(F.when(~F.col("__ok"), F.col("__rows"))).alias("refused"),
        F.sum(F.when(F.col("__ok") & (F.col("__different") > 1), F.col("__different"))).alias("tied"),
    ).collect()[0]  # fmt: skip
    total, kept, refused, tied = (int(found[name] or 0) for name in ("total", "kept", "refused", "tied"))
    good = judged.where(F.col(REASON).isNull()).drop(REASON)
    bad = judged.where(F.col(REASON).isNotNull()) if refused else None
    if not keys:
        return Sifted(kept=judged, good=good, bad=bad, computed=total, deduplicated=0, quarantined=refused)
    repeats = total - refused - kept
    if repeats:
        good = good.dropDuplicates() if is_comparable(good.schema) else _without_repeats(good)
    if tied:
        ties = per_key.where(F.col("__ok") & (F.col("__different") > 1)).select(*[column(f"__key_{i}") for i in range(len(keys))])
        condition = [same(column(key), column(f"__key_{i}")) for i, key in enumerate(keys)]
        why = F.lit(f"another row has the same key ({', '.join(keys)}) and other values")
        tie = good.join(ties, condition, "left_semi").withColumn(REASON, why)
        good = good.join(ties, condition, "left_anti")
        bad = tie if bad is None else bad.unionByName(tie)
    return Sifted(kept=judged, good=good, bad=bad, computed=total, deduplicated=repeats, quarantined=refused + tied)


def _per_key(judged: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Per key, and for bad rows apart: how many rows there are, and how many different ones."""
    row = comparable_row(judged, [name for name in judged.columns if name != REASON])
    groups = [column(key).alias(f"__key_{i}") for i, key in enumerate(keys)] + [F.col(REASON).isNull().alias("__ok")]
    different = F.count_distinct(row) if keys else F.count(F.lit(1))
    return judged.groupBy(*groups).agg(F.count(F.lit(1)).alias("__rows"), different.alias("__different"))


def _without_repeats(rows: DataFrame) -> DataFrame:
    """Exact repeats away where Spark cannot compare the columns themselves."""
    return rows.withColumn("__row", comparable_row(rows)).dropDuplicates(["__row"]).drop("__row")
