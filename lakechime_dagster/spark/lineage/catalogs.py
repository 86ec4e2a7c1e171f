"""What the catalogs of a session know of a table: where it lies, and which snapshots of an Iceberg table this application made."""

from typing import cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def location_of(spark: SparkSession, identifier: str) -> str | None:
    """Where a table lies that a session calls so; None of one that it does not know."""
    try:
        told = spark.sql(f"DESCRIBE TABLE EXTENDED {_quoted(identifier)}").collect()
    except (PySparkException, Py4JError):
        return None
    return next((str(one["data_type"]).removeprefix("file:") for one in told if one["col_name"] == "Location"), None)


def snapshots_of(spark: SparkSession, path: str | None, identifier: str | None) -> list[tuple[str, int]] | None:
    """The ids of an Iceberg table's snapshots that this application made, the newest first, and when, in milliseconds.

    None of what is no such table.
    """
    application = "coalesce(summary['app-id'], summary['spark.app.id']) AS application"
    try:
        if path:
            snapshots = spark.read.format("iceberg").load(f"{path}#snapshots")
        elif identifier:
            snapshots = spark.read.table(f"{_quoted(identifier)}.snapshots")
        else:
            return None
        told = snapshots.selectExpr("CAST(snapshot_id AS STRING) AS id", "unix_millis(committed_at) AS at", application).collect()
    except (PySparkException, Py4JError):
        return None
    ours = [(cast(str, one["id"]), cast(int, one["at"])) for one in told if one["application"] == spark.sparkContext.applicationId]
    return sorted(ours, key=lambda one: -one[1])


def _quoted(identifier: str) -> str:
    return ".".join(f"`{part}`" for part in identifier.replace("`", "").split("."))
