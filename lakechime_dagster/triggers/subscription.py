"""Subscriptions: a trigger with the tables that it reads and what it launches."""

import datetime as dt
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.events import Tags
from lakechime_dagster.dce.partitions import LevelType, PartitionLevels, checked_text, typed_value
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.triggers.conditions import LevelSpec, PartitionCondition
from lakechime_dagster.triggers.consumers import DeclaredSource
from lakechime_dagster.triggers.decision import Firing
from lakechime_dagster.triggers.schedule import OFFSET, HoursOf, Schedule, Tick
from lakechime_dagster.triggers.triggers import FireKey, Late, PartitionTrigger, Trigger

if TYPE_CHECKING:
    from lakechime_dagster.triggers.ledger import Ledger


class Requested(NamedTuple):
    """What a subscription is to do although nothing new arrived, in sentences: now, and later."""

    due: tuple[str, ...] = ()
    later: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """A trigger + target, named for ever by `name` (not by file, sensor or code location).

    `reads` are the tables whose snapshots are pinned at the claim, those of the trigger among them. `target` is the
    lake table that the subscription writes (at `location`, where that is not the warehouse's own), None for a subscription without
    one: it completes by run success and is at-least-once. `asset_keys` (as user strings) and `job` let a manual run
    find its subscription. A partition that the trigger waits for is one of the subscription's `cluster`, unless its condition names
    another.
    A subscription with a `source` reads it, and no table: its trigger only says how often the source is asked. `is_ordered_by_position`
    says that the source's messages tell their order, wherever they lie in it. A claim takes at most `max_commits` of the
    unpartitioned tables of a snapshot trigger, and the next one follows; None is all that came. The first claim takes all, as
    its step makes the target anew; a retry takes what was claimed, and all that came when a person resumes a consumer that is held.
    One that `is_stream` appends each message of its source, or row of its table, once: it is put behind what came, never back.
    `requests` returns what it is to do although nothing new arrived, such as what a person asked for; without any it fires by events
    alone.
    `unread` are by table the columns, in lower case, of which it is known that its code does not read them: an event that tells that
    nothing else changed does not wake it for a day. Of a table that is not there nothing is known.
    """

    name: str
    trigger: Trigger
    reads: tuple[str, ...] = ()
    target: str | None = None
    target_levels: PartitionLevels = field(default_factory=PartitionLevels)
    asset_keys: tuple[str, ...] = ()
    job: str | None = None
    cluster: str = ""
    location: str | None = None
    source: DeclaredSource | None = None
    is_ordered_by_position: bool = False
    max_commits: int | None = None
    is_stream: bool = False
    requests: Callable[["Ledger"], Requested] | None = field(default=None, compare=False, repr=False)
    unread: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        checked_text("subscription name", self.name, limit=128)
        checked_text("cluster", self.cluster, limit=128, empty=True)
        if isinstance(self.trigger, PartitionTrigger):
            object.__setattr__(self, "trigger", self.trigger.in_cluster(self.cluster))
        elif self.trigger.cluster not in ("", self.cluster):
            problem = f"waits for tables of cluster {self.trigger.cluster!r}, but those of {self.name} are of {self.cluster!r}"
            raise DeclarationError(self.name, "trigger", f"{problem}; name the same cluster, or none")

    @property
    def condition(self) -> str:
        """What the subscription waits for, in words."""
        if self.source is None or isinstance(self.trigger, PartitionTrigger):
            return str(self.trigger)
        pace = f", {self.trigger.every}" if self.trigger.every else ", as they come"
        return f"messages of {self.source}{pace}"

    @property
    def is_partitioned(self) -> bool:
        return isinstance(self.trigger, PartitionTrigger)

    @property
    def refires(self) -> bool:
        """Whether a late change fires a key again."""
        return isinstance(self.trigger, PartitionTrigger) and self.trigger.late is Late.REFIRE

    @property
    def pinned(self) -> tuple[str, ...]:
        """Every table whose snapshot a claim freezes."""
        return tuple(dict.fromkeys((*self.trigger.tables, *self.reads)))

    @property
    def woken_by(self) -> tuple[tuple[str, str], ...]:
        """Cluster and name of every table of the trigger: a condition's in the cluster that it names."""
        if isinstance(self.trigger, PartitionTrigger):
            return tuple(dict.fromkeys((condition.cluster, condition.table) for condition in self.trigger.conditions))
        return tuple((self.cluster, table) for table in self.trigger.tables)

    @property
    def watched(self) -> tuple[tuple[str, str], ...]:
        """The same of every table whose events the subscription must look at."""
        return tuple(dict.fromkeys((*self.woken_by, *((self.cluster, table) for table in self.reads))))

    @property
    def commit_tags(self) -> Tags:
        """The tags of its commits: what a partition trigger demanded of its inputs holds for its output."""
        return self.trigger.tags if self.is_partitioned else Tags()

    def wakes(self, other: "Subscription", cluster: str) -> bool:
        """Whether each commit of its target, a table of that cluster, fires another subscription, or lets a fired key of that fire
        again.
        """
        is_woken_again = (cluster, self.target) in other.woken_by and (other.refires or not other.is_partitioned)
        return is_woken_again and self.commit_tags.carries(other.trigger.tags)

    def partition_of(self, key: FireKey) -> tuple[object, ...] | None:
        """The target's partition that a fire key stands for, None when the key does not name all its levels."""
        return partition_of(self.target_levels, key)

    def key_of(self, firing: Firing) -> str | None:
        """The Dagster partition key that a firing stands for, None when it stands for none."""
        return self.dagster_key(firing.fire_key) if firing.fire_key else None

    def dagster_key(self, key: FireKey) -> str | None:
        """The Dagster partition key that a fire key stands for, None when it stands for none."""
        partition = self.partition_of(key)
        return None if partition is None else partition_key(self.target_levels, partition)


def partition_of(levels: PartitionLevels, key: FireKey) -> tuple[object, ...] | None:
    """The partition of a table with these levels that a fire key stands for, None when the key does not name them all."""
    values = dict(key.values)
    if not levels or any(name not in values for name in levels.names):
        return None
    return tuple(typed_value(name, values[name], kind) for name, kind in zip(levels.names, levels.types, strict=True))


def partition_key(levels: PartitionLevels, partition: tuple[object, ...]) -> str:
    """The Dagster partition key of a partition.

    `2013-01-01` for one level, `2013-01-01-05` for a date and an hour, `a=…/b=…` for other levels.
    """
    if len(levels) == 1:
        return str(partition[0])
    if is_hourly(levels):
        return f"{partition[0]}-{partition[1]:02d}"
    return "/".join(f"{name}={value}" for name, value in zip(levels.names, partition, strict=True))


def is_hourly(levels: PartitionLevels) -> bool:
    """Whether the levels are a date and the hour of the day."""
    return levels.types == (LevelType.DATE, LevelType.INT) and levels.names[1] in ("hour", "hr", "hh")


HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
PLAIN = {LevelType.DATE: (None, "%Y-%m-%d"), LevelType.INT: ("%H",)}  # formats that tell all of a day, or of an hour
MINUTES_OF_DAY = 24 * 60
TWO_DAYS = 49  # hours: one of the days is one at which no clocks change, so that all hours are among them


@dataclass(frozen=True)
class Offsets:
    """From a key's own day or hour to the first and the last for which it waits, in days or hours of the target; 0 and 0 are its own."""

    start: int
    end: int


def conditions_on(trigger: PartitionTrigger, table: str) -> tuple[PartitionCondition, ...]:
    """What a trigger waits for of a table of its own lake."""
    return tuple(one for one in trigger.conditions if one.table == table and not one.cluster)


def offsets_of(trigger: PartitionTrigger, target: PartitionLevels, table: str) -> Offsets | None:
    """The least windows around a target's own day or hour that hold, for every key, what it waits for of a table.

    None where the distance is not the same for all keys, such as to the day a month before, or the levels are no days or hours.
    """
    conditions = conditions_on(trigger, table)
    if not conditions or not all(map(_is_time, (target, *[one.levels for one in conditions]))):
        return None
    specs = [*_own_specs(trigger, target), *(spec for one in conditions for spec in _specs_on(one))]
    if not _move_alike(specs, trigger.every.zone):
        return None
    width = _width(target)
    before: list[int] = []
    after: list[int] = []
    for point in _moments(trigger.every, target):
        key = trigger.key_at(point)
        values = partition_of(target, key)
        if values is None:
            return None
        own = _start(target, values)
        for one in conditions:
            starts = [_start(one.levels, json.loads(atom.canonical)) for atom in one.atoms(point, trigger.every.zone)]
            before.append(math.ceil((min(starts) + _width(one.levels) - own) / width) - 1)
            after.append((max(starts) - own) // width)
    start, end = min(before), max(after)
    if end < start:  # each of them is enough: one that is longer than the target's own is met by several of its windows
        start = end = max(end, min(0, start))
    return Offsets(start, end)


def waits_for_own(trigger: PartitionTrigger, target: PartitionLevels, table: str) -> bool:
    """Whether each key waits, of a table with the levels of the target, for the partition that it stands for itself, and for no other."""
    conditions = conditions_on(trigger, table)
    if len(conditions) != 1 or conditions[0].levels != target:
        return False
    first = {name: next(spec for one in trigger.conditions for level, spec in one.specs if level == name) for name in target.names}
    return dict(conditions[0].specs) == first and not any(isinstance(spec, tuple | HoursOf) for spec in first.values())


def _is_time(levels: PartitionLevels) -> bool:
    return levels.types == (LevelType.DATE,) or is_hourly(levels)


def _width(levels: PartitionLevels) -> dt.timedelta:
    return HOUR if is_hourly(levels) else DAY


def _start(levels: PartitionLevels, values: Sequence[object]) -> dt.datetime:
    hours = values[1] if is_hourly(levels) else 0
    return datetime_of_iso(str(values[0])) + int(str(hours)) * HOUR


def _own_specs(trigger: PartitionTrigger, target: PartitionLevels) -> list[tuple[LevelType, LevelSpec]]:
    """What may say a key's own day and hour: of each level the first single value, and what stands before."""
    found: list[tuple[LevelType, LevelSpec]] = []
    for name, kind in zip(target.names, target.types, strict=True):
        for condition in trigger.conditions:
            spec = dict(condition.specs).get(name)
            found += _each(kind, spec)
            if spec is not None and not isinstance(spec, tuple | HoursOf):
                break
    return found


def _specs_on(condition: PartitionCondition) -> list[tuple[LevelType, LevelSpec]]:
    kinds = dict(zip(condition.levels.names, condition.levels.types, strict=True))
    return [one for name, spec in condition.specs for one in _each(kinds[name], spec)]


def _each(kind: LevelType, spec: LevelSpec) -> list[tuple[LevelType, LevelSpec]]:
    several = spec if isinstance(spec, tuple) else () if spec is None else (spec,)
    return [(kind, one) for one in several]


def _move_alike(specs: Sequence[tuple[LevelType, LevelSpec]], zone: str) -> bool:
    """Whether all days and hours move with the grid, in step: then the time of the day tells how far they are from each other.

    What all offsets begin with may be of any unit. What follows are days, or hours and minutes where all days have 24 hours.
    """
    dates = {spec for kind, spec in specs if kind is LevelType.DATE}
    if not all(isinstance(spec, Tick) for spec in dates):
        return False
    ticks = {spec.day if isinstance(spec, HoursOf) else spec for _, spec in specs if isinstance(spec, Tick | HoursOf)}
    if len(ticks) == 1:
        return True
    if any(isinstance(spec, Tick) and spec.format not in PLAIN[kind] for kind, spec in specs):
        return False
    offsets = [[(int(amount), unit) for amount, unit in OFFSET.findall(one.offset)] for one in ticks]
    shared = 0
    while all(len(one) > shared for one in offsets) and len({one[shared] for one in offsets}) == 1:
        shared += 1
    units = {"w", "d", "h", "m"} if zone == "UTC" else {"w", "d"}
    return all(unit in units for one in offsets for _, unit in one[shared:])


def _moments(every: Schedule, target: PartitionLevels) -> Iterator[dt.datetime]:
    """Points at every time of the day at which a grid has one; where clocks change, at every hour, of which days are the same."""
    if every.zone != "UTC":
        return (every.first + n * HOUR for n in range(TWO_DAYS if is_hourly(target) else 1))
    step = (every.point(1) - every.first) // dt.timedelta(minutes=1)
    return (every.point(n) for n in range(MINUTES_OF_DAY // math.gcd(step, MINUTES_OF_DAY)))
