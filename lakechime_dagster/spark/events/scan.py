"""Tells of each payload of a frame what `schema.scan` tells: by Python."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from lakechime_dagster.schema.scan import scanned

PAYLOAD = "payload"
TOLD = ("reason", "type", "producer", "hash", "names_hash", "flags")


def scan(frame: DataFrame, type_field: tuple[str, ...], producer_field: tuple[str, ...]) -> DataFrame:
    """The frame, whose column `payload` is binary, with the columns of TOLD behind its own; `flags` are told with commas."""
    schema = StructType([*frame.schema, *(StructField(name, StringType()) for name in TOLD)])
    return frame.mapInArrow(_Scan(to_arrow_schema(schema), type_field, producer_field), schema)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Scan:
    out: pa.Schema
    type_field: tuple[str, ...]
    producer_field: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            told = [scanned(payload, self.type_field, self.producer_field) for payload in batch.column(PAYLOAD).to_pylist()]
            rows = [(one.reason, one.type, one.producer, one.typed_hash, one.names_hash, ",".join(one.flags) or None) for one in told]
            columns = zip(*rows, strict=True) if rows else [[]] * len(TOLD)
            arrays = [*batch.columns, *(pa.array(column, pa.string()) for column in columns)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.out)
