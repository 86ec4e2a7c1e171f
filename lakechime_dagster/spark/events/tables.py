"""The tables of a group's types: where each lies, what it holds, and what a commit in it says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakechime_dagster.dce.event import SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.schema.personal import personal_columns
from lakechime_dagster.schema.replay import REBUILT, Replayed
from lakechime_dagster.schema.repository import KnownType, TypePlace
from lakechime_dagster.spark.commit import Target
from lakechime_dagster.spark.events.appending import Ahead, ahead_of
from lakechime_dagster.spark.events.job import GroupJob
from lakechime_dagster.spark.events.rescues import RESCUED
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.triggers.lanes import CommitStamp, Committed, LaneId, Place


@dataclass(frozen=True, kw_only=True)
class TypeTables:
    """The tables as one attempt at a step sees them."""

    job: GroupJob
    open_log: OpenLog

    def target(self, known: KnownType) -> Target:
        """The table of a type, be it there or not."""
        home = self._home(known)
        name, location = f"{home}.{known.table}", f"{self.job.warehouse}/{home}/{known.table}"
        paths = self.job.group.personal
        hidden = (*personal_columns(known.layout, paths), RESCUED) if paths else ()
        return Target(name=name, location=location, log=self.open_log(location, name), personal=hidden)

    def ahead(self, known: KnownType) -> Ahead | None:
        """What a type's table holds beyond what is known of it.

        Raises:
            LakeChimeError: it cannot be asked, or does not tell up to where it holds something.
        """
        return ahead_of(known.place, self.target(known).log, self._lane(known), self.job.group.stream.table.name)

    def last_committed(self, known: KnownType) -> Committed | None:
        """The last commit of the group in a type's table."""
        return self.target(known).log.last_committed(self._lane(known))

    def stamp(self, known: KnownType, place: TypePlace, start: int, end: int, rows: int, sent: Mapping[str, int]) -> CommitStamp:
        """What this attempt's commit of what lies behind a place says: the version behind which it reads, its last one, the events, and
        by whom they were sent.
        """
        facts: dict[str, Any] = {"type": known.type, "after": start, "layout": known.layout_version, "rows": rows}
        facts |= {"producers": dict(sent)} if sent else {}
        return self._stamp(known, place, end, facts, {"schema_version": str(known.layout_version)})

    def replay_stamp(self, known: KnownType, done: Replayed) -> CommitStamp:
        """What this attempt's commit of a replay says: how many rows it replaced and added, behind the type's place none."""
        facts = {
            "type": known.type, "layout": known.layout_version, "rows": 0, "replay": done.replay_id, "replaced": done.replaced,
            "added": done.added,
        }  # fmt: skip
        tags = {"schema_version": str(known.layout_version), "cause": "replay"}
        return self._stamp(known, known.place, known.place.version, facts, tags)

    def rebuild_stamp(self, known: KnownType, start: int, end: int, rows: int, written: int, done: Replayed) -> CommitStamp:
        """What this attempt's commit says that makes the table anew: all of the stream's table is in it, of which `rows` events, and as
        many of their rows as are `written`, lie behind the version up to which the type was read.
        """
        facts = {
            "type": known.type, "after": start, "layout": known.layout_version, "rows": rows, "written": written,
            "replay": done.replay_id, REBUILT: True, "replaced": done.replaced, "added": done.added, "removed": done.removed,
        }  # fmt: skip
        tags = {"schema_version": str(known.layout_version), "cause": "rebuild", "breaking": "true"}
        return self._stamp(known, known.place, end, facts, tags)

    def _stamp(self, known: KnownType, place: TypePlace, end: int, facts: Mapping[str, Any], tags: Mapping[str, str]) -> CommitStamp:
        reached = SnapshotPlace(table_uid=self.job.end.table_uid, snapshot_id=SnapshotId(str(end)))
        return CommitStamp(
            lane=self._lane(known), step=place.commits + 1, attempt=self.job.attempt, execution_id=self.job.execution_id,
            end=Place(sources={self.job.group.stream.table.name: reached}), facts=facts, tags=tags,
        )  # fmt: skip

    def is_own(self, held: Committed) -> bool:
        """Whether a commit is this attempt's."""
        return (held.stamp.attempt, held.stamp.execution_id) == (self.job.attempt, self.job.execution_id)

    def _lane(self, known: KnownType) -> LaneId:
        """The line of its table's commits, which stays one whichever group has the type."""
        return LaneId(self.job.deployment, self._home(known), known.type)

    def _home(self, known: KnownType) -> str:
        return known.home or self.job.group.name
