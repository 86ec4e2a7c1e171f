"""Values of messages without a schema, read by the type that the lake declares."""

import datetime
import math
import re
from base64 import b64decode
from binascii import unhexlify
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from lakechime_dagster.cdc.values import (
    AS_WRITTEN,
    EXACT,
    MAX_PRECISION,
    Decode,
    InexactNumberError,
    ValueType,
    decoded,
    single,
)
from lakechime_dagster.compat import date_of_iso, datetime_of_iso
from lakechime_dagster.tables.databases import BinaryText

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
        return ValueType(kind, _BYTES[binary])
    if kind in _BY_TYPE:
        return ValueType(kind, _BY_TYPE[kind])
    found = _DECIMAL_TYPE.fullmatch(kind)
    if found is None or not int(found[2]) <= int(found[1]) <= MAX_PRECISION:
        raise ValueError(f"{ddl!r} is none of {', '.join(_BY_TYPE)}, binary, decimal(p,s)")
    return ValueType(kind, _decimal(int(found[1]), int(found[2])))


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


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | str) or str(value) not in _BOOLEANS:
        raise ValueError(f"one is written as {', '.join(_BOOLEANS)}")
    return _BOOLEANS[str(value)]


def _integer(bits: int) -> Decode:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def decode(value: Any) -> int:
        if type(value) is not int and not (isinstance(value, str) and _WHOLE.fullmatch(value)):
            raise ValueError("it is a whole number")
        if not low <= int(value) <= high:
            raise ValueError(f"it is from {low} to {high}")
        return int(value)

    return decode


def _float(value: Any) -> float:
    if not _is_number(value) and value not in _NO_NUMBER:
        raise ValueError("it is a number")
    found = float(str(value))
    if math.isinf(found) and value not in _NO_NUMBER:
        raise ValueError("it is too large")
    return found


def _single(value: Any) -> float:
    try:
        return single(_float(value))
    except OverflowError:
        raise ValueError("it is too large") from None


def _decimal(precision: int, scale: int) -> Decode:
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


def _date(value: Any) -> datetime.date | None:
    if _ZERO_DATE.fullmatch(_text(value)):
        return None
    if not _DATE.fullmatch(value):
        raise ValueError("one is written as 2024-02-29")
    return date_of_iso(value)


def _wall_clock(value: Any) -> datetime.datetime | None:
    """A moment without a zone; AWS DMS writes a Z all the same."""
    found = _moment(value)
    if found is not None and found.utcoffset():
        raise ValueError("it has no zone")
    return found and found.replace(tzinfo=None)


def _instant(value: Any) -> datetime.datetime | None:
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


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it is text")
    return value


_BYTES: dict[BinaryText, Callable[[Any], bytes]] = {
    BinaryText.BASE64: lambda value: b64decode(_text(value), validate=True),
    BinaryText.HEX: lambda value: unhexlify(_text(value).removeprefix("0x")),
    BinaryText.LATIN_1: lambda value: _text(value).encode("latin-1"),
}
_BY_TYPE: dict[str, Decode] = {
    "boolean": _boolean,
    "tinyint": _integer(8),
    "smallint": _integer(16),
    "int": _integer(32),
    "bigint": _integer(64),
    "float": _single,
    "double": _float,
    "string": AS_WRITTEN.decode,
    "date": _date,
    "timestamp": _instant,
    "timestamp_ntz": _wall_clock,
}
