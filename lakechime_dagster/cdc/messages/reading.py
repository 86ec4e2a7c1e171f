"""What the readers of all envelopes do alike: numbers are read exactly, keys are whole, a change of a key is two changes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from lakechime_dagster.cdc.change import Change, Key, Operation
from lakechime_dagster.cdc.messages.message import parsed
from lakechime_dagster.cdc.messages.record import OtherTable, Reading, Record, Unreadable
from lakechime_dagster.cdc.order import DELETE, READ, UPSERT, Order, Position
from lakechime_dagster.cdc.schemas.values import InexactNumberError
from lakechime_dagster.lake.names import folded

_RANKS = {Operation.READ: READ, Operation.DELETE: DELETE, Operation.TRUNCATE: DELETE}


@dataclass(frozen=True)
class TableFilter:
    """The tables of the database whose messages are read, by globs of their names; an empty glob accepts every name.

    Attributes:
        database: Of MySQL and MariaDB the database, of others the schema.
        table: The table's name.
    """

    database: str = ""
    table: str = ""

    def other(self, database: str, table: str) -> OtherTable | None:
        """What a message of a table is that is none of these; None where it is one of them."""
        pairs = ((database, self.database), (table, self.table))
        return None if all(not glob or fnmatchcase(name, glob) for name, glob in pairs) else OtherTable(f"{database}.{table}")


class EnvelopeReader(ABC):
    """Reads the messages of one table's topics."""

    def read(self, record: Record) -> Reading:
        """What a message tells; one that cannot be read says why."""
        try:
            try:
                return self._read(record, False)  # with binary numbers, which is much faster
            except InexactNumberError:
                return self._read(record, True)
        except ValueError as problem:
            return Unreadable(str(problem))

    @abstractmethod
    def _read(self, record: Record, is_exact: bool) -> Reading:
        """What a message tells, read with decimal numbers where that is asked for; it raises ValueError with the reason."""


class ReaderBeside(EnvelopeReader):
    """Reads the messages of a table's topics, those of some topics otherwise than the others.

    Args:
        reader: Of the other messages.
        topics: A glob of the topics that this one reads.
    """

    def __init__(self, reader: EnvelopeReader, topics: str) -> None:
        self._reader, self._topics = reader, topics

    def read(self, record: Record) -> Reading:
        """What a message tells; one that cannot be read says why."""
        return super().read(record) if fnmatchcase(record.topic, self._topics) else self._reader.read(record)


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
    """Where a change stands that a message tells; without a position by its Kafka coordinate alone."""
    rank = _RANKS.get(operation, UPSERT) if position else 0
    return Order(0, position, rank, record.topic_id or record.topic, record.partition, record.offset)


def coordinate(record: Record) -> Order:
    """Where a message stands in its topic."""
    return Order(topic=record.topic_id or record.topic, partition=record.partition, offset=record.offset)


def key_of(row: Mapping[str, Any], keys: Sequence[str], where: str) -> Key:
    """The key in a row, all of whose columns have values there.

    Raises:
        ValueError: One has none; the message begins with the part of the message that the row is, and the column.
    """
    names = keys_in(row, keys)
    for name in names:
        if row.get(name) is None:
            raise ValueError(f"{where}.{name}: a column of the key has a value in each row, this one has {shown(row.get(name))}")
    return tuple(row[name] for name in names)


def keys_in(row: Mapping[str, Any], keys: Sequence[str]) -> Sequence[str]:
    """The columns of the key by the names that they have in a row: those that Spark takes for the same."""
    if all(name in row for name in keys):
        return keys
    own = {folded(name): name for name in row}
    return [own.get(folded(name), name) for name in keys]


def key_change(upsert: Change, old: Key) -> tuple[Change, Change]:
    """The changes that one with a new key is: the deletion of the old key, and after it the upsert, which continues its row."""
    order, rank = upsert.order, DELETE if upsert.order.position else 0
    deletion = replace(upsert, operation=Operation.DELETE, order=order._replace(rank=rank), key=old, columns={}, omitted=(), continues=None)
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
