"""Compares computed rows with those of the target, so that only what differs is written and every row is counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakechime_dagster.spark.comparable import comparable, is_comparable
from lakechime_dagster.spark.narrow import column, same

OPERATION = "__lakechime_operation"  # I, U or D; = for a row that stays


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What turns the old rows into the new ones.

    `changes` holds, for keyed rows, one row per key that differs, with its OPERATION: the new values for I and U, the old
    key for D. It is in memory until it is unpersisted.
    """

    changes: DataFrame
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.inserted or self.updated or self.deleted)


def keyed_difference(new: DataFrame, old: DataFrame, keys: Sequence[str], deletable: Column | None = None) -> Difference:
    """The difference by key. Old rows that no new row has a key of are deleted where `deletable`, a condition over the old, holds."""
    others = [name for name in new.columns if name not in keys]
    left = new.select(*[column(name) for name in new.columns], F.lit(True).alias("__is_new"))
    keyed = reduce(lambda a, b: a & b, [column(key).isNotNull() for key in keys])  # a row without a key cannot be addressed
    has_been = [column(name) if name in old.columns else F.lit(None).cast(new.schema[name].dataType) for name in new.columns]
    right = old.select(
        *[value.alias(f"__old_{i}") for i, value in enumerate(has_been)],
        F.lit(True).alias("__is_old"),
        (keyed if deletable is None else keyed & deletable).alias("__deletable"),
    )
    places = {name: i for i, name in enumerate(new.columns)}
    on = [column(key) == F.col(f"__old_{places[key]}") for key in keys]
    joined = left.join(right, on, "full_outer")
    unchanged = F.lit(True)
    for name in others:
        unchanged = unchanged & _equal(new, name, F.col(f"__old_{places[name]}"))
    is_gone = F.col("__is_new").isNull()
    operation = (
        F.when(F.col("__is_old").isNull(), "I").when(is_gone, F.when(F.col("__deletable"), "D").otherwise("keep"))
        .when(unchanged, "=").otherwise("U")
    )  # fmt: skip
    values = [F.when(is_gone, F.col(f"__old_{i}")).otherwise(column(name)).alias(name) for name, i in places.items()]
    judged = joined.select(*values, operation.alias(OPERATION)).where(F.col(OPERATION) != "keep").persist(StorageLevel.MEMORY_AND_DISK)
    counts = {row[OPERATION]: int(row["count"]) for row in judged.groupBy(OPERATION).count().collect()}
    return Difference(
        changes=judged, inserted=counts.get("I", 0), updated=counts.get("U", 0), deleted=counts.get("D", 0), unchanged=counts.get("=", 0)
    )


def unkeyed_difference(new: DataFrame, old: DataFrame) -> Difference:
    """The difference as multisets of whole rows: `changes` holds the rows that come (I) and that go (D)."""
    if not is_comparable(new.schema):
        came, left = new, old
    else:
        old = old.select(*[column(name) if name in old.columns else F.lit(None).alias(name) for name in new.columns])
        came, left = new.exceptAll(old), old.exceptAll(new)
    tagged = came.withColumn(OPERATION, F.lit("I")).unionByName(left.withColumn(OPERATION, F.lit("D")), allowMissingColumns=True)
    tagged = tagged.persist(StorageLevel.MEMORY_AND_DISK)
    counts = {row[OPERATION]: int(row["count"]) for row in tagged.groupBy(OPERATION).count().collect()}
    inserted = counts.get("I", 0)
    return Difference(changes=tagged, inserted=inserted, deleted=counts.get("D", 0), unchanged=new.count() - inserted)


def _equal(rows: DataFrame, name: str, old: Column) -> Column:
    kind = rows.schema[name].dataType
    return same(comparable(column(name), kind), comparable(old, kind))
