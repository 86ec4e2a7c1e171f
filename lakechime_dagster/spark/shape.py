"""Brings computed rows under the columns of the table that is to take them, losing nothing on the way."""

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lake.names import folded
from lakechime_dagster.spark.names import column

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
