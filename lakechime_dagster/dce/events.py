"""Data change events: what changed in which table, with its tags and its position in commit
order.
"""

import hashlib
import itertools
import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NewType, Protocol, TypeVar, cast

from typing_extensions import Self

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.partitions import (
    PartitionValue,
    canonical_json,
    checked_milliseconds,
    checked_partition,
    checked_text,
)
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, shown


class Tags(Mapping[str, str]):
    """An immutable, hashable map of tags, ordered by key.

    Keys have at most 128 characters, values at most 4,096; both are text that any store can hold.
    """

    __slots__ = ("_items", "_lookup")

    def __init__(self, tags: Mapping[str, str] | None = None) -> None:
        if tags is not None and not isinstance(tags, Mapping):
            raise InvalidValueError("tags", tags, "is not a map; give text keys with text values")
        lookup: dict[str, str] = {}
        for key, value in (tags or {}).items():
            checked_text("tags key", key, limit=128)
            lookup[key] = checked_text(f"tags[{key!r}]", value, limit=4096, empty=True)
        self._items = tuple(sorted(lookup.items()))
        self._lookup = dict(self._items)

    def __getitem__(self, key: str) -> str:
        return self._lookup[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lookup)

    def __len__(self) -> int:
        return len(self._lookup)

    def __hash__(self) -> int:
        return hash(self._items)

    def __eq__(self, other: object) -> bool:
        return dict(self) == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __repr__(self) -> str:
        return f"Tags({self._lookup!r})"

    def __reduce__(self) -> tuple[type["Tags"], tuple[dict[str, str]]]:
        return (Tags, (dict(self._lookup),))

    def carries(self, wanted: Mapping[str, str]) -> bool:
        """Whether every wanted tag is here with the same value."""
        return all(self._lookup.get(key) == value for key, value in wanted.items())

    def merged(self, other: Mapping[str, str]) -> "Tags":
        """These tags with the other's added; where both speak, the other's value."""
        return Tags({**self._lookup, **other})


NUMBER = r"-?[0-9]+(\.[0-9]+)?"  # the tags that are compared as numbers
WantedTags = Mapping[str, str | Mapping[str, Any]]
_ORDERED: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATORS = ("=", "!=", "in", "not in", "exists", *_ORDERED)


@dataclass(frozen=True, order=True)
class TagCondition:
    """What must hold of the tag of a key: `operator` and its values, of which `in` and `not in` have
    several.

    Both sides of `<`, `<=`, `>`, `>=` are compared as numbers where both are decimal numbers such as
    -12.5, else as text by code points; other operators compare text. A tag that is not there is
    different from every value, and meets no other condition.
    """

    key: str
    operator: str
    values: tuple[str, ...]

    def fit(self, tags: Mapping[str, str]) -> bool:
        """Whether it holds of an event with these tags."""
        given = tags.get(self.key)
        match self.operator:
            case "in" | "=":
                return given in self.values
            case "not in" | "!=":
                return given not in self.values
            case "exists":
                return (given is not None) == (self.values == ("true",))
            case _:
                return given is not None and _in_order(self.operator, given, self.values[0])

    @property
    def value(self) -> Any:
        """The value as it is declared."""
        if self.operator == "exists":
            return self.values == ("true",)
        return self.values if self.operator in ("in", "not in") else self.values[0]

    def __str__(self) -> str:
        match self.operator:
            case "=":
                return f"{self.key}={self.values[0]}"
            case "exists":
                return f"{self.key} {'exists' if self.values == ('true',) else 'is absent'}"
            case _:
                return f"{self.key} {self.operator} {', '.join(self.values)}"


class TagConditions(Mapping[str, str | Mapping[str, Any]]):
    """Conditions on the tags of one event, all of which must hold.

    By key a text, which the tag must equal, or a map of operators to values, such as
    `{"rows": {">=": 100}, "cause": {"!=": "backfill"}, "region": {"in": ["eu", "us"]}}`.
    """

    __slots__ = ("_given", "all")

    def __init__(self, wanted: WantedTags | None = None) -> None:
        if wanted is not None and not isinstance(wanted, Mapping):
            raise InvalidValueError("tags", wanted, "is not a map; give the wanted value by key")
        self.all = tuple(
            sorted(
                _condition(key, operator, value)
                for key, spec in (wanted or {}).items()
                for operator, value in _operators(key, spec)
            )
        )
        self._given: dict[str, str | Mapping[str, Any]] = {}
        for key, several in itertools.groupby(self.all, key=lambda one: one.key):
            spec = {one.operator: one.value for one in several}
            self._given[key] = spec["="] if list(spec) == ["="] else spec

    def __getitem__(self, key: str) -> str | Mapping[str, Any]:
        return self._given[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __hash__(self) -> int:
        return hash(self.all)

    def __str__(self) -> str:
        return ", ".join(map(str, self.all))

    def __repr__(self) -> str:
        return f"TagConditions({self._given!r})"

    def __reduce__(self) -> tuple[type["TagConditions"], tuple[dict[str, Any]]]:
        return (TagConditions, (self._given,))

    def fit(self, tags: Mapping[str, str]) -> bool:
        """Whether an event with these tags meets all of them."""
        return all(one.fit(tags) for one in self.all)

    def merged(self, other: WantedTags) -> "TagConditions":
        """These conditions and the other's, which replace those of the same keys."""
        return TagConditions({**self, **other})

    @property
    def equal(self) -> Tags:
        """The tags that an event must have with just these values."""
        return Tags({one.key: one.values[0] for one in self.all if one.operator == "="})

    @property
    def compared(self) -> list[dict[str, Any]]:
        """All other conditions, as JSON has them."""
        return [_as_json(one) for one in self.all if one.operator != "="]

    def to_text(self) -> str:
        """One line of JSON, which `fit_texts` reads."""
        return canonical_json([_as_json(one) for one in self.all])


NO_CONDITIONS = TagConditions()


@lru_cache(maxsize=10_000)  # many events have the same tags
def fit_texts(tags: str, conditions: str) -> bool:
    """Whether tags meet conditions, both as a store on SQLite has them."""
    given = json.loads(tags)
    return all(one.fit(given) for one in _parsed(conditions))


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> tuple[TagCondition, ...]:
    return tuple(
        TagCondition(one["key"], one["operator"], tuple(one["values"])) for one in json.loads(text)
    )


def _as_json(one: TagCondition) -> dict[str, Any]:
    return {"key": one.key, "operator": one.operator, "values": list(one.values)}


def _operators(key: str, spec: object) -> list[tuple[str, object]]:
    if not isinstance(spec, Mapping):
        return [("=", spec)]
    if not spec or any(operator not in _OPERATORS for operator in spec):
        remedy = f"gives no operator that is known; they are {', '.join(_OPERATORS)}"
        raise InvalidValueError(f"tags[{key!r}]", dict(spec), remedy)
    return list(spec.items())


def _condition(key: str, operator: str, value: object) -> TagCondition:
    checked_text("tags key", key, limit=128)
    field = f"tags[{key!r}]"
    if operator == "exists":
        if not isinstance(value, bool):
            raise InvalidValueError(field, value, "is neither true nor false, as exists needs")
        return TagCondition(key, operator, ("true" if value else "false",))
    is_list = isinstance(value, list | tuple | set | frozenset)
    if is_list != (operator in ("in", "not in")) or (is_list and not value):
        remedy = "is no list of values" if operator in ("in", "not in") else "is no single value"
        raise InvalidValueError(field, value, f"{remedy}, as the operator {operator} needs")
    several: Any = value if is_list else (value,)
    texts = (
        format(Decimal(str(one)), "f")
        if isinstance(one, int | float) and not isinstance(one, bool)
        else one
        for one in several
    )
    values = [checked_text(field, text, limit=4096, empty=True) for text in texts]
    return TagCondition(key, operator, tuple(sorted(set(values))))


def _in_order(operator: str, given: str, wanted: str) -> bool:
    compare = _ORDERED[operator]
    if all(re.fullmatch(NUMBER, text, re.ASCII) for text in (given, wanted)):
        return compare(Decimal(given), Decimal(wanted))
    return compare(given, wanted)


MAX_SEQ = 2**63 - 1


@dataclass(frozen=True, order=True)
class Position:
    """The position of an event in commit order: (transaction, sequence), as events became visible.

    A reader that has seen position p is never later shown a new event at or below p. SQLite
    leaves `tx_id` at 0. On the wire it is an opaque string.
    """

    tx_id: int
    seq: int

    ORIGIN: ClassVar["Position"]

    @classmethod
    def parse(cls, text: str) -> "Position":
        """The position that `str` wrote."""
        tx_id, dash, seq = text.partition("-") if isinstance(text, str) else ("", "", "")
        digits = dash and all(
            part.isascii() and part.isdigit() and len(part) <= 19 for part in (tx_id, seq)
        )
        if not digits or int(seq) > MAX_SEQ or int(tx_id) > MAX_SEQ:
            raise InvalidValueError(
                "position", text, "is not a position; give one that an event showed, such as 0-42"
            )
        return cls(int(tx_id), int(seq))

    def __str__(self) -> str:
        return f"{self.tx_id}-{self.seq}"


Position.ORIGIN = Position(0, 0)


SnapshotId = NewType("SnapshotId", str)
TableUid = NewType("TableUid", str)
Choice = TypeVar("Choice", bound=StrEnum)


class TableFormat(StrEnum):
    """The table format by which a snapshot id is read."""

    DELTA = "DELTA"
    ICEBERG = "ICEBERG"
    HIVE = "HIVE"


class OperationType(StrEnum):
    """What the change may have done to rows; UPDATE promises nothing."""

    APPEND = "APPEND"
    DELETE = "DELETE"
    UPDATE = "UPDATE"


if TYPE_CHECKING:

    class _AnyTags:
        """A field that takes any map, and is `Tags`."""

        def __get__(self, instance: object, owner: object) -> Tags: ...
        def __set__(self, instance: object, value: Mapping[str, str]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class DataChangeEvent:
    """A change of one partition (or of an unpartitioned table) by one commit.

    `partition` holds one JSON value per level, None for an unpartitioned table. `snapshot_ts` is in
    milliseconds since the epoch. `prev_snapshot_id` is the table's own predecessor (Delta: version
    - 1). `table_uid` distinguishes a table from one that was dropped and created again under its
    name; None means the store's current one. `event_key` is the producer's own identity of the
    event; the same key again for the same table is a duplicate. `added_bytes` is the size of the
    files that the commit added to the partition, None where that is not known.

    Raises:
        InvalidValueError: naming field, value and remedy.
    """

    table: str
    table_format: TableFormat = TableFormat.DELTA
    operation_type: OperationType = OperationType.UPDATE
    partition: tuple[PartitionValue, ...] | None = None
    snapshot_id: SnapshotId | None = None
    snapshot_ts: int | None = None
    prev_snapshot_id: SnapshotId | None = None
    tags: "_AnyTags" = field(default_factory=cast(Any, Tags))
    cluster: str = ""
    table_uid: TableUid | None = None
    event_key: str | None = None
    added_bytes: int | None = None

    def __post_init__(self) -> None:
        checked_text("table", self.table)
        checked_text("cluster", self.cluster, limit=128, empty=True)
        for name, limit in (
            ("snapshot_id", 128),
            ("prev_snapshot_id", 128),
            ("table_uid", 128),
            ("event_key", 512),
        ):
            value = getattr(self, name)
            if value is not None:
                checked_text(name, value, limit=limit)
        if self.snapshot_ts is not None:
            checked_milliseconds("snapshot_ts", self.snapshot_ts)
        if self.added_bytes is not None:
            _check_bytes("added_bytes", self.added_bytes)
        if self.prev_snapshot_id is not None and self.snapshot_id is None:
            raise InvalidValueError(
                "prev_snapshot_id",
                self.prev_snapshot_id,
                "has no snapshot_id to precede; send both or neither",
            )
        if self.snapshot_id is not None and self.prev_snapshot_id == self.snapshot_id:
            raise InvalidValueError(
                "prev_snapshot_id",
                self.prev_snapshot_id,
                "equals snapshot_id; send the snapshot before it",
            )
        object.__setattr__(
            self, "table_format", _choice("table_format", self.table_format, TableFormat)
        )
        object.__setattr__(
            self, "operation_type", _choice("operation_type", self.operation_type, OperationType)
        )
        if self.table_format is TableFormat.DELTA:
            for name in ("snapshot_id", "prev_snapshot_id"):
                _check_delta_version(name, getattr(self, name))
        object.__setattr__(self, "partition", checked_partition(self.partition))
        object.__setattr__(
            self, "tags", self.tags if isinstance(self.tags, Tags) else Tags(self.tags)
        )

    @property
    def is_marker(self) -> bool:
        """Whether this is a completeness statement: no snapshot on a format that has them; never in
        a range.
        """
        return self.snapshot_id is None and self.table_format is not TableFormat.HIVE

    def identity_at(self, canonical: str) -> bytes | None:
        """The 16 bytes by which a repeat is known; None when every registration is an event of its
        own.

        The producer's key if there is one, else what happened where: cluster, table, table uid,
        partition (its canonical text), snapshot id. Operation and tags are not in it. `table_uid`
        must be resolved before.
        """
        if self.event_key is not None:
            return digest(["key", self.cluster, self.table, self.event_key])
        if self.snapshot_id is not None:
            return digest(
                ["snapshot", self.cluster, self.table, self.table_uid, canonical, self.snapshot_id]
            )
        return None

    def at_table(self, table_uid: TableUid | None) -> "DataChangeEvent":
        """This event with its table identified by `table_uid`, which the store knows."""
        return self if table_uid == self.table_uid else self._changed(table_uid=table_uid)

    def tagged(self, tags: Tags) -> "DataChangeEvent":
        """This event with other tags."""
        return self._changed(tags=tags)

    def _changed(self, **fields: object) -> Self:
        """A copy with fields that were validated before; `replace` would validate all of them
        again.
        """
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **fields)
        return copy


def revived(fields: Mapping[str, object]) -> DataChangeEvent:
    """An event from all its fields as a store kept them: they were validated when it was first
    made.
    """
    event = object.__new__(DataChangeEvent)
    event.__dict__.update(fields)
    return event


def digest(parts: object) -> bytes:
    """16 bytes that stand for a JSON value."""
    return hashlib.blake2b(canonical_json(parts).encode(), digest_size=16).digest()


@dataclass(frozen=True, kw_only=True)
class RegisteredEvent:
    """An event as the store holds it.

    `event_ts` (milliseconds, the store's clock) is information, never an order: `position` is the
    order. `canonical` is the partition's canonical text. An amendment repeats an earlier event
    (`amends`: its first position) with more tags; it changes no data.
    """

    event: DataChangeEvent
    event_ts: int
    position: Position
    canonical: str
    amends: Position | None = None

    @property
    def changes_data(self) -> bool:
        """Whether rows may have changed by this event: neither a marker nor an amendment."""
        return not self.event.is_marker and self.amends is None


def version_of(snapshot: str | None) -> int | None:
    """The Delta version that a snapshot id names; None for none, and for ids of other formats that
    are no such number.
    """
    return (
        int(snapshot)
        if snapshot and snapshot.isascii() and snapshot.isdigit() and len(snapshot) <= 18
        else None
    )


def _check_delta_version(name: str, value: str | None) -> None:
    if value is not None and version_of(value) is None:
        raise InvalidValueError(name, value, "is not a Delta version; send its number, such as 42")


def _check_bytes(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SEQ:
        remedy = f"is no number of bytes; send a whole number from 0 to {MAX_SEQ}"
        raise InvalidValueError(name, value, remedy)


def _choice(name: str, value: object, choices: type[Choice]) -> Choice:
    try:
        return choices(value if isinstance(value, choices) else str(value).upper())
    except ValueError:
        raise InvalidValueError(name, value, f"is none of {', '.join(choices)}") from None


WIRE_FIELDS = (
    "event_ts",
    "table",
    "partition",
    "snapshot_id",
    "snapshot_ts",
    "prev_snapshot_id",
    "table_format",
    "operation_type",
    "tags",
    "cluster",
    "table_uid",
    "event_key",
    "added_bytes",
)


def to_json(event: DataChangeEvent | RegisteredEvent) -> dict[str, Any]:
    """The wire form: LakeChime's field names, plus `position` for a registered event."""
    registered = event if isinstance(event, RegisteredEvent) else None
    inner = event.event if isinstance(event, RegisteredEvent) else event
    wire: dict[str, Any] = {"event_ts": registered.event_ts} if registered else {}
    for name in WIRE_FIELDS[1:]:
        value = getattr(inner, name)
        wire[name] = (
            dict(value)
            if name == "tags"
            else list(value)
            if name == "partition" and value is not None
            else value
        )
    if registered:
        wire["position"] = str(registered.position)
        wire["amends"] = str(registered.amends) if registered.amends else None
    return wire


def from_json(wire: object) -> DataChangeEvent:
    """The event of a wire form; what registration sets (`event_ts`, `position`, `amends`) is
    accepted and left out.

    Raises:
        InvalidValueError: for anything that is not an object with LakeChime's fields.
    """
    if not isinstance(wire, Mapping):
        raise InvalidValueError("event", wire, "is not a JSON object; give one object per event")
    unknown = sorted(str(name) for name in wire if name not in (*WIRE_FIELDS, "position", "amends"))
    if unknown:
        raise InvalidValueError(
            "event field", unknown[0], f"is unknown; the fields are {', '.join(WIRE_FIELDS[1:])}"
        )
    if wire.get("table") is None:
        raise InvalidValueError("table", shown(None), "is missing; name the table that changed")
    given = {name: wire[name] for name in WIRE_FIELDS[1:] if wire.get(name) is not None}
    return DataChangeEvent(**given)


class NamedTable(Protocol):
    """Anything that has a table name: a declaration, or `TableName` for a bare one."""

    @property
    def name(self) -> str: ...


class TableSwitchedError(LakeChimeError):
    """The name of a table came to stand for another side since its log was opened; open it again."""


class OvertakenError(LakeChimeError):
    """Another capture of a table's log was registered since this one began; capture again."""


@dataclass(frozen=True)
class Seen:
    """Capture has registered every commit of a table up to `snapshot_id`; `table_uid` becomes the
    current one.

    `began_at` is the table uid and the snapshot that the store knew when the capture began, which
    must still hold when it is registered; None says the same whatever the store knows by then.
    `listing` is for a format that is captured by listing files: of each partition whose files
    changed what they are remembered by, None of one that is gone. `table_format` is that of the log,
    which the table's name must stand for, where it was migrated.
    """

    table: str
    table_uid: TableUid
    snapshot_id: SnapshotId
    cluster: str = ""
    began_at: tuple[TableUid | None, SnapshotId | None] | None = field(default=None, compare=False)
    listing: Mapping[str, str | None] = field(default_factory=dict, compare=False, repr=False)
    table_format: TableFormat | None = field(default=None, compare=False)

    def check_current(
        self,
        table_uid: TableUid | None,
        seen: SnapshotId | None,
        table_format: TableFormat | None = None,
    ) -> None:
        """Refuse what was overtaken: by another capture, it would put the table back; by a first
        push, it would not know that commit; by a switch, it is of the other side.

        Raises:
            OvertakenError: the store knows another table uid or snapshot by now.
            TableSwitchedError: the table's name stands for another format by now.
        """
        if self.table_format and table_format and self.table_format is not table_format:
            raise TableSwitchedError(
                f"{self.table}: its name stands for {table_format.lower()} since this capture of its "
                f"log began; capture again"
            )
        if self.began_at is not None and self.began_at != (table_uid, seen):
            overtaken = (
                "an event of it was registered"
                if seen is None
                else f"it was captured up to snapshot {seen}"
            )
            raise OvertakenError(
                f"{self.table}: {overtaken} since this capture of its log began; capture again"
            )


@dataclass(frozen=True, kw_only=True)
class Registration:
    """What one call of `register` did, in the order of its events.

    `registered` holds new events and amendments; `duplicates` the events that were there already,
    as they are.
    """

    registered: tuple[RegisteredEvent, ...] = ()
    duplicates: tuple[RegisteredEvent, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EventQuery:
    """Which events to fetch; every given condition must hold.

    `partition` is compared by the table's declared levels. `tags` are conditions that one event must
    meet all: by key its value, or a map of operators to values, as triggers have them.
    Positions: `after` exclusive, `through` inclusive. Times (`event_ts`, milliseconds): `since`
    inclusive, `until` exclusive. `only_new` leaves out amendments of an event that met the conditions
    before, and where those demand no tag whatever changes no data.
    """

    table: str | None = None
    cluster: str | None = None
    partition: tuple[PartitionValue, ...] | None = None
    tags: WantedTags = field(default_factory=TagConditions)
    after: Position | None = None
    through: Position | None = None
    since: int | None = None
    until: int | None = None
    limit: int | None = None
    only_new: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition", checked_partition(self.partition))
        object.__setattr__(self, "tags", TagConditions(self.tags))
        if self.partition is not None and self.table is None:
            raise InvalidValueError(
                "partition", list(self.partition), "needs its table; name the table too"
            )
        if self.limit is not None and self.limit < 1:
            raise InvalidValueError(
                "limit", self.limit, "is not a positive number; give at least 1"
            )


@dataclass(frozen=True, kw_only=True)
class PartitionEvents:
    """The partitions of a table that events of a range of positions name, by their canonical texts.

    `before` has those that an event up to the start of the range names; `changed` those that an
    event within it names, with what the events say was done.
    """

    before: frozenset[str] = frozenset()
    changed: Mapping[str, frozenset[OperationType]] = field(default_factory=dict)

    @property
    def known(self) -> frozenset[str]:
        """All that an event up to the end of the range names."""
        return self.before | self.changed.keys()


@dataclass(frozen=True, kw_only=True)
class FeedPage:
    """A page of the feed: events in commit order, and the position that reading may go on from."""

    events: tuple[RegisteredEvent, ...]
    through: Position
