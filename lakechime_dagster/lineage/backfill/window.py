"""The days or times that a backfill is for, and which partitions fall into them."""

import datetime as dt
import json
from dataclasses import dataclass

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.partition import LevelType, PartitionLevels
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.triggers.orders import Span, first_day_after


@dataclass(frozen=True, kw_only=True)
class Window:
    """From `since`, included, to `until`, excluded: ISO dates or times as the tables write them, None for no bound.

    `column` is the one by which rows are told apart. A day of which a part is within the window is.

    Raises:
        InvalidValueError: a bound that is none, or bounds between which nothing lies.
    """

    since: str | None = None
    until: str | None = None
    column: str | None = None

    def __post_init__(self) -> None:
        since, until = _bound("since", self.since), _bound("until", self.until)
        if since is not None and until is not None and since >= until:
            raise InvalidValueError("until", self.until, f"is not after since ({self.since}); a window ends where nothing of it is left")

    @property
    def is_bounded(self) -> bool:
        return self.since is not None or self.until is not None

    def span(self, tables: tuple[str, ...]) -> Span:
        """The rows of tables that are within."""
        return Span(tables=tables, column=self.column if self.is_bounded else None, since=self.since, until=self.until)

    def describe(self) -> str:
        """In words, as the end of a sentence."""
        bounds = [f"{name} {bound}" for name, bound in (("from", self.since), ("to before", self.until)) if bound is not None]
        return f"{self.column or 'all rows'} {' '.join(bounds)}".strip() if bounds else "all rows"

    def holds(self, canonical: str, levels: PartitionLevels) -> bool | None:
        """Whether a partition, by its canonical text, lies within; None where it has no level of time."""
        if not self.is_bounded:
            return True
        at = next((at for at, kind in enumerate(levels.types) if kind in (LevelType.DATE, LevelType.TIMESTAMP)), None)
        moment = None if at is None else _moment(json.loads(canonical)[at])
        if at is None or moment is None:
            return None
        since, until = _bound("since", self.since), _bound("until", self.until)
        if levels.types[at] is LevelType.DATE:
            since = since and dt.datetime.combine(since.date(), dt.time())
            until = until and dt.datetime.combine(first_day_after(until), dt.time())
        return (since is None or moment >= since) and (until is None or moment < until)


def time_level(levels: PartitionLevels) -> str | None:
    """The name of the first level that is a day or a time."""
    named = zip(levels.names, levels.types, strict=True)
    return next((name for name, kind in named if kind in (LevelType.DATE, LevelType.TIMESTAMP)), None)


def _bound(name: str, text: str | None) -> dt.datetime | None:
    try:
        moment = None if text is None else datetime_of_iso(text)
    except ValueError:
        moment = dt.datetime.max.replace(tzinfo=dt.timezone.utc)
    if moment is not None and moment.tzinfo is not None:
        raise InvalidValueError(name, text, "is neither a date nor a time without a zone; write such as 2013-01-02 or 2013-01-02T06:00")
    return moment


def _moment(value: object) -> dt.datetime | None:
    """A canonical value of a partition as a moment without a zone, of UTC where it has one; None for what is none."""
    try:
        moment = datetime_of_iso(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment.astimezone(dt.timezone.utc).replace(tzinfo=None) if moment is not None and moment.tzinfo is not None else moment
