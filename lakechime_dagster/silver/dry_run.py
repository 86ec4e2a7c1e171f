"""What is computed by Spark on request and not written: the effect of a replay, a rebuild or a reprocess, and verification."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakechime_dagster.dce.events import SnapshotId, TableUid
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.spark import spark_of
from lakechime_dagster.silver.requests import event_hints, event_replays, event_types
from lakechime_dagster.silver.results import Replay, Verified
from lakechime_dagster.silver.schema import KnownType, TypeCheckpoint, gained, next_layout
from lakechime_dagster.tables.events import EventGroup, EventTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakechime_dagster.silver.bronze import WouldReprocess
    from lakechime_dagster.silver.slices import Slices, TypeTables


_ASKED = 0  # the number of a replay that nobody has asked for


@dataclass(frozen=True, kw_only=True)
class WouldReplay:
    """What a replay of a type would do to its table as it is.

    Attributes:
        gained: The columns that the table would gain: name, and what each holds.
    """

    replaced: int
    added: int
    gained: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class WouldRebuild:
    """What a rebuild of a type would do to its table as it is.

    Attributes:
        added: Events of which the table has no row, those among them that no step has read yet.
        gained: The columns that the table would gain, and `lost` those that it would lose: name, and what each holds.
        is_same: Nothing would change.
    """

    replaced: int
    added: int
    removed: int
    gained: tuple[tuple[str, str], ...]
    lost: tuple[tuple[str, str], ...]
    is_same: bool


def would_replay(platform: Platform, group: EventGroup, known: KnownType, log: Callable[[str], None]) -> WouldReplay:
    """What a replay of this type, which has a table, would change; by Spark, and nothing is written.

    Raises:
        SparkFailedError: what Spark said.
    """
    from lakechime_dagster.silver.replay import TypeReplayer  # only who asks for this needs Spark

    with _stepping(platform, group, known.checkpoint, log) as (spark, slices, tables):
        hinted = tables.job.group
        layout = next_layout(known.layout, known.observed, hinted.contract_of(known.type))
        replayer = TypeReplayer(spark=spark, slices=slices, tables=tables, repository=event_types(platform))
        with replayer.difference(replace(known, layout=layout)) as found:
            return WouldReplay(replaced=found.updated, added=found.inserted, gained=tuple(gained(known.layout, layout)))


def would_rebuild(
    platform: Platform, group: EventGroup, known: KnownType, newest: TypeCheckpoint, log: Callable[[str], None]
) -> WouldRebuild:
    """What a rebuild of this type from the stream's table at its newest would change; by Spark, and nothing is written.

    Raises:
        SparkFailedError: what Spark said.
    """
    from lakechime_dagster.silver.replay import TypeRebuilder
    from lakechime_dagster.silver.write import TypeWriter

    asked = Replay(replay_id=_ASKED, type=known.type, is_rebuild=True)
    with _stepping(platform, group, newest, log) as (spark, slices, tables):
        writer = TypeWriter(spark=spark, slices=slices, tables=tables)
        rebuilder = TypeRebuilder(spark=spark, slices=slices, writer=writer, repository=event_types(platform))
        anew = rebuilder.learnt(known, is_kept=False)
        found = rebuilder.compared(known, asked, anew)
        return WouldRebuild(
            replaced=found.done.replaced,
            added=found.done.added + found.came,
            removed=found.done.removed,
            is_same=found.is_same,
            gained=tuple(gained(known.layout, anew.known.layout)),
            lost=tuple(gained(anew.known.layout, known.layout)),
        )


@contextmanager
def _stepping(
    platform: Platform, group: EventGroup, checkpoint: TypeCheckpoint, log: Callable[[str], None]
) -> "Iterator[tuple[SparkSession, Slices, TypeTables]]":
    """What a step of the group up to a checkpoint would read and write."""
    from lakechime_dagster.silver.job import GroupJob
    from lakechime_dagster.silver.slices import Slices, TypeTables
    from lakechime_dagster.spark.driver import described, open_driver

    settings, bronze = platform.settings, group.stream.table
    hinted, location = group.with_hints(event_hints(platform).holding(group.name)), platform.location(bronze.name, bronze.location)
    end = SnapshotCheckpoint(
        table_uid=None if checkpoint.uid is None else TableUid(checkpoint.uid), snapshot_id=SnapshotId(str(checkpoint.version))
    )
    job = GroupJob(
        group=hinted,
        groups=(hinted,),
        bronze=location,
        end=end,
        warehouse=platform.warehouse,
        deployment=platform.ledger.deployment,
    )
    with open_driver(spark_of(settings, group), settings.home, jars=settings.jars, log=log) as driver, described():
        slices = Slices(driver.spark, bronze.name, platform.log_at(location, bronze.name), end)
        yield driver.spark, slices, TypeTables(job=job, open_log=platform.log_at)


def would_reprocess(platform: Platform, table: EventTable, log: Callable[[str], None]) -> "WouldReprocess":
    """What a request to reprocess would bring; by Spark, and nothing is written.

    Raises:
        SparkFailedError: what Spark said.
    """
    from lakechime_dagster.silver.bronze import WouldReprocess, reprocess_of, reprocessed
    from lakechime_dagster.silver.job import EventJob
    from lakechime_dagster.spark.driver import (
        described,
        open_driver,  # only who asks for this needs Spark
    )

    settings, location = platform.settings, platform.location(table.name, table.location)
    job = EventJob(
        name=table.name,
        location=location,
        feed=table.feed,
        type_field=table.type_field,
        producer_field=table.producer_field,
        classes=str(settings.home / "classes"),
    )
    with open_driver(settings.spark, settings.home, jars=settings.jars, log=log) as driver, described():
        rows = reprocessed(driver.spark, job, platform.log_at(location, table.name))
        return WouldReprocess(rows=0) if rows is None else reprocess_of(rows)


SAMPLE = 100  # rows of a type of which each value is looked at


UNCLAIMED = SnapshotCheckpoint()  # the end of a job that writes nothing


def verified(
    platform: Platform,
    group: EventGroup,
    log: Callable[[str], None],
    *,
    names: Collection[str] | None = None,
    sample: int = SAMPLE,
    seed: int = 0,
) -> list[Verified]:
    """What is found of these types of a group, or of all that ever had a table, by name; none where no event came to the stream.

    Raises:
        SparkFailedError: what Spark said.
        TableUnreadableError: the stream's table cannot be read.
    """
    from lakechime_dagster.silver.job import GroupJob
    from lakechime_dagster.silver.slices import Slices, TypeTables
    from lakechime_dagster.silver.verify import GroupVerifier
    from lakechime_dagster.spark.driver import (
        described,
        open_driver,  # only who asks for this needs Spark
    )

    settings, bronze = platform.settings, group.stream.table
    location = platform.location(bronze.name, bronze.location)
    stream = platform.log_at(location, bronze.name)
    if not stream.exists():
        return []
    hinted = group.with_hints(event_hints(platform).holding(group.name))
    job = GroupJob(
        group=hinted,
        groups=(hinted,),
        bronze=location,
        end=UNCLAIMED,
        warehouse=platform.warehouse,
        deployment=platform.ledger.deployment,
    )
    end = SnapshotCheckpoint(table_uid=stream.uid, snapshot_id=SnapshotId(str(stream.version)))
    with open_driver(spark_of(settings, group), settings.home, jars=settings.jars, log=log) as driver, described():
        verifier = GroupVerifier(
            spark=driver.spark,
            slices=Slices(driver.spark, bronze.name, stream, end),
            tables=TypeTables(job=job, open_log=platform.log_at),
            repository=event_types(platform),
            discarded=_discarded(platform, group.name),
            sample=sample,
            seed=seed,
        )
        return verifier.verified(None if names is None else {*names})


def _discarded(platform: Platform, group: str) -> dict[str, int]:
    """The events of each type that steps discarded, less those that replays brought back."""
    found = {name: known.discarded for name, known in event_types(platform).types(group).items()}
    for name in [name for name, count in found.items() if count]:
        found[name] -= sum(each.done.added for each in event_replays(platform).of(group, name) if each.done is not None)
    return found
