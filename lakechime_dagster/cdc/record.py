"""A message as a topic holds it, and what reading one gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lakechime_dagster.cdc.change import Change, Key


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


@dataclass(frozen=True)
class Changes:
    """The message tells these changes, in their order; most tell one."""

    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Tombstone:
    """A key without a value: what a compacted topic keeps of a deletion. `key` is None where the message has none."""

    key: Key | None


class Control(StrEnum):
    """The message tells of no row."""

    HEARTBEAT = "heartbeat"
    TRANSACTION = "transaction"
    SCHEMA_CHANGE = "schema change"
    MESSAGE = "logical message"


@dataclass(frozen=True)
class Unreadable:
    """The message cannot be read; the reason names the field, its value and what would be right."""

    reason: str


Reading = Changes | Tombstone | Control | Unreadable
