"""Messages that put rows right which a table lost: what the database says of them at a cut, in the words of its own messages.

Such a message is what Debezium's snapshot would have written there and then: a row that was read (`r`), or the deletion of
one that is not there (`d`), at the place of the cut. Its order is above all that the cut holds, and below all that came later.
"""

import datetime
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import orjson

from lakechime_dagster.cdc.checksum import Comparison
from lakechime_dagster.cdc.compare import Key
from lakechime_dagster.cdc.connect import ConnectSchema, connect_schema
from lakechime_dagster.cdc.debezium import is_envelope
from lakechime_dagster.cdc.log_place import BinlogPlace, LogPlace
from lakechime_dagster.cdc.message import parsed
from lakechime_dagster.cdc.monitored import key_shown
from lakechime_dagster.cdc.reading import EnvelopeReader
from lakechime_dagster.cdc.record import Changes, Record
from lakechime_dagster.cdc.values import EXACT
from lakechime_dagster.errors import LakeChimeError

REPAIRS = "lakechime-repair/"  # with which the topic ids of such messages begin
ORIGIN = ("lakechime-origin", b"repair")  # their header
Texts = Mapping[str, str | None]  # the canonical texts of a row, by column


class UnrepairableError(LakeChimeError):
    """A row cannot be put right by a message; says why, and what can be done instead."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """In what words a table's messages are written, by one of them.

    `newest_ms` is the newest time that its source has told of: a repair tells of no later one, which would say that all before
    it is complete.
    """

    table: str
    newest_ms: int | None
    schema: Mapping[str, Any]
    source: Mapping[str, Any]
    columns: Mapping[str, ConnectSchema]


@dataclass(frozen=True, kw_only=True)
class RowWriter:
    """Writes what the database says of keys at one cut."""

    words: Words
    cut: LogPlace
    comparison: Comparison
    reader: EnvelopeReader

    def record(self, at: Record, key: Key, row: Texts | None) -> Record:
        """The message at a coordinate, read back and held against the database's texts; None is no row.

        Raises:
            UnrepairableError: A value has no form in a message, or it would say something else.
        """
        told = dict(zip(self.comparison.keys, key, strict=True))
        record = replace(at, key=key_shown(key).encode(), value=repair_message(self.words, self.cut, told, row))
        check_message(record, self.reader, self.comparison, told, row)
        return record


def words_of(table: str, message: Record, newest_ms: int | None) -> Words:
    """The words of a message of Debezium.

    Raises:
        UnrepairableError: It brings no schema, is flattened, or comes from a database for which no place can be written.
    """
    remedy = f"put {table} right by a new snapshot of the connector"
    found = parsed(message.value or b"null", "value", is_exact=False)
    if not isinstance(found, dict) or found.keys() != {"schema", "payload"} or not is_envelope(found["payload"] or {}):
        raise UnrepairableError(f"{table}: its messages bring no schema, or are flattened to the row, and cannot be written; {remedy}")
    row = connect_schema(found["schema"]).field("after")
    source = found["payload"]["source"]
    if row is None or source.get("connector") not in ("mariadb", "mysql"):
        raise UnrepairableError(
            f"{table}: a place of {source.get('connector')} cannot be written yet, only those of MariaDB's binary log; {remedy}"
        )
    return Words(table=table, newest_ms=newest_ms, schema=found["schema"], source=source, columns=dict(row.fields))


def repair_message(words: Words, cut: LogPlace, key: Texts, row: Texts | None) -> bytes:
    """What says of a key which row it has at a cut; None is no row. Columns that the message's schema does not have are left out.

    Raises:
        UnrepairableError: A value has no form in a message.
    """
    assert isinstance(cut, BinlogPlace)  # as `words_of` asked
    source = {**words.source, **_at(words.source["file"], cut), "snapshot": "false", "ts_ms": words.newest_ms}
    source |= {name: None for name in ("gtid", "thread", "query", "sequence") if name in source}
    payload = {
        "before": _told(words, key) if row is None else None, "after": None if row is None else _told(words, row),
        "source": source, "op": "d" if row is None else "r", "ts_ms": words.newest_ms,
    }  # fmt: skip
    return orjson.dumps({"schema": words.schema, "payload": payload})


def check_message(record: Record, reader: EnvelopeReader, comparison: Comparison, key: Texts, row: Texts | None) -> None:
    """Read a message as the table will, and compare what it says with the database's own texts.

    Raises:
        UnrepairableError: It would say something else.
    """
    reading = reader.read(record)
    if not isinstance(reading, Changes) or len(reading.changes) != 1:
        raise UnrepairableError(f"key {dict(key)}: the message that would put it right cannot be read: {reading}")
    (change,) = reading.changes
    told = dict(zip(comparison.keys, change.key, strict=True)) if row is None else dict(change.columns)
    for name, text in (key if row is None else row).items():
        found = comparison.columns[name][1]
        value = told.get(name)
        if name in told and (None if value is None else found.twin(value)) != text:
            raise UnrepairableError(f"key {dict(key)}: column {name} would become {value!r}, and the database has it as {text!r}")


def _at(file: str, cut: BinlogPlace) -> dict[str, Any]:
    """The place of a cut, its file named as the connector names them."""
    number, byte = cut.position[:2]
    named = re.sub(r"\d+$", lambda found: f"{number:0{len(found[0])}}", file)
    return {"file": named, "pos": byte, "row": 0}


def _told(words: Words, row: Texts) -> dict[str, Any]:
    told = dict[str, Any]()
    for name, text in row.items():
        if (schema := words.columns.get(name)) is None:
            continue
        try:
            told[name] = None if text is None else _value(schema, text)
        except (ValueError, ArithmeticError, KeyError) as problem:
            kind = schema.name or schema.type
            raise UnrepairableError(f"{words.table}: column {name}, {text!r}, has no form as {kind}: {problem}") from problem
    return told


def _value(schema: ConnectSchema, text: str) -> Any:
    """A canonical text as JSON of a schema."""
    written = _BY_NAME.get(schema.name or "") or _BY_TYPE.get(schema.type)
    if written is None:
        raise ValueError("such values are not written yet")
    return written(schema, text)


def _number(value: int) -> str:
    return b64encode(value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)).decode()


def _decimal(schema: ConnectSchema, text: str) -> str:
    return _number(int(Decimal(text).scaleb(int(schema.parameters["scale"]), EXACT)))


def _variable_scale(_: ConnectSchema, text: str) -> dict[str, Any]:
    scale = len(text.partition(".")[2])
    return {"scale": scale, "value": _number(int(Decimal(text).scaleb(scale, EXACT)))}


def _bits(_: ConnectSchema, text: str) -> str:
    return b64encode(int(text, 2).to_bytes((len(text) + 7) // 8, "little")).decode()


def _float(_: ConnectSchema, text: str) -> float | str:
    value: float = struct.unpack(">d", bytes.fromhex(text))[0]
    return value if abs(value) < float("inf") else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")


def _moment(microseconds: str) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=int(microseconds))


def _time(ticks: int) -> Callable[[ConnectSchema, str], int]:
    """A time of day as a number of units of which there are so many a second."""

    def written(_: ConnectSchema, text: str) -> int:
        hours, minutes, seconds = text.removeprefix("-").split(":")
        value = int((Decimal(hours) * 3600 + Decimal(minutes) * 60 + Decimal(seconds.rstrip(".") or "0")) * ticks)
        return -value if text.startswith("-") else value

    return written


def _as_text(_: ConnectSchema, text: str) -> str:
    return text


def _as_int(_: ConnectSchema, text: str) -> int:
    return int(text)


Written = Callable[[ConnectSchema, str], Any]
_BY_NAME: dict[str, Written] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "org.apache.kafka.connect.data.Date": _as_int,
    "org.apache.kafka.connect.data.Time": _time(1_000),
    "org.apache.kafka.connect.data.Timestamp": lambda _, text: int(text) // 1_000,
    "io.debezium.data.VariableScaleDecimal": _variable_scale,
    "io.debezium.data.Bits": _bits,
    "io.debezium.time.Date": _as_int,
    "io.debezium.time.Time": _time(1_000),
    "io.debezium.time.MicroTime": _time(1_000_000),
    "io.debezium.time.NanoTime": _time(1_000_000_000),
    "io.debezium.time.Timestamp": lambda _, text: int(text) // 1_000,
    "io.debezium.time.MicroTimestamp": _as_int,
    "io.debezium.time.NanoTimestamp": lambda _, text: int(text) * 1_000,
    "io.debezium.time.ZonedTimestamp": lambda _, text: _moment(text).isoformat() + "Z",
    "io.debezium.time.IsoDate": lambda _, text: (datetime.date(1970, 1, 1) + datetime.timedelta(days=int(text))).isoformat(),
    "io.debezium.time.IsoTimestamp": lambda _, text: _moment(text).isoformat(),
}
_BY_TYPE: dict[str, Written] = {
    "boolean": lambda _, text: text == "1",
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _as_int),
    **dict.fromkeys(("float", "double"), _float),
    "string": _as_text,
    "bytes": lambda _, text: b64encode(bytes.fromhex(text)).decode(),
}


def left_out(words: Words, lake: Sequence[str], comparison: Comparison) -> list[str]:
    """The columns of the lake's table that a message cannot carry."""
    return [name for name in lake if name not in words.columns or name not in comparison.columns]
