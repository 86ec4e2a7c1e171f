"""Schedules: the ticks at which a trigger is evaluated, and values that depend on the tick."""

import calendar
import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from typing_extensions import assert_never

from lakechime_dagster.compat import StrEnum, datetime_of_iso
from lakechime_dagster.dce.partitions import checked_text
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
        if (
            isinstance(self.frequency, bool)
            or not isinstance(self.frequency, int)
            or self.frequency < 1
        ):
            raise InvalidValueError(
                self.unit.value,
                self.frequency,
                "is not a positive whole number; write such as every(minutes=5)",
            )
        checked_zone("zone", self.zone)
        if self.until is not None and self.until < self.start:
            raise InvalidValueError(
                "until", str(self.until), f"is before start {self.start}; swap them"
            )

    @property
    def has_start(self) -> bool:
        return self.start != EPOCH

    @property
    def first(self) -> dt.datetime:
        """The first point, in UTC."""
        return self.point(0)

    def point(self, n: int) -> dt.datetime:
        """The n-th point in UTC; a wall clock time that a zone skips is taken an hour later, a
        repeated one first.
        """
        zone = ZoneInfo(self.zone)
        match self.unit:
            case Unit.DAYS:
                return (
                    (self.start + dt.timedelta(days=n * self.frequency))
                    .replace(tzinfo=zone)
                    .astimezone(dt.timezone.utc)
                )
            case Unit.HOURS | Unit.MINUTES:
                return self.start.replace(tzinfo=zone).astimezone(dt.timezone.utc) + n * self._step
            case _:
                assert_never(self.unit)

    def last_number(self, now: dt.datetime) -> int:
        """The number of the newest point at or before `now` (aware) and until; -1 for none."""
        if self.until is not None:
            now = min(
                now, self.until.replace(tzinfo=ZoneInfo(self.zone)).astimezone(dt.timezone.utc)
            )
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
        if self.until is not None and point > self.until.replace(
            tzinfo=ZoneInfo(self.zone)
        ).astimezone(dt.timezone.utc):
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
    """A schedule: `every(minutes=5)`, `every(days=1, start="2013-01-02", until="2014-01-01",
    zone="America/New_York")`.
    """
    given = [
        (unit, value)
        for unit, value in zip(Unit, (minutes, hours, days), strict=True)
        if value is not None
    ]
    if len(given) != 1:
        remedy = "needs exactly one of minutes, hours, days; write such as every(minutes=5)"
        raise InvalidValueError("every", [unit.value for unit, _ in given], remedy)
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
        moment = (
            moment if isinstance(moment, dt.datetime) else dt.datetime.combine(moment, dt.time())
        )
        return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) if moment.tzinfo else moment
    except (ValueError, TypeError, OverflowError):
        raise InvalidValueError(
            field, value, "is not a date or time; write it as 2013-01-02 or 2013-01-02T06:00"
        ) from None


def checked_zone(field: str, zone: str) -> str:
    """The zone itself, if the time zone database knows it."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidValueError(
            field, zone, "is not a time zone; write one such as UTC or America/New_York"
        ) from None
    return zone


def from_milliseconds(milliseconds: int) -> dt.datetime:
    """A store's time as an aware UTC datetime."""
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc)


def to_milliseconds(moment: dt.datetime) -> int:
    """An aware datetime as milliseconds since the epoch."""
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(
        milliseconds=1
    )


OFFSET = re.compile(r"([+-]?\d+)\s*(y|mo|w|d|h|m)", re.ASCII)
HALF_HOUR = dt.timedelta(minutes=30)


@dataclass(frozen=True)
class Tick:
    """The tick moved by a calendar offset in the schedule's zone, as text if a format is given.

    Without a format it gives a local time, which a `date` level reads as its date and a `timestamp`
    level as the moment; any other level reads its date as text.
    """

    offset: str = ""
    format: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None:
            checked_text(
                "tick format",
                self.format.strip() if isinstance(self.format, str) else self.format,
                empty=True,
            )
        if not isinstance(self.offset, str) or OFFSET.sub("", self.offset).strip():
            raise InvalidValueError(
                "tick", self.offset, "is not an offset; write such as -1d, +2h, -1mo or '-1w -1h'"
            )

    def local(self, moment: dt.datetime, zone: str) -> dt.datetime:
        """The moved tick as an aware local time."""
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
    """The tick, moved: `tick("-1d")`, `tick("-1d", "%Y-%m-%d")`, `tick("-1h", "%H")`."""
    return Tick(offset, format)


@dataclass(frozen=True)
class HoursOf:
    """The real hours of a day that may depend on the tick: local ones as numbers, or all hours of
    UTC in which the day lies.
    """

    day: Tick | dt.date
    zone: str
    utc: bool = False

    def date(self, moment: dt.datetime, zone: str) -> dt.date:
        """The local day."""
        return self.day.local(moment, zone).date() if isinstance(self.day, Tick) else self.day

    def resolve(self, moment: dt.datetime, zone: str) -> tuple[int, ...] | tuple[dt.datetime, ...]:
        day = self.date(moment, zone)
        return utc_hours(day, self.zone) if self.utc else real_hours(day, self.zone)


def hours_of(
    day: Tick | dt.date | str, zone: str = "UTC", utc: bool = False
) -> HoursOf | tuple[int, ...]:
    """The local hours that a day really has in a zone, in order: 23, 24 or 25 of them.

    A skipped hour is absent, a repeated one there twice (as partitions the two are one). For a day
    that depends on the tick the hours are found when the trigger is evaluated.

    With `utc` they are the hours of UTC in which that local day lies, for partitions that are
    labelled in UTC: given for the levels of date and hour alike, the two vary together, as in
    `orders.partitions(day=hours, hour=hours)`. A day of a zone that is half an hour off has one
    more.
    """
    checked_zone("zone", zone)
    if isinstance(day, Tick):
        return HoursOf(day, zone, utc)
    date = wall_clock("day", day, zone).date()
    return HoursOf(date, zone, utc) if utc else real_hours(date, zone)


def _bounds(day: dt.date, zone: str) -> tuple[dt.datetime, dt.datetime]:
    """The first moments of a local day and of the next one, in UTC."""
    midnights = (
        dt.datetime.combine(date, dt.time(), ZoneInfo(zone))
        for date in (day, day + dt.timedelta(1))
    )
    start, end = (midnight.astimezone(dt.timezone.utc) for midnight in midnights)
    return start, end


def utc_hours(day: dt.date, zone: str) -> tuple[dt.datetime, ...]:
    """The beginnings of the hours of UTC in which a local day lies, in order."""
    start, end = _bounds(day, zone)
    first = start.replace(minute=0, second=0)
    hour = dt.timedelta(hours=1)
    return tuple(first + n * hour for n in range(-((first - end) // hour)))


def real_hours(day: dt.date, zone: str) -> tuple[int, ...]:
    """The local hours between two midnights, each as often as it occurred; counted in half hours,
    by which some zones put the clock.
    """
    info = ZoneInfo(zone)
    start, end = _bounds(day, zone)
    halves = Counter(
        (start + n * HALF_HOUR).astimezone(info).hour for n in range((end - start) // HALF_HOUR)
    )
    return tuple(hour for hour, count in halves.items() for _ in range((count + 1) // 2))


def shifted(moment: dt.datetime, amount: int, unit: str) -> dt.datetime:
    """A local time moved by calendar units (the wall clock stays) or, for hours and minutes, by
    elapsed time.
    """
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
