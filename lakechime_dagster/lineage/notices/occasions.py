"""When people are told of a change: as it is announced, some days before it comes, and if it is withdrawn."""

import datetime as dt

from lakechime_dagster.lineage.notices.changes import Change

ANNOUNCED = "announced"
WITHDRAWN = "withdrawn"
REMINDER = "reminder "  # and how many days ahead
REMINDER_DAYS = (14, 7, 1)  # before a change comes, whoever has not acknowledged is told again


def reminder(days: int) -> str:
    """The occasion of a reminder so many days ahead."""
    return f"{REMINDER}{days}"


def is_reminder(occasion: str) -> bool:
    return occasion.startswith(REMINDER)


def due_reminder(change: Change, announced: dt.datetime, now: dt.datetime) -> str | None:
    """The reminder that is due, both times in UTC: the last one whose day has come since it was announced, until the change comes.

    One that was missed is made up for by the next, never by two.
    """
    if change.on is None or now.date() > change.on:
        return None
    days = [days for days in REMINDER_DAYS if announced.date() < change.on - dt.timedelta(days=days) <= now.date()]
    return reminder(min(days)) if days else None
