"""Rows read from a database at a consistent snapshot, as a bronze table keeps them beside the messages of whatever tool.

A repair and a load write them. Their topic ids begin with `REPAIRS`, and every table reads them alike. A row stands at the
position of its snapshot: above all changes below that position, and below all changes above it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from lakechime_dagster.cdc.change import Change, Operation
from lakechime_dagster.cdc.meaning.wire import parsed_row, row_text
from lakechime_dagster.cdc.messages.reading import EnvelopeReader, key_of, order_of
from lakechime_dagster.cdc.messages.record import Changes, Reading, Record
from lakechime_dagster.cdc.order import REPAIRS, Position


@dataclass(frozen=True, kw_only=True)
class SnapshotRows:
    """What the rows of one snapshot have in common.

    Attributes:
        source: The table of the server, as changes name it.
        types: The types of the columns, in Spark's words, as the table's messages have them.
        defaults: The constant defaults of columns.
        position: Of the snapshot in the database's log.
        ts_ms: The newest time that the messages report. A row reports no later one, which would say that all changes before it arrived.
    """

    source: str
    types: Mapping[str, str]
    defaults: Mapping[str, Any]
    position: Position
    ts_ms: int | None

    def value(self, row: Mapping[str, Any], *, is_deleted: bool = False) -> bytes:
        """A row as the value of a record; of one that the database does not have its key alone."""
        shared = {"source": self.source, "position": self.position, "ts_ms": self.ts_ms, "types": dict(self.types)}
        parts = {"defaults": orjson.Fragment(row_text(self.defaults)), "row": orjson.Fragment(row_text(row)), "deleted": is_deleted}
        return orjson.dumps({**shared, **parts})


class SnapshotRowReader(EnvelopeReader):
    """Reads such rows, and has another reader read all messages.

    Args:
        reader: Of the messages.
        keys: The columns of the table's key, in their order.
    """

    def __init__(self, reader: EnvelopeReader, keys: tuple[str, ...]) -> None:
        self._reader, self._keys = reader, keys
        self._schemas: dict[bytes, tuple[Mapping[str, str], Mapping[str, Any]]] = {}

    def read(self, record: Record) -> Reading:
        """What a message says; one that cannot be read says why."""
        return super().read(record) if record.topic_id.startswith(REPAIRS) else self._reader.read(record)

    def _read(self, record: Record, is_exact: bool) -> Reading:
        try:
            found = orjson.loads(record.value or b"")
            operation = Operation.DELETE if found["deleted"] else Operation.READ
            row, position = parsed_row(found["row"]), tuple(found["position"])
            types, defaults = self._schema(found)
            source, event_ms = found["source"], found["ts_ms"]
        except (KeyError, TypeError) as problem:
            raise ValueError(f"value: it is no row of a snapshot: {problem!r}") from problem
        change = Change(
            source=source, operation=operation, order=order_of(record, operation, position), key=key_of(row, self._keys, "row"),
            columns={} if found["deleted"] else row, omitted=() if found["deleted"] else tuple(name for name in types if name not in row),
            event_ms=event_ms,
        )  # fmt: skip
        return Changes((change,), types, defaults)

    def _schema(self, found: Mapping[str, Any]) -> tuple[Mapping[str, str], Mapping[str, Any]]:
        """Types and defaults, one object for all rows that have the same ones."""
        text = orjson.dumps([found["types"], found["defaults"]])
        return self._schemas.get(text) or self._schemas.setdefault(text, (found["types"], parsed_row(found["defaults"])))
