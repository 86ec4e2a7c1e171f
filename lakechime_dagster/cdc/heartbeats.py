"""Changes of a heartbeat table, which tell how far the database's log was read even while other tables are quiet.

A connector's own heartbeats tell its clock, also while it is far behind the log; a row that changes in the database
(Debezium: `heartbeat.action.query`) comes through the log in its order, with the database's time.
"""

from fnmatch import fnmatchcase
from typing import Any

from lakechime_dagster.cdc.debezium import is_envelope
from lakechime_dagster.cdc.flattened import unflattened
from lakechime_dagster.cdc.message import parsed
from lakechime_dagster.cdc.reading import EnvelopeReader
from lakechime_dagster.cdc.record import Beat, Control, Reading, Record

_STREAMED = {"c", "u", "d"}


class BeatReader(EnvelopeReader):
    """Reads the messages of a table's topics, and among them those of a heartbeat table of Debezium's.

    Args:
        reader: Of the other messages.
        topics: A glob of the heartbeat table's topics.
    """

    def __init__(self, reader: EnvelopeReader, topics: str) -> None:
        self._reader, self._topics = reader, topics

    def read(self, record: Record) -> Reading:
        """What a message tells; one that cannot be read says why."""
        return super().read(record) if fnmatchcase(record.topic, self._topics) else self._reader.read(record)

    def _read(self, record: Record, is_exact: bool) -> Reading:
        value = None if record.value is None else parsed(record.value, "value", is_exact=is_exact)
        payload = value.get("payload", value) if isinstance(value, dict) else None
        return Control.HEARTBEAT if payload is None else beat_of(payload)


def beat_of(payload: dict[str, Any]) -> Reading:
    """How far the log of a server had come with a change; a row that a snapshot read tells nothing of that."""
    envelope = payload if is_envelope(payload) else unflattened(payload)
    server, at = envelope["source"].get("name"), envelope["source"].get("ts_ms")
    if envelope["op"] not in _STREAMED or not isinstance(server, str) or not server or type(at) is not int:
        return Control.HEARTBEAT
    return Beat(server, at)
