"""How far from its own day or hour a key of a partition trigger waits, where that is as far for every key."""

import datetime as dt
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.partition import LevelType, PartitionLevels
from lakechime_dagster.triggers.conditions import LevelSpec, PartitionCondition
from lakechime_dagster.triggers.flow import is_hourly, partition_of
from lakechime_dagster.triggers.grid import Schedule
from lakechime_dagster.triggers.model import PartitionTrigger
from lakechime_dagster.triggers.tick import OFFSET, HoursOf, Tick

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
