"""Changes of a heartbeat table, which tell how far the database's log was read even while other tables are quiet.

A connector's own heartbeats tell its clock, also while it is far behind the log; a row that changes in the database
(Debezium: `heartbeat.action.query`) comes through the log in its order, with the database's time.
"""

from typing import Any

from lakechime_dagster.cdc.messages.debezium import is_envelope, source_block
from lakechime_dagster.cdc.messages.flattened import unflattened
from lakechime_dagster.cdc.messages.message import payload_of
from lakechime_dagster.cdc.messages.reading import ReaderBeside
from lakechime_dagster.cdc.messages.record import Beat, Control, Reading, Record

_STREAMED = {"c", "u", "d"}


class BeatReader(ReaderBeside):
    """Reads the messages of a table's topics, and among them those of a heartbeat table of Debezium's."""

    def _read(self, record: Record, is_exact: bool) -> Reading:
        payload = None if record.value is None else payload_of(record.value, "value", is_exact=is_exact)
        return beat_of(payload) if isinstance(payload, dict) else Control.HEARTBEAT


def beat_of(payload: dict[str, Any]) -> Reading:
    """How far the log of a server had come with a change; a row that a snapshot read tells nothing of that."""
    envelope = payload if is_envelope(payload) else unflattened(payload)
    source = source_block(envelope)
    server, at = source.get("name"), source.get("ts_ms")
    if envelope["op"] not in _STREAMED or not isinstance(server, str) or not server or type(at) is not int:
        return Control.HEARTBEAT
    return Beat(server, at)
