"""Values of change messages, read by the types that their schemas, or declarations, have for them."""

import datetime
import decimal
import hashlib
import json
import math
import re
import struct
import uuid
from base64 import b64decode, b64encode
from binascii import a2b_base64, unhexlify
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from types import NoneType
from typing import Any

from lakechime_dagster.compat import date_of_iso, datetime_of_iso
from lakechime_dagster.tables.databases import PLACEHOLDER, BinaryText


@dataclass(frozen=True)
class ConnectSchema:
    """A schema of Kafka Connect.

    `type` is one of Connect's own (int8 to int64, float, double, boolean, string, bytes, array,
    map, struct); `name` says what such a value means, such as `io.debezium.time.Date`, and stands
    with its `parameters`. `default` is written as values are.
    """

    type: str
    name: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    is_optional: bool = True
    default: Any = None
    fields: tuple[tuple[str, "ConnectSchema"], ...] = ()  # of a struct, in their order
    items: "ConnectSchema | None" = None  # of an array, or the values of a map

    def field(self, name: str) -> "ConnectSchema | None":
        """The schema of a struct's field; None if it has no such field."""
        return dict(self.fields).get(name)


def connect_schema(found: Any) -> ConnectSchema:
    """The schema that a JSON value describes.

    Raises:
        ValueError: It is none.
    """
    kind, name, parameters, fields = (
        _part(found, part) for part in ("type", "name", "parameters", "fields")
    )
    items = found.get("items", found.get("values"))
    return ConnectSchema(
        type=kind,
        name=name,
        parameters={key: str(value) for key, value in (parameters or {}).items()},
        is_optional=bool(found.get("optional", True)),
        default=found.get("default"),
        fields=tuple((_part(one, "field"), connect_schema(one)) for one in fields or ()),
        items=None if items is None else connect_schema(items),
    )


_PARTS: Mapping[str, tuple[type, ...]] = {
    "type": (str,),
    "field": (str,),
    "name": (str, NoneType),
    "parameters": (dict, NoneType),
    "fields": (list, NoneType),
}


def _part(found: Any, part: str) -> Any:
    if not isinstance(found, Mapping):
        raise ValueError(f"schema: a schema of Kafka Connect is an object, not {repr(found)[:80]}")
    if not isinstance(found.get(part), _PARTS[part]):
        raise ValueError(
            f"schema: {part!r} of a schema of Kafka Connect is {_PARTS[part][0].__name__}, not "
            f"{repr(found.get(part))[:80]}"
        )
    return found.get(part)


MAX_PRECISION = 38
# a parameter of a column's schema, with `column.propagate.source.type`
SOURCE_TYPE = "__debezium.source.column.type"

_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1)  # a wall clock
_UTC_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
# what PostgreSQL's own driver says for infinity, in units of its own
_INFINITE = (-9223372036832400000, 9223372036825200000)
# what Debezium 3.5 makes of PostgreSQL's infinite dates, when it reads a snapshot and when it
# streams the log; no date is there
_INFINITE_DAYS = {
    -622191234: 1,
    -625821272: 0,
    -2147472692: 1,
    -2147472691: 0,
    2**31 - 1: 1,
    -(2**31): 0,
}
_INFINITE_TEXT = {
    "infinity": 1,
    "-infinity": 0,
    "+292278994-08-16": 1,
    "+292269055-12-02": 0,
    "-5877611-06-21": 1,
    "-5877611-06-22": 0,  # dates
    "+294247-01-10T04:00:25.2": 1,
    "-290308-12-21T19:59:27.6": 0,  # wall clocks
}
_WALL = (datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999))
_INSTANTS = tuple(wall.replace(tzinfo=datetime.timezone.utc) for wall in _WALL)

EXACT = decimal.Context(prec=400, traps=[decimal.Inexact, decimal.InvalidOperation])

Decode = Callable[[Any], Any]


class InexactNumberError(Exception):
    """A number was read as a binary fraction where a decimal one stands: the message must be read
    by exact numbers.
    """


@dataclass(frozen=True)
class ValueType:
    """How a value of a message becomes one of the lake: its type, in Spark's words, and the
    function that reads it.

    `decode` takes what a JSON parser gives and is not called for null. It raises ValueError,
    TypeError or KeyError for what the schema does not allow, and `InexactNumberError`.
    """

    ddl: str
    decode: Decode


def _as_written(value: Any) -> str:
    """Text as it is, a number as it is written, an object or an array as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        raise InexactNumberError
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)


AS_WRITTEN = ValueType("string", _as_written)


def value_type(schema: ConnectSchema) -> ValueType:
    """The type that a schema means; one whose name is not known is read by its Connect type."""
    meaning = _BY_NAME.get(schema.name or "")
    return meaning(schema) if meaning is not None else _BY_TYPE.get(schema.type, _unknown)(schema)


def unavailable(schema: ConnectSchema, placeholder: str = PLACEHOLDER) -> Any:
    """How a message of this schema says that it does not carry the value; None if it has no way to
    say so.
    """
    raw = placeholder.encode()
    match schema.type:
        case "string":
            return placeholder
        case "bytes":
            return b64encode(raw).decode()
        case "map":
            return {placeholder: placeholder}
        case "array" if schema.items is not None and schema.items.type in ("int32", "int64"):
            return list(raw)
        case "array" if schema.items is not None and schema.items.name == "io.debezium.data.Uuid":
            return [str(_name_uuid(raw))]
        case "array":
            return [placeholder]
        case _:
            return None


def _name_uuid(raw: bytes) -> uuid.UUID:
    """Java's UUID.nameUUIDFromBytes: version 3 without a name space."""
    return uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)


def _integer(low: int, high: int, ddl: str) -> Callable[[ConnectSchema], ValueType]:
    def decode(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"is no {ddl}")
        return value

    return lambda _: ValueType(ddl, decode)


def _long(schema: ConnectSchema) -> ValueType:
    """A whole number of 64 bits, which is one without a sign where the column is known to be a
    BIGINT UNSIGNED.
    """
    declared = schema.parameters.get(SOURCE_TYPE, "").upper()
    return _UNSIGNED_LONG if declared.startswith("BIGINT UNSIGNED") else _SIGNED_LONG(schema)


def _unsigned_long(value: Any) -> Decimal:
    """Debezium writes the bits of a BIGINT UNSIGNED as a number with a sign
    (`bigint.unsigned.handling.mode=long`, its default).
    """
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError("is no number of 64 bits")
    return Decimal(value % 2**64)


def _float(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError("is no number")
    return float(value)  # text too: NaN and the infinities have no JSON number


def _single(value: Any) -> float:
    return single(_float(value))


def single(value: float) -> float:
    """The number of 32 bits that is nearest to a double, as the double that equals it.

    Raises:
        OverflowError: It is too large.
    """
    return struct.unpack("f", struct.pack("f", value))[0]


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("is no boolean")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it is text")
    return value


def _bytes(value: Any) -> bytes:
    return a2b_base64(value, strict_mode=True)


def _decimal(schema: ConnectSchema) -> ValueType:
    scale = int(schema.parameters["scale"])
    precision = int(schema.parameters.get("connect.decimal.precision", MAX_PRECISION))
    if not 0 <= scale <= precision <= MAX_PRECISION:
        return ValueType("string", lambda value: format(_unscaled(value, scale), "f"))
    return ValueType(f"decimal({precision},{scale})", lambda value: _unscaled(value, scale))


def _unscaled(value: Any, scale: int) -> Decimal:
    """A decimal number: Connect's base64 of its unscaled value, or a JSON number
    (`decimal.format=NUMERIC`).
    """
    if isinstance(value, str):
        return Decimal(int.from_bytes(_bytes(value), "big", signed=True)).scaleb(-scale, EXACT)
    if isinstance(value, float):
        raise InexactNumberError
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return Decimal(value).quantize(Decimal(1).scaleb(-scale), context=EXACT)
    raise TypeError("is no decimal number")


def _variable_scale(value: Any) -> str:
    return format(_unscaled(value["value"], int(value["scale"])), "f")


def _days(value: Any) -> datetime.date:
    if type(value) is not int:
        raise TypeError("is no count of days")
    if value in _INFINITE_DAYS:
        return _WALL[_INFINITE_DAYS[value]].date()
    return datetime.date.fromordinal(_EPOCH_DAY + value)


def _iso_date(value: Any) -> datetime.date:
    text = _text(value).removesuffix("Z")
    return _WALL[_INFINITE_TEXT[text]].date() if text in _INFINITE_TEXT else date_of_iso(text)


def _time(ticks: int, digits: int) -> Callable[[ConnectSchema], ValueType]:
    """A time of day as text with as many digits as its unit has, of which there are `ticks` a
    second; negative ones have a sign.
    """

    def decode(value: Any) -> str:
        seconds, fraction = divmod(abs(value), ticks)
        minutes, seconds = divmod(seconds, 60)
        return f"{'-' if value < 0 else ''}{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{fraction:0{digits}}"

    return lambda _: ValueType("string", decode)


def _wall_clock(ticks: int) -> Callable[[ConnectSchema], ValueType]:
    """A date and time without a zone, from a number of units of which there are `ticks` a second;
    below a microsecond it is cut.
    """
    infinite = (
        (-(2**63), 2**63 - 1)
        if ticks > 1_000_000
        else (*_INFINITE, *(one // 1000 for one in _INFINITE))
    )

    def decode(value: Any) -> datetime.datetime:
        if type(value) is not int:
            raise TypeError("is no count of time")
        if value in infinite:
            return _WALL[value > 0]
        return _EPOCH + datetime.timedelta(microseconds=value * 1_000_000 // ticks)

    return lambda _: ValueType("timestamp_ntz", decode)


def _iso_wall_clock(value: Any) -> datetime.datetime:
    text = _text(value).removesuffix("Z")
    return _WALL[_INFINITE_TEXT[text]] if text in _INFINITE_TEXT else datetime_of_iso(text)


def _instant(value: Any) -> datetime.datetime:
    if _text(value) in _INFINITE_TEXT:
        return _INSTANTS[_INFINITE_TEXT[value]]
    found = datetime_of_iso(value)
    if found.tzinfo is None:
        raise ValueError("has no zone")
    return found.astimezone(datetime.timezone.utc)


def _bits(schema: ConnectSchema) -> ValueType:
    length = int(schema.parameters.get("length", 0))

    def decode(value: Any) -> str:
        number = int.from_bytes(_bytes(value), "little")
        return f"{number:0{length}b}"

    return ValueType("string", decode)


def _array(schema: ConnectSchema) -> ValueType:
    items = value_type(_inner(schema))
    return ValueType(
        f"array<{items.ddl}>",
        lambda value: [None if one is None else items.decode(one) for one in _list(value)],
    )


def _map(schema: ConnectSchema) -> ValueType:
    values = value_type(_inner(schema))
    return ValueType(
        f"map<string,{values.ddl}>",
        lambda value: {
            name: None if one is None else values.decode(one) for name, one in value.items()
        },
    )


def _struct(schema: ConnectSchema) -> ValueType:
    types = {name: value_type(inner) for name, inner in schema.fields}

    def decode(value: Any) -> dict[str, Any]:
        return {
            name: None if value[name] is None else inner.decode(value[name])
            for name, inner in types.items()
        }

    return ValueType(
        f"struct<{','.join(f'`{name}`:{inner.ddl}' for name, inner in types.items())}>", decode
    )


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("is no array")
    return value


def _inner(schema: ConnectSchema) -> ConnectSchema:
    if schema.items is None:
        raise ValueError(f"the schema of type {schema.type} does not say what it holds")
    return schema.items


def _unknown(schema: ConnectSchema) -> ValueType:
    raise ValueError(f"{schema.type!r} is no type of Kafka Connect")


def _always(ddl: str, decode: Decode) -> Callable[[ConnectSchema], ValueType]:
    known = ValueType(ddl, decode)
    return lambda _: known


_SIGNED_LONG = _integer(-(2**63), 2**63 - 1, "bigint")
_UNSIGNED_LONG = ValueType("decimal(20,0)", _unsigned_long)
_BY_TYPE: dict[str, Callable[[ConnectSchema], ValueType]] = {
    "boolean": _always("boolean", _boolean),
    "int8": _integer(-(2**7), 2**7 - 1, "tinyint"),
    "int16": _integer(-(2**15), 2**15 - 1, "smallint"),
    "int32": _integer(-(2**31), 2**31 - 1, "int"),
    "int64": _long,
    "float": _always("float", _single),
    "double": _always("double", _float),
    "string": _always("string", _text),
    "bytes": _always("binary", _bytes),
    "array": _array,
    "map": _map,
    "struct": _struct,
}
_BY_NAME: dict[str, Callable[[ConnectSchema], ValueType]] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "org.apache.kafka.connect.data.Date": _always("date", _days),
    "org.apache.kafka.connect.data.Time": _time(1_000, 3),
    "org.apache.kafka.connect.data.Timestamp": _wall_clock(1_000),
    "io.debezium.data.VariableScaleDecimal": _always("string", _variable_scale),
    "io.debezium.data.Bits": _bits,
    "io.debezium.data.Enum": _always(
        "string", lambda value: _text(value).replace("\\,", ",")
    ),  # a comma, as the log has it
    "io.debezium.time.Date": _always("date", _days),
    "io.debezium.time.Time": _time(1_000, 3),
    "io.debezium.time.MicroTime": _time(1_000_000, 6),
    "io.debezium.time.NanoTime": _time(1_000_000_000, 9),
    "io.debezium.time.Timestamp": _wall_clock(1_000),
    "io.debezium.time.MicroTimestamp": _wall_clock(1_000_000),
    "io.debezium.time.NanoTimestamp": _wall_clock(1_000_000_000),
    "io.debezium.time.ZonedTimestamp": _always("timestamp", _instant),
    "io.debezium.time.IsoDate": _always("date", _iso_date),
    "io.debezium.time.IsoTimestamp": _always("timestamp_ntz", _iso_wall_clock),
}


# what is raised for a value that is not of its type
_NO_VALUE = (ValueError, TypeError, KeyError, ArithmeticError, AttributeError)
_NO_TIME = (1970, 1, 1, 0, 0, 0)


class Columns:
    """How the columns of one schema are read. A column of a type that the lake has none for is
    text, as its values are written.

    Attributes:
        types: Of each column, in the order of the schema.
        ddl: The same in Spark's words.
        defaults: The values of those that have a constant default, as far as a schema has them: of
            a time that each row gets by itself it has the beginning of 1970.
    """

    def __init__(self, schema: ConnectSchema, placeholder: str) -> None:
        self.types = {name: _type_of(inner) for name, inner in schema.fields}
        self.ddl = {name: known.ddl for name, known in self.types.items()}
        self.defaults = {
            name: value
            for name, inner in schema.fields
            if (value := _default_of(self.types[name], inner)) is not None
        }
        self._unavailable = {
            name: _absent(self.types[name], inner, placeholder) for name, inner in schema.fields
        }
        self._known = {
            name: (known.decode, self._unavailable[name]) for name, known in self.types.items()
        }

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the columns that the row carries: one that the database did not send is not
        among them.

        Raises:
            ValueError: The schema does not know a column, or a value is not of its type; the
                message begins with the column.
        """
        found: dict[str, Any] = {}
        try:
            for name, value in row.items():
                decode, absent = self._known[name]
                if value is None:
                    found[name] = None
                elif value not in absent:
                    found[name] = decode(value)
        except _NO_VALUE:
            return self._read_singly(row)
        return found

    def _read_singly(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The same with an error that names the column."""
        found: dict[str, Any] = {}
        for name, value in row.items():
            if name not in self.types:
                raise ValueError(f"{name}: the schema of the message has no such column")
            if value is None:
                found[name] = None
            elif value not in self._unavailable[name]:
                found[name] = decoded(name, self.types[name], value)
        return found


def _type_of(schema: ConnectSchema) -> ValueType:
    try:
        return value_type(schema)
    except (ValueError, KeyError):
        return AS_WRITTEN


def _absent(known: ValueType, schema: ConnectSchema, placeholder: str) -> tuple[Any, ...]:
    """What stands for a value that the message does not carry."""
    if known is AS_WRITTEN:
        return placeholder, b64encode(placeholder.encode()).decode()
    return (unavailable(schema, placeholder),)


def _default_of(known: ValueType, schema: ConnectSchema) -> Any:
    """The constant default of a column; None where it has none."""
    try:
        found = None if schema.default is None else known.decode(schema.default)
    except (*_NO_VALUE, InexactNumberError):
        return None
    return None if isinstance(found, date) and found.timetuple()[:6] == _NO_TIME else found


def decoded(name: str, known: ValueType, value: Any) -> Any:
    """A value as its type reads it.

    Raises:
        ValueError: It is none; the message begins with the name.
    """
    try:
        return known.decode(value)
    except _NO_VALUE as problem:
        raise ValueError(f"{name}: {repr(value)[:80]} is no {known.ddl}: {problem}") from problem


# Values of messages without a schema, by the types that the lake declares

_WHOLE = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NO_NUMBER = ("NaN", "Infinity", "-Infinity")  # which a double may be all the same
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    _DATE.pattern
    + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(?P<zone>Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
)
_ZERO_DATE = re.compile(r"0000-00-00([ T]00:00:00(\.0+)?Z?)?")
_BOOLEANS = {"1": True, "0": False, "true": True, "false": False}
_DECIMAL_TYPE = re.compile(r"decimal\(([0-9]+),([0-9]+)\)")


def natural_type(ddl: str, binary: BinaryText = BinaryText.BASE64) -> ValueType:
    """How values of a type of the lake are read.

    Its `decode` gives None for MySQL's zero dates, raises ValueError or TypeError for what is no
    value of the type, and `InexactNumberError`. A moment without a zone is UTC's where the type is
    `timestamp`; below a microsecond it is cut.

    Args:
        ddl: The type, in Spark's words.
        binary: How bytes are written.

    Raises:
        ValueError: Such tools write no values of the type.
    """
    kind = ddl.lower().replace(" ", "")
    if kind == "binary":
        return ValueType(kind, _BYTES_OF[binary])
    if kind in _BY_DECLARED:
        return ValueType(kind, _BY_DECLARED[kind])
    found = _DECIMAL_TYPE.fullmatch(kind)
    if found is None or not int(found[2]) <= int(found[1]) <= MAX_PRECISION:
        raise ValueError(f"{ddl!r} is none of {', '.join(_BY_DECLARED)}, binary, decimal(p,s)")
    return ValueType(kind, _written_decimal(int(found[1]), int(found[2])))


class NaturalColumns:
    """How the columns of rows are read that no schema describes.

    Args:
        types: The type of each column in the lake.
        binary: How bytes are written.
    """

    def __init__(self, types: Mapping[str, str], binary: BinaryText = BinaryText.BASE64) -> None:
        self.types = {name: _declared(name, ddl, binary) for name, ddl in types.items()}
        self.ddl = {name: known.ddl for name, known in self.types.items()}

    def read(self, row: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The values of the columns that the row carries.

        Args:
            row: The columns, as the message has them.
            where: The part of the message that the row is, which errors name.

        Raises:
            ValueError: No type is known for a column, or a value is not of its type.
        """
        found: dict[str, Any] = {}
        for name, value in row.items():
            if name not in self.types:
                raise ValueError(
                    f"{where}.{name}: no type is declared for this column; name it in types="
                )
            found[name] = (
                None if value is None else decoded(f"{where}.{name}", self.types[name], value)
            )
        return found


def _declared(name: str, ddl: str, binary: BinaryText) -> ValueType:
    try:
        return natural_type(ddl, binary)
    except ValueError as problem:
        raise ValueError(f"types: the type of {name}: {problem}") from problem


def _written_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | str) or str(value) not in _BOOLEANS:
        raise ValueError(f"one is written as {', '.join(_BOOLEANS)}")
    return _BOOLEANS[str(value)]


def _written_integer(bits: int) -> Decode:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def decode(value: Any) -> int:
        if type(value) is not int and not (isinstance(value, str) and _WHOLE.fullmatch(value)):
            raise ValueError("it is a whole number")
        if not low <= int(value) <= high:
            raise ValueError(f"it is from {low} to {high}")
        return int(value)

    return decode


def _written_float(value: Any) -> float:
    if not _is_number(value) and value not in _NO_NUMBER:
        raise ValueError("it is a number")
    found = float(str(value))
    if math.isinf(found) and value not in _NO_NUMBER:
        raise ValueError("it is too large")
    return found


def _written_single(value: Any) -> float:
    try:
        return single(_written_float(value))
    except OverflowError:
        raise ValueError("it is too large") from None


def _written_decimal(precision: int, scale: int) -> Decode:
    unit, limit = Decimal(1).scaleb(-scale), Decimal(1).scaleb(precision - scale)
    reason = f"it has at most {precision - scale} digits before the point and {scale} after it"

    def decode(value: Any) -> Decimal:
        if isinstance(value, float):
            raise InexactNumberError
        if not _is_number(value):
            raise ValueError("it is a number")
        try:
            found = Decimal(value).quantize(unit, context=EXACT)
        except ArithmeticError:
            raise ValueError(reason) from None
        if found.copy_abs() >= limit:
            raise ValueError(reason)
        return found

    return decode


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _written_date(value: Any) -> datetime.date | None:
    if _ZERO_DATE.fullmatch(_text(value)):
        return None
    if not _DATE.fullmatch(value):
        raise ValueError("one is written as 2024-02-29")
    return date_of_iso(value)


def _written_wall_clock(value: Any) -> datetime.datetime | None:
    """A moment without a zone; AWS DMS writes a Z all the same."""
    found = _moment(value)
    if found is not None and found.utcoffset():
        raise ValueError("it has no zone")
    return found and found.replace(tzinfo=None)


def _written_instant(value: Any) -> datetime.datetime | None:
    found = _moment(value)
    try:
        return found and found.astimezone(datetime.timezone.utc)
    except OverflowError:
        raise ValueError("it is from the year 1 to 9999") from None


def _moment(value: Any) -> datetime.datetime | None:
    """A moment with the zone that it is written with, or UTC; None for MySQL's zero date."""
    if _ZERO_DATE.fullmatch(_text(value)):
        return None
    found = _MOMENT.fullmatch(value)
    if found is None:
        raise ValueError("one is written as 2024-02-29 01:02:03.456789")
    moment = datetime_of_iso(value)
    return moment if found["zone"] else moment.replace(tzinfo=datetime.timezone.utc)


_BYTES_OF: dict[BinaryText, Callable[[Any], bytes]] = {
    BinaryText.BASE64: lambda value: b64decode(_text(value), validate=True),
    BinaryText.HEX: lambda value: unhexlify(_text(value).removeprefix("0x")),
    BinaryText.LATIN_1: lambda value: _text(value).encode("latin-1"),
}
_BY_DECLARED: dict[str, Decode] = {
    "boolean": _written_boolean,
    "tinyint": _written_integer(8),
    "smallint": _written_integer(16),
    "int": _written_integer(32),
    "bigint": _written_integer(64),
    "float": _written_single,
    "double": _written_float,
    "string": AS_WRITTEN.decode,
    "date": _written_date,
    "timestamp": _written_instant,
    "timestamp_ntz": _written_wall_clock,
}
