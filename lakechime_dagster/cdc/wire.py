"""Changes, keys and orders as text, between processes and in tables."""

import datetime as dt
import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, NamedTuple

import orjson

from lakechime_dagster.cdc.change import Key, Order
from lakechime_dagster.cdc.merge import BEFORE_ALL, Ended, RowState
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


class Span(NamedTuple):
    """Where a row of a history begins and, unless it is open, ends: orders, and times in
    milliseconds.
    """

    start_seq: Order
    start_at: int | None
    end_seq: Order | None = None
    end_at: int | None = None


def span_text(span: Span) -> str:
    """A span as text."""
    end = span.end_seq and order_text(span.end_seq)
    return orjson.dumps([order_text(span.start_seq), span.start_at, end, span.end_at]).decode()


def span_of(text: str) -> Span:
    """The span of a text."""
    start, start_at, end, end_at = orjson.loads(text)
    return Span(order_of(start), start_at, end and order_of(end), end_at)


def row_state_text(row_state: RowState, source: str) -> str:
    """What is known of a key, but for the values of its columns: the source that feeds it, and the
    orders.

    Of columns that the newest upsert carried, which most are, none is written. Those that it
    carried as null are named: a table shows the same for one that nobody carried. Of a row that
    ended its end is written too, and its last deletion where there was one: each row of a table has
    such a text.
    """
    at = {
        name: order_text(order)
        for name, (order, _) in row_state.columns.items()
        if order != row_state.upserted
    }
    null = [
        name for name, (_, value) in row_state.columns.items() if value is None and name not in at
    ]
    upserted = row_state.upserted and order_text(row_state.upserted)
    parts: dict[str, Any] = {"source": source, "at": upserted}
    if row_state.deleted != BEFORE_ALL:
        parts["deleted"] = order_text(row_state.deleted)
    if at:
        parts["columns"] = at
    if null:
        parts["null"] = null
    if row_state.ended is not None:
        parts["ended"] = [order_text(row_state.ended.order), row_state.ended.at]
    return orjson.dumps(parts).decode()


def row_state_of(text: str, columns: Mapping[str, Any]) -> tuple[str, RowState]:
    """The source that feeds a key, and what is known of it, given the values of its columns and
    null for what it does not know.
    """
    parts = orjson.loads(text)
    upserted = None if parts["at"] is None else order_of(parts["at"])
    deleted = order_of(parts["deleted"]) if "deleted" in parts else BEFORE_ALL
    at, null = (
        {name: order_of(order) for name, order in parts.get("columns", {}).items()},
        parts.get("null", ()),
    )
    if upserted is not None:
        at |= {
            name: upserted
            for name, value in columns.items()
            if name not in at and (value is not None or name in null)
        }
    known = {name: (order, columns[name]) for name, order in at.items()}
    ended = None if (end := parts.get("ended")) is None else Ended(order_of(end[0]), end[1])
    return parts["source"], RowState(upserted=upserted, deleted=deleted, columns=known, ended=ended)


def has_ended(text: str) -> bool:
    """Whether the text of a row state is of a row that ended."""
    return '"ended"' in text and "ended" in orjson.loads(text)


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
