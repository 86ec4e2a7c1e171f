"""Values that depend on the tick: a level's value as a function of the grid point at which a trigger is evaluated."""

import calendar
import datetime as dt
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from lakechime_dagster.dce.text import checked_text
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.triggers.grid import checked_zone, wall_clock

OFFSET = re.compile(r"([+-]?\d+)\s*(y|mo|w|d|h|m)", re.ASCII)
HALF_HOUR = dt.timedelta(minutes=30)


@dataclass(frozen=True)
class Tick:
    """The grid point moved by a calendar offset in the schedule's zone, as text if a format is given.

    Without a format it gives a local time, which a `date` level reads as its date and a `timestamp` level as the
    moment; any other level reads its date as text.
    """

    offset: str = ""
    format: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None:
            checked_text("tick format", self.format.strip() if isinstance(self.format, str) else self.format, empty=True)
        if not isinstance(self.offset, str) or OFFSET.sub("", self.offset).strip():
            raise InvalidValueError("tick", self.offset, "is not an offset; write such as -1d, +2h, -1mo or '-1w -1h'")

    def local(self, moment: dt.datetime, zone: str) -> dt.datetime:
        """The moved grid point as an aware local time."""
        moved = moment.astimezone(ZoneInfo(zone))
        for amount, unit in OFFSET.findall(self.offset):
            moved = shifted(moved, int(amount), unit)
        return moved

    def resolve(self, moment: dt.datetime, zone: str) -> object:
        moved = self.local(moment, zone)
        return moved.strftime(self.format) if self.format else moved

    def __str__(self) -> str:
        return f"tick{' ' + self.offset if self.offset else ''}"


def tick(offset: str = "", format: str | None = None) -> Tick:  # noqa: A002 - the word users know from strftime
    """The grid point, moved: `tick("-1d")`, `tick("-1d", "%Y-%m-%d")`, `tick("-1h", "%H")`."""
    return Tick(offset, format)


@dataclass(frozen=True)
class HoursOf:
    """The real hours of a day that depends on the tick."""

    day: Tick
    zone: str

    def resolve(self, moment: dt.datetime, zone: str) -> tuple[int, ...]:
        return real_hours(self.day.local(moment, zone).date(), self.zone)


def hours_of(day: Tick | dt.date | str, zone: str = "UTC") -> HoursOf | tuple[int, ...]:
    """The local hours that a day really has in a zone, in order: 23, 24 or 25 of them.

    A skipped hour is absent, a repeated one there twice (as partitions the two are one). For a day that depends on
    the tick the hours are found when the trigger is evaluated.
    """
    checked_zone("zone", zone)
    if isinstance(day, Tick):
        return HoursOf(day, zone)
    return real_hours(wall_clock("day", day, zone).date(), zone)


def real_hours(day: dt.date, zone: str) -> tuple[int, ...]:
    """The local hours between two midnights, each as often as it came; counted in half hours, by which some zones put the clock."""
    info = ZoneInfo(zone)
    start = dt.datetime.combine(day, dt.time(), info).astimezone(dt.timezone.utc)
    end = dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), info).astimezone(dt.timezone.utc)
    halves = Counter((start + n * HALF_HOUR).astimezone(info).hour for n in range((end - start) // HALF_HOUR))
    return tuple(hour for hour, count in halves.items() for _ in range((count + 1) // 2))


def shifted(moment: dt.datetime, amount: int, unit: str) -> dt.datetime:
    """A local time moved by calendar units (the wall clock stays) or, for hours and minutes, by elapsed time."""
    by_unit: dict[str, Callable[[], dt.datetime]] = {
        "y": lambda: _months(moment, 12 * amount),
        "mo": lambda: _months(moment, amount),
        "w": lambda: moment + dt.timedelta(weeks=amount),
        "d": lambda: moment + dt.timedelta(days=amount),
        "h": lambda: _elapsed(moment, dt.timedelta(hours=amount)),
        "m": lambda: _elapsed(moment, dt.timedelta(minutes=amount)),
    }
    return by_unit[unit]()


def _elapsed(moment: dt.datetime, delta: dt.timedelta) -> dt.datetime:
    return (moment.astimezone(dt.timezone.utc) + delta).astimezone(moment.tzinfo)


def _months(moment: dt.datetime, amount: int) -> dt.datetime:
    year, month = divmod(moment.year * 12 + moment.month - 1 + amount, 12)
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)
