"""Lists of columns in Spark's words, as schemas of Spark and of Arrow."""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lakechime_dagster.spark.names import quoted


def ddl_of(columns: Mapping[str, str]) -> str:
    """Columns and their types, as a list of columns."""
    return ", ".join(f"{quoted(name)} {ddl}" for name, ddl in columns.items())


def columns_of(schema: StructType) -> dict[str, str]:
    """The columns of a schema and their types."""
    return {one.name: one.dataType.simpleString() for one in schema}


def struct_of(ddl: str) -> StructType:
    """The schema of a list of columns."""
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def arrow_of(ddl: str) -> pa.Schema:
    """The same as Arrow has it: times in microseconds, with their zone where they have one."""
    return to_arrow_schema(struct_of(ddl))
