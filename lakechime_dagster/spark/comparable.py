"""Values that Spark cannot compare, such as maps, as values that it can: equal exactly where these are."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from lakechime_dagster.spark.names import column


def is_comparable(kind: DataType) -> bool:
    """Whether Spark can tell equal values of a type: maps and variants it cannot compare."""
    if isinstance(kind, StructType):
        return all(is_comparable(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return is_comparable(kind.elementType)
    return not isinstance(kind, MapType | VariantType)


def comparable(value: Column, kind: DataType) -> Column:
    """A value with its maps as sorted entries and its variants as text; no text of the rest, which would lose microseconds."""
    if is_comparable(kind):
        return value
    if isinstance(kind, StructType):
        fields = [comparable(value.getField(field.name), field.dataType).alias(f"_{i}") for i, field in enumerate(kind)]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda item: comparable(item, kind.elementType))
    if isinstance(kind, MapType):
        entry = StructType().add("key", kind.keyType).add("value", kind.valueType)
        return F.array_sort(comparable(F.map_entries(value), ArrayType(entry)))
    return F.to_json(value)


def comparable_row(rows: DataFrame, names: list[str] | None = None) -> Column:
    """The values of a row, of all columns or of these, as one that Spark can compare."""
    fields = [comparable(column(name), rows.schema[name].dataType).alias(f"_{i}") for i, name in enumerate(names or rows.columns)]
    return F.struct(*fields)
