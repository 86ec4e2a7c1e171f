"""Whether a table that follows a database keeps up with it: what was measured, and what of that is beyond the declared limits."""

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lakechime_dagster.lake.monitors import Limits


@dataclass(frozen=True, kw_only=True)
class Lane:
    """How a table, or its table of messages, goes on; times in milliseconds since the epoch.

    Attributes:
        waits: Something came that it did not read.
        blocked: Why it may not go on; empty where it may.
        open_ms: Since when it has been at a step; None where it is at none.
        ticked_ms: When its sensor ticked last; None where it never did.
    """

    name: str
    waits: bool
    blocked: str = ""
    open_ms: int | None = None
    ticked_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class Heard:
    """The newest time that a source told of, in milliseconds since the epoch.

    Attributes:
        in_messages: By a change in the table of messages.
        in_table: By a change that the table has.
        heartbeat: When a heartbeat of its connector came.
    """

    in_messages: int | None = None
    in_table: int | None = None
    heartbeat: int | None = None


@dataclass(frozen=True)
class Left:
    """For how long what was not read stays where it is.

    Attributes:
        where: A partition of a topic, or the log of a database.
        seconds: None where it is not known, 0 where some of it is gone.
        told: How this is known.
    """

    where: str
    seconds: float | None
    told: str = ""


@dataclass(frozen=True, kw_only=True)
class KeepingUp:
    """What was measured of a table.

    Attributes:
        unread: By file in bytes, or by partition in messages, what the feed holds and the table of messages does not.
        problems: Why something could not be measured that should be.
        waiting: Rows outside of the table, as nobody sent a column; None where they are too many to be counted.
        wal: Bytes of PostgreSQL's log that slots keep.
        unasked: Why the database was not asked; empty where it was.
    """

    table: str
    now_ms: int
    lanes: tuple[Lane, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)
    heard: Mapping[str, Heard] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    waiting: int | None = 0
    quarantined: int = 0
    left: tuple[Left, ...] = ()
    wal: int | None = None
    unasked: str = ""

    def seconds_since(self, moment_ms: int | None) -> float | None:
        return None if moment_ms is None else (self.now_ms - moment_ms) / 1000

    @property
    def lags(self) -> dict[str, float]:
        """How many seconds old the newest news are, those of the source that is furthest behind: of the messages and of the table."""
        told = {"messages": [one.in_messages for one in self.heard.values()], "table": [one.in_table for one in self.heard.values()]}
        return {name: max((self.now_ms - at) / 1000 for at in times if at is not None) for name, times in told.items() if any(times)}

    @property
    def seconds_left(self) -> float | None:
        """Until the first that was not read is dropped; None where that is not known, or nothing is."""
        return min((one.seconds for one in self.left if one.seconds is not None), default=None)


def beyond(found: KeepingUp, limits: Limits) -> list[str]:
    """What of the measures is beyond the limits, in words."""
    late = [*_stuck(found, limits), *_silent(found, limits)]
    return [*found.problems, *late, *_soon_gone(found, limits), *_outside(found, limits)]


def _stuck(found: KeepingUp, limits: Limits) -> Iterator[str]:
    for lane in found.lanes:
        if lane.blocked:
            yield lane.blocked
        elif lane.waits and lane.open_ms is not None:
            if _is_older(found, lane.open_ms, limits.behind):
                yield f"{lane.name} has been at one step for {_words(found.seconds_since(lane.open_ms))}, and more waits"
        elif lane.waits and lane.ticked_ms is None:
            yield f"{lane.name} has something to read, and its sensor has never ticked: it is stopped, or no daemon runs"
        elif lane.waits and _is_older(found, lane.ticked_ms, limits.behind):
            yield f"{lane.name} has something to read, and its sensor has not ticked for {_words(found.seconds_since(lane.ticked_ms))}"


def _silent(found: KeepingUp, limits: Limits) -> Iterator[str]:
    for source, heard in sorted(found.heard.items()):
        newest = max((at for at in (heard.in_messages, heard.heartbeat) if at is not None), default=None)
        if limits.quiet is not None and newest is not None and _is_older(found, newest, limits.quiet):
            yield f"{source} has told nothing for {_words(found.seconds_since(newest))}, not even a heartbeat: is its connector stuck?"


def _soon_gone(found: KeepingUp, limits: Limits) -> Iterator[str]:
    for one in found.left:
        if one.seconds is not None and one.seconds <= 0:
            yield f"{one.where}: some of what was not read is gone ({one.told})"
        elif one.seconds is not None and one.seconds < limits.left.total_seconds():
            yield f"{one.where}: what was not read is dropped in {_words(one.seconds)} ({one.told})"
    if found.wal is not None and found.wal > limits.wal:
        yield f"a slot keeps {found.wal:,} bytes of the database's log, more than {limits.wal:,}, from being removed"


def _outside(found: KeepingUp, limits: Limits) -> Iterator[str]:
    if found.waiting is None or found.waiting > limits.waiting:
        many = "too many rows to be counted wait" if found.waiting is None else f"{found.waiting:,} rows wait"
        yield f"{many} outside of {found.table} for a column that nobody sent"
    if limits.quarantined is not None and found.quarantined > limits.quarantined:
        yield f"{found.quarantined:,} rows are in {found.table}__quarantine, more than {limits.quarantined:,}"


def _is_older(found: KeepingUp, moment_ms: int | None, limit: dt.timedelta) -> bool:
    return moment_ms is not None and found.now_ms - moment_ms > limit.total_seconds() * 1000


def _words(seconds: float | None) -> str:
    return str(dt.timedelta(seconds=round(seconds or 0)))
