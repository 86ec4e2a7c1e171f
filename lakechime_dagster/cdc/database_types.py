"""Types of a database's columns: as Debezium's connectors write them, and those of the lake that
hold their values.
"""

import re
from collections.abc import Callable, Mapping

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.values import SOURCE_TYPE, ConnectSchema, value_type
from lakechime_dagster.tables.databases import (
    BINARY,
    DECIMALS,
    INTERVALS,
    TIMES,
    UNSIGNED,
    Debezium,
)

_KIND = re.compile(
    r"(?P<word>[a-z][a-z0-9_ ]*?)\s*(?:\((?P<length>.*)\))?(?P<rest>(?: "
    r"(?:unsigned|zerofill|with(?:out)? time zone))*)(?: /\* mariadb-5\.3 \*/)?",
    re.DOTALL,
)
_MICROSECONDS = 6  # digits of a second that a type of PostgreSQL has which names none
DECIMAL, PRECISION = "org.apache.kafka.connect.data.Decimal", "connect.decimal.precision"

Made = Callable[[str, Debezium], ConnectSchema]


def connect_type(dialect: Dialect, kind: str, envelope: Debezium) -> ConnectSchema:
    """The schema of a column's values.

    Args:
        dialect: The database's.
        kind: The type in the database's words, as `canonical` takes it.
        envelope: The connector's settings that decide how it writes values.

    Raises:
        ValueError: How it writes such values is not known.
    """
    if dialect is Dialect.POSTGRES and kind.endswith("[]"):
        return ConnectSchema(
            "array", items=connect_type(dialect, kind.removesuffix("[]"), envelope)
        )
    word, length = _word_and_length(kind)
    made = _TYPES[dialect].get(word)
    if made is None:
        raise ValueError(f"how Debezium writes {kind!r} without a schema is not known")
    return made(length, envelope)


def _word_and_length(kind: str) -> tuple[str, str]:
    """A type without its length, but with what behind that makes a type of its own, and the
    length.
    """
    found = _KIND.fullmatch(kind.strip().lower())
    if found is None:
        return "", ""
    rest = found["rest"]
    zoned = rest if "with time zone" in rest else ""
    variant = " unsigned" if "unsigned" in rest or "zerofill" in rest else zoned
    return found["word"] + variant, found["length"] or ""


def _named(kind: str, name: str, **parameters: str) -> ConnectSchema:
    return ConnectSchema(kind, name, parameters)


def _always(kind: str, name: str | None = None) -> Made:
    known = ConnectSchema(kind, name)
    return lambda length, envelope: known


def _exact(precision: int, scale: int, envelope: Debezium) -> ConnectSchema:
    match envelope.setting(DECIMALS):
        case "precise":
            parameters = {"scale": str(scale), PRECISION: str(precision)}
            return ConnectSchema("bytes", DECIMAL, parameters)
        case "double":
            return ConnectSchema("double")
        case _:
            return ConnectSchema("string")


def _decimal(length: str, envelope: Debezium) -> ConnectSchema:
    precision, _, scale = length.partition(",")
    return _exact(int(precision or 10), int(scale or 0), envelope)


def _numeric(length: str, envelope: Debezium) -> ConnectSchema:
    if length or envelope.setting(DECIMALS) != "precise":
        return _decimal(length, envelope)
    return _named("struct", "io.debezium.data.VariableScaleDecimal")


def _unsigned_bigint(length: str, envelope: Debezium) -> ConnectSchema:
    if envelope.setting(UNSIGNED) == "long":
        return ConnectSchema("int64", parameters={SOURCE_TYPE: "BIGINT UNSIGNED"})
    return _named("bytes", DECIMAL, scale="0", **{PRECISION: "20"})


def _bits(length: str, envelope: Debezium) -> ConnectSchema:
    return (
        ConnectSchema("boolean")
        if length in ("", "1")
        else _named("bytes", "io.debezium.data.Bits", length=length)
    )


def _bits_varying(length: str, envelope: Debezium) -> ConnectSchema:
    return _named("bytes", "io.debezium.data.Bits", length=length or str(2**31 - 1))


def _bytes(length: str, envelope: Debezium) -> ConnectSchema:
    return ConnectSchema("bytes" if envelope.setting(BINARY) == "bytes" else "string")


def _date(length: str, envelope: Debezium) -> ConnectSchema:
    match envelope.setting(TIMES):
        case "connect":
            return _named("int32", "org.apache.kafka.connect.data.Date")
        case "isostring":
            return _named("string", "io.debezium.time.IsoDate")
        case _:
            return _named("int32", "io.debezium.time.Date")


def _wall_clock(digits: int) -> Made:
    def made(length: str, envelope: Debezium) -> ConnectSchema:
        match envelope.setting(TIMES):
            case "connect":
                return _named("int64", "org.apache.kafka.connect.data.Timestamp")
            case "isostring":
                return _named("string", "io.debezium.time.IsoTimestamp")
            case _:
                is_short = int(length or digits) <= 3
                return _named(
                    "int64", f"io.debezium.time.{'Timestamp' if is_short else 'MicroTimestamp'}"
                )

    return made


def _time(digits: int, default: str) -> Made:
    def made(length: str, envelope: Debezium) -> ConnectSchema:
        match envelope.setting(TIMES, default):
            case "connect":
                return _named("int32", "org.apache.kafka.connect.data.Time")
            case "isostring":
                return _named("string", "io.debezium.time.IsoTime")
            case "adaptive" if int(length or digits) <= 3:
                return _named("int32", "io.debezium.time.Time")
            case _:
                return _named("int64", "io.debezium.time.MicroTime")

    return made


def _interval(length: str, envelope: Debezium) -> ConnectSchema:
    is_number = envelope.setting(INTERVALS) == "numeric"
    return (
        _named("int64", "io.debezium.time.MicroDuration")
        if is_number
        else _named("string", "io.debezium.time.Interval")
    )


_TEXT, _JSON, _ENUM = (
    _always("string"),
    _always("string", "io.debezium.data.Json"),
    _always("string", "io.debezium.data.Enum"),
)
_TINY, _SHORT, _INT, _LONG = (_always(f"int{bits}") for bits in (16, 16, 32, 64))
_INSTANT = _always("string", "io.debezium.time.ZonedTimestamp")
_RANGES = ("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange")
_MYSQL: Mapping[str, Made] = {
    "tinyint": _TINY,
    "smallint": _SHORT,
    "mediumint": _INT,
    "int": _INT,
    "integer": _INT,
    "bigint": _LONG,
    "tinyint unsigned": _TINY,
    "smallint unsigned": _INT,
    "mediumint unsigned": _INT,
    "int unsigned": _LONG,
    "integer unsigned": _LONG,
    "bigint unsigned": _unsigned_bigint,
    "decimal": _decimal,
    "numeric": _decimal,
    "decimal unsigned": _decimal,
    "numeric unsigned": _decimal,
    "float": _always("float"),
    "float unsigned": _always("float"),
    "double": _always("double"),
    "double unsigned": _always("double"),
    "bit": _bits,
    "year": _always("int32", "io.debezium.time.Year"),
    "date": _date,
    "datetime": _wall_clock(0),
    "timestamp": _INSTANT,
    "time": _time(0, "adaptive_time_microseconds"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _TEXT),
    "json": _JSON,
    "enum": _ENUM,
    "set": _always("string", "io.debezium.data.EnumSet"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _bytes),
}
_POSTGRES: Mapping[str, Made] = {
    "smallint": _SHORT,
    "integer": _INT,
    "bigint": _LONG,
    "oid": _LONG,
    "real": _always("float"),
    "double precision": _always("double"),
    "boolean": _always("boolean"),
    "bit": _bits,
    "bit varying": _bits_varying,
    "numeric": _numeric,
    **dict.fromkeys(
        (
            "character",
            "character varying",
            "text",
            "citext",
            "name",
            "inet",
            "cidr",
            "macaddr",
            "macaddr8",
        ),
        _TEXT,
    ),
    **dict.fromkeys(_RANGES, _TEXT),
    "json": _JSON,
    "jsonb": _JSON,
    "xml": _always("string", "io.debezium.data.Xml"),
    "uuid": _always("string", "io.debezium.data.Uuid"),
    "enum": _ENUM,
    "bytea": _bytes,
    "date": _date,
    "timestamp": _wall_clock(_MICROSECONDS),
    "timestamp with time zone": _INSTANT,
    "time": _time(_MICROSECONDS, "adaptive"),
    "time with time zone": _always("string", "io.debezium.time.ZonedTime"),
    "interval": _interval,
}
_TYPES: Mapping[Dialect, Mapping[str, Made]] = {Dialect.MYSQL: _MYSQL, Dialect.POSTGRES: _POSTGRES}


# The types of the lake

_NARROWER = {"tinyint": "tinyint", "year": "smallint"}  # than Debezium's connectors write them
_WRITTEN_DIFFERENTLY = {  # by other tools
    "set",
    "bit varying",
    "inet",
    "cidr",
    "macaddr",
    "macaddr8",
    "interval",
    "time with time zone",
    "xml",
    *_RANGES,
}


def lake_type(dialect: Dialect, source_type: str) -> str | None:
    """The narrowest type that holds the values of a column exactly; None where none does, or tools
    write such values differently.

    PostgreSQL's NaN of a numeric and its endless dates are values of no decimal and no date, and
    are refused as they come.

    Args:
        dialect: The database's.
        source_type: The type in the database's words, as `canonical` takes it.
    """
    word, length = _word_and_length(source_type)
    is_bit_string = word == "bit" and length not in ("", "1")
    if is_bit_string or word in _WRITTEN_DIFFERENTLY or source_type.endswith("[]"):
        return None
    try:
        return _NARROWER.get(word) or value_type(connect_type(dialect, source_type, Debezium())).ddl
    except ValueError:
        return None
