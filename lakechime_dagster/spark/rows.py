"""Computed rows before they are written: brought under the target's columns, validated, deduplicated, quarantined."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.spark.ranges import same
from lakechime_dagster.spark.session import column, comparable_row, is_comparable
from lakechime_dagster.tables.names import folded

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

    @property
    def good_count(self) -> int:
        return self.computed - self.deduplicated - self.quarantined


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
    counted = _counted(judged, keys)
    good = judged.where(F.col(REASON).isNull()).drop(REASON)
    bad = judged.where(F.col(REASON).isNotNull()) if counted.refused else None
    if not keys or counted.most_of_key <= 1:
        return Sifted(kept=judged, good=good, bad=bad, computed=counted.total, deduplicated=0, quarantined=counted.refused)
    per_key = _different_per_key(good, keys)
    different = F.col("__different")
    kept, tied = per_key.agg(F.sum(different), F.coalesce(F.sum(F.when(different > 1, different)), F.lit(0))).collect()[0]
    repeats = counted.total - counted.refused - kept
    if repeats:
        good = good.dropDuplicates() if is_comparable(good.schema) else _without_repeats(good)
    if tied:
        ties = per_key.where(F.col("__different") > 1).select(*[column(f"__key_{i}") for i in range(len(keys))])
        condition = [same(column(key), column(f"__key_{i}")) for i, key in enumerate(keys)]
        why = F.lit(f"another row has the same key ({', '.join(keys)}) and other values")
        tie = good.join(ties, condition, "left_semi").withColumn(REASON, why)
        good = good.join(ties, condition, "left_anti")
        bad = tie if bad is None else bad.unionByName(tie)
    return Sifted(kept=judged, good=good, bad=bad, computed=counted.total, deduplicated=repeats, quarantined=counted.refused + tied)


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """How many rows there are, how many of them are refused, and how many of the others have the key that most of these have."""

    total: int
    refused: int
    most_of_key: int


def _counted(judged: DataFrame, keys: Sequence[str]) -> _Counted:
    per_key = judged.groupBy(*_named(keys), F.col(REASON).isNull().alias("__good")).agg(F.count(F.lit(1)).alias("__rows"))
    rows, good = F.col("__rows"), F.col("__good")
    found = per_key.agg(F.sum(rows), F.sum(F.when(~good, rows)), F.max(F.when(good, rows))).collect()[0]
    return _Counted(total=found[0] or 0, refused=found[1] or 0, most_of_key=found[2] or 0)


def _different_per_key(good: DataFrame, keys: Sequence[str]) -> DataFrame:
    """How many different rows each key has: what takes all columns, so that it is asked only where a key has several rows."""
    return good.groupBy(*_named(keys)).agg(F.count_distinct(comparable_row(good)).alias("__different"))


def _named(keys: Sequence[str]) -> list[Column]:
    return [column(key).alias(f"__key_{i}") for i, key in enumerate(keys)]


def _without_repeats(rows: DataFrame) -> DataFrame:
    """Exact repeats away where Spark cannot compare the columns themselves."""
    return rows.withColumn("__row", comparable_row(rows)).dropDuplicates(["__row"]).drop("__row")


INEXACT = {("int", "float"), ("bigint", "float"), ("bigint", "double")}  # Spark's wider types that do not hold each of the values


def shaped(table: str, rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows under a table's columns: in its wider types, missing ones null, new ones behind; so too the fields of structs.

    Raises:
        DeclarationError: a column of the rows has values that its type in the table cannot hold.
    """
    fitting = _Fitting(table, rows.sparkSession)
    present = {field.name: field for field in rows.schema}
    kept = [
        fitting.fitted(column(field.name), present[field.name].dataType, field.dataType, field.name).alias(field.name)
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
    return all(field.name in held and same_type(held[field.name], field.dataType) for field in wanted)


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
            return F.transform(value, lambda item: self.fitted(item, kind.elementType, wanted.elementType, f"{path}.element"))
        if isinstance(kind, MapType) and isinstance(wanted, MapType):
            keyed = F.transform_keys(value, lambda key, _: self.fitted(key, kind.keyType, wanted.keyType, f"{path}.key"))
            return F.transform_values(keyed, lambda _, item: self.fitted(item, kind.valueType, wanted.valueType, f"{path}.value"))
        if self._is_wider(kind, wanted):
            return value.cast(wanted)
        what = f"{path} is {kind.simpleString()}, and {wanted.simpleString()} in the table, which would lose some of it"
        raise DeclarationError(self.table, "columns", f"{what}; cast it to {wanted.simpleString()}, or return it under another name")

    def _struct(self, value: Column, kind: StructType, wanted: StructType, path: str) -> Column:
        present = {folded(field.name): field for field in kind}
        known = {folded(field.name) for field in wanted}
        fields = [
            self.fitted(value.getField(had.name), had.dataType, field.dataType, f"{path}.{field.name}")
            if (had := present.get(folded(field.name)))
            else F.lit(None).cast(field.dataType)
            for field in wanted
        ]
        new = [field.name for field in kind if folded(field.name) not in known]
        named = [one.alias(field.name) for one, field in zip(fields, wanted, strict=True)]
        return F.when(value.isNotNull(), F.struct(*named, *[value.getField(name).alias(name) for name in new]))

    def _is_wider(self, kind: DataType, wanted: DataType) -> bool:
        jvm: Any = self.spark._jvm
        session: Any = self.spark._jsparkSession
        types = [session.parseDataType(one.json()) for one in (kind, wanted)]
        is_wider = jvm.org.apache.spark.sql.catalyst.expressions.Cast.canUpCast(*types)
        return is_wider and (kind.simpleString(), wanted.simpleString()) not in INEXACT
