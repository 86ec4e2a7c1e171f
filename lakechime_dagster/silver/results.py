"""What an execution of a stream or a group is to read, and what it did, type by type, and whether
each event is in its table once.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.silver.event import JsonEvent, event_of
from lakechime_dagster.silver.json import Fields, Fraction, Integer, parsed
from lakechime_dagster.silver.schema import Column, Holds, TypeSchema
from lakechime_dagster.silver.shape import Rescue, shaped
from lakechime_dagster.sources.source import SourceJob
from lakechime_dagster.tables.events import Contract, EventGroup
from lakechime_dagster.triggers.consumers import Committed

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import FormatLog

Leaves = Counter[tuple[str, Any]]


def leaves_of(value: Any, pointer: str = "") -> Leaves:
    """The leaves of a value as `json_text` gives it, or as Spark does by the types of columns."""
    found: Leaves = Counter()
    match value:
        case Fields():
            for name, one in value:
                here = f"{pointer}/{_escaped(name)}"
                inner = leaves_of(one, here)
                found += inner if not _is_nothing(inner, here) else Counter()
            return found or Counter([(pointer, "{}")])
        case list():
            for at, one in enumerate(value):
                found += leaves_of(one, f"{pointer}/{at}")
            return found or Counter([(pointer, "[]")])
        case bool() | None:
            return Counter([(pointer, repr(value))])
        case Fraction():
            return Counter(
                [
                    (
                        pointer,
                        (
                            "number",
                            float(value) if abs(float(value)) != float("inf") else str(value),
                        ),
                    )
                ]
            )
        case Integer() | int() | float():
            return Counter(
                [(pointer, ("number", int(value) if not isinstance(value, float) else value))]
            )
        case _:
            return Counter([(pointer, ("text", str(value)))])


def read_back(row: Mapping[str, Any], rescued: str | None, schema: TypeSchema) -> Leaves:
    """The leaves of a row (its values as Python has them, structs as maps) and of its `_rescued`.

    Raises:
        ValueError: `_rescued`, or a column that keeps text of JSON, is none.
    """
    found = leaves_of(_fields(row, schema.columns))
    rescued_leaves: Leaves = Counter()
    pointers: list[str] = []
    for one in parsed(rescued or "[]"):
        entry = dict(one)
        if [*entry] != ["p", "v", "r"]:
            raise ValueError(f"_rescued has an entry with {[*entry]}, not p, v and r")
        pointer, inner = entry["p"], leaves_of(entry["v"], entry["p"])
        if _is_nothing(inner, pointer) and (pointer, "None") not in found:
            continue  # of a field, not of an array's element
        rescued_leaves += inner
        pointers.append(pointer)
    for pointer, value in [*found]:
        stands_for = value == "None" and pointer in pointers  # in an array, for a rescued value
        if stands_for or (value == "{}" and any(one.startswith(pointer + "/") for one in pointers)):
            del found[pointer, value]
    return found + rescued_leaves


def _fields(row: Mapping[str, Any], columns: Sequence[Column]) -> Fields:
    pairs = [(column, row.get(column.name)) for column in columns]
    return Fields(
        [(column.field, _value(value, column)) for column, value in pairs if value is not None]
    )


def _value(value: Any, column: Column) -> Any:
    if value is None:
        return None
    match column.holds:
        case Holds.OBJECT:
            return _fields(value, column.fields)
        case Holds.ARRAY:
            assert column.element is not None
            return [_value(one, column.element) for one in value]
        case Holds.JSON | Holds.HUGE:
            return parsed(value)
        case Holds.BIGINT:
            return int(value)
        case _:
            return value


def _is_nothing(leaves: Leaves, pointer: str) -> bool:
    """Whether a field with these leaves is as one that is not there."""
    return [*leaves] in ([(pointer, "None")], [(pointer, "{}")], [(pointer, "[]")])


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


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
    """A type's table beside the events of the stream's table up to the type's checkpoint.

    Attributes:
        table: The name of its table, with the group in whose folder that lies.
        version: Of the type's table; `checkpoint` that of the stream's table up to which it holds
            its events.
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
    checkpoint: int = -1
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


def value_faults(
    payload: str, row: Mapping[str, Any], source: str, schema: TypeSchema, contract: Contract
) -> list[Example]:
    """The values of an event that its row lacks, and those that the row has beside them.

    Values that the contract leaves out are not looked for: of an event that has some, only what the
    row has beyond them is returned.
    """
    event = event_of(payload)
    if not isinstance(event, JsonEvent):
        return [Example(fault=Fault.DIFFERS, source=source, value=f"its event is none: {event}")]
    sent = leaves_of(event.fields)
    try:
        found = read_back(row, row.get("_rescued"), schema)
    except ValueError as error:
        return [Example(fault=Fault.DIFFERS, source=source, pointer="/_rescued", value=str(error))]
    leaves_out = shaped(event, schema, contract).discarded > 0
    lacking = [] if leaves_out else _examples(Fault.LACKS, source, sent - found)
    return lacking + _examples(Fault.DIFFERS, source, found - sent)


def _examples(fault: Fault, source: str, leaves: Leaves) -> list[Example]:
    return [
        Example(fault=fault, source=source, pointer=pointer, value=_shown(value))
        for pointer, value in sorted(leaves, key=str)
    ]


def _shown(value: Any) -> str:
    return str(value[1] if isinstance(value, tuple) else value)


# versions of the stream's table by which a type may be behind its group and still be read with the
# others
MAX_CATCHUP = 100


@dataclass(frozen=True, kw_only=True)
class Part:
    """Types that are read up to one version of the stream's table, each from behind its own
    checkpoint.

    Attributes:
        starts: The version behind which each is read; one that is not before the end has nothing
            there.
    """

    starts: Mapping[str, int]
    end: int

    @property
    def behind(self) -> dict[str, int]:
        """The types that have something to be read."""
        return {name: start for name, start in self.starts.items() if start < self.end}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The part that types share that are about where their group is, and that of types that catch
    up, if any is behind.

    Types that are in neither wait for a later execution.
    """

    shared: Part
    behind: Part | None = None


def planned(
    starts: Mapping[str, int], *, group: int, end: int, max_catchup: int = MAX_CATCHUP
) -> Plan:
    """What an execution reads.

    The type that is the furthest behind the group, by more than `max_catchup` versions, catches up
    by so many versions beside those of the execution, so that it gets nearer whatever arrives;
    types whose checkpoints lie within that part read it together. What types that are behind cost
    those that are not is bounded by this one part.

    Args:
        starts: The types that are due.
        group: The version up to which the group has read.
        end: Up to which the execution reads.
        max_catchup: One or more.
    """
    far = sorted((start, name) for name, start in starts.items() if group - start > max_catchup)
    shared = Part(
        starts={name: start for name, start in starts.items() if group - start <= max_catchup},
        end=end,
    )
    if not far:
        return Plan(shared=shared)
    last = far[0][0] + max_catchup + end - group
    return Plan(
        shared=shared,
        behind=Part(starts={name: start for start, name in far if start < last}, end=last),
    )


REBUILT = "rebuilt"  # the fact of a commit that replaced its table


class RequestKind(StrEnum):
    """What somebody requests for a table.

    Attributes:
        REPLAY: A type's earlier events are read again, and the rows repaired that they would have
            now.
        REBUILD: A type's table is replaced by what its events give now, with a schema made from all
            of them.
        REPROCESS: What a stream refused is parsed again.
    """

    REPLAY = "replay"
    REBUILD = "rebuild"
    REPROCESS = "reprocess"


@dataclass(frozen=True, kw_only=True)
class Request:
    """That somebody wants a type replayed or rebuilt, or what a stream refused reprocessed."""

    request_id: int
    table: str
    kind: RequestKind

    @property
    def is_rebuild(self) -> bool:
        return self.kind is RequestKind.REBUILD


@dataclass(frozen=True, kw_only=True)
class RequestDone:
    """The result of a request.

    Attributes:
        replaced: Rows of the type's table that hold something else now.
        added: Events that had no row, and have one now; of a rebuild without those that no
            execution had read yet. Of reprocessing the rows that are events now.
        removed: Rows of no event of the stream's table, which only a rebuild removes.
    """

    request_id: int
    replaced: int = 0
    added: int = 0
    removed: int = 0

    def to_facts(self) -> dict[str, int]:
        """As a commit records it."""
        return {
            "request": self.request_id,
            "replaced": self.replaced,
            "added": self.added,
            "removed": self.removed,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "RequestDone | None":
        """What a commit records; None where it is of no request."""
        if "request" not in facts:
            return None
        return cls(
            request_id=int(facts["request"]),
            **{name: int(facts[name]) for name in ("replaced", "added", "removed")},
        )


@dataclass(frozen=True, kw_only=True)
class EventJob(SourceJob):
    """One execution of a table that holds events as they came, with the fields that lead to their
    type and producer.

    `classes` is the folder in which the tokenizer's jar is kept; without one payloads are scanned
    in Python. `reprocess` is the number of the open request; None where what is refused is left as
    it is.
    """

    type_field: tuple[str, ...]
    producer_field: tuple[str, ...] = ()
    classes: str = ""
    reprocess: int | None = None


@dataclass(frozen=True, kw_only=True)
class GroupJob:
    """One execution of a group: what its stream's table has up to a snapshot, for each type from
    its own checkpoint on.

    Attributes:
        groups: All of the stream's, of which each type is one's.
        bronze: Where the stream's table lies.
        end: Up to where it is read.
        log_of: Gives the log of a type's table by its name.
        replays: The requests to replay or rebuild, by type.
        max_catchup: As of `planned`.
    """

    group: EventGroup
    groups: tuple[EventGroup, ...]
    bronze: str
    end: SnapshotCheckpoint
    log_of: "Callable[[str], FormatLog]" = field(repr=False)
    deployment: str
    execution_id: str = ""
    attempt: int = 1
    replays: Mapping[str, Request] = field(default_factory=dict, hash=False)
    max_catchup: int = MAX_CATCHUP


# why events of a type wait in the stream's table, until somebody decides
TYPE_CAP, FROZEN = ("type_cap", "frozen")
AT_ONCE = 1  # a `due_ts` that is over by any clock


@dataclass(frozen=True, kw_only=True)
class TypeResult:
    """What an execution did for one type: its rows in the interval, and where they are.

    Attributes:
        start: Up to which version of the stream's table it had been read; -1 is none of it.
        end: Up to which it is now; `start` where it failed or waits, before the execution's own end
            where it catches up by parts.
        rows: Of the interval.
        written: Rows of its table; the others are discarded, or wait.
        rescued: Rows that have something in `_rescued`.
        reasons: The values that these have there, by why; of rows that can be read no more they are
            missing.
        pending: Rows that wait, with `waits` as the reason.
        commits: That hold them, the last one last: of this attempt, and of others that nobody
            completed.
        error: Why nothing of it was written.
        stack: Where that was raised, in Python and in the JVM.
        left: Rows behind its checkpoint that are not written for the error; None where nobody could
            count them.
        due_ts: When the group is to read on though nothing arrives, as the type catches up. 0 is
            with the next events.
        put_off: With what it failed before, where it was not tried again yet.
        replayed: The results of requests, whose commits are among `commits`.
    """

    type: str
    table: str
    start: int
    end: int
    rows: int = 0
    written: int = 0
    rescued: int = 0
    reasons: Mapping[Rescue, int] = field(default_factory=dict, hash=False)
    discarded: int = 0
    pending: int = 0
    waits: str = ""
    schema_version: int = 0
    columns_added: int = 0
    commits: tuple[Committed, ...] = ()
    error: str = ""
    stack: str = field(default="", repr=False)
    left: int | None = 0
    due_ts: int = 0
    put_off: str = ""
    replayed: tuple[RequestDone, ...] = ()

    @property
    def committed(self) -> Committed | None:
        """The last commit; None where there was nothing to write."""
        return self.commits[-1] if self.commits else None

    @property
    def is_rebuilt(self) -> bool:
        """Whether one of the commits replaced its table."""
        return any(REBUILT in one.commit_metadata.facts for one in self.commits)

    @property
    def failure(self) -> str:
        """With what it failed, now or when it was tried last; empty where it did not."""
        return self.error or self.put_off

    @property
    def catches_up(self) -> bool:
        """Whether rows may lie behind its checkpoint that this execution did not read."""
        return bool(self.due_ts) and not self.pending

    @property
    def behind(self) -> int | None:
        """Rows of the stream's table behind its checkpoint that are not in its own; None where this
        execution did not count them.
        """
        if self.put_off or self.catches_up:
            return None
        return self.left if self.error else self.pending

    @property
    def is_balanced(self) -> bool:
        """Whether each row of the interval is in the table, discarded, or waits."""
        return self.rows == self.written + self.discarded + self.pending


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """What an execution did for all types of its group.

    Attributes:
        refused: Rows between the group's checkpoint and the end that are of no type, by reason.
        verified: What a few of the rows that it wrote, of some types, lack of their events.
    """

    types: tuple[TypeResult, ...]
    refused: Mapping[str, int] = field(default_factory=dict)
    verified: tuple[Verified, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
