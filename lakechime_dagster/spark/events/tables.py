"""The tables of a group's types: where each lies, what it holds, and the append of what lies behind a checkpoint.

The number of a commit is tied to the checkpoint: it follows the commits that the group has in the table. Delta lets one in only, so that
what lies behind a checkpoint comes in once, whoever writes it and however long he lived.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from lakechime_dagster.dce.event import SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.errors import LakeChimeError, LaneConflictError
from lakechime_dagster.schema.learning import KnownType, TypePlace
from lakechime_dagster.schema.personal import personal_columns
from lakechime_dagster.schema.steps import REBUILT, Replayed
from lakechime_dagster.spark.commit import CommitLostError, Target, retrying
from lakechime_dagster.spark.delta_files import remove_folder
from lakechime_dagster.spark.events.job import GroupJob
from lakechime_dagster.spark.events.rows import RESCUED
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.shape import holds
from lakechime_dagster.spark.stamp import TargetLog
from lakechime_dagster.spark.statistics import keep_listed, properties_of
from lakechime_dagster.triggers.lanes import CommitStamp, Committed, LaneId, Place

FEW_ROWS = 200_000  # which one file holds
MAX_TOLD = 20  # commits of others that are told, the last ones: a store that was lost does not know of all
PROPERTIES = {"delta.enableChangeDataFeed": "true", "delta.dataSkippingNumIndexedCols": "32"}
FILES = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What a table holds beyond what is known of it: its own place, and the commits that led there, of which the last makes it."""

    place: TypePlace
    commits: tuple[Committed, ...]


def ahead_of(place: TypePlace, log: TargetLog, lane: LaneId, source: str) -> Ahead | None:
    """What the table of a type holds beyond a place; None where that is its last one.

    Raises:
        LakeChimeError: it holds something, and its log no longer says up to where.
    """
    last = log.last_committed(lane) if log.exists() else None
    if last is None or last.stamp.step <= place.commits:
        return None
    end = last.stamp.end.sources.get(source)
    if last.is_stamp_lost or end is None or end.snapshot_id is None:
        problem = f"its log at {log.shown_location} no longer tells up to where its commit {last.stamp.step} read {source}"
        raise LakeChimeError(f"{problem}; put the log back")
    steps = range(max(place.commits, last.stamp.step - MAX_TOLD) + 1, last.stamp.step)
    before = [one for step in steps if (one := log.committed(lane, step)) is not None and not one.is_stamp_lost]
    reached = TypePlace(uid=end.table_uid, version=int(end.snapshot_id), commits=last.stamp.step)
    return Ahead(place=reached, commits=(*before, last))


def append_after(place: TypePlace, target: Target, rows: DataFrame, count: int, stamp: CommitStamp) -> Committed:
    """Write what lies behind a place, and tell whose commit holds it then: this attempt's, or another's that came before.

    Rows that bring no column are files by Spark and a commit by the table's log, which costs less than Delta's; others are Delta's.

    Args:
        place: Behind which the rows lie; the stamp's step follows its commits.
        target: The table, which the first write makes.
        rows: With all columns of their layout.
        count: Of the rows, about; few are written as one file.
        stamp: Of this attempt.

    Raises:
        CommitLostError: the write returned, and no commit of its number is there.
    """
    assert stamp.step == place.commits + 1
    one = rows.coalesce(1) if count <= FEW_ROWS else rows
    for tried in retrying(LaneConflictError):
        with tried:
            columns = target.log.plain_columns()
            if target.log.committed(stamp.lane, stamp.step) is None:
                if columns is not None and holds(StructType.fromJson(json.loads(columns)), one.schema):
                    _add(target, one, stamp)
                else:
                    _write(target, one, stamp)
    found = target.log.committed(stamp.lane, stamp.step)
    if found is None:
        raise CommitLostError(f"{target.name}: commit {stamp.step} of {stamp.lane} was written, and is not in its log")
    return found


def _write(target: Target, rows: DataFrame, stamp: CommitStamp) -> None:
    """A commit by Delta, which makes the table, or its columns, where they are not there."""
    options = {"mergeSchema": "true", "txnAppId": stamp.txn_app_id, "txnVersion": str(stamp.step), "userMetadata": stamp.to_text()}
    is_new = not target.log.exists()
    made = PROPERTIES | properties_of(rows.schema, target) if is_new else {}
    keep_listed(rows.sparkSession, target, rows.schema)
    rows.write.format("delta").mode("append").options(**options, **made).save(target.location)
    if not is_new:
        keep_listed(rows.sparkSession, target, rows.schema)  # what follows adds files without Spark


def _add(target: Target, rows: DataFrame, stamp: CommitStamp) -> None:
    """Files in a folder of their own, and a commit that names them.

    They are removed where no commit was tried. Where one was, be it refused, some store may have kept it: what no commit names
    then goes like all such files, by a vacuum.
    """
    folder = uuid4().hex
    location = f"{target.location}/{folder}"
    try:
        rows.write.options(**FILES).parquet(location)
    except Exception:
        remove_folder(rows.sparkSession, location)
        raise
    if not target.log.add_folder(folder, stamp):
        remove_folder(rows.sparkSession, location)


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

    def stamp(self, known: KnownType, place: TypePlace, start: int, end: int, rows: int) -> CommitStamp:
        """What this attempt's commit of what lies behind a place says: the version behind which it reads, its last one, the events."""
        facts = {"type": known.type, "after": start, "layout": known.layout_version, "rows": rows}
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
