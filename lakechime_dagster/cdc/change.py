"""The one canonical change row that every envelope becomes, its position in the database's log, and
both as text.
"""

import datetime as dt
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, NamedTuple

import orjson

from lakechime_dagster.compat import StrEnum, date_of_iso, datetime_of_iso
from lakechime_dagster.errors import InvalidValueError

# of the connector, such as (file, byte, row); empty for envelopes without one
Position = tuple[int, ...]

# begins the ids of the topics of rows that were read of a database for a repair or a load
REPAIRS = "lakechime-repair/"

# ranks of changes that share a position: what a snapshot ends, a row that it read, a deletion, a
# new state
BEFORE_READ, READ, DELETE, UPSERT = -1, 0, 1, 2

_OF_WAL = 2  # parts of a position of PostgreSQL: that of its transaction, and its own


class Order(NamedTuple):
    """The order of a change among those of its source; of two changes the greater one is later.

    An `epoch` begins when a source's positions restart. The `rank` orders what shares a position,
    as the two halves of a key change do; envelopes without a position leave it 0 and are ordered by
    their Kafka coordinate alone.
    """

    epoch: int = 0
    position: Position = ()
    rank: int = 0
    topic: str = ""  # the topic's id
    partition: int = -1
    offset: int = -1
    item: int = 0  # of several in one message

    def is_read_after(self, change: "Order") -> bool:
        """Whether this is a row of PostgreSQL read for a repair when a change had been made above
        which it does not stand.

        Its position has that of the newest change that messages had reported, and the one in the
        log at which it was read.
        """
        return (
            self.topic.startswith(REPAIRS)
            and len(self.position) == len(change.position) == _OF_WAL
            and self < change
            and self.position[1] >= change.position[1]
        )

    def before_deletion(self) -> "Order":
        """The bound below which everything precedes the deletion at this position: where a key
        change takes its columns from.
        """
        if self.position:
            return Order(self.epoch, self.position, DELETE)
        return self._replace(item=self.item - 1)


Key = tuple[Any, ...]  # the values of the key's columns, in the order of the declaration


class Operation(StrEnum):
    """What a change did, by Debezium's letters."""

    READ = "r"
    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    TRUNCATE = "t"

    def __init__(self, letter: str) -> None:
        self.is_upsert = letter in "rcu"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of one row of a source, or a truncation of all its rows (without a key).

    `columns` are those that the change carries: one that the database did not send, such as an
    unchanged TOAST value, is not among them. A change of the key is two changes, the deletion of
    the old key and an upsert of the new one that `continues` the old key's columns as they were
    just before.
    """

    # a table of a server as one connector captures it: orders are compared, and rows truncated,
    # within it only
    source: str
    operation: Operation
    order: Order
    key: Key = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    omitted: tuple[str, ...] = ()  # columns that the row has, and the change does not carry
    continues: Key | None = None
    transaction: int | None = (
        None  # of a database that may check its keys at the end of one only; see `merge`
    )
    event_ms: int | None = None  # the database's time of the change: information, never an order
    snapshot: str | None = (
        None  # the connector's mark of a row that a snapshot read, such as `first` or `incremental`
    )


_FILE_NUMBER = re.compile(r"(\d+)$")
_BINLOG_POSITION = re.compile(r"[^:]+\.([0-9]+):([0-9]+)(?::|$)")


def position_of(source: Mapping[str, Any]) -> Position:
    """The position in the database's log that a `source` block names.

    It is empty for an unknown connector and for a block without one, as those of rows that Flink
    CDC, or a connector of MySQL, read in a snapshot: such changes are ordered by Kafka's offsets,
    and below all changes of their source that have a position.

    Raises:
        ValueError: A part of the position is missing, or is no number.
    """
    known = _BY_CONNECTOR.get(str(source.get("connector")))
    if known is None:
        return ()
    try:
        return known(source)
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError(
            f"source: no position of {source.get('connector')} in {repr(dict(source))[:200]}: "
            f"{problem}"
        ) from problem


def binlog_position(text: str) -> Position:
    """The file's number and the byte in it that a text such as `mysql-bin.000003:120` begins with;
    empty if it does not.
    """
    found = _BINLOG_POSITION.match(text)
    return (int(found[1]), int(found[2])) if found else ()


def transaction_of(source: Mapping[str, Any]) -> int | None:
    """The transaction of a change, for databases that may check at its end alone that a key is that
    of one row (DEFERRABLE).
    """
    found = source.get("txId")
    return found if source.get("connector") == "postgresql" and isinstance(found, int) else None


def table_of(source: Mapping[str, Any], topic: str) -> tuple[str, str]:
    """The database (or schema) and the table of a change: as its `source` block names them, else
    the last two parts of the topic.
    """
    *_, database, table = ("", *topic.split("."))
    return str(source.get("schema") or source.get("db") or database), str(
        source.get("table") or table
    )


def _binlog(source: Mapping[str, Any]) -> Position:
    """MySQL and MariaDB: file number, byte in the file, row of the event. A GTID says who, not
    when.
    """
    if not source.get("file"):
        return ()
    number = _FILE_NUMBER.search(source["file"])
    if number is None:
        raise ValueError("the name of a binlog file ends with its number")
    return int(number[1]), int(source["pos"]), int(source.get("row") or 0)


def _wal(source: Mapping[str, Any]) -> Position:
    """PostgreSQL: a position of its transaction in the order of commits, then that of the change
    itself.

    Changes are sent by transaction; positions of transactions that ran at the same time interleave.
    A row that a snapshot read has the snapshot's position alone, which all transactions that it saw
    are below, and all others above.
    """
    committed, own = (
        orjson.loads(source["sequence"]) if source.get("sequence") else (None, source.get("lsn"))
    )
    return () if own is None else (int(committed or own), int(own))


def _sql_server(source: Mapping[str, Any]) -> Position:
    if not source.get("commit_lsn"):
        return ()
    return (
        *_hexadecimal(source["commit_lsn"]),
        *_hexadecimal(source["change_lsn"]),
        int(source.get("event_serial_no") or 0),
    )


def _hexadecimal(lsn: str | None) -> Position:
    """Three numbers; of a snapshot's rows, which have no position of their own, the lowest."""
    first, second, third = (lsn or "0:0:0").split(":")
    return int(first, 16), int(second, 16), int(third, 16)


_BY_CONNECTOR: dict[str, Callable[[Mapping[str, Any]], Position]] = {
    "mariadb": _binlog,
    "mysql": _binlog,
    "postgresql": _wal,
    "sqlserver": _sql_server,
}


# Positions of the log at which a database was read


@dataclass(frozen=True)
class BinlogPosition:
    """A position of the binary log: all that lies below is in the snapshot, nothing else."""

    position: Position

    def __str__(self) -> str:
        return "binlog " + ":".join(map(str, self.position))


@dataclass(frozen=True)
class TransactionSnapshot:
    """Which transactions a snapshot of PostgreSQL sees: those below `end` but for the ones that
    were `open` then.

    All that it sees was committed below the log's position `lsn`; what lies below that and is not
    seen has an unseen number. Numbers are those of the log, of 32 bits, which restart.
    """

    lsn: int
    end: int
    open: frozenset[int]

    def __str__(self) -> str:
        without = f" but {', '.join(map(str, sorted(self.open)))}" if self.open else ""
        return f"{WalPosition(self.lsn)}, transactions below {self.end}{without}"


@dataclass(frozen=True)
class WalPosition:
    """A position of PostgreSQL's log: all transactions that were committed up to there are in the
    state, no other.
    """

    lsn: int

    def __str__(self) -> str:
        return f"log {self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X}"

    @property
    def position(self) -> Position:
        """As far as positions go: their first part is where the transaction before had ended, so
        that one above may be below this.
        """
        return (self.lsn,)


LogPosition = BinlogPosition | TransactionSnapshot
StatedPosition = BinlogPosition | WalPosition  # as a tool states for its dump


_BINLOG = re.compile(r"([^:/'\s]+\.[0-9]{1,18}):([0-9]{1,18})")
_STATEMENT = re.compile(
    r"\b(?:MASTER|SOURCE)_LOG_FILE\s*=\s*'([^':]+\.[0-9]{1,18})'\s*,\s*(?:MASTER|SOURCE)_LOG_POS\s*=\s*([0-9]{1,18})",
    re.IGNORECASE,
)
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


def stated_position(text: str) -> StatedPosition:
    """The position that `mysql-bin.000003:1234` names, or PostgreSQL's `0/16B3748`, or the
    statement `CHANGE MASTER TO …` that `mariadb-dump --master-data` writes.

    Raises:
        InvalidValueError: The text is none of them.
    """
    stated = text.strip()
    if found := _STATEMENT.search(stated) or _BINLOG.fullmatch(stated):
        return BinlogPosition(binlog_position(f"{found[1]}:{found[2]}"))
    if not _LSN.fullmatch(stated):
        example = "mysql-bin.000003:1234, or 0/16B3748 of PostgreSQL"
        remedy = (
            f"is no position of a database's log, such as {example}; write it as the tool that "
            f"made the dump prints it"
        )
        raise InvalidValueError("as_of", text[:80], remedy)
    return WalPosition(lsn_of(stated))


def lsn_of(text: str) -> int:
    """A position of PostgreSQL's log as a number.

    Raises:
        ValueError: The text is none.
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


# Values, rows, keys and orders as text, between processes and in tables

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
