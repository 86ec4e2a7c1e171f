"""Appends rows to the table of a type so that what lies behind a place comes in once, whoever writes it and however long he lived.

The number of the commit is tied to the place: it follows the commits that the group has in the table. Delta lets one in only.
"""

import json
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from lakechime_dagster.errors import LakeChimeError, LaneConflictError
from lakechime_dagster.schema.repository import TypePlace
from lakechime_dagster.spark.commit import CommitLostError, Target, retrying
from lakechime_dagster.spark.delta_files import remove_folder
from lakechime_dagster.spark.shape import holds
from lakechime_dagster.spark.stamp import TargetLog
from lakechime_dagster.spark.statistics import keep_listed, properties_of
from lakechime_dagster.triggers.lanes import CommitStamp, Committed, LaneId

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
