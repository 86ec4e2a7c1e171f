"""The canonical text of values: equal for equal values of a database and of the lake."""

import datetime
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from lakechime_dagster.compat import UTC, StrEnum

Twin = Callable[[Any], str]


class Dialect(StrEnum):
    """Whose SQL an expression is written in; MariaDB speaks MySQL's."""

    MYSQL = "mysql"
    POSTGRES = "postgresql"
    SPARK = "spark"


class ValueKind(StrEnum):
    """What the text of a value says."""

    NUMBER = "number"
    FLOAT = "float"
    TEXT = "text"
    PADDED = "padded text"
    BINARY = "binary"
    DATE = "date"
    MOMENT = "moment"
    TIME = "time of day"
    UUID = "uuid"


@dataclass(frozen=True, kw_only=True)
class Canonical:
    """How the values of one column become canonical text: an expression of each side, in which `{}`
    stands for the column.

    `twin` gives the same text in plain Python for a value of the lake that is not null. Some types
    that hold numbers are not ordered as such.
    """

    kind: ValueKind
    source: str
    lake: str
    twin: Twin
    is_ordered_as_number: bool = True


def canonical(dialect: Dialect, source_type: str, lake_type: str) -> Canonical | None:
    """The canonical text of a column; None where no text of the two types is known to be equal for
    equal values.

    Args:
        dialect: The database's.
        source_type: The type in the database's words: `column_type` of MySQL's information_schema,
            `format_type` of PostgreSQL, where an enum of a name of its own is `enum`.
        lake_type: The type in Spark's words.
    """
    expressions = _expressions(_SOURCES[dialect], source_type.lower())
    texts = _lake_texts(lake_type.lower().replace(" ", ""))
    for kind, source in expressions.items():
        if kind in texts:
            lake, twin = texts[kind]
            types = {source_type.lower().partition("(")[0], lake_type.lower()}
            return Canonical(
                kind=kind,
                source=source,
                lake=lake,
                twin=twin,
                is_ordered_as_number=not types & _ORDERED_AS_TEXT,
            )
    return None


def lake_twin(lake_type: str, kind: ValueKind | None = None) -> Twin:
    """The canonical text of the lake's values in plain Python, where their kind is known; a type
    other than `string` has one kind.

    Raises:
        ValueError: Values of the type have none.
    """
    texts = _lake_texts(lake_type.lower().replace(" ", ""))
    if not texts:
        raise ValueError(f"values of {lake_type} have no canonical text")
    return texts[kind or next(iter(texts))][1]


def value_of(lake_type: str, text: str) -> Any:
    """The value of a type of the lake that has a canonical text: what `lake_twin` does, backwards.

    A time of day is not spelled as messages spell it.

    Raises:
        ValueError, ArithmeticError: It is no text of such a value.
    """
    kind = lake_type.lower().replace(" ", "")
    if found := re.fullmatch(r"decimal\(\d+,(\d+)\)", kind):
        return Decimal(text).quantize(Decimal(1).scaleb(-int(found[1])), context=_EXACT)
    if kind not in _VALUES:
        raise ValueError(f"values of {lake_type} have no canonical text")
    return _VALUES[kind](text)


def text_of(value: Any) -> str:
    """The text of a value in a column that holds text since its values are of several types.

    Values that are equal have one text, so that it makes no difference whether a wider type held
    them before: 1, 1.0 and 1.00 are `1`, and midnight is its date. Arrays, maps and structs are
    JSON, without fields that are null.
    """
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case float():
            return _number_text(value)
        case Decimal():
            text = _without_zeros(format(value, "f"))
            return "0" if text == "-0" else text
        case datetime.datetime():
            moment = value.astimezone(UTC) if value.tzinfo else value
            is_date = moment.tzinfo is None and moment.time() == datetime.time()
            return moment.date().isoformat() if is_date else moment.isoformat(sep=" ")
        case datetime.date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case list() | tuple() | Mapping():
            return _json(value)
        case _:
            return str(value)


def _number_text(value: float) -> str:
    if value.is_integer() and abs(value) < _EXACT_WHOLE:
        return str(int(value))
    return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value) or (
        "NaN" if math.isnan(value) else repr(value)
    )


def _json(value: Any) -> str:
    match value:
        case None:
            return "null"
        case list() | tuple():
            return f"[{','.join(map(_json, value))}]"
        case Mapping():
            fields = sorted(
                ((str(name), one) for name, one in value.items() if one is not None),
                key=lambda field: field[0],
            )
            return f"{{{','.join(f'{json.dumps(name, ensure_ascii=False)}:{_json(one)}' for name, one in fields)}}}"
        case bool() | int() | Decimal():
            return text_of(value)
        case float() if math.isfinite(value):
            return text_of(value)
        case _:
            return json.dumps(text_of(value), ensure_ascii=False)


def _expressions(
    types: Mapping[str, Mapping[ValueKind, str]], source_type: str
) -> dict[ValueKind, str]:
    """The expressions of a type; what its pattern captures stands in them as `[length]`."""
    for pattern, expressions in types.items():
        if found := re.fullmatch(pattern, source_type, re.DOTALL):
            length = found[1] if found.lastindex else ""
            return {kind: text.replace("[length]", length) for kind, text in expressions.items()}
    return {}


# a point is the only way to a double's bits
_BITS = "LOWER(HEX(REVERSE(SUBSTRING(ST_AsBinary(POINT({} + 0e0, 0)), 6, 8))))"
# + 0: of ZEROFILL the number
_NO_ZEROS = "TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM CONCAT('', {} + 0)))"
_MYSQL: dict[str, dict[ValueKind, str]] = {
    r"(?:tiny|small|medium|big)?int\b.*|year.*": {ValueKind.NUMBER: "CONCAT('', {} + 0)"},
    r"decimal\(\d+,0\).*": {ValueKind.NUMBER: "CONCAT('', {} + 0)"},
    r"decimal\(\d+,[1-9]\d*\).*": {ValueKind.NUMBER: _NO_ZEROS},
    r"(?:float|double)\b.*": {ValueKind.FLOAT: _BITS},
    r"bit\((\d+)\)": {
        ValueKind.TEXT: "LPAD(BIN({} + 0), [length], '0')",
        ValueKind.NUMBER: "CONCAT('', {} + 0)",
    },
    r"char\b.*": {ValueKind.PADDED: "RTRIM(CONVERT({} USING utf8mb4))"},
    r"(?:varchar|(?:tiny|medium|long)?text|enum|set)\b.*": {
        ValueKind.TEXT: "CONVERT({} USING utf8mb4)"
    },
    r"(?:var)?binary\(\d+\)|(?:tiny|medium|long)?blob": {ValueKind.BINARY: "LOWER(HEX({}))"},
    r"date": {ValueKind.DATE: "CONCAT('', DATEDIFF({}, '1970-01-01'))"},
    r"datetime\b.*": {ValueKind.MOMENT: "CONCAT('', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {}))"},
    # independent of the session's zone; 0 is the zero date
    r"timestamp\b.*": {
        ValueKind.MOMENT: "CONCAT('', NULLIF(CAST(UNIX_TIMESTAMP({}) * 1000000 AS SIGNED), 0))"
    },
    r"time\b.*": {ValueKind.TIME: "TRIM(TRAILING '0' FROM CAST({} AS TIME(6)))"},
    r"uuid": {ValueKind.UUID: "LOWER({})"},
}
_TIME_OF_DAY = "rtrim(to_char({}, 'HH24:MI:SS.US'), '0')"
_MICROSECONDS = (
    "CASE {} WHEN 'infinity' THEN '253402300799999999' WHEN '-infinity' THEN '-62135596800000000'"
    " ELSE (extract(epoch FROM {}) * 1000000)::bigint::text END"
)
_POSTGRES: dict[str, dict[ValueKind, str]] = {
    r"smallint|integer|bigint|oid": {ValueKind.NUMBER: "{}::text"},
    r"numeric.*": {ValueKind.NUMBER: "trim_scale({})::text"},
    r"real|double precision": {
        ValueKind.FLOAT: (
            "CASE WHEN {} = 'NaN' THEN '7ff8000000000000' ELSE encode(float8send({}::float8 + 0), "
            "'hex') END"
        )
    },
    r"boolean": {ValueKind.NUMBER: "{}::int::text"},
    r"bit\(1\)": {ValueKind.NUMBER: "{}::int::text", ValueKind.TEXT: "{}::text"},
    r"bit\(\d+\)": {ValueKind.TEXT: "{}::text"},
    r"character\(\d+\)": {ValueKind.PADDED: "{}::text"},  # which leaves the blanks out
    r"character varying.*|text|citext|name|enum|jsonb?": {ValueKind.TEXT: "{}::text"},
    r"bytea": {ValueKind.BINARY: "encode({}, 'hex')"},
    r"date": {
        ValueKind.DATE: (
            "CASE {} WHEN 'infinity' THEN '2932896' WHEN '-infinity' THEN '-719162' ELSE ({} - "
            "DATE '1970-01-01')::text END"
        )
    },
    r"timestamp\b.*": {ValueKind.MOMENT: _MICROSECONDS},
    r"time(?:\(\d\))? with time zone": {
        ValueKind.TIME: _TIME_OF_DAY.format("({} AT TIME ZONE 'UTC')::time")
    },
    r"time\b.*": {ValueKind.TIME: _TIME_OF_DAY},
    r"uuid": {ValueKind.UUID: "{}::text"},
}
_SOURCES = {Dialect.MYSQL: _MYSQL, Dialect.POSTGRES: _POSTGRES}

# Decimals become text by try_cast, as cast writes 0E-10 where ANSI mode is off.
_FRACTION = "rtrim('.', rtrim('0', {}))"
_TIME = "regexp_replace({}, '(Z|[+]00:00)$', '')"
_LAKE_BITS = (  # reflect does not take null for a double
    "CASE WHEN {} IS NOT NULL THEN"
    " lpad(lower(hex(CAST(reflect('java.lang.Double', 'doubleToLongBits', CAST({} AS DOUBLE) + "
    "0.0D) AS BIGINT))), 16, '0') END"
)
_LAKE: dict[str, dict[ValueKind, tuple[str, Twin]]] = {
    r"tinyint|smallint|int|bigint": {ValueKind.NUMBER: ("CAST({} AS STRING)", str)},
    r"decimal\(\d+,0\)": {
        ValueKind.NUMBER: ("CAST({} AS STRING)", lambda value: format(value, "f"))
    },
    r"decimal\(\d+,[1-9]\d*\)": {
        ValueKind.NUMBER: (
            _FRACTION.format("try_cast({} AS STRING)"),
            lambda value: _without_zeros(format(value, "f")),
        )
    },
    r"boolean": {
        ValueKind.NUMBER: ("CAST(CAST({} AS INT) AS STRING)", lambda value: str(int(value)))
    },
    r"float": {
        ValueKind.FLOAT: (
            _LAKE_BITS,
            lambda value: _bits(struct.unpack("f", struct.pack("f", value))[0]),
        )
    },
    r"double": {ValueKind.FLOAT: (_LAKE_BITS, lambda value: _bits(value))},
    r"string": {
        ValueKind.TEXT: ("{}", str),
        ValueKind.PADDED: ("rtrim({})", lambda value: value.rstrip(" ")),
        ValueKind.UUID: ("lower({})", str.lower),
        ValueKind.NUMBER: (
            f"if(contains({{}}, '.'), {_FRACTION}, {{}})",
            lambda value: _without_zeros(value),
        ),
        ValueKind.TIME: (
            f"rtrim('0', {_TIME} || if(contains({{}}, '.'), '', '.'))",
            lambda value: _time(value),
        ),
    },
    r"binary": {ValueKind.BINARY: ("lower(hex({}))", lambda value: bytes(value).hex())},
    r"date": {
        ValueKind.DATE: (
            "CAST(unix_date({}) AS STRING)",
            lambda value: str((value - _EPOCH_DAY).days),
        )
    },
    r"timestamp": {
        ValueKind.MOMENT: (
            "CAST(unix_micros({}) AS STRING)",
            lambda value: str((value - _UTC_EPOCH) // _MICROSECOND),
        )
    },
    # as text, because what counts the units of a moment goes by the session's zone
    r"timestamp_ntz": {
        ValueKind.MOMENT: (
            "CAST(unix_micros(CAST(CAST({} AS STRING) || 'Z' AS TIMESTAMP)) AS STRING)",
            lambda value: str((value - _EPOCH) // _MICROSECOND),
        )
    },
}
_EPOCH_DAY = datetime.date(1970, 1, 1)
_EPOCH = datetime.datetime(1970, 1, 1)  # a wall clock
_UTC_EPOCH = _EPOCH.replace(tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)
_EXACT = Context(prec=400, traps=[Inexact, InvalidOperation])
_VALUES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    **dict.fromkeys(("float", "double"), lambda text: struct.unpack(">d", bytes.fromhex(text))[0]),
    "boolean": lambda text: text == "1",
    "string": str,
    "binary": bytes.fromhex,
    "date": lambda text: _EPOCH_DAY + datetime.timedelta(days=int(text)),
    "timestamp": lambda text: _UTC_EPOCH + datetime.timedelta(microseconds=int(text)),
    "timestamp_ntz": lambda text: _EPOCH + datetime.timedelta(microseconds=int(text)),
}
_ORDERED_AS_TEXT = {"string", "boolean", "bit"}
_EXACT_WHOLE = 2**53  # below which each whole number is a double of its own


def _lake_texts(lake_type: str) -> Mapping[ValueKind, tuple[str, Twin]]:
    return next((texts for pattern, texts in _LAKE.items() if re.fullmatch(pattern, lake_type)), {})


def _without_zeros(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _time(text: str) -> str:
    bare = text.removesuffix("Z").removesuffix("+00:00")
    return (bare if "." in bare else f"{bare}.").rstrip("0")


def _bits(value: float) -> str:
    return "7ff8000000000000" if math.isnan(value) else struct.pack(">d", value + 0.0).hex()
