"""Lanes and what moves on them: executions, attempts and places, and what a commit must say about them.

A lane is the strictly serial line of executions of one flow. Execution n is step n of its lane; all attempts at a
step carry the same lane and step into the target's commit, so the target lets only one of them in.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.event import SnapshotId, TableUid
from lakechime_dagster.dce.partition import canonical_json
from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.snapshots import SnapshotPlace, SnapshotRange
from lakechime_dagster.triggers.feeds import FeedPlace, feed_place

STAMP_FORMAT = 1
COMPLETE = "complete"  # among the facts of a stamp: from when up to when (milliseconds) nothing of a source can come any more
LATE = "late"  # among the facts of a stamp: [hour since 1970, changes] for each hour that was complete before, and that the commit changes
HOUR_MS = 3_600_000
HOURS = "__hours"  # what the name ends with of the table whose partitions are the hours that are complete in another one


class LaneState(StrEnum):
    """Whether a lane may claim: HELD waits for a person, STALE lost events to a forced purge."""

    ACTIVE = "ACTIVE"
    HELD = "HELD"
    STALE = "STALE"


class Cause(StrEnum):
    """Why an execution was claimed."""

    TRIGGER = "trigger"
    MANUAL = "manual"


class ExecutionState(StrEnum):
    """OPEN holds its lane; the others are final."""

    OPEN = "OPEN"
    SETTLED = "SETTLED"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True)
class LaneId:
    """The name of a lane: deployment, flow, and the fire key ("" for a snapshot trigger)."""

    deployment: str
    flow: str
    key: str = ""

    def __str__(self) -> str:
        """The text that names the lane in a target's transaction id (`txnAppId`) and in run tags."""
        return canonical_json([self.deployment, self.flow, self.key])

    @classmethod
    def parse(cls, text: str) -> "LaneId":
        deployment, flow, key = json.loads(text)
        return cls(deployment, flow, key)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Up to where a lane has consumed: a store position, and a snapshot per source table, or a place in a feed.

    The position decides whether to run, the snapshots what is read; of a flow that reads a feed its place decides both. All
    move together, at settling only. The feed of one that `has_more` held more: a step's limit ended there.
    """

    position: Position = Position.ORIGIN
    sources: Mapping[str, SnapshotPlace] = field(default_factory=dict)
    feed: FeedPlace | None = None
    has_more: bool = False

    def to_json(self) -> dict[str, Any]:
        sources = {name: [place.table_uid, place.snapshot_id] for name, place in sorted(self.sources.items())}
        wire: dict[str, Any] = {"position": str(self.position), "sources": sources}
        wire |= {} if self.feed is None else {"feed": self.feed.to_json()}
        return wire | {"more": True} if self.has_more else wire

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> "Place":
        sources = {
            name: SnapshotPlace(table_uid=uid and TableUid(uid), snapshot_id=snapshot and SnapshotId(snapshot))
            for name, (uid, snapshot) in wire["sources"].items()
        }
        feed = feed_place(wire["feed"]) if "feed" in wire else None
        return cls(position=Position.parse(wire["position"]), sources=sources, feed=feed, has_more=wire.get("more", False))


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Step n of a lane: the frozen range (start, end] and who is at it.

    `attempt` counts Dagster runs at this step from 1. `run_id` is the run that began the newest attempt. `backfill` names
    those whose orders it took, with commas between. `dagster_backfill` is the backfill of Dagster that a run of it was launched for.
    Times are milliseconds of the store's clock.
    """

    execution_id: str
    lane: LaneId
    step: int
    state: ExecutionState
    cause: Cause
    start: Place
    end: Place
    attempt: int = 1
    run_id: str | None = None
    partition_key: str | None = None
    claimed_ts: int = 0
    lease_until: int | None = None
    next_attempt_ts: int | None = None
    settled_ts: int | None = None
    version: str | None = None
    reason: str = ""
    backfill: str = ""
    dagster_backfill: str = ""

    @property
    def run_key(self) -> str:
        """Dagster's deduplication key: one run per attempt."""
        return f"{self.execution_id}:{self.attempt}"

    @property
    def job_tag(self) -> str:
        """The tag of this attempt's Spark jobs, by which they can be cancelled."""
        return self._job_tag(self.attempt)

    @property
    def earlier_job_tags(self) -> tuple[str, ...]:
        """The tags of the attempts before this one."""
        return tuple(self._job_tag(number) for number in range(1, self.attempt))

    def _job_tag(self, attempt: int) -> str:
        return f"lakechime-{self.execution_id}-{attempt}"

    def ranges(self) -> dict[str, SnapshotRange]:
        """Per source table, the snapshots to read; a source without a new snapshot is not in it."""
        return ranges_between(self.start, self.end)


def ranges_between(start: Place, end: Place) -> dict[str, SnapshotRange]:
    """Per source table the snapshots between two places; a source without a new snapshot is not in it."""
    ranges: dict[str, SnapshotRange] = {}
    for table, until in end.sources.items():
        begun = start.sources.get(table, SnapshotPlace())
        if until.snapshot_id is None or until == begun:
            continue
        ranges[table] = SnapshotRange(
            table=table, table_uid=until.table_uid, start=begun.snapshot_id, end=until.snapshot_id, start_uid=begun.table_uid
        )
    return ranges


@dataclass(frozen=True, kw_only=True)
class CommitStamp:
    """What every commit of a target says about the attempt that wrote it (Delta: `userMetadata`).

    The end recorded in the commit that a step's target holds becomes the place of its lane, whoever wrote it.
    `watermark` is event time in milliseconds: everything below it has been seen.
    """

    lane: LaneId
    step: int
    attempt: int
    end: Place
    execution_id: str = ""
    watermark: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def txn_app_id(self) -> str:
        return str(self.lane)

    def to_text(self) -> str:
        """One line of JSON under the key `lakechime`."""
        return canonical_json({
            "lakechime": STAMP_FORMAT, "lane": str(self.lane), "step": self.step, "attempt": self.attempt, "end": self.end.to_json(),
            "execution": self.execution_id, "watermark": self.watermark, "tags": dict(self.tags), "facts": dict(self.facts),
        })  # fmt: skip

    @classmethod
    def from_text(cls, text: str | None) -> "CommitStamp | None":
        """The stamp of a commit, or None for a commit of somebody else."""
        try:
            wire = json.loads(text) if text else None
        except ValueError:
            return None
        if not isinstance(wire, dict) or wire.get("lakechime") != STAMP_FORMAT:
            return None
        return cls(
            lane=LaneId.parse(wire["lane"]), step=wire["step"], attempt=wire["attempt"], end=Place.from_json(wire["end"]),
            execution_id=wire["execution"], watermark=wire["watermark"], tags=wire["tags"], facts=wire["facts"],
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Committed:
    """A commit of a step found in its target's log: the version it made and the stamp it carries.

    `is_stamp_lost`: the table's state says that the step committed, but its log no longer holds the commit. Then the
    stamp names lane and step only (attempt 0, empty end): the ledger's own end of the execution stands.
    """

    version: SnapshotId
    stamp: CommitStamp
    is_stamp_lost: bool = False
