"""A query for each type, as people write it: each reads all events as text, keeps its own, and
appends them to its table.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakechime_dagster.silver.refresh import WRITERS
from lakechime_dagster.tables.events import table_of


def query_per_type(
    spark: SparkSession, file: Path, tables: Path, schemas: Mapping[str, StructType], batch: int
) -> None:
    """Bring the events of a file into the tables of their types, whose columns somebody knew
    before.

    As many run at a time as an execution of ours writes tables: in turns they would leave cores
    idle. A retry of the batch writes nothing again, as each append bears its number.
    """

    def query(name: str) -> None:
        lines = spark.read.text(str(file))
        own = lines.where(F.get_json_object("value", "$.event_type") == name)
        rows = own.select(F.from_json("value", schemas[name]).alias("event")).select("event.*")
        rows.write.format("delta").mode("append").options(txnAppId=name, txnVersion=batch).save(
            str(tables / table_of(name))
        )

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(inheritable_thread_target(spark)(query), schemas))
