"""A message as a topic holds it, what reading one gives, and what all readers share."""

import datetime as dt
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, Generic, NamedTuple, TypeGuard, TypeVar

import orjson

from lakechime_dagster.cdc.change import (
    DELETE,
    READ,
    REPAIRS,
    UPSERT,
    Change,
    Key,
    Operation,
    Order,
    Position,
    parsed_row,
)
from lakechime_dagster.cdc.values import ConnectSchema, InexactNumberError, connect_schema
from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.partitions import canonical_json
from lakechime_dagster.tables.names import folded


@dataclass(frozen=True, kw_only=True)
class Record:
    """A message and its Kafka coordinate; a line of a file is one of partition 0, its offset the
    line's number.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    topic_id: str = ""
    partition: int = 0
    offset: int = 0


def record_of(message: Mapping[str, Any]) -> Record:
    """A message of the bronze table."""
    key, value = (
        message[f"{part}_bytes"] if message[part] is None else message[part].encode()
        for part in ("key", "value")
    )
    return Record(
        topic=message["topic"],
        topic_id=message["topic_id"] or "",
        partition=message["partition"],
        offset=message["offset"],
        key=key,
        value=value,
        headers={one["key"]: one["value"] or b"" for one in message["headers"] or ()},
    )


class Placed(NamedTuple):
    """In which transaction a change was: its name, and the number of the change among those of its
    table there, from 1 on.
    """

    transaction: str
    order: int


@dataclass(frozen=True)
class Changes:
    """The changes of a message, in their order; most have one.

    `types` is what its schema, or the declaration, says of the row's columns: name → type in
    Spark's words. Messages of one schema share one object. `defaults` are those of columns that
    have a constant one, as far as it is known. `placed` says in which transaction they were, where
    the message has one.
    """

    changes: tuple[Change, ...]
    types: Mapping[str, str] = field(default_factory=dict, compare=False)
    defaults: Mapping[str, Any] = field(default_factory=dict, compare=False)
    placed: Placed | None = None


@dataclass(frozen=True)
class Tombstone:
    """A key without a value: what a compacted topic keeps of a deletion.

    After a deletion in an envelope it says nothing new; where no message reports deletions
    otherwise, it is one.
    """

    key: Key | None  # None where the message has none
    order: Order  # by its Kafka coordinate alone

    def deletion(self, source: str) -> Change | None:
        """The deletion that this is where nothing else reports it; None without a key."""
        return (
            None
            if self.key is None
            else Change(source=source, operation=Operation.DELETE, order=self.order, key=self.key)
        )


@dataclass(frozen=True)
class Beat:
    """The log of a server had come to a time of its own (milliseconds since the epoch) when it
    wrote this message.
    """

    server: str
    ts_ms: int

    def is_of(self, source: str) -> bool:
        """Whether a source's changes come by the same log."""
        return source.startswith(f"{self.server}.")


class Control(StrEnum):
    """A message about no row."""

    HEARTBEAT = "heartbeat"
    TRANSACTION = "transaction"
    SCHEMA_CHANGE = "schema change"
    MESSAGE = "logical message"
    SNAPSHOT = "begin or end of a snapshot"


@dataclass(frozen=True)
class TransactionEnd:
    """A transaction has ended, with so many changes of each table that the connector captures.

    Attributes:
        name: The transaction's name in the message.
        counts: By table, as `schema.table`.
    """

    name: str
    counts: Mapping[str, int]


@dataclass(frozen=True)
class OtherTable:
    """The message is of a table that the declared filter (`database=`, `table=`) does not accept,
    so nothing else of it is read.
    """

    name: str


@dataclass(frozen=True)
class Unreadable:
    """The message cannot be read; the reason names the field, its value and what would be right."""

    reason: str


Reading = Changes | Tombstone | Beat | TransactionEnd | Control | OtherTable | Unreadable


T = TypeVar("T")

_PAYLOAD = b'"payload":'
_MAX_KNOWN = 64  # schemas of topics at a time; a schema changes with its table


class MessageReader(Generic[T]):
    """Reads messages, and remembers what was made of the schemas that they began with.

    Args:
        of_schema: What to make of a schema, once.
        part: The part of a message that is read, which errors name.
    """

    def __init__(self, of_schema: Callable[[ConnectSchema], T], part: str = "value") -> None:
        self._of_schema = of_schema
        self._part = part
        self._known: dict[bytes, T] = {}
        self._newest: tuple[bytes, T] | None = (
            None  # the schema of the last message, which is most often that of the next one
        )

    def read(self, raw: bytes, *, is_exact: bool = False) -> tuple[T | None, Any]:
        """What was made of the schema of a message, if it brings one, and its payload.

        Args:
            raw: The message.
            is_exact: Numbers with a fraction are read as decimal ones; otherwise as binary ones,
                which is much faster.

        Raises:
            ValueError: It is no JSON, or what stands as its schema is none.
        """
        prefix, made = (
            self._newest
            if self._newest and raw.startswith(self._newest[0])
            else self._schema_of(raw)
        )
        if made is not None and raw.endswith(b"}"):
            try:
                return made, _parse(raw[len(prefix) : -1], is_exact)
            except ValueError:
                pass  # more than a payload follows: the whole message says what is wrong with it
        return self._whole(raw, prefix, is_exact)

    def _schema_of(self, raw: bytes) -> tuple[bytes, T | None]:
        """The beginning of a message up to its payload, and what was made of the schema there if it
        is known.
        """
        head, middle, _ = raw.partition(_PAYLOAD)
        prefix = head + middle
        made = self._known.get(prefix)
        if made is not None:
            self._newest = prefix, made
        return prefix, made

    def _whole(self, raw: bytes, prefix: bytes, is_exact: bool) -> tuple[T | None, Any]:
        schema, payload = parts_of(parsed(raw, self._part, is_exact=is_exact))
        if schema is None:
            return None, payload
        made = self._of_schema(connect_schema(schema))
        if _is_beginning(prefix, schema):
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[prefix] = made
        return made, payload


def parsed(raw: bytes, part: str, *, is_exact: bool) -> Any:
    """The JSON of a message, or of the part of it that errors name.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return _parse(raw, is_exact)
    except ValueError as problem:
        raise ValueError(f"{part}: {raw[:60]!r} is no JSON: {problem}") from problem


def parts_of(message: Any) -> tuple[Mapping[str, Any] | None, Any]:
    """The schema and the payload of a message; one with neither is its own payload, and one may
    hold a payload alone.
    """
    if isinstance(message, dict):
        if message.keys() == {"schema", "payload"} and isinstance(message["schema"], dict | None):
            return message["schema"], message["payload"]
        if message.keys() == {"payload"} and isinstance(message["payload"], dict | None):
            return None, message["payload"]
    return None, message


def _is_beginning(prefix: bytes, schema: Any) -> bool:
    """Whether a message's beginning is all of its schema and nothing of its payload: what follows
    the same one is a payload then.
    """
    try:
        return orjson.loads(prefix + b"null}") == {"schema": schema, "payload": None}
    except ValueError:
        return False


def _parse(raw: bytes, is_exact: bool) -> Any:
    return json.loads(raw, parse_float=Decimal) if is_exact else orjson.loads(raw)


_RANKS = {Operation.READ: READ, Operation.DELETE: DELETE, Operation.TRUNCATE: DELETE}


@dataclass(frozen=True)
class TableFilter:
    """The tables of the database whose messages are read, by globs of their names; an empty glob
    accepts every name.

    Attributes:
        database: Of MySQL and MariaDB the database, of others the schema.
        table: The table's name.
    """

    database: str = ""
    table: str = ""

    def other(self, database: str, table: str) -> OtherTable | None:
        """What a message of a table is that is none of these; None where it is one of them."""
        pairs = ((database, self.database), (table, self.table))
        return (
            None
            if all(not glob or fnmatchcase(name, glob) for name, glob in pairs)
            else OtherTable(f"{database}.{table}")
        )


class EnvelopeReader(ABC):
    """Reads the messages of one table's topics."""

    def read(self, record: Record) -> Reading:
        """What a message reports; one that cannot be read says why."""
        try:
            try:
                return self._read(record, False)  # with binary numbers, which is much faster
            except InexactNumberError:
                return self._read(record, True)
        except ValueError as problem:
            return Unreadable(str(problem))

    @abstractmethod
    def _read(self, record: Record, is_exact: bool) -> Reading:
        """What a message reports, read with decimal numbers where that is asked for; it raises
        ValueError with the reason.
        """


class TopicReader(EnvelopeReader):
    """Reads the messages of a table's topics, those of some topics otherwise than the others.

    Args:
        reader: Of the other messages.
        topics: A glob of the topics that this one reads.
        of_payload: What the payload of a message in one of these reports; it raises ValueError.
    """

    def __init__(
        self, reader: EnvelopeReader, topics: str, of_payload: Callable[[Any], Reading]
    ) -> None:
        self._reader, self._topics, self._of_payload = reader, topics, of_payload

    def _read(self, record: Record, is_exact: bool) -> Reading:
        if not fnmatchcase(record.topic, self._topics):
            return self._reader.read(record)
        raw = record.value
        return self._of_payload(
            None if raw is None else parts_of(parsed(raw, "value", is_exact=is_exact))[1]
        )


def message_of(record: Record, tool: str, is_exact: bool) -> Mapping[str, Any] | None:
    """The object that a message of a tool is; None of a tombstone.

    Raises:
        ValueError: It is none.
    """
    found = None if record.value is None else parsed(record.value, "value", is_exact=is_exact)
    if found is not None and not isinstance(found, dict):
        raise ValueError(f"value: a message of {tool} is an object, not {shown(found)}")
    return found


def order_of(record: Record, operation: Operation, position: Position) -> Order:
    """The order of a change in a message; without a position by its Kafka coordinate alone."""
    rank = _RANKS.get(operation, UPSERT) if position else 0
    return Order(
        0, position, rank, record.topic_id or record.topic, record.partition, record.offset
    )


def coordinate(record: Record) -> Order:
    """Where a message stands in its topic."""
    return Order(
        topic=record.topic_id or record.topic, partition=record.partition, offset=record.offset
    )


def key_of(row: Mapping[str, Any], keys: Sequence[str], where: str) -> Key:
    """The key in a row, all of whose columns have values there.

    Raises:
        ValueError: One has none; the message begins with the part of the message that the row is,
            and the column.
    """
    names = keys_in(row, keys)
    for name in names:
        if row.get(name) is None:
            raise ValueError(
                f"{where}.{name}: a column of the key has a value in each row, this one has "
                f"{shown(row.get(name))}"
            )
    return tuple(row[name] for name in names)


def keys_in(row: Mapping[str, Any], keys: Sequence[str]) -> Sequence[str]:
    """The columns of the key by the names that they have in a row: those that Spark takes for the
    same.
    """
    if all(name in row for name in keys):
        return keys
    own = {folded(name): name for name in row}
    return [own.get(folded(name), name) for name in keys]


def key_change(upsert: Change, old: Key) -> tuple[Change, Change]:
    """The changes that one with a new key is: the deletion of the old key, and after it the upsert,
    which continues its row.
    """
    order, rank = upsert.order, DELETE if upsert.order.position else 0
    deletion = replace(
        upsert,
        operation=Operation.DELETE,
        order=order._replace(rank=rank),
        key=old,
        columns={},
        omitted=(),
        continues=None,
    )
    after = order if order.position else order._replace(item=order.item + 1)
    return deletion, replace(upsert, order=after, continues=old)


def as_object(name: str, found: Any) -> Mapping[str, Any]:
    """A part of a message that is an object.

    Raises:
        ValueError: It is none; the message begins with the name.
    """
    if not isinstance(found, dict):
        raise ValueError(f"{name}: it is an object, not {shown(found)}")
    return found


def as_text(name: str, found: Any) -> str:
    """A part of a message that is text.

    Raises:
        ValueError: It is none; the message begins with the name.
    """
    if not isinstance(found, str):
        raise ValueError(f"{name}: it is text, not {shown(found)}")
    return found


def shown(value: Any) -> str:
    """A value as errors show it."""
    return repr(value)[:80]


class MessageKind(StrEnum):
    """What a message turned out to be; the rest are the names of `record.Control`."""

    CHANGE = "change"
    TOMBSTONE = "tombstone"
    OTHER_TABLE = "other table"  # of one that the declared filter does not accept
    UNREADABLE = "unreadable"


COLUMNS = {
    "topic": "string",
    "topic_id": "string",  # of Kafka; the topic's name where there is none
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",  # Kafka's; of a file when it was last written
    "key": "string",
    "value": "string",
    "key_bytes": "binary",  # of a key that is not UTF-8, whose text is null
    "value_bytes": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "kind": "string",
    "source": "string",  # the table of a server that the change is of
    "op": "string",  # of the message's last change, as the three that follow
    "row_key": "string",  # the values of the key's columns as a JSON array
    "position": "array<bigint>",  # in the log of the database
    "ts_ms": "bigint",  # the database's time
    "snapshot": "string",  # the connector's mark of a row that a snapshot read
    "transaction": "string",  # in which the change was, or that has ended
    # the change's number among those of its table in the transaction, from 1 on
    "transaction_order": "bigint",
    # of a transaction that has ended, its changes by table, as a JSON object
    "transaction_counts": "string",
    "problem": "string",  # why it is unreadable
}


TYPE = "string"


def shard_of(shards: re.Pattern[str], topic: str) -> dict[str, str] | None:
    """The values of columns in the name of a topic; None if it does not match."""
    found = shards.fullmatch(topic)
    return (
        None if found is None else {name: value or "" for name, value in found.groupdict().items()}
    )


class ShardReader(EnvelopeReader):
    """Reads the messages of many topics, whose names have columns of the rows.

    Args:
        reader: Of the messages, by the columns of the key that these have.
        shards: A regular expression that the whole name of a topic matches, with a named group for
            each such column.
        keys: All columns of the key, in their order.
    """

    def __init__(self, reader: EnvelopeReader, shards: str, keys: tuple[str, ...]) -> None:
        self._reader, self._pattern, self._keys = reader, re.compile(shards), keys
        self._by_topic: dict[str, dict[str, str]] = {}
        self._types: dict[int, tuple[Mapping[str, str], Mapping[str, str]]] = {}

    def _read(self, record: Record, is_exact: bool) -> Reading:
        match reading := self._reader.read(record):
            case Changes(changes, types):
                of_shard = self._columns_in(record.topic)
                return replace(
                    reading,
                    changes=tuple(self._with(change, of_shard) for change in changes),
                    types=self._with_types(types, of_shard),
                )
            case Tombstone(key) if key is not None:
                return replace(reading, key=self._key(key, self._columns_in(record.topic)))
            case _:
                return reading

    def _columns_in(self, topic: str) -> Mapping[str, str]:
        return self._by_topic.get(topic) or self._by_topic.setdefault(topic, self._columns(topic))

    def _columns(self, topic: str) -> dict[str, str]:
        found = shard_of(self._pattern, topic)
        if found is None:
            raise ValueError(
                f"topic: {shown(topic)} does not match shards={shown(self._pattern.pattern)}, "
                f"which gives its columns"
            )
        return found

    def _with(self, change: Change, of_shard: Mapping[str, str]) -> Change:
        """A change of the table of all shards; a truncation is one of its own shard, as that is a
        source of its own.
        """
        continues = None if change.continues is None else self._key(change.continues, of_shard)
        columns = {**of_shard, **change.columns} if change.operation.is_upsert else change.columns
        return replace(
            change,
            key=self._key(change.key, of_shard) if change.key else change.key,
            columns=columns,
            continues=continues,
        )

    def _key(self, key: Key, of_shard: Mapping[str, str]) -> Key:
        rest = iter(key)
        return tuple(of_shard[name] if name in of_shard else next(rest) for name in self._keys)

    def _with_types(
        self, types: Mapping[str, str], of_shard: Mapping[str, str]
    ) -> Mapping[str, str]:
        """The types with those of the shard's columns, one object for each schema."""
        if id(types) not in self._types:
            self._types[id(types)] = types, {**dict.fromkeys(of_shard, TYPE), **types}
        return self._types[id(types)][1]


BEGIN, END = "BEGIN", "END"  # states of a transaction in its topic
# the position after it is that of the message, and another one in each of a transaction's
_OF_POSTGRES = re.compile(r"(\d+):\d+")


def transaction_in(payload: Any) -> Reading:
    """The begin or the end of a transaction, in a topic of the connector's transactions.

    Raises:
        ValueError: It is neither.
    """
    if payload is None:
        return Control.TRANSACTION
    found = boundary_of(payload) if isinstance(payload, dict) else None
    if found is None:
        raise ValueError(
            f"status: a message of a topic of transactions is a BEGIN or an END, not "
            f"{shown(payload)}"
        )
    return found


def boundary_of(payload: Mapping[str, Any]) -> Reading | None:
    """The begin or the end of a transaction; None of another message.

    Raises:
        ValueError: It is an end without the transaction's name, or without the numbers of changes.
    """
    if (
        payload.get("status") not in (BEGIN, END)
        or "event_count" not in payload
        or "data_collections" not in payload
    ):
        return None
    return Control.TRANSACTION if payload["status"] == BEGIN else _end_of(payload)


def placed_in(payload: Mapping[str, Any]) -> Placed | None:
    """The number of a change in its transaction, where its message has one."""
    found = payload.get("transaction")
    if not isinstance(found, dict):
        return None
    identity, order = found.get("id"), found.get("data_collection_order")
    return (
        Placed(transaction_id(identity), order)
        if isinstance(identity, str) and identity and _is_whole(order)
        else None
    )


def transaction_id(name: str) -> str:
    """What is the same in all messages of a transaction: a GTID, a position of the binary log, or
    PostgreSQL's number of it alone.
    """
    of_postgres = _OF_POSTGRES.fullmatch(name)
    return of_postgres[1] if of_postgres else name


def _end_of(payload: Mapping[str, Any]) -> TransactionEnd:
    identity, collections = payload.get("id"), payload["data_collections"]
    if not isinstance(identity, str) or not identity:
        raise ValueError(f"id: the end of a transaction names it, this one has {shown(identity)}")
    if not isinstance(collections, list | None):
        raise ValueError(
            f"data_collections: the end of a transaction counts its changes by table, not "
            f"{shown(collections)}"
        )
    counts: dict[str, int] = {}
    for one in collections or ():
        name, count = (
            (one.get("data_collection"), one.get("event_count"))
            if isinstance(one, dict)
            else (None, None)
        )
        if not isinstance(name, str) or not name or not _is_whole(count):
            raise ValueError(
                f"data_collections: each has a name and a number of changes, not {shown(one)}"
            )
        counts[name] = counts.get(name, 0) + count
    return TransactionEnd(identity, counts)


def _is_whole(number: Any) -> TypeGuard[int]:
    return type(number) is int and 0 <= number < 2**63


_CHANGE = MessageKind.CHANGE.value
_LEAST, _MOST = -(2**63), 2**63 - 1
_LAST_MS = 253_402_300_799_999  # the end of the year 9999; a time beyond is none


class Message(NamedTuple):
    """A message as a source holds it.

    Attributes:
        record: What readers read of it.
        headers: All of them; one name may be there several times.
        timestamp_ms: When it was written, where that is known.
        problem: Why its parts cannot be read, so that its value is all that is kept; empty where
            they can.
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
    """The row of a message, in the order of the columns; nothing that a message can hold hinders
    it.

    Its time is in microseconds since the epoch.
    """
    record, headers, timestamp_ms, problem = message
    read = unreadable(problem) if problem else read_of(reader.read(record))
    key, key_bytes = _text_or_bytes(record.key)
    value, value_bytes = _text_or_bytes(record.value)
    time = (
        timestamp_ms * 1000 if timestamp_ms is not None and 0 <= timestamp_ms <= _LAST_MS else None
    )
    all_headers = (
        [{"key": _clean(name), "value": content} for name, content in headers] if headers else []
    )
    coordinate = record.topic, record.topic_id or record.topic, record.partition, record.offset
    return (*coordinate, time, key, value, key_bytes, value_bytes, all_headers, *read)


def read_of(reading: Reading) -> Read:
    """What a reading says of its message; of several changes the last one."""
    match reading:
        case Changes(changes, placed=placed) if changes:
            last = changes[-1]
            position = list(last.order.position) or None
            if position is not None and not (min(position) >= _LEAST and max(position) <= _MOST):
                return unreadable(
                    f"source: the position {position} has a number of more than 64 bits"
                )
            key = key_text(last.key) if last.key else None
            snapshot = None if last.snapshot is None else _clean(last.snapshot)
            within = (None, None) if placed is None else (_clean(placed.transaction), placed.order)
            return Read(
                _CHANGE,
                _clean(last.source),
                last.operation.value,
                key,
                position,
                _whole(last.event_ms),
                snapshot,
                *within,
            )
        case Changes():
            return Read(_CHANGE)
        case Tombstone(key):
            return Read(MessageKind.TOMBSTONE.value, row_key=None if key is None else key_text(key))
        case Beat(server, ts_ms):
            return Read(Control.HEARTBEAT.value, _clean(server), ts_ms=_whole(ts_ms))
        case TransactionEnd(transaction, counts):
            counted = canonical_json({_clean(name): count for name, count in counts.items()})
            return Read(
                Control.TRANSACTION.value,
                op=END,
                transaction=_clean(transaction_id(transaction)),
                transaction_counts=counted,
            )
        case Control() as control:
            return Read(control.value)
        case OtherTable(name):
            return Read(MessageKind.OTHER_TABLE.value, _clean(name))
        case Unreadable(reason):
            return unreadable(reason)


def unreadable(problem: str) -> Read:
    return Read(MessageKind.UNREADABLE.value, problem=_clean(problem))


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
    """A number that a column of 64 bits holds; messages may hold anything else."""
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and _LEAST <= value <= _MOST
        else None
    )


def _clean(text: str) -> str:
    """A text without lone surrogates, which no UTF-8 has."""
    return text if text.isascii() else text.encode(errors="replace").decode()


class SnapshotRowReader(EnvelopeReader):
    """Reads rows of a snapshot that the product read itself, and has another reader read all
    messages.

    Args:
        reader: Of the messages.
        keys: The columns of the table's key, in their order.
    """

    def __init__(self, reader: EnvelopeReader, keys: tuple[str, ...]) -> None:
        self._reader, self._keys = reader, keys
        self._schemas: dict[bytes, tuple[Mapping[str, str], Mapping[str, Any]]] = {}

    def read(self, record: Record) -> Reading:
        """What a message says; one that cannot be read says why."""
        return (
            super().read(record)
            if record.topic_id.startswith(REPAIRS)
            else self._reader.read(record)
        )

    def _read(self, record: Record, is_exact: bool) -> Reading:
        try:
            found = orjson.loads(record.value or b"")
            operation = Operation.DELETE if found["deleted"] else Operation.READ
            row, position = parsed_row(found["row"]), tuple(found["position"])
            types, defaults = self._schema(found)
            source, event_ms = found["source"], found["ts_ms"]
        except (KeyError, TypeError) as problem:
            raise ValueError(f"value: it is no row of a snapshot: {problem!r}") from problem
        change = Change(
            source=source,
            operation=operation,
            order=order_of(record, operation, position),
            key=key_of(row, self._keys, "row"),
            columns={} if found["deleted"] else row,
            omitted=() if found["deleted"] else tuple(name for name in types if name not in row),
            event_ms=event_ms,
        )
        return Changes((change,), types, defaults)

    def _schema(self, found: Mapping[str, Any]) -> tuple[Mapping[str, str], Mapping[str, Any]]:
        """Types and defaults, one object for all rows that have the same ones."""
        text = orjson.dumps([found["types"], found["defaults"]])
        return self._schemas.get(text) or self._schemas.setdefault(
            text, (found["types"], parsed_row(found["defaults"]))
        )
