"""Canonical texts (`canonical`) written as the values of Debezium's and Kafka Connect's JSON messages: what `values` reads, backwards."""

import datetime
import struct
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from lakechime_dagster.cdc.schemas.connect import ConnectSchema
from lakechime_dagster.cdc.schemas.values import EXACT


def written(schema: ConnectSchema, text: str) -> Any:
    """A canonical text as JSON of a schema.

    Raises:
        ValueError: No values of the schema are written.
        ArithmeticError, KeyError: The text is none of its values.
    """
    write = _BY_NAME.get(schema.name or "") or _BY_TYPE.get(schema.type)
    if write is None:
        raise ValueError("such values are not written yet")
    return write(schema, text)


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


def _single(schema: ConnectSchema, text: str) -> float | str:
    """One of 32 bits as the shortest number that means it."""
    value = _float(schema, text)
    if isinstance(value, str):
        return value
    shortest = (float(f"{value:.{digits}g}") for digits in range(6, 10))
    return next(one for one in shortest if struct.pack("f", one) == struct.pack("f", value))


def _moment(microseconds: str) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=int(microseconds))


def _time(ticks: int) -> Callable[[ConnectSchema, str], int]:
    """A time of day as a number of units of which there are so many a second."""

    def write(_: ConnectSchema, text: str) -> int:
        hours, minutes, seconds = text.removeprefix("-").split(":")
        value = int((Decimal(hours) * 3600 + Decimal(minutes) * 60 + Decimal(seconds.rstrip(".") or "0")) * ticks)
        return -value if text.startswith("-") else value

    return write


def _as_text(_: ConnectSchema, text: str) -> str:
    return text


def _as_int(_: ConnectSchema, text: str) -> int:
    return int(text)


Write = Callable[[ConnectSchema, str], Any]
_BY_NAME: dict[str, Write] = {
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
_BY_TYPE: dict[str, Write] = {
    "boolean": lambda _, text: text == "1",
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _as_int),
    "float": _single,
    "double": _float,
    "string": _as_text,
    "bytes": lambda _, text: b64encode(bytes.fromhex(text)).decode(),
}
