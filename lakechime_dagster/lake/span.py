"""The days of which the partition triggers of a lake speak, by the keys that they resolve."""

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.partition import LevelType, PartitionLevels, typed_value
from lakechime_dagster.triggers.flow import is_hourly
from lakechime_dagster.triggers.model import PartitionTrigger

DAY, HOUR = dt.timedelta(days=1), dt.timedelta(hours=1)
MOMENTS = tuple(  # of a day's beginning and end, in two seasons, as a point's zone may save daylight
    dt.timedelta(days=days, minutes=minutes) for days, minutes in itertools.product((0, 182), (0, 1439))
)


@dataclass(frozen=True, kw_only=True)
class TimeSpan:
    """From the first day to the one after the last; `end` is None where some trigger has no end.

    `days_ahead` and `hours_ahead` are how many days, or hours, are not over yet when a trigger fires for them.
    """

    start: dt.date
    end: dt.date | None = None
    days_ahead: int = 0
    hours_ahead: int = 0


def time_span(triggers: Iterable[tuple[PartitionTrigger, PartitionLevels]]) -> TimeSpan | None:
    """The span of triggers, each with the levels of its table, by which its keys name partitions; None where none speaks of a day."""
    starts: list[dt.date] = []
    ends: list[dt.date | None] = []
    ahead = {DAY: dt.timedelta(0), HOUR: dt.timedelta(0)}
    for trigger, levels in triggers:
        first = _hour(trigger, levels, trigger.every.first)
        if first is not None:
            starts.append(first.date())
            point = trigger.every.last(dt.datetime.max.replace(tzinfo=dt.timezone.utc)) if trigger.every.until else None
            newest = _hour(trigger, levels, point) if point else None
            ends.append(newest.date() + DAY if newest else None)
        for width, longest in (*ahead.items(),):
            ahead[width] = max(longest, *_ahead(trigger, levels, width))
    if not starts:
        return None
    told = [end for end in ends if end is not None]
    days, hours = (-(-longest // width) for width, longest in ahead.items())
    return TimeSpan(start=min(starts), end=max(told) if len(told) == len(ends) else None, days_ahead=days, hours_ahead=hours)


def _ahead(trigger: PartitionTrigger, levels: PartitionLevels, width: dt.timedelta) -> Iterator[dt.timedelta]:
    """How long the newest window of a day or an hour goes on behind the moments at which a trigger fires for it."""
    yield dt.timedelta(0)
    for after in MOMENTS:
        moment = trigger.every.first + after
        hour = _hour(trigger, levels, moment)
        if hour is not None:
            yield (hour if width == HOUR else hour.replace(hour=0)) + width - moment


def _hour(trigger: PartitionTrigger, target: PartitionLevels, moment: dt.datetime) -> dt.datetime | None:
    """Where the newest hour begins that the key of a moment speaks of; None for a key without a date.

    The date is that of the target's level where the key has it, else that of the first condition with one.
    """
    values = dict(trigger.key_at(moment).values)
    for levels in (target, *[condition.levels for condition in trigger.conditions]):
        for name, kind in zip(levels.names, levels.types, strict=True):
            if kind is LevelType.DATE and values.get(name) is not None:
                day = datetime_of_iso(str(typed_value(name, values[name], kind))).replace(tzinfo=dt.timezone.utc)
                hour = values.get(levels.names[1]) if is_hourly(levels) else None
                return day + (hour if isinstance(hour, int) else 23) * HOUR
    return None
