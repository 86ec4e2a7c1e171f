"""The writes of a session, and a mark on the commits that come of them: what a program that is none of ours does to tables."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from uuid import uuid4

from pyspark.sql import SparkSession

from lakechime_dagster.errors import PlanUnreadableError
from lakechime_dagster.lineage.write_marks import marks_in, to_metadata
from lakechime_dagster.spark.lineage.dumps import Dump, PlanDumper, Watched, unread

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass
class Writes:
    """What was executed, complete when `recorded_writes` has ended; `mark` is in the metadata of each commit that has none of its own."""

    mark: str
    dumps: tuple[Dump, ...] = ()


@contextmanager
def recorded_writes(spark: SparkSession) -> Iterator[Writes]:
    """Watches a session, and marks its commits. Where Spark shows no plans the only dump says so."""
    try:
        dumper = PlanDumper(spark)
    except PlanUnreadableError as error:
        yield Writes(uuid4().hex, (unread(str(error)),))
        return
    with marked_commits(spark, dumper) as mark:
        writes = Writes(mark)
        watched: Watched | None = None
        try:
            with dumper.watched() as watched:
                yield writes
        finally:
            writes.dumps = tuple(watched.dumps) if watched is not None else ()


@contextmanager
def marked_commits(spark: SparkSession, dumper: PlanDumper) -> Iterator[str]:
    """Marks the commits of a session that have no metadata of their own. They bear the marks of all that are in it, in whichever threads.

    What a program lets its session say of its commits, before or meanwhile, stays. When the last one has ended, in whatever order, no
    mark is left.
    """
    mark = uuid4().hex
    dumper.number()
    _mark(spark, lambda marks: (*marks, mark))
    try:
        yield mark
    finally:
        _mark(spark, lambda marks: tuple(one for one in marks if one != mark))


_marking = Lock()
"""Held while the marks of a session change, which its threads share."""


def _mark(spark: SparkSession, changed: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
    """Changes the marks of a session, unless it says something else of its commits."""
    with _marking:
        said = spark.conf.get(USER_METADATA, None)
        before = marks_in(said)
        if said is not None and not before:
            return
        if marks := changed(before):
            spark.conf.set(USER_METADATA, to_metadata(marks))
        else:
            spark.conf.unset(USER_METADATA)
