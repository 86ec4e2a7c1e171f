"""What is found of a type over its whole life: whether each of its events is in its table once, with all that it says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lake.contracts import Contract
from lakechime_dagster.schema.event import JsonEvent, event_of
from lakechime_dagster.schema.layout import Layout
from lakechime_dagster.schema.leaves import Leaves, leaves_of, read_back
from lakechime_dagster.schema.shape import shaped


class Fault(StrEnum):
    """What is wrong with an event or a row.

    Attributes:
        LOST: The event has no row, and no contract discards it.
        DOUBLED: Several rows have its `_src`.
        FOREIGN: The row is of no event that the stream's table holds.
        OTHER: The row is of an event of another variation, or of another time.
        LACKS: Its row lacks a value of the event, in its columns and in `_rescued`.
        DIFFERS: Its row has a value that the event has not.
    """

    LOST = "lost"
    DOUBLED = "doubled"
    FOREIGN = "foreign"
    OTHER = "other"
    LACKS = "lacks"
    DIFFERS = "differs"


@dataclass(frozen=True, kw_only=True)
class Example:
    """One of what is wrong, by the row's `_src`; of a value by its JSON pointer too.

    Attributes:
        value: Personal data perhaps, so that it is shown only to who asks for it.
    """

    fault: Fault
    source: str
    pointer: str = ""
    value: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Verified:
    """A type's table beside the events of the stream's table up to the type's place.

    Attributes:
        table: The name of its table, with the group in whose folder that lies.
        version: Of the type's table; `place` that of the stream's table up to which it holds its events.
        events: Of the type, up to there.
        rows: Of its table.
        discarded: Events without a row that a contract discards, or discarded when they came.
        gone: Rows that are older than all that the stream's table still has.
        sampled: Rows of which each value was looked at.
        faults: How many of each, values of sampled rows only.
        examples: Some of each.
        unread: Why nothing of this is known; empty where it is.
    """

    type: str
    table: str
    version: int = -1
    place: int = -1
    events: int = 0
    rows: int = 0
    discarded: int = 0
    gone: int = 0
    sampled: int = 0
    faults: Mapping[Fault, int] = field(default_factory=dict, hash=False)
    examples: tuple[Example, ...] = ()
    unread: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong with it, as far as it is known."""
        return not self.faults


def value_faults(payload: str, row: Mapping[str, Any], source: str, layout: Layout, contract: Contract) -> list[Example]:
    """The values of an event that its row lacks, and those that the row has beside them.

    Values that the contract leaves out are not looked for: of an event that has some, only what the row has beside them is told.
    """
    event = event_of(payload)
    if not isinstance(event, JsonEvent):
        return [Example(fault=Fault.DIFFERS, source=source, value=f"its event is none: {event}")]
    told = leaves_of(event.fields)
    try:
        found = read_back(row, row.get("_rescued"), layout)
    except ValueError as error:
        return [Example(fault=Fault.DIFFERS, source=source, pointer="/_rescued", value=str(error))]
    leaves_out = shaped(event, layout, contract).discarded > 0
    lacking = [] if leaves_out else _examples(Fault.LACKS, source, told - found)
    return lacking + _examples(Fault.DIFFERS, source, found - told)


def _examples(fault: Fault, source: str, leaves: Leaves) -> list[Example]:
    return [Example(fault=fault, source=source, pointer=pointer, value=_shown(value)) for pointer, value in sorted(leaves, key=str)]


def _shown(value: Any) -> str:
    return str(value[1] if isinstance(value, tuple) else value)
