"""Law 13 in Spark's words: the lane as `txnAppId`, the step as `txnVersion`, the stamp as `userMetadata`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from lakechime_dagster.dce.commits import TableLog
from lakechime_dagster.spark.session_confs import session_confs
from lakechime_dagster.triggers.lanes import CommitStamp, Committed, LaneId, Place

TXN_APP_ID = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class TargetLog(TableLog, Protocol):
    """A table's log that also knows whose commits of a lane it holds."""

    def committed(self, lane: LaneId, step: int) -> Committed | None: ...

    def last_committed(self, lane: LaneId) -> Committed | None: ...

    def watermark(self, version: int | None = None) -> int | None: ...

    def fed(self, version: int) -> Place | None: ...

    def rows(self, version: int) -> pa.Table | None: ...

    def plain_columns(self) -> str | None: ...

    def add_folder(self, folder: str, stamp: CommitStamp) -> bool: ...


@contextmanager
def transaction(spark: SparkSession, app_id: str, version: int, user_metadata: str) -> Iterator[None]:
    """Every Delta write inside commits under this transaction, at most once ever: a repeat is silently skipped by Delta.

    The confs hold for the whole session, so they are put back whatever happens. A write of nothing commits too while
    they are set: decide that there is nothing to write before.
    """
    wanted = {TXN_APP_ID: app_id, TXN_VERSION: str(version), USER_METADATA: user_metadata}
    with session_confs(spark, wanted):
        yield


@contextmanager
def stamped(spark: SparkSession, stamp: CommitStamp) -> Iterator[None]:
    """Every Delta write inside is the commit of this step of the lane."""
    with transaction(spark, stamp.txn_app_id, stamp.step, stamp.to_text()):
        yield
