"""The Spark confs of a driver: Delta in, no metastore, loopback only, and sized for small changes on one machine."""

import hashlib
import json
from pathlib import Path
from urllib.parse import urlsplit

from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.drivers.jars import IVY_FILE

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CHECKSUM_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
WORKER_DAEMON = "lakechime_dagster.spark.drivers.python_workers"


def master_of(settings: SparkSettings) -> str:
    """The master URL; warm and local drivers work in threads of their own JVM."""
    return f"local[{settings.cores}]" if settings.driver in ("warm", "local") else settings.driver


def build_confs(settings: SparkSettings, *, work: Path, warehouse: Path, jars: list[Path]) -> dict[str, str]:
    """All confs of a driver; what the settings say under `conf` comes last.

    Args:
        settings: Kind of driver, cores, memory, further confs.
        work: This JVM's folder for shuffle files and the like.
        warehouse: Where tables without a location would go.
        jars: Sent to the executors of a cluster; a local driver has them on its class path.
    """
    master = master_of(settings)
    confs = {
        "spark.master": master,
        "spark.app.name": "lakechime",
        "spark.driver.memory": settings.memory,
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.sql.session.timeZone": "UTC",
        # Spark's default is INT96, without bounds in footers, of which most readers take nanoseconds in 64 bits: 9999 is 1816 then.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A 1,000-row MERGE into 100,000 rows: 4.2 s with Spark's defaults, 1.1 s with these three.
        "spark.sql.shuffle.partitions": str(settings.cores),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(settings.cores),
    }
    if master.startswith("local"):
        confs |= {"spark.local.dir": str(work), "spark.python.daemon.module": WORKER_DAEMON}
        # The first rows of few partitions by one job, where a second one would ask all but the first: 263 ms of work after 298.
        confs["spark.sql.limit.initialNumPartitions"] = str(settings.cores)
        # To rename Delta's checksum of a version, FileContext starts nine processes of readlink, 7 ms of work each; FileSystem none.
        confs["spark.sql.streaming.checkpointFileManagerClass"] = CHECKSUM_FILES
        confs["spark.broadcast.blockSize"] = "256k"  # each of a job's broadcasts, most of a few kB, takes a block at once: 4 MB else
    else:
        confs["spark.jars"] = ",".join(jar.as_uri() for jar in jars)
    if master.startswith("local") or urlsplit(master).hostname in ("127.0.0.1", "localhost"):
        confs |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if settings.driver == "warm":
        # Several clients share it, and what it remembers of their jobs must not add up.
        confs |= {"spark.scheduler.mode": "FAIR", "spark.ui.retainedJobs": "100", "spark.ui.retainedStages": "100"}
        confs |= {"spark.ui.retainedTasks": "1000", "spark.sql.ui.retainedExecutions": "20"}
    return confs | settings.conf


def revision_of(settings: SparkSettings, pyspark_version: str) -> str:
    """Names what a warm driver's JVM was made from; a client that would make another one does not attach."""
    made_from = [pyspark_version, settings.memory, settings.cores, sorted(settings.conf.items()), IVY_FILE.read_text(encoding="utf-8")]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]
