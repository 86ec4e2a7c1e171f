"""Events that changed only columns that a lane's code does not read: they do not wake it, but are read within a day."""

import datetime as dt
from dataclasses import dataclass

from lakechime_dagster.triggers.grid import Schedule, from_milliseconds, to_milliseconds

AT_THE_LATEST = dt.timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Unread:
    """How many such events of one table wait, when they were registered, and which columns they changed."""

    count: int = 0
    first_ts: int | None = None
    last_ts: int | None = None
    columns: tuple[str, ...] = ()


NOTHING_UNREAD = Unread()


def due_ms(unread: Unread, every: Schedule | None) -> int:
    """When they wake the lane all the same: a day after the first of them, or at the last grid point before that.

    Where no grid point is within that day, it is no use to wait: they wake it as any other event.
    """
    assert unread.first_ts is not None
    first = from_milliseconds(unread.first_ts)
    latest = first + AT_THE_LATEST
    if every is None:
        return to_milliseconds(latest)
    point = every.last(latest)
    return to_milliseconds(point) if point is not None and point > first else unread.first_ts
