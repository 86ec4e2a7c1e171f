"""Compares computed rows with those of the target."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakechime_dagster.spark.ranges import same
from lakechime_dagster.spark.session import column, comparable, is_comparable, plain

OPERATION = "__lakechime_operation"  # I, U or D; = for a row that stays
DIFFERS = "__lakechime_differs_"  # of an updated row the columns that differ, a bit for each, by so many
BITS = 63
CAME, WENT = "__lakechime_came", "__lakechime_went"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What turns the old rows into the new ones, counted.

    `changes` holds, where they were asked for, one row per key that differs, with its OPERATION: the new values for I and
    U, the old key for D. It is in memory until it is unpersisted. `groups` are the values of the columns that were asked
    for, plain (`literals.plain`), among which anything differs. `changed` names, where they were asked for, the columns in
    which rows that stay differ.
    """

    changes: DataFrame | None = None
    groups: tuple[tuple[Any, ...], ...] = ()
    changed: tuple[str, ...] = ()
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.inserted or self.updated or self.deleted)

    @property
    def is_of_values(self) -> bool:
        """Whether all that differs are values in rows that stay."""
        return bool(self.updated) and not (self.inserted or self.deleted)


def keyed_difference(
    new: DataFrame,
    old: DataFrame,
    keys: Sequence[str],
    deletable: Column | None = None,
    *,
    by: Sequence[str] = (),
    keep: bool = False,
    named: bool = False,
) -> Difference:
    """The difference by key. Old rows that no new row has a key of are deleted where `deletable`, a condition over the old, holds.

    Groups are told of the columns `by`, the changes kept where `keep` asks for it, and columns that differ where they are to be `named`.
    """
    others = [name for name in new.columns if name not in keys]
    changes = keyed_changes(new, old, keys, deletable, told=others if named else ())
    if keep:
        changes = changes.persist(StorageLevel.MEMORY_AND_DISK)
    counts = [F.count_if(F.col(OPERATION) == operation) for operation in "IUD="]
    return replace(_counted(changes, counts, by, others), changes=changes if keep else None)


def values_of(changes: DataFrame) -> list[str]:
    """The columns of kept changes that are the table's own."""
    return [name for name in changes.columns if name != OPERATION and not name.startswith(DIFFERS)]


def keyed_changes(new: DataFrame, old: DataFrame, keys: Sequence[str], deletable: Column | None, told: Sequence[str] = ()) -> DataFrame:
    """One row per key of either side, with its OPERATION; a key that is neither new nor to be deleted has none.

    Rows with U say which of the columns differ that are to be `told`.
    """
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
    equal = {name: _equal(new, name, F.col(f"__old_{places[name]}")) for name in others}
    unchanged = reduce(lambda a, b: a & b, equal.values(), F.lit(True))
    is_gone = F.col("__is_new").isNull()
    operation = (
        F.when(F.col("__is_old").isNull(), "I")
        .when(is_gone, F.when(F.col("__deletable"), "D").otherwise("keep"))
        .when(unchanged, "=")
        .otherwise("U")
    )
    values = [F.when(is_gone, F.col(f"__old_{i}")).otherwise(column(name)).alias(name) for name, i in places.items()]
    compared = joined.select(*values, operation.alias(OPERATION), *_bits([equal[name] for name in told]))
    return compared.where(F.col(OPERATION) != "keep")


def unkeyed_difference(new: DataFrame, old: DataFrame, by: Sequence[str] = ()) -> Difference:
    """The difference as multisets of whole rows: those that come and those that go. Groups are told of the columns `by`."""
    was = [column(name) if name in old.columns else F.lit(None).alias(name) for name in new.columns]
    came = new.select("*", F.lit(1).alias(CAME), F.lit(0).alias(WENT))
    rows = came.union(old.select(*was, F.lit(0), F.lit(1)))
    if is_comparable(new.schema):
        rows = rows.groupBy(*[column(name) for name in new.columns]).agg(F.sum(CAME).alias(CAME), F.sum(WENT).alias(WENT))
    stays = F.least(CAME, WENT)
    counts = [F.sum(F.col(CAME) - stays), F.lit(0), F.sum(F.col(WENT) - stays), F.sum(stays)]
    return _counted(rows, counts, by)


def _bits(equal: Sequence[Column]) -> list[Column]:
    """Numbers whose bits say which of two values differ: eight bytes a row for so many columns, however wide these are."""
    parts = [equal[start : start + BITS] for start in range(0, len(equal), BITS)]
    ones = [[F.when(~is_equal, F.lit(1 << at).cast("long")).otherwise(F.lit(0)) for at, is_equal in enumerate(part)] for part in parts]
    numbers = [reduce(lambda a, b: a.bitwiseOR(b), bits) for bits in ones]
    return [F.when(F.col("__is_new") & F.col("__is_old"), number).alias(f"{DIFFERS}{i}") for i, number in enumerate(numbers)]


def _counted(rows: DataFrame, counts: Sequence[Column], by: Sequence[str], others: Sequence[str] = ()) -> Difference:
    """The rows counted as inserted, updated, deleted and unchanged, and the groups in which any but the last are."""
    named = [count.alias(f"__count_{i}") for i, count in enumerate(counts)]
    bits = [F.bit_or(F.col(name)).alias(name) for name in rows.columns if name.startswith(DIFFERS)]
    levels = [plain(column(name), rows.schema[name].dataType).alias(f"__level_{i}") for i, name in enumerate(by)]
    found = [tuple(row) for row in rows.groupBy(*levels).agg(*named, *bits).collect()]
    first, last = len(by), len(by) + len(counts)
    totals = [sum(row[first + i] or 0 for row in found) for i in range(len(counts))]
    differs = [reduce(lambda a, b: a | b, (row[last + i] or 0 for row in found), 0) for i in range(len(bits))]
    return Difference(
        groups=tuple(row[:first] for row in found if any(row[first : last - 1])),
        changed=tuple(name for at, name in enumerate(others) if bits and differs[at // BITS] >> at % BITS & 1),
        inserted=totals[0],
        updated=totals[1],
        deleted=totals[2],
        unchanged=totals[3],
    )


def _equal(rows: DataFrame, name: str, old: Column) -> Column:
    kind = rows.schema[name].dataType
    return same(comparable(column(name), kind), comparable(old, kind))
