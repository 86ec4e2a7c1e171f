"""Values, rows, keys and orders as text, between processes and in tables."""

import datetime as dt
import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

import orjson

from lakechime_dagster.cdc.change import Key, Order
from lakechime_dagster.compat import date_of_iso, datetime_of_iso

# what JSON has, and what is asked for one by one
_AT_ONCE = {int, str, bool, type(None), Decimal, dt.datetime, dt.date, bytes}
_LARGE = 2**63
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)  # the usual one rounds to 28 digits


def encoded(value: Any) -> str:
    """A value, or a list or map of values, as text; equal values of one type have one text."""
    return orjson.dumps(_tagged(value)).decode()


def decoded(text: str) -> Any:
    """The value that a text stands for."""
    return _untagged(orjson.loads(text))


def row_text(row: Mapping[str, Any]) -> str:
    """A row as text: an object of its columns."""
    if _AT_ONCE.issuperset(map(type, row.values())):
        try:
            return orjson.dumps(
                row, default=_tagged, option=orjson.OPT_PASSTHROUGH_DATETIME
            ).decode()
        except TypeError:  # a number of more than 64 bits
            pass
    return orjson.dumps({name: _tagged(value) for name, value in row.items()}).decode()


def row_of(text: str) -> dict[str, Any]:
    """The row of a text."""
    return parsed_row(orjson.loads(text))


def parsed_row(found: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a text that is parsed as JSON."""
    return {
        name: _untagged(value) if type(value) in (dict, list) else value
        for name, value in found.items()
    }


def key_text(key: Key) -> str:
    """A key as text; decimal numbers that are equal have one text, however many zeros stand at
    their ends.
    """
    if all(
        type(value) is str or (type(value) is int and -_LARGE <= value < _LARGE) for value in key
    ):
        return orjson.dumps(key).decode()
    return encoded(
        [value.normalize(_EXACT) if isinstance(value, Decimal) else value for value in key]
    )


def key_of(text: str) -> Key:
    """The key of a text."""
    return tuple(decoded(text))


def order_text(order: Order) -> str:
    """An order as text."""
    return orjson.dumps([order.epoch, list(order.position), *order[2:]]).decode()


def order_of(text: str) -> Order:
    """The order of a text."""
    epoch, position, *rest = orjson.loads(text)
    return Order(epoch, tuple(position), *rest)


def _tagged(value: Any) -> Any:
    match value:
        case bool() | str() | None:
            return value
        case int():
            return value if -_LARGE <= value < _LARGE else {"$i": str(value)}
        case float():
            return value if math.isfinite(value) else {"$f": str(value)}
        case Decimal():
            return {"$n": str(value)}
        case dt.datetime():
            return {
                "$z" if value.tzinfo else "$t": (
                    value.astimezone(dt.timezone.utc) if value.tzinfo else value
                ).isoformat()
            }
        case dt.date():
            return {"$d": value.isoformat()}
        case bytes():
            return {"$b": b64encode(value).decode()}
        case list() | tuple():
            return [_tagged(one) for one in value]
        case Mapping():
            return {"$o": {name: _tagged(one) for name, one in value.items()}}
        case _:
            raise TypeError(f"{type(value).__name__} is no type of a column's value")


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(one) for one in value]
    if not isinstance(value, dict):
        return value
    [(tag, inner)] = value.items()
    return _UNTAG[tag](inner)


_UNTAG = {
    "$i": int,
    "$f": float,
    "$n": Decimal,
    "$z": datetime_of_iso,
    "$t": datetime_of_iso,
    "$d": date_of_iso,
    "$b": b64decode,
    "$o": lambda inner: {name: _untagged(one) for name, one in inner.items()},
}
