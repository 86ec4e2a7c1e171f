"""Lineage of a program's own writes on Spark, and the commits that its statements left."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from lakechime_dagster.errors import TableAbsentError, TableUnreadableError
from lakechime_dagster.lineage.columns import LineageRecord, Names, Producer, summed
from lakechime_dagster.lineage.plan_dump import Dump, Node, Place, Unknown, dump_of
from lakechime_dagster.lineage.plan_statements import Commit, Found, Written, matched, statements_of
from lakechime_dagster.lineage.plan_writes import place_written
from lakechime_dagster.lineage.runs import completed, lineage_store, names_of
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.spark.job import Executed
from lakechime_dagster.tables.lake import Lake, Target
from lakechime_dagster.triggers.consumers import CommitMetadata
from lakechime_dagster.triggers.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakechime_dagster.lineage.spark import Writes


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
    """What the statements on one table left: commits with the mark, or with commit metadata of an execution that a Dagster run began.

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
        commit_metadata = CommitMetadata.from_text(one.user_metadata) if run is not None else None
        execution = (
            platform.ledger.execution(commit_metadata.execution_id)
            if commit_metadata is not None and commit_metadata.execution_id
            else None
        )
        is_ours = execution is not None and execution.run_id == run
        yield Commit(version=str(one.version), at_ms=one.timestamp, says=one.user_metadata, is_telling=not is_ours)


def _since(commits: Iterator[Commit], dumps: Sequence[Dump]) -> Iterator[Commit]:
    begun = min((one.begun_ms for one in dumps if one.begun_ms is not None), default=0) - CLOCKS
    return takewhile(lambda one: one.at_ms is None or one.at_ms >= begun, islice(commits, COMMITS))


def _snapshots(spark: "SparkSession", place: Place) -> list[Commit] | None:
    from lakechime_dagster.lineage.spark import snapshots_of

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
    from lakechime_dagster.lineage.spark import location_of  # only who writes on Spark needs it

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


@dataclass(frozen=True, kw_only=True)
class KeptWrite:
    """A table that was written, and the version of the commit by which its lineage is kept; None where it is not.

    `statements` wrote to it, of which those `without` a commit are not kept. `is_told_within` says that only others wrote to it, in a body
    within, which keeps it; `is_logged` is False of a table without a log of commits, of which what Spark reported is kept.
    """

    target: str
    version: str | None = None
    is_told_within: bool = False
    is_logged: bool = True
    statements: int = 1
    without: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether the lineage of each statement is kept, with the commit that it left."""
        return self.is_told_within or (self.version is not None and not self.without)

    @property
    def in_words(self) -> str:
        """What became of the lineage of what was written there."""
        if self.is_told_within:
            return f"{self.target}: its lineage is kept by `lakechime.lineage`"
        if not self.is_logged:
            return f"{self.target}: it has no log of commits; what Spark reported as written is kept, without a version"
        if self.version is None:
            return f"{self.target}: its lineage is not kept, as no commit of this run is in its log"
        left_out = f", but for {self.without} of {self.statements} statements, which left no commit" if self.without else ""
        return f"{self.target}: version {self.version}, its lineage is kept{left_out}"


def kept_writes(
    platform: Platform,
    found: Found,
    names: Names,
    *,
    producer: Producer,
    run_id: str,
    mark: str,
    stamped_by: str | None = None,
    spark: "SparkSession | None" = None,
) -> Iterator[KeptWrite]:
    """Keep the lineage of statements that left a commit with this mark, or with commit metadata of an execution of the Dagster run
    `stamped_by`.

    Tables of others than Delta are known by the session, without which they have no log.
    """
    by_target: dict[str, list[Written]] = {}
    for one in found.writes:
        by_target.setdefault(one.statement.target, []).append(one)
    for target, several in by_target.items():
        seen = left(platform, spark, names, several, mark, stamped_by)
        for statement in summed(one.statement for one, counts in zip(several, seen.counts, strict=True) if counts):
            told = replace(statement, unknown=(*statement.unknown, *found.unknown))
            told = completed(told, platform, seen.location) if seen.location else told
            lineage_store(platform).record(
                LineageRecord(producer=producer, run_id=run_id, at_ms=platform.store.now(), statement=told, version=seen.version)
            )
        own = [one for one in several if not one.dump.is_within]
        yield KeptWrite(
            target=target,
            version=seen.version,
            is_told_within=seen.is_told_within and not own,
            is_logged=seen.is_logged,
            statements=len(own),
            without=len(own) - seen.counts.count(True),
        )


@contextmanager
def recording(
    platform: Platform, spark: "SparkSession", *, job: str, run_id: str, names: Names, log: Callable[[str], None]
) -> Iterator[None]:
    """Keep the lineage of what the body writes.

    A statement counts if the log of its table has a commit of the body: one that reported success and committed nothing, such as a
    repeat of a transaction, tells nothing. A body that fails keeps what it committed before.

    Args:
        platform: Where it is kept.
        spark: The session that the body uses.
        job: The name of the producer.
        run_id: Of the run, by which a record that comes again is the same.
        names: Of tables with their locations and what others call them; what is none of them is outside.
        log: Told what could not be told.
    """
    from lakechime_dagster.lineage.spark import recorded_writes  # only who writes on Spark needs it

    writes: Writes | None = None
    try:
        with recorded_writes(spark) as writes:
            yield
    finally:
        if writes is not None:
            _record(platform, spark, writes, names, Producer(namespace=platform.ledger.deployment, job=job), run_id, log)


def tables_of(platform: Platform, subscriptions: Mapping[str, Subscription]) -> dict[str, str]:
    """The locations of the tables that subscriptions read and write."""
    found = {name: platform.location(name) for subscription in subscriptions.values() for name in subscription.reads}
    return found | {
        subscription.target: platform.location(subscription.target, subscription.location)
        for subscription in subscriptions.values()
        if subscription.target
    }


def _record(
    platform: Platform, spark: "SparkSession", writes: "Writes", names: Names, producer: Producer, run_id: str, log: Callable[[str], None]
) -> None:
    found = statements_of(map(dump_of, writes.dumps), names)
    for problem in found.unknown:
        log(f"lineage is not known of one statement: {problem}")
    several = kept_writes(platform, found, names, producer=producer, run_id=run_id, mark=writes.mark, stamped_by=run_id, spark=spark)
    for one in several:
        if not one.is_whole:
            log(one.in_words)


def written_beside(running: RunningExecution, lake: Lake, table: Target, spark: "SparkSession", executed: Executed) -> list[KeptWrite]:
    """Keep it of what left a commit, which is there whatever comes of the function and of the step; of each table whether it was kept."""
    if not executed.actions:
        return []
    platform, execution = running.platform, running.execution
    names = names_of(platform, lake)
    found = statements_of(map(dump_of, executed.actions), names)
    others = replace(found, writes=tuple(one for one in found.writes if one.statement.target != table.name))
    producer = Producer(namespace=execution.consumer.deployment, job=running.subscription.name)
    run_id = f"{execution.execution_id}/{execution.attempt}"
    return list(kept_writes(platform, others, names, producer=producer, run_id=run_id, mark=executed.mark, spark=spark))
