"""What each payload of a frame is, told by one of two back-ends that agree on every byte: our tokenizer in the JVM, or plain Python."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakechime_dagster.schema.scan import scanned
from lakechime_dagster.spark.batches import on_batches
from lakechime_dagster.spark.ddl import struct_of
from lakechime_dagster.spark.events.tokenizer import ROW, Tokenizer
from lakechime_dagster.spark.names import column

COLUMNS = ("reason", "type", "producer", "hash", "names_hash", "flags")

_PAYLOAD, _SCANNED = "__payload", "__scanned"


def scan(
    frame: DataFrame, payload: str, type_field: tuple[str, ...], producer_field: tuple[str, ...] = (), *, back_end: Tokenizer | None
) -> DataFrame:
    """The frame with `COLUMNS` at its end, as `schema.scan` tells them of each payload; flags are joined by commas, null if there are none.

    Args:
        frame: Columns that have these names already are replaced, the others kept.
        payload: The column of payloads, binary or text; null is an empty one.
        type_field: The names of the fields that lead to an event's type.
        producer_field: Of those that lead to its producer; none if no field tells it.
        back_end: The tokenizer of the frame's JVM; without one, Python tells the same several times slower.
    """
    others = [name for name in frame.columns if name.lower() not in COLUMNS]
    kept, read = [column(name) for name in others], column(payload).cast("binary")
    if back_end is None:
        rows = frame.select(*kept, read.alias(_PAYLOAD))
        schema = StructType([*rows.schema.fields[:-1], *struct_of(ROW)])
        numbered = rows.toDF(*map(str, range(len(rows.columns))))  # `mapInArrow` finds no column that has a dot in its name
        return on_batches(numbered, _Scan(type_field, producer_field, schema.names), schema)
    function = back_end.registered(frame.sparkSession, type_field, producer_field)
    rows = frame.select(*kept, F.call_udf(function, read).alias(_SCANNED))
    return rows.select(*kept, *(F.col(_SCANNED)[name].alias(name) for name in COLUMNS))


@dataclass(frozen=True)
class _Scan:
    """Replaces the last column of batches, the payload, by what `scanned` tells of it."""

    type_field: tuple[str, ...]
    producer_field: tuple[str, ...]
    names: list[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            told = [self._row(payload or b"") for payload in batch.column(batch.num_columns - 1).to_pylist()]
            columns = [pa.array([row[i] for row in told], pa.string()) for i in range(len(COLUMNS))]
            yield pa.RecordBatch.from_arrays([*batch.columns[:-1], *columns], names=self.names)

    def _row(self, payload: bytes) -> tuple[str | None, ...]:
        found = scanned(payload, self.type_field, self.producer_field)
        return (found.reason, found.type, found.producer, found.typed_hash, found.names_hash, ",".join(found.flags) or None)
