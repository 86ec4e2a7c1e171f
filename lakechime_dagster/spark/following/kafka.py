"""Makes rows of the bronze table of messages that Kafka holds, also in the processes that work for Spark."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakechime_dagster.cdc.messages.bronze_rows import Message, bronze_row
from lakechime_dagster.cdc.messages.reading import EnvelopeReader
from lakechime_dagster.cdc.messages.record import Record


@dataclass(frozen=True, kw_only=True)
class Messages:
    """Makes rows of the bronze table of what `read_topics` reads, for `mapInArrow`."""

    out: pa.Schema
    reader: Callable[[], EnvelopeReader]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = self.reader()
        for batch in batches:
            rows = [bronze_row(_message(row), reader) for row in batch.to_pylist()]
            if rows:
                arrays = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), self.out, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.out)


def _message(row: Mapping[str, Any]) -> Message:
    headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
    record = Record(
        topic=row["topic"], topic_id=row["topic_id"], partition=row["partition"], offset=row["offset"], key=row["key"], value=row["value"],
        headers={name: content for name, content in headers if content is not None},
    )  # fmt: skip
    return Message(record=record, headers=headers, timestamp_ms=round(row["timestamp"].timestamp() * 1000))
