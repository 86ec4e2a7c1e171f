"""Appends rows to the table of a type so that what lies behind a place comes in once, whoever writes it and however long he lived.

The number of the commit is tied to the place: it follows the commits that the group has in the table. Delta lets one in only.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.schema.repository import TypePlace
from lakechime_dagster.spark.commit import CommitLostError, Target, retrying
from lakechime_dagster.spark.stamp import TargetLog
from lakechime_dagster.triggers.lanes import CommitStamp, Committed, LaneId

FEW_ROWS = 200_000  # which one file holds
PROPERTIES = {"delta.enableChangeDataFeed": "true", "delta.dataSkippingNumIndexedCols": "32"}


@dataclass(frozen=True, kw_only=True)
class Held:
    """Whose commit holds what lies behind a place, and the place that it makes."""

    committed: Committed
    place: TypePlace


def place_in(log: TargetLog, lane: LaneId, source: str) -> Held | None:
    """What the table itself says of the place of its type; None where the group has no commit in it.

    Raises:
        LakeChimeError: it has one, and its log no longer says up to where.
    """
    committed = log.last_committed(lane) if log.exists() else None
    if committed is None:
        return None
    end = committed.stamp.end.sources.get(source)
    if committed.is_stamp_lost or end is None or end.snapshot_id is None:
        problem = f"its log at {log.shown_location} no longer tells up to where its commit {committed.stamp.step} read {source}"
        raise LakeChimeError(f"{problem}; put the log back")
    return Held(committed=committed, place=TypePlace(uid=end.table_uid, version=int(end.snapshot_id), commits=committed.stamp.step))


def append_after(place: TypePlace, target: Target, rows: DataFrame, count: int, stamp: CommitStamp) -> Committed:
    """Write what lies behind a place, and tell whose commit holds it then: this attempt's, or another's that came before.

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
    options = {"mergeSchema": "true", "txnAppId": stamp.txn_app_id, "txnVersion": str(stamp.step), "userMetadata": stamp.to_text()}
    for tried in retrying():
        with tried:
            found = target.log.committed(stamp.lane, stamp.step) if target.log.exists() else None
            if found is None:
                made = {} if target.log.exists() else PROPERTIES
                one.write.format("delta").mode("append").options(**options, **made).save(target.location)
    found = target.log.committed(stamp.lane, stamp.step)
    if found is None:
        raise CommitLostError(f"{target.name}: commit {stamp.step} of {stamp.lane} was written, and is not in its log")
    return found


Stamped = Callable[[str, TypePlace, int], CommitStamp]
