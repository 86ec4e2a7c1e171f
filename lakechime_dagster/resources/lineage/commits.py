"""What the statements of a program left in the logs of the tables that they wrote, of Delta and of Iceberg."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from lakechime_dagster.errors import TableAbsentError, TableUnreadableError
from lakechime_dagster.lineage.commits import Commit, matched
from lakechime_dagster.lineage.names import Names
from lakechime_dagster.lineage.plans.dump import Dump, Node, Unknown
from lakechime_dagster.lineage.plans.places import Place
from lakechime_dagster.lineage.plans.statements import Written
from lakechime_dagster.lineage.plans.targets import place_written
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.triggers.lanes import CommitStamp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITS = 1_000  # of a table's newest that are looked at
CLOCKS = 3_600_000  # milliseconds by which the clocks of a table's writers may differ


@dataclass(frozen=True, kw_only=True)
class Left:
    """What the statements on a table left: of each whether it counts, and the newest version of these where a log tells it.

    `location` is that of a Delta table. `is_told_within` says that a body within was told of one that left a commit, and keeps it.
    """

    counts: tuple[bool, ...]
    version: str | None = None
    location: str | None = None
    is_logged: bool = True
    is_told_within: bool = False


def left(
    platform: Platform, spark: "SparkSession | None", names: Names, writes: Sequence[Written], mark: str, run: str | None = None
) -> Left:
    """What the statements on one table left: commits with the mark, or with a stamp of an execution that a Dagster run began.

    One on a table without a log of commits counts as Spark reported its success, if there is a session to ask what the table is; on
    a Delta table of which the log cannot be read none does.
    """
    target, dumps = writes[0].statement.target, [one.dump for one in writes]
    place = place_written(dumps[0].plan) if dumps[0].plan is not None else Place()
    location = _location(spark, names, target, place)
    nothing = Left(counts=(False,) * len(writes))
    try:
        commits = list(_since(_delta(platform, location, target, run), dumps)) if location else None
    except TableAbsentError:
        commits = None
    except TableUnreadableError:
        return nothing
    is_delta = commits is not None
    if commits is None and spark is not None:
        commits = _snapshots(spark, place)
    if commits is None:
        if spark is None or _is_delta(dumps[0]):
            return nothing
        return Left(counts=tuple(not one.is_within for one in dumps), is_logged=False, is_told_within=any(one.is_within for one in dumps))
    versions = matched(dumps, commits, mark)
    own = [None if one.is_within else version for one, version in zip(dumps, versions, strict=True)]
    return Left(
        counts=tuple(one is not None for one in own),
        version=next((one.version for one in commits if one.version in own), None),
        location=location if is_delta else None,
        is_told_within=own != versions,
    )


def _delta(platform: Platform, location: str, table: str, run: str | None) -> Iterator[Commit]:
    """The newest first."""
    for one in platform.log_at(location, table).commits_backwards():
        stamp = CommitStamp.from_text(one.user_metadata) if run is not None else None
        execution = platform.ledger.execution(stamp.execution_id) if stamp is not None and stamp.execution_id else None
        is_ours = execution is not None and execution.run_id == run
        yield Commit(version=str(one.version), at_ms=one.timestamp, says=one.user_metadata, is_telling=not is_ours)


def _since(commits: Iterator[Commit], dumps: Sequence[Dump]) -> Iterator[Commit]:
    begun = min((one.begun_ms for one in dumps if one.begun_ms is not None), default=0) - CLOCKS
    return takewhile(lambda one: one.at_ms is None or one.at_ms >= begun, islice(commits, COMMITS))


def _snapshots(spark: "SparkSession", place: Place) -> list[Commit] | None:
    from lakechime_dagster.spark.lineage.catalogs import snapshots_of

    found = snapshots_of(spark, place.path, place.identifier)
    return None if found is None else [Commit(version=one, at_ms=at_ms, is_telling=False) for one, at_ms in found[:COMMITS]]


def _location(spark: "SparkSession | None", names: Names, target: str, place: Place) -> str | None:
    """Where a table lies: as the lake says, by its path, else as Spark's catalog says."""
    if target in names.locations:
        return names.locations[target]
    if place.path:
        return place.path.removeprefix("file:")
    if target.startswith("file/"):
        return "/" + target.removeprefix("file/")
    if spark is None or place.identifier is None:
        return None
    from lakechime_dagster.spark.lineage.catalogs import location_of  # only who writes on Spark needs it

    return location_of(spark, place.identifier)


def _is_delta(dump: Dump) -> bool:
    """Whether a command writes to a Delta table, as far as its plan tells."""
    if dump.plan is None:
        return False
    values = [dump.plan.name, *map(_class, dump.plan.fields.values())]
    values += [_class(one) for node in dump.plan.plans() if node.name == "DataSourceV2Relation" for one in node.fields.values()]
    return dump.plan.name in DELTAS or any(one.startswith(("Delta", "Tahoe")) for one in values)


def _class(value: object) -> str:
    if isinstance(value, dict):
        return str(value.get("o", ""))
    return value.name if isinstance(value, Unknown | Node) else ""


DELTAS = frozenset({"MergeIntoCommand", "UpdateCommand", "DeleteCommand", "RestoreTableCommand"})
"""Commands that Delta brings."""
