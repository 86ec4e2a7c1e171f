"""What a function or a query was seen to compute: the plan of its result, and what it executed on the way."""

from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.errors import PlanUnreadableError
from lakechime_dagster.spark.job import Executed, Seen
from lakechime_dagster.spark.lineage.dumps import PlanDumper, Watched, unread
from lakechime_dagster.spark.lineage.recording import marked_commits

TABLE = "lc:"  # the alias of an input, below the one by which it is called: what is below it is the table, however it was read


def marked(frame: DataFrame, table: str, alias: str) -> DataFrame:
    """A frame that stands for a table of the lake, called by an alias."""
    return frame.alias(TABLE + table).alias(alias)


def compute_seen(
    spark: SparkSession, compute: Callable[[], DataFrame], ended: Callable[[Executed], None] = lambda _: None
) -> tuple[DataFrame, Seen]:
    """What a computation gives, and what was seen of it. Where Spark shows no plans it is computed all the same.

    `ended` is told what was executed, also by a computation that fails.
    """
    try:
        dumper = PlanDumper(spark)
    except (PlanUnreadableError, Py4JError) as error:
        return compute(), Seen(result=unread(str(error)))
    watched = Watched()
    with marked_commits(spark, dumper) as mark:
        try:
            with dumper.watched() as watched:
                frame = compute()
        finally:
            ended(executed := Executed(actions=tuple(watched.dumps), mark=mark))
    return frame, Seen(result=dumper.of(frame), actions=executed.actions, mark=mark)
