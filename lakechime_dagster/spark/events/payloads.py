"""The rows of a stream's table: each payload as it came, with what is known of it."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

from lakechime_dagster.lake.events import REFUSED_BEFORE
from lakechime_dagster.schema.event import Refusal
from lakechime_dagster.spark.events.job import EventJob
from lakechime_dagster.spark.events.scan import COLUMNS, scan
from lakechime_dagster.spark.events.tokenizer import load_tokenizer

PAYLOAD = "payload"
SCHEMA = StructType([
    StructField("_src", StringType()), StructField("_ingested_at", TimestampType()), StructField("sent_at", TimestampType()),
    *(StructField(name, StringType()) for name in COLUMNS),
    StructField(PAYLOAD, StringType()), StructField("payload_bytes", BinaryType()), StructField(REFUSED_BEFORE, StringType()),
])  # fmt: skip


def told(spark: SparkSession, read: DataFrame, job: EventJob) -> DataFrame:
    """Binary payloads with their names as rows of `SCHEMA`; `REFUSED_BEFORE` is null where it is not told."""
    tokenizer = load_tokenizer(spark, Path(job.classes)) if job.classes else None
    rows = scan(read, PAYLOAD, job.type_field, job.producer_field, back_end=tokenizer).withColumn("_ingested_at", F.current_timestamp())
    is_text = ~F.col("reason").eqNullSafe(Refusal.NOT_UTF8)
    text = F.when(is_text, F.col(PAYLOAD).cast("string"))
    binary = F.when(~is_text, F.col(PAYLOAD))
    rows = rows if REFUSED_BEFORE in read.columns else rows.withColumn(REFUSED_BEFORE, F.lit(None).cast("string"))
    return rows.withColumn("payload_bytes", binary).withColumn(PAYLOAD, text).select(*SCHEMA.names)
