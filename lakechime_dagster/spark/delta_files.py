"""Opens single files of a Delta table, as its log lists them, without touching the rest of the table.

Delta's own streaming source reads the same way: column mapping, partition values and deletion vectors are its affair.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakechime_dagster.dce.commits import FileAction
from lakechime_dagster.spark.drivers.session import activate

_PHYSICAL = "delta.columnMapping.physicalName"


def files_frame(spark: SparkSession, location: str, version: int, files: Sequence[FileAction]) -> DataFrame:
    """The rows of these files under the schema of the table at a version."""
    jvm: Any = spark._jvm
    log, snapshot = snapshot_at(spark, location, version)
    entries = jvm.java.util.ArrayList()
    for file in files:
        entries.add(jvm.org.apache.spark.sql.delta.actions.Action.fromJson(file.entry))
    sequence = jvm.scala.jdk.javaapi.CollectionConverters.asScala(entries).toSeq()
    activate(spark)
    return DataFrame(log.createDataFrame(snapshot, sequence, False, jvm.scala.Option.empty()), spark)


def snapshot_at(spark: SparkSession, location: str, version: int) -> tuple[Any, Any]:
    """Delta's log of a table, and what it says of a version."""
    jvm: Any = spark._jvm  # the classic session's gateway; Spark Connect has none
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, location)
    none = jvm.scala.Option.empty()
    return log, log.getSnapshotAt(version, none, none, False)


def live_files(spark: SparkSession, location: str, version: int) -> dict[str, bool]:
    """The files of the table at a version, by their paths in the log: whether some of their rows are deleted."""
    _, snapshot = snapshot_at(spark, location, version)
    files = DataFrame(snapshot.allFiles().toDF(), spark).selectExpr("path", "deletionVector IS NOT NULL AS is_cut")
    return {row["path"]: row["is_cut"] for row in files.collect()}


def names_in_files(spark: SparkSession, location: str, version: int) -> Mapping[str, str]:
    """What the columns of the table at a version are called in its files."""
    _, snapshot = snapshot_at(spark, location, version)
    schema = StructType.fromJson(json.loads(snapshot.schema().json()))
    return {field.name: field.metadata.get(_PHYSICAL, field.name) for field in schema}


def plain_files(spark: SparkSession, location: str, paths: Iterable[str], schema: StructType) -> DataFrame:
    """These columns of files by the log's paths, as they are called there, with all rows that are or were in them."""
    jvm: Any = spark._jvm
    _, root = _file_system(spark, location)
    named = [jvm.org.apache.hadoop.fs.Path(root, unquote(path)).toString() for path in paths]
    return spark.read.schema(schema).option("__globPaths__", "false").parquet(*named)  # else brackets in a name are a pattern


def root_of(spark: SparkSession, location: str) -> str:
    """How the paths of a place begin within its file system, as URLs spell them: Spark spells what is before them in several ways."""
    files, root = _file_system(spark, location)
    return f"{files.makeQualified(root).toUri().getRawPath()}/"


def missing_files(spark: SparkSession, location: str, paths: Iterable[str]) -> list[str]:
    """Those of the log's paths whose files are gone."""
    jvm: Any = spark._jvm
    files, root = _file_system(spark, location)
    return [path for path in dict.fromkeys(paths) if not files.exists(jvm.org.apache.hadoop.fs.Path(root, unquote(path)))]


def remove_folder(spark: SparkSession, location: str) -> None:
    """Remove a folder with all that is in it, if it is there."""
    files, root = _file_system(spark, location)
    files.delete(root, True)


def _file_system(spark: SparkSession, location: str) -> tuple[Any, Any]:
    """The file system of a place, and the place in its words."""
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext._jsc
    root = jvm.org.apache.hadoop.fs.Path(location)
    return root.getFileSystem(context.hadoopConfiguration()), root
