"""Messages of files of JSON lines, read slice by slice by plain Python, also in the processes that work for Spark."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from lakechime_dagster.cdc.messages.bronze_rows import Message, bronze_row
from lakechime_dagster.cdc.messages.reading import EnvelopeReader, as_object, shown
from lakechime_dagster.cdc.messages.record import Record
from lakechime_dagster.spark.feeds.files import Slice, batches

Batches = Iterator[pa.RecordBatch]


def message_of(name: str, at: int, line: bytes, written_ms: int | None) -> Message:
    """A line that is the value of a message: its topic is the file, its offset the byte at which it begins there."""
    return Message(record=Record(topic=name, value=line, offset=at), timestamp_ms=written_ms)


def record_of(name: str, at: int, line: bytes, written_ms: int | None) -> Message:
    """A line that holds the parts of a message as Kafka has them; one that does not is a message whose value it is."""
    try:
        return _record(line)
    except ValueError as problem:
        return Message(record=Record(topic=name, value=line, offset=at), timestamp_ms=written_ms, problem=f"record: {problem}")


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Reads the messages of some slices as rows of the bronze table; asked by the numbers of tasks."""

    out: pa.Schema
    folder: Path
    parts: Sequence[Sequence[Slice]]
    is_records: bool
    reader: Callable[[], EnvelopeReader]

    def __call__(self, asked: Batches) -> Batches:
        reader = self.reader()
        for batch in asked:
            for number in batch.column(0).to_pylist():
                yield from self._rows(self.parts[number], reader)

    def _rows(self, parts: Sequence[Slice], reader: EnvelopeReader) -> Batches:
        told = record_of if self.is_records else message_of
        for found in batches(self.folder, parts):
            yield self._batch([bronze_row(told(one.name, one.at, one.content, one.written_ns // 1_000_000), reader) for one in found])

    def _batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        arrays = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), self.out, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.out)


def _record(line: bytes) -> Message:
    try:
        found = as_object("line", orjson.loads(line))
    except orjson.JSONDecodeError as problem:
        raise ValueError(f"{line[:60]!r} is no JSON: {problem}") from problem
    pairs = _headers(found.get("headers"))
    record = Record(
        topic=_part(found, "topic", str), topic_id=_part(found, "topic_id", str, ""), partition=_number(found, "partition", 31),
        offset=_number(found, "offset", 63), key=_bytes(found, "key"), value=_bytes(found, "value"),
        headers={name: content for name, content in pairs if content is not None},
    )  # fmt: skip
    return Message(record=record, headers=pairs, timestamp_ms=_part(found, "timestamp_ms", int, None))


def _part(found: Mapping[str, Any], name: str, kind: type, default: Any = ...) -> Any:
    value = found.get(name, default)
    if value is default or (value is None and default is None):
        if default is ...:
            raise ValueError(f"{name} is not there; a line holds {', '.join(('topic', 'partition', 'offset', 'key', 'value'))}")
        return default
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name}: it is {'text' if kind is str else 'a whole number'}, not {shown(value)}")
    return value


def _number(found: Mapping[str, Any], name: str, bits: int) -> int:
    value = _part(found, name, int)
    if not 0 <= value < 2**bits:
        raise ValueError(f"{name}: it is a number of at most {bits} bits, not {shown(value)}")
    return value


def _bytes(found: Mapping[str, Any], name: str) -> bytes | None:
    if name not in found:
        raise ValueError(f"{name} is not there; a message without one has null")
    text = _part(found, name, str, None)
    return None if text is None else text.encode()


def _headers(found: Any) -> list[tuple[str, bytes | None]]:
    if found is None:
        return []
    pairs = found if isinstance(found, list) else None
    if pairs is None or not all(isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) for one in pairs):
        raise ValueError(f"headers: they are pairs of a name and a text, not {shown(found)}")
    if not all(isinstance(content, str | None) for _, content in pairs):
        raise ValueError(f"headers: they are pairs of a name and a text, not {shown(found)}")
    return [(name, None if content is None else content.encode()) for name, content in pairs]
