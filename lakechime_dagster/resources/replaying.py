"""What a replay of a type, or a drain of a stream, would change, computed and not written."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakechime_dagster.dce.event import SnapshotId, TableUid
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.lake.events import EventGroup, EventTable
from lakechime_dagster.resources.event_types import event_hints, event_types
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.spark import spark_of
from lakechime_dagster.schema.learning import gained
from lakechime_dagster.schema.producers import Accounts, allotted
from lakechime_dagster.schema.replay import Replay
from lakechime_dagster.schema.repository import KnownType

if TYPE_CHECKING:
    from lakechime_dagster.spark.events.draining import Drain

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


def would_replay(
    platform: Platform, group: EventGroup, known: KnownType, log: Callable[[str], None], *, is_whole: bool = False
) -> WouldReplay:  # fmt: skip
    """What a replay of this type, which has a table, would change; by Spark, and nothing is written.

    Raises:
        SparkFailedError: what Spark said.
    """
    from lakechime_dagster.spark.drivers.driver import open_driver  # only who asks for this needs Spark
    from lakechime_dagster.spark.drivers.failures import described
    from lakechime_dagster.spark.events.job import GroupJob
    from lakechime_dagster.spark.events.replaying import TypeReplayer
    from lakechime_dagster.spark.events.slices import Slices
    from lakechime_dagster.spark.events.tables import TypeTables

    settings, bronze = platform.settings, group.stream.table
    hinted, location = group.with_hints(event_hints(platform).holding(group.name)), platform.location(bronze.name, bronze.location)
    uid = None if known.place.uid is None else TableUid(known.place.uid)
    end = SnapshotPlace(table_uid=uid, snapshot_id=SnapshotId(str(known.place.version)))
    job = GroupJob(
        group=hinted, groups=(hinted,), bronze=location, end=end, warehouse=platform.warehouse,
        deployment=platform.ledger.deployment,
    )  # fmt: skip
    contract, accounts = hinted.contract_of(known.type), Accounts(cap=hinted.cap_of(known.type))
    done = allotted(known.layout, known.observed, contract, known.withheld, accounts)
    asked = Replay(replay_id=_ASKED, type=known.type, is_whole=is_whole)
    with open_driver(spark_of(settings, group), settings.home, jars=settings.jars, log=log) as driver, described():
        replayer = TypeReplayer(
            spark=driver.spark, slices=Slices(driver.spark, bronze.name, platform.log_at(location, bronze.name), end),
            tables=TypeTables(job=job, open_log=platform.log_at), repository=event_types(platform),
        )  # fmt: skip
        with replayer.difference(replace(known, layout=done.layout, withheld=done.withheld), asked) as found:
            return WouldReplay(replaced=found.updated, added=found.inserted, gained=tuple(gained(known.layout, done.layout)))


def would_drain(platform: Platform, table: EventTable, log: Callable[[str], None]) -> "Drain":
    """What a drain of a stream would bring; by Spark, and nothing is written.

    Raises:
        SparkFailedError: what Spark said.
    """
    from lakechime_dagster.spark.drivers.driver import open_driver  # only who asks for this needs Spark
    from lakechime_dagster.spark.drivers.failures import described
    from lakechime_dagster.spark.events.draining import Drain, drain_of, drained
    from lakechime_dagster.spark.events.job import EventJob

    settings, location = platform.settings, platform.location(table.name, table.location)
    job = EventJob(
        name=table.name, location=location, feed=table.feed, type_field=table.type_field, producer_field=table.producer_field,
        classes=str(settings.home / "classes"),
    )  # fmt: skip
    with open_driver(settings.spark, settings.home, jars=settings.jars, log=log) as driver, described():
        rows = drained(driver.spark, job, platform.log_at(location, table.name))
        return Drain(rows=0) if rows is None else drain_of(rows)
