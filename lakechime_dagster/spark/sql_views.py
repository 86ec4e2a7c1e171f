"""SQL over frames: each is a view for as long as the query is analysed, by the name of its table and by its alias."""

from collections.abc import Mapping
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.lake.sql import with_views


def sql_over(spark: SparkSession, sql: str, frames: Mapping[str, DataFrame], tables: Mapping[str, str]) -> DataFrame:
    """The query over frames by alias, and over the same by the tables that the aliases stand for.

    The plan holds the views, so they are dropped at once.
    """
    names = {alias: f"lakechime_{uuid4().hex}_{i}" for i, alias in enumerate(tables)}
    try:
        for alias, name in names.items():
            frames[alias].createTempView(name)
        return spark.sql(with_views(sql, {table: names[alias] for alias, table in tables.items()} | names))
    finally:
        for name in names.values():
            spark.catalog.dropTempView(name)
