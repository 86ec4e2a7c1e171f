"""Computed rows before they are written: validated, deduplicated, brought under the target's
columns, compared with its rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.spark.ranges import same
from lakechime_dagster.spark.session import column, comparable, comparable_row, is_comparable, plain
from lakechime_dagster.tables.names import folded

REASON = "__lakechime_reason"


@dataclass(frozen=True, kw_only=True)
class Sifted:
    """`good` rows may be written; `bad` ones carry why not in the column REASON. `kept` is in
    memory until unpersisted.
    """

    kept: DataFrame
    good: DataFrame
    bad: DataFrame | None
    computed: int
    deduplicated: int
    quarantined: int

    @property
    def good_count(self) -> int:
        return self.computed - self.deduplicated - self.quarantined


def reason_column(keys: Sequence[str], expect: Mapping[str, str]) -> Column:
    """Why a row is refused, or null: a null key, or a constraint that is not true of it."""
    checks = [F.when(column(key).isNull(), F.lit(f"key {key} is null")) for key in keys]
    checks += [
        F.when(~F.coalesce(F.expr(condition), F.lit(False)), F.lit(f"{name}: {condition}"))
        for name, condition in expect.items()
    ]
    return F.coalesce(*checks, F.lit(None).cast("string"))


def sift(computed: DataFrame, keys: Sequence[str], expect: Mapping[str, str]) -> Sifted:
    """Sort computed rows into good and bad ones.

    Exact repeats of a keyed row count once. Rows with one key and different values are a tie that
    nothing decides: all of them are bad. Constraints must be true: false and unknown are both
    refused, as Delta's own do.
    """
    judged = computed.withColumn(REASON, reason_column(keys, expect)).persist(
        StorageLevel.MEMORY_AND_DISK
    )
    counted = _counted(judged, keys)
    good = judged.where(F.col(REASON).isNull()).drop(REASON)
    bad = judged.where(F.col(REASON).isNotNull()) if counted.refused else None
    if not keys or counted.most_of_key <= 1:
        return Sifted(
            kept=judged,
            good=good,
            bad=bad,
            computed=counted.total,
            deduplicated=0,
            quarantined=counted.refused,
        )
    per_key = _different_per_key(good, keys)
    different = F.col("__different")
    kept, tied = per_key.agg(
        F.sum(different), F.coalesce(F.sum(F.when(different > 1, different)), F.lit(0))
    ).collect()[0]
    repeats = counted.total - counted.refused - kept
    if repeats:
        good = good.dropDuplicates() if is_comparable(good.schema) else _without_repeats(good)
    if tied:
        ties = per_key.where(F.col("__different") > 1).select(
            *[column(f"__key_{i}") for i in range(len(keys))]
        )
        condition = [same(column(key), column(f"__key_{i}")) for i, key in enumerate(keys)]
        why = F.lit(f"another row has the same key ({', '.join(keys)}) and other values")
        tie = good.join(ties, condition, "left_semi").withColumn(REASON, why)
        good = good.join(ties, condition, "left_anti")
        bad = tie if bad is None else bad.unionByName(tie)
    return Sifted(
        kept=judged,
        good=good,
        bad=bad,
        computed=counted.total,
        deduplicated=repeats,
        quarantined=counted.refused + tied,
    )


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """How many rows there are, how many of them are refused, and how many of the others have the
    key that most of these have.
    """

    total: int
    refused: int
    most_of_key: int


def _counted(judged: DataFrame, keys: Sequence[str]) -> _Counted:
    per_key = judged.groupBy(*_named(keys), F.col(REASON).isNull().alias("__good")).agg(
        F.count(F.lit(1)).alias("__rows")
    )
    rows, good = F.col("__rows"), F.col("__good")
    found = per_key.agg(
        F.sum(rows), F.sum(F.when(~good, rows)), F.max(F.when(good, rows))
    ).collect()[0]
    return _Counted(total=found[0] or 0, refused=found[1] or 0, most_of_key=found[2] or 0)


def _different_per_key(good: DataFrame, keys: Sequence[str]) -> DataFrame:
    """How many different rows each key has: what takes all columns, so that it is asked only where
    a key has several rows.
    """
    return good.groupBy(*_named(keys)).agg(
        F.count_distinct(comparable_row(good)).alias("__different")
    )


def _named(keys: Sequence[str]) -> list[Column]:
    return [column(key).alias(f"__key_{i}") for i, key in enumerate(keys)]


def _without_repeats(rows: DataFrame) -> DataFrame:
    """Exact repeats away where Spark cannot compare the columns themselves."""
    return rows.withColumn("__row", comparable_row(rows)).dropDuplicates(["__row"]).drop("__row")


# Spark's wider types that do not hold each of the values
INEXACT = {("int", "float"), ("bigint", "float"), ("bigint", "double")}


def shaped(table: str, rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows under a table's columns: in its wider types, missing ones null, new ones behind; so
    too the fields of structs.

    Raises:
        DeclarationError: a column of the rows has values that its type in the table cannot hold.
    """
    fitting = _Fitting(table, rows.sparkSession)
    present = {field.name: field for field in rows.schema}
    kept = [
        fitting.fitted(
            column(field.name), present[field.name].dataType, field.dataType, field.name
        ).alias(field.name)
        if field.name in present
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in schema
    ]
    names = {field.name for field in schema}
    return rows.select(*kept, *[column(name) for name in rows.columns if name not in names])


def same_type(one: DataType, other: DataType) -> bool:
    """Whether two types are one but for what may be null in them."""
    return one.simpleString() == other.simpleString()


def holds(table: StructType, wanted: StructType) -> bool:
    """Whether a table has all these columns, of these types."""
    held = {field.name: field.dataType for field in table}
    return all(
        field.name in held and same_type(held[field.name], field.dataType) for field in wanted
    )


class _Fitting:
    """Casts values to the types of one table, part by part."""

    def __init__(self, table: str, spark: SparkSession) -> None:
        self.table = table
        self.spark = spark

    def fitted(self, value: Column, kind: DataType, wanted: DataType, path: str) -> Column:
        if same_type(kind, wanted):
            return value
        if isinstance(kind, StructType) and isinstance(wanted, StructType):
            return self._struct(value, kind, wanted, path)
        if isinstance(kind, ArrayType) and isinstance(wanted, ArrayType):
            return F.transform(
                value,
                lambda item: self.fitted(
                    item, kind.elementType, wanted.elementType, f"{path}.element"
                ),
            )
        if isinstance(kind, MapType) and isinstance(wanted, MapType):
            keyed = F.transform_keys(
                value, lambda key, _: self.fitted(key, kind.keyType, wanted.keyType, f"{path}.key")
            )
            return F.transform_values(
                keyed,
                lambda _, item: self.fitted(
                    item, kind.valueType, wanted.valueType, f"{path}.value"
                ),
            )
        if self._is_wider(kind, wanted):
            return value.cast(wanted)
        what = (
            f"{path} is {kind.simpleString()}, and {wanted.simpleString()} in the table, which "
            f"would lose some of it"
        )
        raise DeclarationError(
            self.table,
            "columns",
            f"{what}; cast it to {wanted.simpleString()}, or return it under another name",
        )

    def _struct(self, value: Column, kind: StructType, wanted: StructType, path: str) -> Column:
        present = {folded(field.name): field for field in kind}
        known = {folded(field.name) for field in wanted}
        fields = [
            self.fitted(
                value.getField(had.name), had.dataType, field.dataType, f"{path}.{field.name}"
            )
            if (had := present.get(folded(field.name)))
            else F.lit(None).cast(field.dataType)
            for field in wanted
        ]
        new = [field.name for field in kind if folded(field.name) not in known]
        named = [one.alias(field.name) for one, field in zip(fields, wanted, strict=True)]
        return F.when(
            value.isNotNull(), F.struct(*named, *[value.getField(name).alias(name) for name in new])
        )

    def _is_wider(self, kind: DataType, wanted: DataType) -> bool:
        jvm: Any = self.spark._jvm
        session: Any = self.spark._jsparkSession
        types = [session.parseDataType(one.json()) for one in (kind, wanted)]
        is_wider = jvm.org.apache.spark.sql.catalyst.expressions.Cast.canUpCast(*types)
        return is_wider and (kind.simpleString(), wanted.simpleString()) not in INEXACT


OPERATION = "__lakechime_operation"  # I, U or D; = for a row that stays
ADDED, REMOVED = "__lakechime_added", "__lakechime_removed"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What turns the old rows into the new ones, counted.

    `changes` holds, where they were asked for, one row per key that differs, with its OPERATION:
    the new values for I and U, the old key for D. It is in memory until it is unpersisted. `groups`
    are the values of the columns that were asked for, plain (`session.plain`), among which
    anything differs.
    """

    changes: DataFrame | None = None
    groups: tuple[tuple[Any, ...], ...] = ()
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.inserted or self.updated or self.deleted)


def keyed_difference(
    new: DataFrame,
    old: DataFrame,
    keys: Sequence[str],
    deletable: Column | None = None,
    *,
    by: Sequence[str] = (),
    keep: bool = False,
) -> Difference:
    """The difference by key. Old rows that no new row has a key of are deleted where `deletable`, a
    condition over the old, holds.

    Groups are of the columns `by`; with `keep` the changes are kept.
    """
    changes = keyed_changes(new, old, keys, deletable)
    if keep:
        changes = changes.persist(StorageLevel.MEMORY_AND_DISK)
    counts = [F.count_if(F.col(OPERATION) == operation) for operation in "IUD="]
    return replace(_grouped(changes, counts, by), changes=changes if keep else None)


def keyed_changes(
    new: DataFrame, old: DataFrame, keys: Sequence[str], deletable: Column | None
) -> DataFrame:
    """One row per key of either side, with its OPERATION; a key that is neither new nor to be
    deleted has none.
    """
    others = [name for name in new.columns if name not in keys]
    left = new.select(*[column(name) for name in new.columns], F.lit(True).alias("__is_new"))
    # a row without a key cannot be addressed
    keyed = reduce(lambda a, b: a & b, [column(key).isNotNull() for key in keys])
    has_been = [
        column(name) if name in old.columns else F.lit(None).cast(new.schema[name].dataType)
        for name in new.columns
    ]
    right = old.select(
        *[value.alias(f"__old_{i}") for i, value in enumerate(has_been)],
        F.lit(True).alias("__is_old"),
        (keyed if deletable is None else keyed & deletable).alias("__deletable"),
    )
    indexes = {name: i for i, name in enumerate(new.columns)}
    on = [column(key) == F.col(f"__old_{indexes[key]}") for key in keys]
    joined = left.join(right, on, "full_outer")
    equal = [_equal(new, name, F.col(f"__old_{indexes[name]}")) for name in others]
    unchanged = reduce(lambda a, b: a & b, equal, F.lit(True))
    is_gone = F.col("__is_new").isNull()
    operation = (
        F.when(F.col("__is_old").isNull(), "I")
        .when(is_gone, F.when(F.col("__deletable"), "D").otherwise("keep"))
        .when(unchanged, "=")
        .otherwise("U")
    )
    values = [
        F.when(is_gone, F.col(f"__old_{i}")).otherwise(column(name)).alias(name)
        for name, i in indexes.items()
    ]
    compared = joined.select(*values, operation.alias(OPERATION))
    return compared.where(F.col(OPERATION) != "keep")


def unkeyed_difference(new: DataFrame, old: DataFrame, by: Sequence[str] = ()) -> Difference:
    """The difference as multisets of whole rows: those that are added and those that are removed.
    Groups are those of the columns `by`.
    """
    was = [column(name) if name in old.columns else F.lit(None).alias(name) for name in new.columns]
    added = new.select("*", F.lit(1).alias(ADDED), F.lit(0).alias(REMOVED))
    rows = added.union(old.select(*was, F.lit(0), F.lit(1)))
    if is_comparable(new.schema):
        rows = rows.groupBy(*[column(name) for name in new.columns]).agg(
            F.sum(ADDED).alias(ADDED), F.sum(REMOVED).alias(REMOVED)
        )
    stays = F.least(ADDED, REMOVED)
    counts = [F.sum(F.col(ADDED) - stays), F.lit(0), F.sum(F.col(REMOVED) - stays), F.sum(stays)]
    return _grouped(rows, counts, by)


def _grouped(rows: DataFrame, counts: Sequence[Column], by: Sequence[str]) -> Difference:
    """The rows counted as inserted, updated, deleted and unchanged, and the groups in which any but
    the last are.
    """
    named = [count.alias(f"__count_{i}") for i, count in enumerate(counts)]
    levels = [
        plain(column(name), rows.schema[name].dataType).alias(f"__level_{i}")
        for i, name in enumerate(by)
    ]
    found = [tuple(row) for row in rows.groupBy(*levels).agg(*named).collect()]
    first, last = len(by), len(by) + len(counts)
    totals = [sum(row[first + i] or 0 for row in found) for i in range(len(counts))]
    return Difference(
        groups=tuple(row[:first] for row in found if any(row[first : last - 1])),
        inserted=totals[0],
        updated=totals[1],
        deleted=totals[2],
        unchanged=totals[3],
    )


def _equal(rows: DataFrame, name: str, old: Column) -> Column:
    kind = rows.schema[name].dataType
    return same(comparable(column(name), kind), comparable(old, kind))
