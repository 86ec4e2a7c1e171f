"""What users declare a lake with: source tables, computed tables in PySpark or SQL, and the lake of them all."""

from lakechime_dagster.lake.declare import spark_table, sql_table
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.reads import Read, ReadMode
from lakechime_dagster.lake.tables import LakeTable, RefreshMode, SourceTable

__all__ = ["Lake", "LakeTable", "Read", "ReadMode", "RefreshMode", "SourceTable", "spark_table", "sql_table"]
