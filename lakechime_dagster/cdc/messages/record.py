"""A message as a topic holds it, and what reading one gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lakechime_dagster.cdc.change import Change, Key, Operation
from lakechime_dagster.cdc.order import Order
from lakechime_dagster.compat import StrEnum


@dataclass(frozen=True, kw_only=True)
class Record:
    """A message and its Kafka coordinate; a line of a file is one of partition 0, its offset the line's number."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    topic_id: str = ""
    partition: int = 0
    offset: int = 0


class Placed(NamedTuple):
    """In which transaction a change was: what names it, and the place among the changes of its table there, from 1 on."""

    transaction: str
    order: int


@dataclass(frozen=True)
class Changes:
    """The message tells these changes, in their order; most tell one.

    `types` is what its schema, or the declaration, says of the row's columns: name → type in Spark's words. Messages of one
    schema share one object. `defaults` are those of columns that have a constant one, as far as it is known. `placed` says in which
    transaction they were, where the message tells it.
    """

    changes: tuple[Change, ...]
    types: Mapping[str, str] = field(default_factory=dict, compare=False)
    defaults: Mapping[str, Any] = field(default_factory=dict, compare=False)
    placed: Placed | None = None


@dataclass(frozen=True)
class Tombstone:
    """A key without a value: what a compacted topic keeps of a deletion.

    Beside a deletion that an envelope told it says nothing new; where no message tells deletions otherwise, it is one.
    """

    key: Key | None  # None where the message has none
    order: Order  # by its Kafka coordinate alone

    def deletion(self, source: str) -> Change | None:
        """The deletion that this is where nothing else tells it; None if it does not say of which key."""
        return None if self.key is None else Change(source=source, operation=Operation.DELETE, order=self.order, key=self.key)


@dataclass(frozen=True)
class Beat:
    """The log of a server had come to a time of its own (milliseconds since the epoch) when it told of this message."""

    server: str
    ts_ms: int

    def is_of(self, source: str) -> bool:
        """Whether a source's changes come by the same log."""
        return source.startswith(f"{self.server}.")


class Control(StrEnum):
    """The message tells of no row."""

    HEARTBEAT = "heartbeat"
    TRANSACTION = "transaction"
    SCHEMA_CHANGE = "schema change"
    MESSAGE = "logical message"
    SNAPSHOT = "begin or end of a snapshot"


@dataclass(frozen=True)
class TransactionEnd:
    """A transaction has ended, with so many changes of each table that the connector follows.

    Attributes:
        told: The transaction's name as the message tells it.
        counts: By table, as `schema.table`; of one that is left out nothing is told.
    """

    told: str
    counts: Mapping[str, int]


@dataclass(frozen=True)
class OtherTable:
    """The message is of a table that the declared filter (`database=`, `table=`) does not accept, so nothing else of it is read."""

    name: str


@dataclass(frozen=True)
class Unreadable:
    """The message cannot be read; the reason names the field, its value and what would be right."""

    reason: str


Reading = Changes | Tombstone | Beat | TransactionEnd | Control | OtherTable | Unreadable
