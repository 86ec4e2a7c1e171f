"""Keeps rows that may not be written in `<location>__quarantine`, with the reason, beside the table that refused them."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.spark.commit import CHANGE_FEED, Target, create_if_missing, retrying
from lakechime_dagster.spark.names import column
from lakechime_dagster.spark.sift import REASON
from lakechime_dagster.spark.stamp import transaction
from lakechime_dagster.spark.statistics import LISTED
from lakechime_dagster.triggers.lanes import CommitStamp

SUFFIX = "__quarantine"
STATISTICS = {LISTED: "lane,step,execution,reason"}  # not of the rows, which may hold anything
ATTEMPTS = 1024  # transactions of one step, in the order of its attempts
KEPT = ("lane", "step", "execution", "reason", "row")
AS_TEXT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",  # by default to the millisecond, which makes different rows one
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def quarantine_location(location: str) -> str:
    return location.rstrip("/") + SUFFIX


def quarantine(spark: SparkSession, target: Target, stamp: CommitStamp, bad: DataFrame) -> int:
    """Add the bad rows of a step, each once, whichever of its attempts comes first; give how many were new.

    An attempt may have read further than the one before it, so it adds what is not there yet. It has a transaction of its
    own, below those of later attempts: one that wakes up late adds nothing.
    """
    values = [column(name) for name in bad.columns if name != REASON]
    rows = bad.select(
        F.lit(str(stamp.lane)).alias("lane"), F.lit(stamp.step).cast("long").alias("step"), F.lit(stamp.execution_id).alias("execution"),
        F.col(REASON).alias("reason"), F.to_json(F.struct(*values), AS_TEXT).alias("row"),
    )  # fmt: skip
    create_if_missing(spark, target, rows.schema, CHANGE_FEED | STATISTICS)
    count = 0
    version = stamp.step * ATTEMPTS + min(stamp.attempt, ATTEMPTS - 1)
    for tried in retrying():
        with tried:
            held = target.read(spark).where((F.col("lane") == str(stamp.lane)) & (F.col("step") == stamp.step))
            new = rows.select("reason", "row").exceptAll(held.select("reason", "row"))
            new = new.select(*[F.lit(value).alias(name) for name, value in _who(stamp)], "reason", "row").select(*KEPT)
            count = new.count()
            if count:
                with transaction(spark, str(stamp.lane), version, stamp.to_text()):
                    new.withColumn("step", F.col("step").cast("long")).write.format("delta").mode("append").save(target.location)
    return count


def _who(stamp: CommitStamp) -> tuple[tuple[str, str | int], ...]:
    return ("lane", str(stamp.lane)), ("step", stamp.step), ("execution", stamp.execution_id)
