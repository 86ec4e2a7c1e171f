"""Looks whether each event of a group's types is in their tables once, with all that it says; by Spark, and nothing is written."""

from collections.abc import Callable, Collection

from lakechime_dagster.dce.event import SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.spark import spark_of
from lakechime_dagster.resources.streams.event_types import event_hints, event_replays, event_types
from lakechime_dagster.schema.conservation import Verified

SAMPLE = 100  # rows of a type of which each value is looked at
UNCLAIMED = SnapshotPlace()  # the end of a job that writes nothing


def verified(
    platform: Platform, group: EventGroup, log: Callable[[str], None], *, names: Collection[str] | None = None, sample: int = SAMPLE,
    seed: int = 0,
) -> list[Verified]:  # fmt: skip
    """What is found of these types of a group, or of all that ever had a table, by name; none where no event came to the stream.

    Raises:
        SparkFailedError: what Spark said.
        TableUnreadableError: the stream's table cannot be read.
    """
    from lakechime_dagster.spark.drivers.driver import open_driver  # only who asks for this needs Spark
    from lakechime_dagster.spark.drivers.failures import described
    from lakechime_dagster.spark.events.job import GroupJob
    from lakechime_dagster.spark.events.slices import Slices
    from lakechime_dagster.spark.events.tables import TypeTables
    from lakechime_dagster.spark.events.verifying import GroupVerifier

    settings, bronze = platform.settings, group.stream.table
    location = platform.location(bronze.name, bronze.location)
    stream = platform.log_at(location, bronze.name)
    if not stream.exists():
        return []
    hinted = group.with_hints(event_hints(platform).holding(group.name))
    job = GroupJob(
        group=hinted, groups=(hinted,), bronze=location, end=UNCLAIMED, warehouse=platform.warehouse,
        deployment=platform.ledger.deployment,
    )  # fmt: skip
    end = SnapshotPlace(table_uid=stream.uid, snapshot_id=SnapshotId(str(stream.version)))
    with open_driver(spark_of(settings, group), settings.home, jars=settings.jars, log=log) as driver, described():
        verifier = GroupVerifier(
            spark=driver.spark, slices=Slices(driver.spark, bronze.name, stream, end), tables=TypeTables(job=job, open_log=platform.log_at),
            repository=event_types(platform), discarded=_discarded(platform, group.name), sample=sample, seed=seed,
        )  # fmt: skip
        return verifier.verified(None if names is None else {*names})


def _discarded(platform: Platform, group: str) -> dict[str, int]:
    """The events of each type that steps discarded, less those that replays brought back."""
    found = {name: totals["discarded"] for name, totals in event_types(platform).totals(group).items()}
    for name in [name for name, count in found.items() if count]:
        found[name] -= sum(each.done.added for each in event_replays(platform).of(group, name) if each.done is not None)
    return found
