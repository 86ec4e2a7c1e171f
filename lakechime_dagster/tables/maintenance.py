"""How the files of a table are kept: as declared, and as planned from its files and readers."""

import datetime as dt
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from types import MappingProxyType
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.partitions import PartitionValue
from lakechime_dagster.errors import DeclarationError, keep_or_raise, shown
from lakechime_dagster.triggers.schedule import DAY_MS, Schedule, every, from_milliseconds

DAY = dt.timedelta(days=1)
LEAST_KEPT = 7 * DAY  # Delta's default for removed files
ORPHANS_AFTER_MS = 3 * DAY_MS  # a writer may not have committed yet what it writes
# of the rows of files with deletion vectors: where more are deleted the files are rewritten
MAX_DELETED_RATIO = 0.05
MIB = 1024 * 1024
NIGHTLY = every(days=1, start="2000-01-01T03:00")
# how the names of properties begin that decide who can read a table, or that are the product's own
CHOSEN = (
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
        remove_orphans: Whether a run removes files that no commit names, by a full VACUUM, once
            they are older than what is kept; else those of three days ago and earlier are reported.
        properties: Delta's properties of the table, such as `delta.logRetentionDuration`; one that
            is named no more stays as it is.
    """

    every: Schedule = NIGHTLY
    budget: int = 10 * 1024 * MIB
    keep_for: dt.timedelta = LEAST_KEPT
    small_file: int = 32 * MIB
    target_file: int = 128 * MIB
    min_files: int = 4
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
                "target_file",
                self.target_file,
                f"is less than twice small_file ({self.small_file}); what was joined would be small",
            )
        if not isinstance(self.keep_for, dt.timedelta) or self.keep_for < LEAST_KEPT:
            raise _wrong(
                "keep_for",
                self.keep_for,
                f"is not a timedelta of at least {LEAST_KEPT.days} days: readers and writers may "
                f"still need the files",
            )
        if not isinstance(self.remove_orphans, bool):
            raise _wrong("remove_orphans", self.remove_orphans, "is neither True nor False")
        object.__setattr__(self, "properties", _checked_properties(self.properties))


def _checked_properties(value: object) -> Mapping[str, str]:
    """Names and values as text, and none that is chosen otherwise."""
    if not isinstance(value, Mapping) or not all(
        isinstance(one, str) for one in (*value, *value.values())
    ):
        raise _wrong(
            "properties",
            value,
            "is no map of names to texts, such as {'delta.logRetentionDuration': 'interval 60 "
            "days'}",
        )
    plain = [name for name in value if "." not in name]
    if plain:
        raise _wrong(
            "properties",
            plain[0],
            "may be a name of Spark's own, such as owner; write delta.… or a prefix of yours and a "
            "dot",
        )
    chosen = [name for name in value if name.startswith(CHOSEN)]
    if chosen:
        raise _wrong(
            "properties",
            chosen[0],
            "is chosen by what is declared of the table, such as its readers; leave it out",
        )
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
# in front of a property's name: what it was before it was raised, empty for unset
BEFORE = "lakechime.before."
UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_PART = re.compile(rf"(\d+)\s+({'|'.join(UNITS)})s?\b", re.IGNORECASE)


def duration(text: str) -> dt.timedelta | None:
    """What an interval of Delta means, such as `interval 1 week`; None where it has units of no
    fixed length.
    """
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


def raised(
    properties: Mapping[str, str], age: dt.timedelta, ahead: dt.timedelta
) -> dict[str, str | None]:
    """The properties to set so that what is so old stays at least `ahead` longer; none where it
    does already.

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
    """The bytes of the files that may hold a value, by spans and sizes, on average over where spans
    begin; 0 where one is not known.
    """
    spans = [(span, size) for span, size in files]
    known = [(span[0], span[1], size) for span, size in spans if span is not None]
    if not known or len(known) < len(spans):
        return 0.0
    starts, begun = _summed((start, size) for start, _, size in known)
    ends, ended = _summed((end, size) for _, end, size in known)
    return sum(
        begun[bisect_right(starts, value)] - ended[bisect_left(ends, value)] for value in starts
    ) / len(known)


def wanted(size: int, target_file: int, dimensions: int) -> float:
    """The bytes that hold a value of the first of several columns in a table of a size that is laid
    out by all of them.
    """
    return target_file * max(1.0, size / target_file) ** (1 - 1 / dimensions)


def _summed(sizes: Iterable[tuple[Any, int]]) -> tuple[list[Any], list[int]]:
    """Values in order, and the sum of the sizes of so many of the first of them."""
    ordered = sorted(sizes)
    return [value for value, _ in ordered], [0, *accumulate(size for _, size in ordered)]


Partition = tuple[PartitionValue, ...] | None

GIB = 1024**3
# a commit's files are as much older than the commit as it took to write them; none takes a day
MARGIN_MS = DAY_MS

MAX_SCATTERED = 3  # times the bytes that a value would be found in, were the table laid out
SMALL_OF_CLUSTERED = (
    "small files; OPTIMIZE lays out the whole of a clustered table, which may cost all of its bytes"
)


class Kind(StrEnum):
    """What may be done, in the order in which it is."""

    RAISE = "raise retention"
    LOWER = "lower retention"
    PROPERTIES = "set properties"
    COMPACT = "compact"
    PURGE = "purge"
    VACUUM = "vacuum"
    ORPHANS = "remove orphans"


ORDER = list(Kind)


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file that holds rows of the table; `deleted` of its `rows` are so by a deletion vector.
    `modified` is its time.

    `span` is from the least to the greatest value of the first column that the table is clustered
    by, where that is known.
    """

    path: str
    size: int
    rows: int | None = None
    deleted: int = 0
    modified: int = 0
    partition: Partition = None
    span: Span | None = None


@dataclass(frozen=True, kw_only=True)
class OldFile:
    """A file in the table's folder that holds no row of it: removed then by a commit, or as old as
    it is where none names it.
    """

    path: str
    size: int
    since: int


@dataclass(frozen=True, kw_only=True)
class TableFiles:
    """A table's files as they lie: live ones, those that commits removed, and those that no commit
    names.

    A table that is clustered is so by so many `dimensions`.
    """

    table: str
    live: tuple[DataFile, ...] = ()
    removed: tuple[OldFile, ...] = ()
    orphans: tuple[OldFile, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    is_clustered: bool = False
    dimensions: int = 1


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A consumer that needs history of the table: all that commits did since then, None for
    nothing.

    `unread` is the time of the oldest rows that it has not read, or of its open execution; None
    where it has caught up. `waits` is why it does not continue by itself; empty for one that does.
    """

    name: str
    since: int | None = None
    unread: int | None = None
    waits: str = ""


@dataclass(frozen=True, kw_only=True)
class Action:
    """One thing to do: to `files` of so many `bytes`, of one partition or of the whole table.

    `score` is what readers need open no more, in files and vectors per GiB rewritten. COMPACT joins
    files smaller than `below` bytes; VACUUM and ORPHANS remove what was removed before `before`; a
    property of None is unset.
    """

    kind: Kind
    reason: str
    partition: Partition = None
    files: int = 0
    bytes: int = 0
    score: float = 0.0
    below: int = 0
    before: int = 0
    properties: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def is_rewrite(self) -> bool:
        return self.kind in (Kind.COMPACT, Kind.PURGE)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """What would be done, and why it is not."""

    action: Action
    why: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do to a table, in order, and what not."""

    table: str
    actions: tuple[Action, ...] = ()
    refused: tuple[Refused, ...] = ()

    @property
    def rewrites(self) -> int:
        """The bytes to be rewritten."""
        return sum(action.bytes for action in self.actions if action.is_rewrite)


@dataclass(frozen=True, kw_only=True)
class Done:
    """What one statement did; the sizes are bytes."""

    kind: Kind
    files_removed: int = 0
    files_added: int = 0
    rewritten: int = 0
    written: int = 0
    freed: int = 0


@dataclass(frozen=True, kw_only=True)
class Maintained:
    """What was done of a plan, and what not."""

    done: tuple[Done, ...] = ()
    refused: tuple[Refused, ...] = ()

    def total(self, name: str) -> int:
        """The sum of a number of `Done` over all statements."""
        return sum(getattr(one, name) for one in self.done)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A table that is to be planned: its files, the consumers at it, and what is declared of it."""

    files: TableFiles
    readers: tuple[Reader, ...]
    policy: Maintenance


def plan(files: TableFiles, readers: Iterable[Reader], policy: Maintenance, now: int) -> Plan:
    """What to do now.

    While a consumer waits, or is behind by more than is kept, or by half of what the log is,
    nothing is touched; what keeps its range from being cleaned up is raised, and lowered again
    afterwards.
    """
    return plan_together(
        [Subject(files=files, readers=tuple(readers), policy=policy)], policy.budget, now
    )[0]


def plan_together(several: Sequence[Subject], budget: int, now: int) -> list[Plan]:
    """The plans of some tables, which may rewrite so many bytes together: those first by which
    readers of any of them save most.

    The tables of which nothing may be touched take nothing of it.
    """
    blocked = [_blocked_by(one, now) for one in several]
    free = [one for one, why in zip(several, blocked, strict=True) if not why]
    together = iter(_affordable(free, budget))
    return [
        _plan(one, why, *(_affordable([one], budget)[0] if why else next(together)), now)
        for one, why in zip(several, blocked, strict=True)
    ]


def _plan(
    one: Subject,
    blocked: Sequence[tuple[Reader, str]],
    wanted: list[Action],
    refused: list[Refused],
    now: int,
) -> Plan:
    """The plan of one table, of which these rewrites are within the budget."""
    files, policy, lower = one.files, one.policy, lowered(one.files.properties)
    lower, before = ({}, files.properties) if blocked else (lower, _usual(files))
    kept = max(policy.keep_for, LEAST_KEPT, deleted_files_kept(_declared(one)))
    wanted = wanted + _settings(
        {name: value for name, value in policy.properties.items() if before.get(name) != value}
    )
    wanted += _removals(files, one.readers, policy, now, now - _milliseconds(kept))
    if blocked:
        oldest = min(
            (reader.since for reader, _ in blocked if reader.since is not None), default=now
        )
        higher = raised(files.properties, dt.timedelta(milliseconds=now - oldest), policy.keep_for)
        why = "; ".join(why for _, why in blocked)
        refused = refused + [Refused(action=action, why=why) for action in wanted]
        wanted = [Action(kind=Kind.RAISE, properties=higher, reason=why)] if higher else []
    elif lower:
        wanted.append(
            Action(kind=Kind.LOWER, properties=lower, reason="every consumer has caught up")
        )
    if listed := _listed(files, policy, now):
        refused = [*refused, listed]
    return Plan(
        table=files.table, actions=tuple(sorted(wanted, key=_in_order)), refused=tuple(refused)
    )


def _usual(files: TableFiles) -> dict[str, str]:
    """The properties of a table as they are without what was raised for a consumer."""
    return {
        name: value
        for name, value in {**files.properties, **lowered(files.properties)}.items()
        if value is not None
    }


def _declared(one: Subject) -> dict[str, str]:
    return {**_usual(one.files), **one.policy.properties}


def _blocked_by(one: Subject, now: int) -> list[tuple[Reader, str]]:
    """The consumers for whose sake nothing of a table may be touched, each with why."""
    return _blocked(
        one.readers, now, _milliseconds(min(one.policy.keep_for, log_kept(_declared(one)) / 2))
    )


def _settings(properties: Mapping[str, str]) -> list[Action]:
    """The properties that the table has otherwise than is declared."""
    reason = ", ".join(f"{name} is declared as {value}" for name, value in properties.items())
    return (
        [Action(kind=Kind.PROPERTIES, properties=properties, reason=reason)] if properties else []
    )


def _in_order(action: Action) -> tuple[int, float]:
    return ORDER.index(action.kind), -action.score


def _blocked(readers: Iterable[Reader], now: int, kept: int) -> list[tuple[Reader, str]]:
    """The consumers for whose sake nothing may be touched, each with why."""
    found = []
    for reader in readers:
        if reader.waits:
            found.append((reader, f"{reader.name} waits: {reader.waits}"))
        elif reader.unread is not None and now - reader.unread > kept:
            found.append(
                (
                    reader,
                    (
                        f"{reader.name} has not read the rows since {_day(reader.unread)}, for longer "
                        f"than their files are kept"
                    ),
                )
            )
    return found


# What is rewritten


def _affordable(
    several: Sequence[Subject], budget: int
) -> list[tuple[list[Action], list[Refused]]]:
    """The rewrites of each table that are worth while, the best of all tables first, as far as the
    budget goes.
    """
    found: list[tuple[list[Action], list[Refused]]] = [([], []) for _ in several]
    left = budget
    worth = [
        (at, *one)
        for at, subject in enumerate(several)
        for one in _rewrites(subject.files, subject.policy)
    ]
    for at, action, small in sorted(worth, key=lambda one: -one[1].score):
        chosen, refused = found[at]
        fitting = action if action.bytes <= left else _cut(action, small, left, several[at].policy)
        if fitting is not None:
            chosen.append(fitting)
            left -= fitting.bytes
        if fitting is not action:
            why = f"{_size(budget)} are the budget of a run, of which {_size(left)} are left"
            refused.append(
                Refused(
                    action=action, why=why if fitting is None else f"{why}; a part of it is done"
                )
            )
    return found


def _rewrites(files: TableFiles, policy: Maintenance) -> Iterator[tuple[Action, list[DataFile]]]:
    """All that is worth rewriting, each with the small files of which a part may be joined
    instead.
    """
    if files.is_clustered:
        laying = _laying_out(files, policy)
        if laying:
            yield laying, []
        elif purging := _purging([file for file in files.live if file.deleted], set()):
            yield purging, []
        return

    def key(file: DataFile) -> str:
        return repr(file.partition)

    for _, group in groupby(sorted(files.live, key=key), key=key):
        members = list(group)
        small = _small(members, policy)
        joined = small if len(small) >= policy.min_files else []
        if joined:
            yield _joining(joined, policy, policy.small_file), joined
        if purging := _purging(
            [file for file in members if file.deleted], {file.path for file in joined}
        ):
            yield purging, []


def _small(files: Sequence[DataFile], policy: Maintenance) -> list[DataFile]:
    return sorted(
        (file for file in files if file.size < policy.small_file),
        key=lambda file: (file.size, file.path),
    )


def _laying_out(files: TableFiles, policy: Maintenance) -> Action | None:
    """A clustered table laid out again: where small files were added, or its rows lie together no
    more.
    """
    small = _small(files.live, policy)
    if len(small) >= policy.min_files:
        return replace(
            _joining(files.live, policy, policy.small_file),
            reason=f"{len(small)} {SMALL_OF_CLUSTERED}",
        )
    size = sum(file.size for file in files.live)
    now, then = (
        opened((file.span, file.size) for file in files.live),
        wanted(size, policy.target_file, files.dimensions),
    )
    if now <= MAX_SCATTERED * then:
        return None
    reason = (
        f"a value is looked for in {_size(round(now))}, where {_size(round(then))} would do; "
        f"OPTIMIZE lays out the whole of the table"
    )
    return replace(
        _joining(files.live, policy, policy.small_file),
        score=_per_gib((now - then) / policy.target_file, size),
        reason=reason,
    )


def _joining(small: Sequence[DataFile], policy: Maintenance, below: int) -> Action:
    size = sum(file.size for file in small)
    gone = (
        len(small) - math.ceil(size / policy.target_file) + sum(1 for file in small if file.deleted)
    )
    reason = (
        f"{len(small)} files below {_size(below)}, at most {_size(policy.target_file)} together in "
        f"one"
    )
    return Action(
        kind=Kind.COMPACT,
        partition=small[0].partition,
        files=len(small),
        bytes=size,
        score=_per_gib(gone, size),
        below=below,
        reason=reason,
    )


def _purging(vectored: Sequence[DataFile], joined: set[str]) -> Action | None:
    """The rewrite of a partition's files with deletion vectors; those that are joined anyway do not
    count for it, but for its cost.
    """
    others = [file for file in vectored if file.path not in joined]
    deleted = sum(file.deleted for file in others)
    rows = sum(max(file.rows or 0, file.deleted) for file in others)
    if not others or deleted <= MAX_DELETED_RATIO * rows:
        return None
    size = sum(file.size for file in vectored)
    reason = (
        f"{deleted / rows:.0%} of the rows of {len(others)} files are deleted by vectors, more "
        f"than {MAX_DELETED_RATIO:.0%}"
    )
    return Action(
        kind=Kind.PURGE,
        partition=others[0].partition,
        files=len(vectored),
        bytes=size,
        score=_per_gib(len(vectored), size),
        reason=reason,
    )


def _cut(
    action: Action, small: Sequence[DataFile], left: int, policy: Maintenance
) -> Action | None:
    """The part of a compaction that fits: the smallest files, up to a size; None where too few of
    them do.
    """
    taken: list[DataFile] = []
    for _, group in groupby(small, key=lambda file: file.size):
        members = list(group)
        if sum(file.size for file in (*taken, *members)) > left:
            break
        taken += members
    if len(taken) < policy.min_files:
        return None
    return _joining(taken, policy, taken[-1].size + 1)


# What is removed


def _removals(
    files: TableFiles, readers: Sequence[Reader], policy: Maintenance, now: int, before: int
) -> list[Action]:
    """The removal of files that nobody needs any more: removed before all that is kept, and a day
    before what a consumer reads next.
    """
    needed = [reader.since for reader in readers if reader.since is not None]
    before = min([before, *(since - MARGIN_MS for since in needed)])
    gone = [file for file in files.removed if file.since < before]
    orphans = [file for file in files.orphans if file.since < min(before, now - ORPHANS_AFTER_MS)]
    actions = []
    if policy.remove_orphans and orphans:
        both = [*gone, *orphans]
        reason = (
            f"{len(orphans)} files that no commit names, and {len(gone)} that were removed, before "
            f"{_day(before)}"
        )
        actions.append(
            Action(
                kind=Kind.ORPHANS, files=len(both), bytes=_bytes(both), before=before, reason=reason
            )
        )
    elif gone:
        reason = (
            f"{len(gone)} files were removed before {_day(before)}; no consumer reads them any more"
        )
        actions.append(
            Action(
                kind=Kind.VACUUM, files=len(gone), bytes=_bytes(gone), before=before, reason=reason
            )
        )
    return actions


def _listed(files: TableFiles, policy: Maintenance, now: int) -> Refused | None:
    """The report of files that no commit names, where they are not to be removed."""
    orphans = [file for file in files.orphans if file.since < now - ORPHANS_AFTER_MS]
    if not orphans or policy.remove_orphans:
        return None
    reason = f"{len(orphans)} files that no commit names, such as {orphans[0].path}"
    action = Action(kind=Kind.ORPHANS, files=len(orphans), bytes=_bytes(orphans), reason=reason)
    return Refused(
        action=action,
        why="they are only reported; Maintenance(remove_orphans=True) lets a run remove them",
    )


def _bytes(files: Iterable[OldFile]) -> int:
    return sum(file.size for file in files)


def _per_gib(gone: float, size: int) -> float:
    return gone / (max(size, 1) / GIB)


def _milliseconds(span: dt.timedelta) -> int:
    return span // dt.timedelta(milliseconds=1)


def _day(milliseconds: int) -> str:
    return f"{from_milliseconds(milliseconds):%Y-%m-%d %H:%M} UTC"


def _size(number: int) -> str:
    """Bytes for people."""
    amount = float(number)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} GiB"
