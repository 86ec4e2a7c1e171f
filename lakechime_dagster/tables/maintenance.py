"""How the files of a table are kept, as declared."""

import datetime as dt
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from lakechime_dagster.errors import DeclarationError, keep_or_raise, shown
from lakechime_dagster.triggers.schedule import Schedule, every

DAY = dt.timedelta(days=1)
LEAST_KEPT = 7 * DAY  # what Delta keeps of removed files unless told otherwise
MIB = 1024 * 1024
NIGHTLY = every(days=1, start="2000-01-01T03:00")
CHOSEN = (  # how the names of properties begin that decide who can read a table, or that are the product's own
    "delta.feature.",
    "delta.columnMapping.",
    "delta.enable",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "lakechime.",
)


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    """What may be done to a table's files, and when.

    Attributes:
        every: The schedule; a run rewrites at most `budget` bytes, and the next one continues.
        budget: Bytes of files that one run may rewrite.
        keep_for: How long removed files stay for readers other than consumers, at least seven days.
        small_file: Bytes; files below it are joined, up to `target_file` bytes.
        target_file: Bytes; at least twice `small_file`, or what was joined would be small again.
        min_files: Fewer small files of a partition are left alone.
        max_deleted_ratio: Files with deletion vectors are rewritten where a larger part of their rows is deleted.
        orphans_after: Files that no commit names are reported when they are older, at least three days.
        remove_orphans: Whether a run removes them, by a full VACUUM, once they are older than what is kept.
        properties: Delta's properties of the table, such as `delta.logRetentionDuration`; one that is named no more stays as it is.
    """

    every: Schedule = NIGHTLY
    budget: int = 10 * 1024 * MIB
    keep_for: dt.timedelta = LEAST_KEPT
    small_file: int = 32 * MIB
    target_file: int = 128 * MIB
    min_files: int = 4
    max_deleted_ratio: float = 0.05
    orphans_after: dt.timedelta = 3 * DAY
    remove_orphans: bool = False
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    problem: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            self._check()
        except DeclarationError as error:
            keep_or_raise(self, error)

    def _check(self) -> None:
        if not isinstance(self.every, Schedule):
            raise _wrong("every", self.every, "is no schedule; write every(days=1)")
        for name, least in (("budget", 1), ("small_file", 1), ("target_file", 1), ("min_files", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise _wrong(name, value, f"is not a whole number of at least {least}")
        if self.target_file < 2 * self.small_file:
            raise _wrong(
                "target_file", self.target_file, f"is less than twice small_file ({self.small_file}); what was joined would be small"
            )
        for name, least in (("keep_for", LEAST_KEPT), ("orphans_after", 3 * DAY)):
            value = getattr(self, name)
            if not isinstance(value, dt.timedelta) or value < least:
                raise _wrong(name, value, f"is not a timedelta of at least {least.days} days: readers and writers may still need the files")
        if isinstance(self.max_deleted_ratio, bool) or not isinstance(self.max_deleted_ratio, int | float):
            raise _wrong("max_deleted_ratio", self.max_deleted_ratio, "is not a number")
        if not 0 <= self.max_deleted_ratio < 1:
            raise _wrong("max_deleted_ratio", self.max_deleted_ratio, "is not a part of the rows; write it as 0.05")
        if not isinstance(self.remove_orphans, bool):
            raise _wrong("remove_orphans", self.remove_orphans, "is neither True nor False")
        object.__setattr__(self, "properties", _checked_properties(self.properties))


def _checked_properties(value: object) -> Mapping[str, str]:
    """Names and values as text, and none that is chosen otherwise."""
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in (*value, *value.values())):
        raise _wrong("properties", value, "is no map of names to texts, such as {'delta.logRetentionDuration': 'interval 60 days'}")
    plain = [name for name in value if "." not in name]
    if plain:
        raise _wrong("properties", plain[0], "may be a name of Spark's own, such as owner; write delta.… or a prefix of yours and a dot")
    chosen = [name for name in value if name.startswith(CHOSEN)]
    if chosen:
        raise _wrong("properties", chosen[0], "is chosen by what is declared of the table, such as its readers; leave it out")
    return MappingProxyType(dict(value))


def checked_maintenance(table: str, value: object) -> Maintenance | None:
    """The maintenance of a table, or None for one that is left alone."""
    if isinstance(value, Maintenance) and value.problem:
        raise DeclarationError(table, "maintenance", value.problem)
    if value is None or isinstance(value, Maintenance):
        return value
    raise DeclarationError(table, "maintenance", f"{shown(value)} is no Maintenance(…)")


def _wrong(field: str, value: object, problem: str) -> DeclarationError:
    return DeclarationError("Maintenance", field, f"{shown(value)} {problem}")


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
    """How long a table keeps removed files; what was raised for a consumer counts as it is."""
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


Span = tuple[Any, Any]  # the least and the greatest value of a column in a file


def opened(files: Iterable[tuple[Span | None, int]]) -> float:
    """The bytes of the files that may hold a value, by spans and sizes, on average over where spans begin; 0 where one is not known."""
    spans = [(span, size) for span, size in files]
    known = [(span[0], span[1], size) for span, size in spans if span is not None]
    if not known or len(known) < len(spans):
        return 0.0
    starts, begun = _summed((start, size) for start, _, size in known)
    ends, ended = _summed((end, size) for _, end, size in known)
    return sum(begun[bisect_right(starts, value)] - ended[bisect_left(ends, value)] for value in starts) / len(known)


def wanted(size: int, target_file: int, dimensions: int) -> float:
    """The bytes that hold a value of the first of several columns in a table of a size that is laid out by all of them."""
    return target_file * max(1.0, size / target_file) ** (1 - 1 / dimensions)


def _summed(sizes: Iterable[tuple[Any, int]]) -> tuple[list[Any], list[int]]:
    """Values in order, and the sum of the sizes of so many of the first of them."""
    ordered = sorted(sizes)
    return [value for value, _ in ordered], [0, *accumulate(size for _, size in ordered)]
