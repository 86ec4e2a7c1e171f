"""Plain functions over Arrow's batches, which Spark's workers call, or this process."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

Batches = Iterator[pa.RecordBatch]
OnBatches = Callable[[Batches], Batches]

CHUNK = 10_000  # rows of a batch that is sent back


def on_batches(rows: DataFrame, function: OnBatches, schema: str | StructType) -> DataFrame:
    """The rows that a plain function over Arrow's batches makes of these, in Spark's workers."""
    return rows.mapInArrow(function, schema)  # type: ignore[arg-type]


def rows_of(batches: Batches) -> Iterator[tuple[Any, ...]]:
    """The rows of batches, one after another."""
    for batch in batches:
        yield from zip(*[column.to_pylist() for column in batch.columns], strict=True)


def record_batches(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> Batches:
    """Rows as batches of a schema."""
    for start in range(0, len(rows), CHUNK):
        columns = zip(*rows[start : start + CHUNK], strict=True)
        arrays = [pa.array(list(values), schema.field(i).type) for i, values in enumerate(columns)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
