"""Layouts in Spark's words: the types of columns, and what brings a payload into them."""

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from lakechime_dagster.schema.layout import Column, Holds, Layout

_TYPES: dict[Holds, DataType] = {
    Holds.BOOL: BooleanType(),
    Holds.LONG: LongType(),
    Holds.BIGINT: DecimalType(38, 0),
    Holds.FRACTION: DoubleType(),
    Holds.DOUBLE: DoubleType(),
    Holds.HUGE: StringType(),
    Holds.STRING: StringType(),
    Holds.JSON: StringType(),
    Holds.VARIANT: VariantType(),
}


_CORRUPT = "columnNameOfCorruptRecord"
JSON_OPTIONS = {
    _CORRUPT: "\0",  # Spark fills a column of this name itself; no table has one
    "maxStringLen": str(2**31 - 1),  # Spark's own bound, 20,000,000 characters, makes the row or the field null
}


def schema_of(layout: Layout) -> StructType:
    """The columns of a payload as its table has them."""
    return _struct(layout.columns, is_by_field=False)


def from_row(text: SparkColumn, layout: Layout) -> SparkColumn:
    """A struct of the columns from a row as `schema.shape` gives it."""
    return F.from_json(text, schema_of(layout), JSON_OPTIONS)


def from_payload(text: SparkColumn, layout: Layout) -> SparkColumn:
    """The same from the payload of an event whose values are all in the columns of their fields; siblings are null."""
    options = JSON_OPTIONS | {_CORRUPT: _unmet(layout.columns)}
    return F.from_json(text, _struct(layout.columns, is_by_field=True), options).cast(schema_of(layout))


def _struct(columns: Sequence[Column], *, is_by_field: bool) -> StructType:
    """The type of an object; by the names of fields a sibling has one that no field has."""
    unmet = _unmet(columns)
    names = [(unmet + one.name if one.is_sibling else one.field) if is_by_field else one.name for one in columns]
    return StructType([StructField(name, _type(one, is_by_field=is_by_field)) for name, one in zip(names, columns, strict=True)])


def _unmet(columns: Sequence[Column]) -> str:
    """A name that no field has, nor the beginning of one."""
    return "\0" * (1 + max((len(one.field) - len(one.field.lstrip("\0")) for one in columns), default=0))


def _type(column: Column, *, is_by_field: bool) -> DataType:
    if column.holds is Holds.OBJECT:
        return _struct(column.fields, is_by_field=is_by_field)
    if column.holds is Holds.ARRAY:
        assert column.element is not None
        return ArrayType(_type(column.element, is_by_field=is_by_field))
    return _TYPES[column.holds]
