"""The rows of a type's table from the events of a slice: by Spark's own reader where it brings every value to its column, else by ours."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from lakechime_dagster.lake.contracts import Contract
from lakechime_dagster.schema.event import JsonEvent, event_of
from lakechime_dagster.schema.layout import Layout
from lakechime_dagster.schema.observed import Pair
from lakechime_dagster.schema.repository import KnownType
from lakechime_dagster.schema.shape import shaped
from lakechime_dagster.spark.events.columns import from_payload, from_row

TECHNICAL = ("_src", "_ingested_at", "_hash", "_schema_version", "_rescued")
_SHAPED = StructType([
    StructField("_src", StringType()), StructField("_ingested_at", TimestampType()),
    *(StructField(name, StringType()) for name in ("hash", "row", "rescued")),
])  # fmt: skip


def rows_of(events: DataFrame, known: KnownType, contract: Contract, covered: Collection[str] | None) -> DataFrame:
    """The rows of a type's events under its layout, whose columns stand behind TECHNICAL.

    Args:
        events: With `_src`, `_ingested_at`, `hash`, `flags` and `payload`.
        known: With the columns of their payload, and what is withheld of it.
        contract: What becomes of values that no column takes.
        covered: The variations whose events without flags are all in the columns of their fields; None where all events are so.
    """
    layout, version = known.layout, known.layout_version
    if covered is None:
        return _native(events, layout, version)
    is_covered = F.col("flags").isNull() & F.col("hash").isin(*covered) if covered else F.lit(False)
    others = _shaped(events.where(~is_covered), known, contract)
    return _native(events.where(is_covered), layout, version).unionByName(others) if covered else others


def _native(events: DataFrame, layout: Layout, version: int) -> DataFrame:
    payload = from_payload(F.col("payload"), layout)
    return _columns(events.withColumn("_payload", payload).withColumn("_rescued", F.lit(None).cast("string")), version)


def _shaped(events: DataFrame, known: KnownType, contract: Contract) -> DataFrame:
    read = events.select("_src", "_ingested_at", "hash", "payload")
    layout, version = known.layout, known.layout_version
    shape = _Shape(to_arrow_schema(_SHAPED), layout, contract, frozenset(known.withheld))
    told = read.mapInArrow(shape, _SHAPED)  # type: ignore[arg-type]
    return _columns(told.withColumn("_payload", from_row(F.col("row"), layout)).withColumnRenamed("rescued", "_rescued"), version)


def _columns(rows: DataFrame, version: int) -> DataFrame:
    named = rows.withColumnRenamed("hash", "_hash").withColumn("_schema_version", F.lit(version))
    return named.select(*TECHNICAL, "_payload.*")


@dataclass(frozen=True)
class _Shape:
    """Brings events into a layout; those that the contract drops are left out."""

    out: pa.Schema
    layout: Layout
    contract: Contract
    withheld: frozenset[Pair]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept, rows, rescued = list[int](), list[str](), list[str | None]()
            for at, payload in enumerate(batch.column("payload").to_pylist()):
                event = event_of(payload)
                assert isinstance(event, JsonEvent)  # as its row has no reason
                one = shaped(event, self.layout, self.contract, self.withheld)
                if not one.is_discarded:
                    kept.append(at)
                    rows.append(one.row)
                    rescued.append(one.rescued_json)
            told = batch.take(pa.array(kept, pa.int64()))
            arrays = [told.column("_src"), told.column("_ingested_at"), told.column("hash"), pa.array(rows, pa.string())]
            yield pa.RecordBatch.from_arrays([*arrays, pa.array(rescued, pa.string())], schema=self.out)
