"""Adds rows whose keys a comparison found to be new, by a commit that stands only where nobody else wrote since the comparison."""

import json
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.spark.commit import Target
from lakechime_dagster.spark.delta_files import snapshot_at
from lakechime_dagster.spark.drivers.session import activate
from lakechime_dagster.spark.names import column
from lakechime_dagster.spark.shape import holds
from lakechime_dagster.spark.stamp import TXN_APP_ID, TXN_VERSION

OF_WRITE = 8  # facts of Delta's word for a write beside its mode: of overwriting, and what the session says already


def can_insert(rows: DataFrame, held: DataFrame) -> bool:
    """Whether rows bring just the columns that a table has, in its types."""
    return len(rows.columns) == len(held.columns) and holds(held.schema, rows.schema)


def insert(spark: SparkSession, target: Target, since: int, rows: DataFrame) -> None:
    """Commit rows (`can_insert`) of keys that the target did not hold at a version, under the stamp that is set (`stamp.stamped`).

    A MERGE would look for each key again, to find none, and be guarded against others only from then on. This is from that version on: for
    Delta it is a transaction that began there and has read all of the table.

    Raises:
        ConcurrentAppendException: another writer has added or changed rows since that version, or Delta's like ones.
        ConcurrentTransactionException: another attempt at the same step was first.
    """
    jvm: Any = spark._jvm
    log, snapshot = snapshot_at(spark, target.location, since)
    activate(spark)
    none = jvm.scala.Option.empty()
    transaction = log.startTransaction(none, jvm.scala.Option.apply(snapshot))
    transaction.readWholeTable()
    app_id, step = spark.conf.get(TXN_APP_ID), int(spark.conf.get(TXN_VERSION) or 0)
    if transaction.txnVersion(app_id) >= step:
        return  # as Delta's own writes are skipped: the log says whose commit the step holds
    levels = [column(name) for name in target.partitioned_by]
    frame: Any = rows.repartition(*levels) if levels else rows  # a file for each partition, as a MERGE writes them
    named = {"txn": {"appId": app_id, "version": step, "lastUpdated": time.time_ns() // 1_000_000}}
    of_step = jvm.org.apache.spark.sql.delta.actions.Action.fromJson(json.dumps(named))
    write = getattr(jvm, "org.apache.spark.sql.delta.DeltaOperations$Write")(jvm.org.apache.spark.sql.SaveMode.Append, *[none] * OF_WRITE)
    transaction.commit(transaction.writeFiles(frame._jdf).appended(of_step), write)
