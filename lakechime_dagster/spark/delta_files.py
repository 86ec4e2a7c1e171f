"""Opens single files of a Delta table, as its log lists them, without touching the rest of the table.

Delta's own streaming source reads the same way: column mapping, partition values and deletion vectors are its affair.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.dce.commits import FileAction
from lakechime_dagster.spark.drivers.session import activate


def files_frame(spark: SparkSession, location: str, version: int, files: Sequence[FileAction]) -> DataFrame:
    """The rows of these files under the schema of the table at a version."""
    jvm: Any = spark._jvm  # the classic session's gateway; Spark Connect has none
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, location)
    none = jvm.scala.Option.empty()
    snapshot = log.getSnapshotAt(version, none, none, False)
    entries = jvm.java.util.ArrayList()
    for file in files:
        entries.add(jvm.org.apache.spark.sql.delta.actions.Action.fromJson(file.entry))
    sequence = jvm.scala.jdk.javaapi.CollectionConverters.asScala(entries).toSeq()
    activate(spark)
    return DataFrame(log.createDataFrame(snapshot, sequence, False, none), spark)


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
