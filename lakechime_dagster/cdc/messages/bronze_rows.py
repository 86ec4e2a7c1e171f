"""A message and what was read of it, as a row of the bronze table (`bronze.COLUMNS`)."""

import datetime as dt
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from lakechime_dagster.cdc.change import Key
from lakechime_dagster.cdc.messages.bronze import Kind
from lakechime_dagster.cdc.messages.reading import EnvelopeReader
from lakechime_dagster.cdc.messages.record import Beat, Changes, Control, OtherTable, Reading, Record, Tombstone, TransactionEnd, Unreadable
from lakechime_dagster.cdc.messages.transactions import END, transaction_id
from lakechime_dagster.dce.partition import canonical_json

_CHANGE = Kind.CHANGE.value
_LEAST, _MOST = -(2**63), 2**63 - 1
_LAST_MS = 253_402_300_799_999  # the end of the year 9999; a time beyond is none


class Message(NamedTuple):
    """A message as a feed holds it.

    Attributes:
        record: What readers read of it.
        headers: All of them; one name may be there several times.
        timestamp_ms: When it was written, where that is told.
        problem: Why its parts cannot be told, so that its value is all that there is of it; empty where they can.
    """

    record: Record
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    problem: str = ""


class Read(NamedTuple):
    """What was read of a message, in the order of the last columns of the table."""

    kind: str
    source: str | None = None
    op: str | None = None
    row_key: str | None = None
    position: list[int] | None = None
    ts_ms: int | None = None
    snapshot: str | None = None
    transaction: str | None = None
    transaction_order: int | None = None
    transaction_counts: str | None = None
    problem: str | None = None


def bronze_row(message: Message, reader: EnvelopeReader) -> tuple[Any, ...]:
    """The row of a message, in the order of the columns; nothing that a message can hold hinders it.

    Its time is in microseconds since the epoch.
    """
    record, headers, timestamp_ms, problem = message
    read = unreadable(problem) if problem else read_of(reader.read(record))
    key, key_bytes = _text_or_bytes(record.key)
    value, value_bytes = _text_or_bytes(record.value)
    time = timestamp_ms * 1000 if timestamp_ms is not None and 0 <= timestamp_ms <= _LAST_MS else None
    told = [{"key": _clean(name), "value": content} for name, content in headers] if headers else []
    coordinate = record.topic, record.topic_id or record.topic, record.partition, record.offset
    return (*coordinate, time, key, value, key_bytes, value_bytes, told, *read)


def read_of(reading: Reading) -> Read:
    """What a reading says of its message; of several changes the last one."""
    match reading:
        case Changes(changes, placed=placed) if changes:
            last = changes[-1]
            position = list(last.order.position) or None
            if position is not None and not (min(position) >= _LEAST and max(position) <= _MOST):
                return unreadable(f"source: the position {position} has a number of more than 64 bits")
            key = key_text(last.key) if last.key else None
            snapshot = None if last.snapshot is None else _clean(last.snapshot)
            within = (None, None) if placed is None else (_clean(placed.transaction), placed.order)
            return Read(_CHANGE, _clean(last.source), last.operation.value, key, position, _whole(last.event_ms), snapshot, *within)
        case Changes():
            return Read(_CHANGE)
        case Tombstone(key):
            return Read(Kind.TOMBSTONE.value, row_key=None if key is None else key_text(key))
        case Beat(server, ts_ms):
            return Read(Control.HEARTBEAT.value, _clean(server), ts_ms=_whole(ts_ms))
        case TransactionEnd(told, counts):
            counted = canonical_json({_clean(name): count for name, count in counts.items()})
            return Read(Control.TRANSACTION.value, op=END, transaction=_clean(transaction_id(told)), transaction_counts=counted)
        case Control() as control:
            return Read(control.value)
        case OtherTable(name):
            return Read(Kind.OTHER_TABLE.value, _clean(name))
        case Unreadable(reason):
            return unreadable(reason)


def unreadable(problem: str) -> Read:
    return Read(Kind.UNREADABLE.value, problem=_clean(problem))


def key_text(key: Key) -> str:
    """The values of a key's columns as a JSON array; what JSON has no type for as text."""
    try:
        return orjson.dumps([_plain(value) for value in key]).decode()
    except TypeError:  # a number of more than 64 bits, or half of a surrogate
        return _clean(canonical_json([_plain(value) for value in key]))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    match value:
        case bytes():
            return value.hex()
        case list() | tuple():
            return [_plain(one) for one in value]
        case dt.date() | dt.time():  # of times the ones with a date too
            return value.isoformat()
        case _:
            return str(value)


def _text_or_bytes(raw: bytes | None) -> tuple[str | None, bytes | None]:
    if raw is None:
        return None, None
    try:
        return raw.decode(), None
    except UnicodeDecodeError:
        return None, raw


def _whole(value: Any) -> int | None:
    """A number that a column of 64 bits holds; messages may hold anything in its place."""
    return value if isinstance(value, int) and not isinstance(value, bool) and _LEAST <= value <= _MOST else None


def _clean(text: str) -> str:
    """A text without lone surrogates, which no UTF-8 has."""
    return text if text.isascii() else text.encode(errors="replace").decode()
