"""Snapshot ranges: from the place of a reader to the newest snapshot, chained by `prev_snapshot_id`."""

from collections.abc import Iterable
from dataclasses import dataclass

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.event import RegisteredEvent, SnapshotId, TableUid


class Verdict(StrEnum):
    """How a range of snapshots hangs together; only the first two may be read incrementally."""

    CONTIGUOUS = "CONTIGUOUS"
    GAP_FILLED = "GAP_FILLED"
    ROLLBACK = "ROLLBACK"
    EXPIRED = "EXPIRED"
    RECREATED = "RECREATED"
    BRANCHED = "BRANCHED"

    @property
    def is_incremental(self) -> bool:
        return self in (Verdict.CONTIGUOUS, Verdict.GAP_FILLED)


_GENERATION = "~"


def own_uid(uid: TableUid) -> TableUid:
    """The id that the table itself has, whatever generation of it is meant."""
    return TableUid(uid.partition(_GENERATION)[0])


def next_generation(uid: TableUid) -> TableUid:
    """The uid of a table whose log was put back: its snapshot ids come again, and do not mean what they meant."""
    own, _, generation = uid.partition(_GENERATION)
    return TableUid(f"{own}{_GENERATION}{int(generation or 0) + 1}")


def meant_uid(named: TableUid | None, current: TableUid | None) -> TableUid | None:
    """The uid that an event means: the table's current one, also where it names the table's own id without the generation."""
    return current if named is None or (current is not None and own_uid(current) == named) else named


@dataclass(frozen=True, kw_only=True)
class SnapshotPlace:
    """Up to where a lane has read one source: a table (by uid) and a snapshot of it; no snapshot = nothing yet."""

    table_uid: TableUid | None = None
    snapshot_id: SnapshotId | None = None


@dataclass(frozen=True, kw_only=True)
class SnapshotRange:
    """The snapshots of one table to read: `start` exclusive (None: from nothing), `end` inclusive.

    `only` names those whose commits alone are read; None is all of them.
    """

    table: str
    table_uid: TableUid | None
    start: SnapshotId | None
    end: SnapshotId
    start_uid: TableUid | None = None
    only: frozenset[SnapshotId] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the range begins at nothing, so that the pinned snapshot is read whole."""
        return self.start is None and self.only is None

    @property
    def is_recreated(self) -> bool:
        """Whether the table was dropped and created again, or its log put back, since the start."""
        return self.start is not None and self.start_uid is not None and self.table_uid is not None and self.start_uid != self.table_uid


@dataclass(frozen=True, kw_only=True)
class Chain:
    """How the events of a range hang together, by what the events themselves say."""

    verdict: Verdict
    covered: int
    missing_after: tuple[SnapshotId, ...] = ()


def chain(range_: SnapshotRange, events: Iterable[RegisteredEvent]) -> Chain:
    """Follow `prev_snapshot_id` from the end of the range back to its start.

    The order of the events does not matter; several events of one commit are one link. Events of snapshots outside
    the range are `covered`: counted, not read. A broken link is GAP_FILLED here: the table's own log, which alone
    knows whether the missing commits changed data, has the last word when the range is read.
    """
    links: dict[SnapshotId, SnapshotId | None] = {}
    for event in events:
        inner = event.event
        if inner.snapshot_id is None or (range_.table_uid and inner.table_uid and inner.table_uid != range_.table_uid):
            continue
        links[inner.snapshot_id] = _newer(links.get(inner.snapshot_id), inner.prev_snapshot_id)
    if range_.is_recreated:
        return Chain(verdict=Verdict.RECREATED, covered=len(links))
    walked: set[SnapshotId] = set()
    cursor: SnapshotId | None = range_.end
    while cursor is not None and cursor != range_.start and cursor in links and cursor not in walked:
        walked.add(cursor)
        cursor = links[cursor]
    reached = cursor == range_.start
    missing = () if reached or cursor is None else (cursor,)
    verdict = Verdict.CONTIGUOUS if reached else Verdict.GAP_FILLED
    return Chain(verdict=verdict, covered=len(set(links) - walked), missing_after=missing)


def _newer(one: SnapshotId | None, other: SnapshotId | None) -> SnapshotId | None:
    """The predecessor to believe when the events of one commit differ: one that is known, whatever their order."""
    return max((one, other), key=lambda snapshot: (snapshot is not None, len(snapshot or ""), snapshot or ""))
