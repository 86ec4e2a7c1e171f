"""How long a Delta table keeps its log and its removed files, as its properties say it; raised for a lane, and lowered after it."""

import datetime as dt
import math
import re
from collections.abc import Mapping

LOG = "delta.logRetentionDuration"
FILES = "delta.deletedFileRetentionDuration"
DEFAULTS = {LOG: dt.timedelta(days=30), FILES: dt.timedelta(days=7)}
BEFORE = "lakechime.before."  # in front of a property's name: what it was before it was raised, empty for unset
UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_PART = re.compile(rf"(\d+)\s+({'|'.join(UNITS)})s?\b", re.IGNORECASE)


def duration(text: str) -> dt.timedelta | None:
    """What an interval of Delta means, such as `interval 1 week`; None where it is not told in units of a fixed length."""
    words = text.strip().removeprefix("interval").removeprefix("INTERVAL")
    parts = _PART.findall(words)
    if not parts or _PART.sub("", words).strip():
        return None
    return dt.timedelta(seconds=sum(int(number) * UNITS[unit.lower()] for number, unit in parts))


def kept(properties: Mapping[str, str], name: str) -> dt.timedelta:
    """How long a table keeps its LOG or its FILES."""
    return duration(properties.get(name, "")) or DEFAULTS[name]


def deleted_files_kept(properties: Mapping[str, str]) -> dt.timedelta:
    """How long a table keeps removed files; what was raised for a lane counts as it is."""
    return kept(properties, FILES)


def log_kept(properties: Mapping[str, str]) -> dt.timedelta:
    """How long a table keeps the commits of its log; a writer removes older ones."""
    return kept(properties, LOG)


def raised(properties: Mapping[str, str], age: dt.timedelta, ahead: dt.timedelta) -> dict[str, str | None]:
    """The properties to set so that what is so old stays at least `ahead` longer; none where it does already.

    They are set for twice as long, so that they need not be set again at each look.
    """
    changes: dict[str, str | None] = {}
    for name in DEFAULTS:
        if kept(properties, name) >= age + ahead:
            continue
        changes[name] = f"interval {math.ceil((age + 2 * ahead) / dt.timedelta(days=1))} days"
        if BEFORE + name not in properties:
            changes[BEFORE + name] = properties.get(name, "")
    return changes


def lowered(properties: Mapping[str, str]) -> dict[str, str | None]:
    """The properties to set so that all is as it was before it was raised; None unsets one."""
    changes: dict[str, str | None] = {}
    for name in DEFAULTS:
        if (before := properties.get(BEFORE + name)) is not None:
            changes |= {name: before or None, BEFORE + name: None}
    return changes
