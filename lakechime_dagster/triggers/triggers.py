"""The two triggers of LakeChime: partition triggers, with the partitions that they wait for, and
snapshot triggers.
"""

import datetime as dt
import hashlib
import itertools
import math
from collections import ChainMap
from collections.abc import Iterable, Mapping, Set
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import (
    NO_CONDITIONS,
    NamedTable,
    Position,
    TagConditions,
    WantedTags,
)
from lakechime_dagster.dce.partitions import (
    MAX_NAME,
    LevelType,
    PartitionLevels,
    canonical_json,
    canonical_partition,
    checked_partition,
    checked_text,
    typed_value,
)
from lakechime_dagster.errors import DeclarationError, InvalidValueError, shown
from lakechime_dagster.triggers.schedule import HoursOf, Schedule, Tick, to_milliseconds, wall_clock

MAX_PARTITIONS = 10_000  # of one condition at one tick
LevelSpec = Any  # a literal, a tick, hours_of a tick, or several of the first two


class TagsFrom(StrEnum):
    """The tags of a partition that conditions are compared with."""

    EVENT = "event"  # all conditions must hold of one of its events
    UNION = "union"  # those of all its events, of a key the newest value
    LATEST = "latest"  # those of its latest event

    def merged(self, versions: Iterable[tuple[Position, Mapping[str, str]]]) -> dict[str, str]:
        """The tags of a partition from its events in commit order, each with the position where it
        was registered first: an amendment is a later version of that event, and brings the tags
        that differ.
        """
        known: dict[Position, Mapping[str, str]] = {}
        tags: dict[str, str] = {}
        for event, given in versions:
            before = known.get(event, {})
            tags |= {key: value for key, value in given.items() if before.get(key) != value}
            known[event] = given
        if self is TagsFrom.LATEST:
            return dict(known[max(known)])
        return tags


@dataclass(frozen=True)
class TableName:
    """A bare table name where a declared table could stand.

    Attributes:
        name: The table's name.
        cluster: Its data platform, where there are several.
        tags: What a snapshot trigger demands of its events, in addition to the tags of the trigger,
            whose conditions of the same keys they replace.
        is_optional: Of a snapshot trigger with `changed="all"`: whether `max_wait` ends the wait for
            this table; without the others it never fires then.
    """

    name: str
    cluster: str = ""
    tags: WantedTags = field(default_factory=TagConditions)
    is_optional: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", TagConditions(self.tags))

    def __str__(self) -> str:
        return f"{self.cluster}:{self.name}" if self.cluster else self.name


@dataclass(frozen=True)
class Atom:
    """One partition of one table, by its canonical text, with what is demanded of its tags."""

    table: str
    canonical: str
    cluster: str = ""
    tags: TagConditions = NO_CONDITIONS

    def __str__(self) -> str:
        return f"{self.table}{self.canonical.replace(',', ', ')}"


@dataclass(frozen=True)
class PartitionCondition:
    """The partitions of a table that must be there: per level a literal, a tick, or several of them
    (all must be), each with an event that meets the conditions on tags.
    """

    table: str
    specs: tuple[tuple[str, LevelSpec], ...]
    levels: PartitionLevels = PartitionLevels()
    cluster: str = ""
    tags: TagConditions = NO_CONDITIONS

    @classmethod
    def of(
        cls,
        table: str,
        specs: Mapping[str, LevelSpec],
        levels: PartitionLevels | None = None,
        cluster: str = "",
    ) -> "PartitionCondition":
        """A condition as a user writes it; levels may come in any order when the table declares
        them.

        Raises:
            DeclarationError: for a level that the table does not have, or one that is not given.
            InvalidValueError: for a literal that no event's partition can have.
        """
        checked_text("table", table)
        declared = levels or PartitionLevels()
        if declared:
            unknown = [name for name in specs if name not in declared.names]
            missing = [name for name in declared.names if name not in specs]
            if unknown or missing:
                problem = (
                    f"has no level {unknown[0]!r}"
                    if unknown
                    else f"needs a value for level {missing[0]!r}"
                )
                raise DeclarationError(
                    table, "partitions", f"{problem}; its levels are {', '.join(declared.names)}"
                )
            specs = {name: specs[name] for name in declared.names}
        if not specs:
            raise DeclarationError(
                table, "partitions", "names no level; give a value per partition level"
            )
        for name, spec in specs.items():
            checked_text("partition level name", name, limit=128)
            if _is_utc(spec) and not declared:
                remedy = "needs the types of the levels for hours of UTC; declare partitioned_by="
                raise DeclarationError(table, "partitions", remedy)
        return cls(
            table,
            tuple((name, _frozen(f"{table}.{name}", spec)) for name, spec in specs.items()),
            declared,
            cluster,
        )

    def in_cluster(self, cluster: str) -> "PartitionCondition":
        """This condition on the table of a cluster, where it names none itself."""
        return self if self.cluster else replace(self, cluster=cluster)

    def with_tags(self, tags: WantedTags) -> "PartitionCondition":
        """This condition where the events of this table must meet these conditions on tags too, such
        as `{"rows": {">=": 100}}`; of a key that the trigger demands too, these alone.
        """
        return replace(self, tags=self.tags.merged(tags))

    def atoms(self, moment: dt.datetime, zone: str) -> tuple[Atom, ...]:
        """The partitions at a tick, in order, each once."""
        return _atoms(self, moment, zone)

    def constants(self, moment: dt.datetime, zone: str) -> dict[str, Any]:
        """The values of the levels that have a single one at this tick, typed; of a date level with
        the hours of UTC in which a local day lies, that day.
        """
        singles = {}
        kinds = self.levels.as_dict()
        for (name, values), (_, spec) in zip(self._values(moment, zone), self.specs, strict=True):
            if _is_utc(spec) and kinds[name] == LevelType.DATE:
                singles[name] = spec.date(moment, zone).isoformat()
            elif len(values) == 1:
                singles[name] = values[0]
        return singles

    @property
    def has_changing_sets(self) -> bool:
        """Whether some level has several values that depend on the tick."""
        return any(
            isinstance(spec, HoursOf) or (isinstance(spec, tuple) and any(map(_depends, spec)))
            for _, spec in self.specs
        )

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={_shown(spec)}" for name, spec in self.specs)
        return f"{self.table}({shown})" + (f" with {self.tags}" if self.tags else "")

    def _values(self, moment: dt.datetime, zone: str) -> list[tuple[str, list[Any]]]:
        kinds = dict(zip(self.levels.names, self.levels.types, strict=True))
        resolved = []
        for name, spec in self.specs:
            several = spec if isinstance(spec, tuple) else (spec,)
            values: dict[Any, Any] = {}
            for item in several:
                for value in (
                    item.resolve(moment, zone)
                    if isinstance(item, HoursOf)
                    else (_at(item, moment, zone),)
                ):
                    typed = _typed(f"{self.table}.{name}", value, kinds.get(name))
                    # of hours of UTC each stays, since several levels vary together
                    values[value if _is_utc(item) else canonical_json(typed)] = typed
            resolved.append((name, list(values.values())))
        return resolved


@lru_cache(maxsize=100_000)
def _atoms(condition: PartitionCondition, moment: dt.datetime, zone: str) -> tuple[Atom, ...]:
    together: dict[Any, list[dict[str, Any]]] = {}  # by what varies the values of its levels
    for (name, values), (_, spec) in zip(
        condition._values(moment, zone), condition.specs, strict=True
    ):
        which = spec if _is_utc(spec) else name
        known = together.get(which) or [{} for _ in values]
        together[which] = [row | {name: one} for row, one in zip(known, values, strict=True)]
    count = math.prod(map(len, together.values()))
    if count > MAX_PARTITIONS:
        raise DeclarationError(
            condition.table,
            "partitions",
            f"asks for {count} partitions at once; ask for at most {MAX_PARTITIONS}",
        )
    levels, names = condition.levels or None, [name for name, _ in condition.specs]
    texts = dict.fromkeys(
        canonical_partition(tuple(row[name] for name in names), levels)
        for row in (dict(ChainMap(*several)) for several in itertools.product(*together.values()))
    )
    return tuple(Atom(condition.table, text, condition.cluster, condition.tags) for text in texts)


def _frozen(field: str, spec: LevelSpec) -> LevelSpec:
    """A single value or tick, or several of them as a tuple; those of a set in an order that each
    process finds alike.
    """
    if isinstance(spec, str | bytes | Mapping) or not isinstance(spec, Iterable):
        return _checked(field, spec)
    frozen = tuple(_checked(field, item) for item in spec)
    if not frozen:
        raise DeclarationError(
            "partitions",
            "level",
            "is an empty list, which nothing can meet; give at least one value",
        )
    return tuple(sorted(frozen, key=repr)) if isinstance(spec, Set) else frozen


def _checked(field: str, item: LevelSpec) -> LevelSpec:
    """The tick, or the literal as an event's partition has it; a date or time is read by its
    level's type.
    """
    if _depends(item):
        return item
    try:
        levels = checked_partition((item,))
    except InvalidValueError as error:
        raise InvalidValueError(field, item, error.remedy) from None
    return item if levels is None or isinstance(item, dt.date) else levels[0]


def _at(item: LevelSpec, moment: dt.datetime, zone: str) -> object:
    return item.resolve(moment, zone) if isinstance(item, Tick) else item


def _is_utc(spec: LevelSpec) -> bool:
    return isinstance(spec, HoursOf) and spec.utc


def _depends(spec: LevelSpec) -> bool:
    return isinstance(spec, Tick | HoursOf)


def _typed(field: str, value: object, kind: LevelType | None) -> object:
    if isinstance(value, dt.datetime) and kind is LevelType.INT:
        return value.hour
    if isinstance(value, dt.datetime) and kind not in (LevelType.DATE, LevelType.TIMESTAMP):
        value = value.date().isoformat()
    if isinstance(value, dt.date) and kind is None:
        value = value.isoformat()
    return typed_value(field, value, kind) if kind else value


def _shown(spec: LevelSpec) -> str:
    if not isinstance(spec, tuple):
        hours = f"the {'UTC ' if _is_utc(spec) else ''}hours of the day"
        return hours if isinstance(spec, HoursOf) else str(spec)
    if (
        len(spec) > 3
        and all(isinstance(value, int) for value in spec)
        and spec == tuple(range(spec[0], spec[-1] + 1))
    ):
        return f"{spec[0]}…{spec[-1]}"
    return "|".join(map(str, spec))


class Late(StrEnum):
    """What happens when a partition of a fired key changes afterwards."""

    IGNORE = "ignore"
    REFIRE = "refire"


@dataclass(frozen=True)
class StartFrom:
    """Where a subscription that the ledger does not know yet begins: `beginning`, `now`, an ISO
    time, or a position.
    """

    where: str = "beginning"

    def __post_init__(self) -> None:
        if self.where not in ("beginning", "now") and self.position is None:
            _ = self.time_ms

    @property
    def position(self) -> Position | None:
        try:
            return Position.ORIGIN if self.where == "beginning" else Position.parse(self.where)
        except InvalidValueError:
            return None

    @property
    def time_ms(self) -> int:
        """The time in milliseconds; a time without a zone is UTC."""
        return to_milliseconds(
            wall_clock("start_from", self.where, "UTC").replace(tzinfo=dt.timezone.utc)
        )


@dataclass(frozen=True)
class PartitionKey:
    """What a partition trigger fires for, once per epoch: a text, and the values of the
    single-valued levels.
    """

    text: str
    values: tuple[tuple[str, object], ...]
    point: dt.datetime
    atoms: tuple[Atom, ...] = field(compare=False)


@dataclass(frozen=True, init=False)
class PartitionTrigger:
    """Fires once per key when all partitions of all conditions are there, each with tags that meet
    all conditions on tags: those of the trigger, and of the partitions themselves, which replace
    the trigger's of the same keys.

    `tags_from` says which tags a partition has: those of one event (`event`, the default), which
    must meet all conditions alone; those of all its events together, the newest value of a key
    (`union`); or those of its latest event (`latest`).

    `late` decides what a change in a partition of a fired key does. `deadline` ends the wait for a
    key, counted from the tick or the activation of the subscription, whichever is later. At most
    `max_in_flight` keys run at once.
    """

    conditions: tuple[PartitionCondition, ...]
    every: Schedule
    tags: TagConditions
    tags_from: TagsFrom
    late: Late
    deadline: dt.timedelta | None
    max_in_flight: int
    start_from: StartFrom

    def __init__(
        self,
        conditions: PartitionCondition | Iterable[PartitionCondition],
        every: Schedule,
        *,
        tags: WantedTags | None = None,
        tags_from: TagsFrom | str = TagsFrom.EVENT,
        late: Late | str = Late.IGNORE,
        deadline: dt.timedelta | None = None,
        max_in_flight: int = 4,
    ) -> None:
        several = (conditions,) if isinstance(conditions, PartitionCondition) else tuple(conditions)
        if not several or not all(
            isinstance(condition, PartitionCondition) for condition in several
        ):
            raise DeclarationError(
                "PartitionTrigger", "conditions", "needs at least one table.partitions(…)"
            )
        if not _schedule("PartitionTrigger", every).has_start:
            raise DeclarationError(
                "PartitionTrigger", "every", "needs a start: the first tick to fire for"
            )
        if not isinstance(max_in_flight, int) or max_in_flight < 1:
            raise DeclarationError("PartitionTrigger", "max_in_flight", "must be at least 1")
        policy, merge = (_one_of("late", late, Late), _one_of("tags_from", tags_from, TagsFrom))
        _duration("PartitionTrigger", "deadline", deadline)
        wanted = TagConditions(tags)
        several = tuple(replace(one, tags=wanted.merged(one.tags)) for one in several)
        values = (several, every, wanted, merge, policy, deadline, max_in_flight, StartFrom())
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(condition.table for condition in self.conditions))

    @property
    def watched(self) -> tuple[TableName, ...]:
        """The tables that it waits for, with what it demands of the tags of their events."""
        return tuple(
            dict.fromkeys(TableName(one.table, one.cluster, one.tags) for one in self.conditions)
        )

    def in_cluster(self, cluster: str) -> "PartitionTrigger":
        """This trigger on the tables of a cluster, where a condition names none itself; its keys
        stay the same.
        """
        moved = copy(self)
        object.__setattr__(
            moved,
            "conditions",
            tuple(condition.in_cluster(cluster) for condition in self.conditions),
        )
        return moved

    def key_at(self, point: dt.datetime) -> PartitionKey:
        """The key of a tick: its single-valued levels, and a digest where those are not enough.

        With sets that change, the text is the digest alone; the values are there all the same.

        Raises:
            InvalidValueError: above 512 characters, which is what the ledger keeps of a key.
        """
        text, values = self._named(point)
        return PartitionKey(text, tuple(values.items()), point, self._atoms(point))

    def _atoms(self, point: dt.datetime) -> tuple[Atom, ...]:
        zone = self.every.zone
        found = (atom for condition in self.conditions for atom in condition.atoms(point, zone))
        return tuple(dict.fromkeys(found))

    def _named(self, point: dt.datetime) -> tuple[str, dict[str, object]]:
        """The text of the key of a tick, and its values."""
        zone = self.every.zone
        values: dict[str, object] = {}
        shown: dict[str, object] = {}
        clash = any(condition.has_changing_sets for condition in self.conditions)
        for condition in self.conditions:
            for name, value in condition.constants(point, zone).items():
                values.setdefault(name, value)
                clash = clash or shown.setdefault(name, value) != value
        text = "/".join(
            f"{name}={canonical_json(value) if isinstance(value, dict | tuple) else value}"
            for name, value in shown.items()
        )
        if clash or not text:
            digest = hashlib.blake2b(
                canonical_json([str(atom) for atom in self._atoms(point)]).encode(), digest_size=4
            ).hexdigest()
            text = f"{text}#{digest}" if text else f"#{digest}"
        if len(text) > MAX_NAME:
            remedy = (
                f"has {len(text)} characters; give at most {MAX_NAME}: shorter names or values of "
                f"levels"
            )
            raise InvalidValueError("partition key", text, remedy)
        return text, values

    def keys(self, now: dt.datetime, at_rest: Set[str] = frozenset()) -> list[PartitionKey]:
        """The distinct keys of all ticks up to now, oldest first, without those of these texts."""
        numbers: dict[str, int] = {}
        for number, text in enumerate(self.texts(now)):
            if text not in at_rest:
                numbers.setdefault(text, number)
        return [self.key_at(self.every.point(number)) for number in numbers.values()]

    def key_of(self, text: str, now: dt.datetime) -> PartitionKey | None:
        """The key of this text, of a tick up to now; the newest ticks are tried first."""
        points = map(self.every.point, range(self.every.last_number(now), -1, -1))
        point = next((point for point in points if self._named(point)[0] == text), None)
        return None if point is None else self.key_at(point)

    def texts(self, now: dt.datetime) -> list[str]:
        """The text of the key of each tick up to now. They never change, and are kept."""
        known: list[str] = self.__dict__.get("_texts", [])
        count = self.every.last_number(now) + 1
        if len(known) < count:
            points = map(self.every.point, range(len(known), count))
            known = [*known, *(self._named(point)[0] for point in points)]
            self.__dict__["_texts"] = known  # as a whole: another thread may do the same
        return known[:count]

    @property
    def is_bounded(self) -> bool:
        """An execution has all of its key."""
        return False

    def __str__(self) -> str:
        what = " and ".join(map(str, self.conditions))
        again = ", again when one of them changes later" if self.late is Late.REFIRE else ""
        of = {TagsFrom.UNION: ", tags of all events", TagsFrom.LATEST: ", tags of the latest event"}
        return f"{what}{of.get(self.tags_from, '')}, {self.every}{again}"


@dataclass(frozen=True, init=False)
class SnapshotTrigger:
    """Fires when tables have a matching event after the consumer's checkpoint: one of them, all
    (`changed="all"`), or so many (`changed=2`).

    With `every`, an event waits for the first tick at or after its registration; without it the
    trigger fires as events arrive. `wait_after_last` waits until no matching event has arrived for
    this time. `max_wait` after the first event it fires, whatever it still waits for, but never
    earlier than `min_time_between` after its last execution was claimed. Tags decide
    when it fires; the range is everything up to the newest matching event. A `TableName` may demand
    tags of its own, and name the cluster of a table, also of several ones. An execution reads at
    most `max_commits` of all its tables, commits to at most `max_partitions` of their partitions,
    and commits that added at most `max_bytes` of files, but always one commit, and the next
    execution follows; a commit is what has a snapshot of its own, or the change of a partition of a
    Hive table. An event without `added_bytes` counts as 0 bytes. The first execution that reads the
    snapshots of a table reads all, as it builds the target.
    """

    watched: tuple[TableName, ...]
    every: Schedule | None
    tags: TagConditions
    wait_after_last: dt.timedelta | None
    max_wait: dt.timedelta | None
    start_from: StartFrom
    changed: str | int
    max_commits: int | None
    max_partitions: int | None
    max_bytes: int | None
    min_time_between: dt.timedelta | None

    def __init__(
        self,
        tables: str | TableName | NamedTable | Iterable[str | TableName | NamedTable] = (),
        every: Schedule | None = None,
        *,
        tags: WantedTags | None = None,
        wait_after_last: dt.timedelta | None = None,
        max_wait: dt.timedelta | None = None,
        start_from: str = "beginning",
        changed: str | int = "any",
        max_commits: int | None = None,
        max_partitions: int | None = None,
        max_bytes: int | None = None,
        min_time_between: dt.timedelta | None = None,
    ) -> None:
        wanted = TagConditions(tags)
        several = (
            tuple(tables)
            if isinstance(tables, Iterable) and not isinstance(tables, str)
            else (tables,)
        )
        watched = {
            (one.cluster, one.name): one for one in (_watched(table, wanted) for table in several)
        }
        if every is not None:
            _schedule("SnapshotTrigger", every)
        _duration("SnapshotTrigger", "wait_after_last", wait_after_last)
        _duration("SnapshotTrigger", "max_wait", max_wait)
        _duration("SnapshotTrigger", "min_time_between", min_time_between)
        if not _is_so_many(changed, len(watched)):
            raise DeclarationError(
                "SnapshotTrigger",
                "changed",
                f"{shown(changed)} is none of 'any', 'all', and a number of its tables from 1 on",
            )
        bounds = {
            "max_commits": max_commits,
            "max_partitions": max_partitions,
            "max_bytes": max_bytes,
        }
        for name, most in bounds.items():
            if most is not None and (not isinstance(most, int) or most < 1):
                raise DeclarationError("SnapshotTrigger", name, "must be at least 1")
        if max_wait is not None and wait_after_last is None and changed == "any":
            raise DeclarationError(
                "SnapshotTrigger",
                "max_wait",
                "bounds wait_after_last or changed, which are not given; give one of them too",
            )
        optional = [str(one) for one in watched.values() if one.is_optional]
        if optional and (changed != "all" or max_wait is None or len(optional) == len(watched)):
            raise DeclarationError(
                "SnapshotTrigger",
                "tables",
                f"{optional[0]} is optional, which needs changed='all', max_wait= and a table that "
                f"is not",
            )
        values = (
            tuple(watched.values()),
            every,
            wanted,
            wait_after_last,
            max_wait,
            StartFrom(start_from),
            changed,
            *bounds.values(),
            min_time_between,
        )
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.watched)

    @property
    def is_bounded(self) -> bool:
        """Whether an execution may leave something of what arrived to the next one."""
        return any(most is not None for most in self.bounds)

    @property
    def bounds(self) -> tuple[int | None, int | None, int | None]:
        """How many commits, partitions and bytes an execution may have."""
        return self.max_commits, self.max_partitions, self.max_bytes

    @property
    def has_optional(self) -> bool:
        """Whether it waits for some table up to `max_wait` only."""
        return any(one.is_optional for one in self.watched)

    @property
    def needed(self) -> int:
        """Of how many tables it needs an event."""
        if self.changed == "all":
            return len(self.tables)
        return self.changed if isinstance(self.changed, int) else 1

    def on(self, tables: Iterable[str]) -> "SnapshotTrigger":
        """This trigger on tables, where it names none itself."""
        if self.tables:
            return self
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        given |= {"tables": tuple(tables), "start_from": given["start_from"].where}
        return SnapshotTrigger(**{name: one for name, one in given.items() if name != "watched"})

    def __str__(self) -> str:
        joined = {"any": " or ", "all": " and "}.get(str(self.changed), ", ")
        of_all = all(one.tags == self.tags for one in self.watched)
        what = joined.join(
            str(one)
            + (" (optional)" if one.is_optional else "")
            + ("" if of_all else _with_tags(one.tags))
            for one in self.watched
        )
        what = what or "its inputs"
        if joined == ", ":
            what = f"{self.changed} of {what}"
        pace = f", {self.every}" if self.every else ", as events arrive"
        wait = f", {self.wait_after_last} after the last one" if self.wait_after_last else ""
        between = f", at most once in {self.min_time_between}" if self.min_time_between else ""
        tags = _with_tags(self.tags) if of_all else ""
        return f"a change of {what}{tags}{pace}{wait}{between}"


Trigger = PartitionTrigger | SnapshotTrigger


Choice = TypeVar("Choice", bound=StrEnum)


def _one_of(field: str, value: str, choices: type[Choice]) -> Choice:
    try:
        return choices(value)
    except ValueError:
        raise DeclarationError(
            "PartitionTrigger", field, f"{value!r} is none of {', '.join(choices)}"
        ) from None


def _schedule(declared: str, every: Schedule) -> Schedule:
    if not isinstance(every, Schedule):
        raise DeclarationError(
            declared, "every", f"{shown(every)} is no schedule; write every(minutes=5)"
        )
    return every


def _is_so_many(changed: str | int, tables: int) -> bool:
    """Whether it says of how many tables an event is needed; how many there are may not be known
    yet.
    """
    if isinstance(changed, str):
        return changed in ("any", "all")
    return not isinstance(changed, bool) and 1 <= changed <= (tables or changed)


def _duration(declared: str, field: str, value: dt.timedelta | None) -> None:
    if value is not None and (not isinstance(value, dt.timedelta) or value < dt.timedelta()):
        remedy = "is no duration; give a timedelta of 0 or more, such as timedelta(minutes=5)"
        raise DeclarationError(declared, field, f"{shown(value)} {remedy}")


def _watched(table: object, tags: TagConditions) -> TableName:
    """A table as a trigger waits for it, with what it demands of its tags."""
    name = checked_text("table", getattr(table, "name", table))
    if not isinstance(table, TableName):
        return TableName(name, tags=tags)
    return replace(table, tags=tags.merged(table.tags))


def _with_tags(tags: WantedTags) -> str:
    return f" with {tags}" if tags else ""
