"""Values that a plan holds as literals: few rows are asked for once, and are part of the plan from then on."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, DateType, NumericType, StringType, TimestampNTZType, TimestampType

from lakechime_dagster.spark.names import column, quoted

MAX_LITERALS = 200
MAX_BYTES = 1_000  # of a text that becomes a literal
KINDS = (NumericType, StringType, DateType, TimestampType, TimestampNTZType, BooleanType)


def has_literals(kind: DataType) -> bool:
    """Whether values of a type can be literals."""
    return isinstance(kind, KINDS)


def few_rows(values: DataFrame, most: int = MAX_LITERALS) -> list[tuple[Any, ...]] | None:
    """The rows as they travel (`plain`); None where they are more or long, which is found out without holding many or long ones.

    All columns must be of types that have literals.
    """
    texts = [field.name for field in values.schema if isinstance(field.dataType, StringType)]
    long = [F.coalesce(F.octet_length(column(name)) > MAX_BYTES, F.lit(False)) for name in texts]
    is_long = reduce(lambda a, b: a | b, long, F.lit(False))
    travelling = [F.when(~is_long, plain(column(field.name), field.dataType)).alias(field.name) for field in values.schema]
    rows = values.select(is_long, *travelling).limit(most + 1).collect()
    if len(rows) > most or any(row[0] for row in rows):
        return None
    return [tuple(row)[1:] for row in rows]


def local(values: DataFrame) -> DataFrame | None:
    """The distinct rows as data of the plan, so that no later question to them and no join with them computes them again.

    None where they are many or long, or where their types have no literals.
    """
    if not all(has_literals(field.dataType) for field in values.schema):
        return None
    rows = few_rows(values)
    if rows is None:
        return None
    return local_rows(values.sparkSession, values.columns, [field.dataType for field in values.schema], list(dict.fromkeys(rows)))


def local_rows(spark: SparkSession, names: Sequence[str], kinds: Sequence[DataType], rows: Sequence[Sequence[Any]]) -> DataFrame:
    """Rows of plain values as data of a plan, under these names and types."""
    lines = [f"({', '.join(sql_literal(value, kind) for value, kind in zip(row, kinds, strict=True))})" for row in rows]
    nothing = f"({', '.join(sql_literal(None, kind) for kind in kinds)})"
    found = spark.sql(f"VALUES {', '.join(lines or [nothing])} AS t({', '.join(quoted(name) for name in names)})")
    return found if lines else found.limit(0)


def plain(value: Column, kind: DataType) -> Column:
    """A value as it travels through Python, whose own times depend on the zone of its process and whose years are four digits."""
    if isinstance(kind, TimestampType):
        return F.unix_micros(value)
    return value if isinstance(kind, NumericType | StringType | BooleanType) else value.cast("string")


def literal(value: Any, kind: DataType) -> Column:
    """A literal of a value that travelled plain."""
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(F.lit(value))
    return F.lit(value).cast(kind) if isinstance(kind, DateType | TimestampNTZType) else F.lit(value)


def sql_literal(value: Any, kind: DataType) -> str:
    """A value that travelled plain, in SQL."""
    if value is not None and isinstance(kind, TimestampType):
        return f"timestamp_micros({int(value)})"
    return f"CAST({'NULL' if value is None else text_literal(value)} AS {kind.simpleString()})"


def text_literal(value: Any) -> str:
    """A value as a SQL string, in which no `${…}` is taken for a variable."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"
