"""The schedule grid: the points in time at which a trigger is evaluated.

LakeChime's three parameters (start, frequency, unit) and two of our own (until, time zone). Minutes and hours are
elapsed time, so a day of 23 or 25 hours has that many hourly points; days are calendar days at the start's wall
clock time in the zone.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from typing_extensions import assert_never

from lakechime_dagster.compat import StrEnum, datetime_of_iso
from lakechime_dagster.errors import InvalidValueError

DAY_MS = 86_400_000
EPOCH = dt.datetime(1970, 1, 1)


class Unit(StrEnum):
    """The unit of a frequency."""

    MINUTES = "minutes"
    HOURS = "hours"
    DAYS = "days"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Points `start + n * frequency unit` in [start, until], both inclusive, n >= 0.

    `start` and `until` are local wall clock times of `zone`, without zone themselves.
    """

    frequency: int
    unit: Unit
    start: dt.datetime = EPOCH
    until: dt.datetime | None = None
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if isinstance(self.frequency, bool) or not isinstance(self.frequency, int) or self.frequency < 1:
            raise InvalidValueError("frequency", self.frequency, "is not a positive whole number")
        checked_zone("zone", self.zone)
        if self.until is not None and self.until < self.start:
            raise InvalidValueError("until", str(self.until), f"is before start {self.start}; swap them")

    @property
    def has_start(self) -> bool:
        return self.start != EPOCH

    @property
    def first(self) -> dt.datetime:
        """The first point, in UTC."""
        return self.point(0)

    def point(self, n: int) -> dt.datetime:
        """The n-th point in UTC; a wall clock time that a zone skips is taken an hour later, a repeated one first."""
        zone = ZoneInfo(self.zone)
        match self.unit:
            case Unit.DAYS:
                return (self.start + dt.timedelta(days=n * self.frequency)).replace(tzinfo=zone).astimezone(dt.timezone.utc)
            case Unit.HOURS | Unit.MINUTES:
                return self.start.replace(tzinfo=zone).astimezone(dt.timezone.utc) + n * self._step
            case _:
                assert_never(self.unit)

    def last_number(self, now: dt.datetime) -> int:
        """The number of the newest point at or before `now` (aware) and until; -1 for none."""
        if self.until is not None:
            now = min(now, self.until.replace(tzinfo=ZoneInfo(self.zone)).astimezone(dt.timezone.utc))
        guess = (now - self.first) // self._step
        while guess >= 0 and self.point(guess) > now:
            guess -= 1
        while guess >= -1 and self.point(guess + 1) <= now:
            guess += 1
        return max(guess, -1)

    def last(self, now: dt.datetime) -> dt.datetime | None:
        """The newest point at or before `now`, or None before the first one."""
        number = self.last_number(now)
        return self.point(number) if number >= 0 else None

    def next(self, now: dt.datetime) -> dt.datetime | None:
        """The first point after `now`, or None when the schedule has ended."""
        number = self.last_number(now) + 1
        point = self.point(number)
        if self.until is not None and point > self.until.replace(tzinfo=ZoneInfo(self.zone)).astimezone(dt.timezone.utc):
            return None
        return point

    def points(self, now: dt.datetime) -> Iterator[dt.datetime]:
        """All points at or before `now`, oldest first, in UTC."""
        return (self.point(n) for n in range(self.last_number(now) + 1))

    def __str__(self) -> str:
        unit = self.unit.value.removesuffix("s")
        pace = f"every {unit}" if self.frequency == 1 else f"every {self.frequency} {unit}s"
        since = f" from {self.start:%Y-%m-%d %H:%M}" if self.has_start else ""
        end = f" until {self.until:%Y-%m-%d %H:%M}" if self.until else ""
        return f"{pace}{since}{end}" + (f" ({self.zone})" if self.zone != "UTC" else "")

    @property
    def _step(self) -> dt.timedelta:
        return dt.timedelta(**{self.unit.value: self.frequency})


def every(
    *,
    minutes: int | None = None,
    hours: int | None = None,
    days: int | None = None,
    start: str | dt.date | None = None,
    until: str | dt.date | None = None,
    zone: str = "UTC",
) -> Schedule:
    """A schedule: `every(minutes=5)`, `every(days=1, start="2013-01-02", until="2014-01-01", zone="America/New_York")`."""
    given = [(unit, value) for unit, value in zip(Unit, (minutes, hours, days), strict=True) if value is not None]
    if len(given) != 1:
        raise InvalidValueError("every", [unit.value for unit, _ in given], "needs exactly one of minutes, hours, days")
    checked_zone("zone", zone)
    return Schedule(
        unit=given[0][0],
        frequency=given[0][1],
        start=EPOCH if start is None else wall_clock("start", start, zone),
        until=None if until is None else wall_clock("until", until, zone),
        zone=zone,
    )


def wall_clock(field: str, value: str | dt.date, zone: str) -> dt.datetime:
    """A date or time as wall clock time of a zone; one with an offset of its own is converted."""
    try:
        moment = datetime_of_iso(value) if isinstance(value, str) else value
        moment = moment if isinstance(moment, dt.datetime) else dt.datetime.combine(moment, dt.time())
        return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) if moment.tzinfo else moment
    except (ValueError, TypeError, OverflowError):
        raise InvalidValueError(field, value, "is not a date or time; write it as 2013-01-02 or 2013-01-02T06:00") from None


def checked_zone(field: str, zone: str) -> str:
    """The zone itself, if the time zone database knows it."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidValueError(field, zone, "is not a time zone; write one such as UTC or America/New_York") from None
    return zone


def from_milliseconds(milliseconds: int) -> dt.datetime:
    """A store's time as an aware UTC datetime."""
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc)


def to_milliseconds(moment: dt.datetime) -> int:
    """An aware datetime as milliseconds since the epoch."""
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(milliseconds=1)
