"""Looks at a stream's refused events again: those that are events by now come into its table once more, under their own names.

The refused row stays as it is. A row that was drained is told by what it was refused for, so that it is drained once, whoever
does it and however often: what is there by then is left out, and of a step's attempts the table lets one in.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.dce.commits import TableLog
from lakechime_dagster.lake.events import REFUSED_BEFORE
from lakechime_dagster.spark.events.job import EventJob
from lakechime_dagster.spark.events.payloads import PAYLOAD, told
from lakechime_dagster.spark.ranges import pinned

MAX_TOLD = 100  # kinds of rows that a dry run tells


@dataclass(frozen=True, kw_only=True)
class Drain:
    """What a drain would bring: so many rows, and of what they were refused for and are of by now, the commonest kinds first."""

    rows: int
    kinds: tuple[tuple[str, str, int], ...] = ()


def drained(spark: SparkSession, job: EventJob, log: TableLog) -> DataFrame | None:
    """The rows of the stream's table that are refused there and are events by today's declaration; None without a table."""
    if not log.exists():
        return None
    held = pinned(spark, job.location, log.version)
    refused = held.where(F.col("reason").isNotNull())
    if REFUSED_BEFORE in held.columns:
        refused = refused.join(held.where(F.col(REFUSED_BEFORE).isNotNull()).select("_src"), "_src", "left_anti")
    payload = F.coalesce(F.col("payload_bytes"), F.col(PAYLOAD).cast("binary"))
    rows = refused.select("_src", "sent_at", payload.alias(PAYLOAD), F.col("reason").alias(REFUSED_BEFORE))
    return told(spark, rows, job).where(F.col("reason").isNull())


def drain_of(rows: DataFrame) -> Drain:
    """How many rows are drained, and of which kinds; one job over the refused rows."""
    counted = rows.groupBy(REFUSED_BEFORE, "type").count().collect()
    kinds = sorted(((row[REFUSED_BEFORE], row["type"], row["count"]) for row in counted), key=lambda kind: (-kind[2], kind))
    return Drain(rows=sum(rows for _, _, rows in kinds), kinds=tuple(kinds[:MAX_TOLD]))
