"""The writes of a session, and a mark on the commits that come of them: what a program that is none of ours does to tables."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql import SparkSession

from lakechime_dagster.errors import PlanUnreadableError
from lakechime_dagster.spark.lineage.dumps import Dump, PlanDumper, Watched, unread
from lakechime_dagster.spark.session_confs import session_confs

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass
class Writes:
    """What was executed, complete when `recorded_writes` has ended; `mark` is in the metadata of each commit that has none of its own."""

    mark: str
    dumps: tuple[Dump, ...] = ()


@contextmanager
def recorded_writes(spark: SparkSession) -> Iterator[Writes]:
    """Watches a session, and marks its commits. Where Spark shows no plans the only dump says so."""
    writes = Writes(uuid4().hex)
    try:
        dumper = PlanDumper(spark)
    except PlanUnreadableError as error:
        writes.dumps = (unread(str(error)),)
        yield writes
        return
    with session_confs(spark, {USER_METADATA: json.dumps({"lakechime_writes": writes.mark})}):
        watched: Watched | None = None
        try:
            with dumper.watched() as watched:
                yield writes
        finally:
            writes.dumps = tuple(watched.dumps) if watched is not None else ()
