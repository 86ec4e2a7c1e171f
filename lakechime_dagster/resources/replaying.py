"""What a replay of types would change, computed and not written."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from lakechime_dagster.dce.event import SnapshotId, TableUid
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.resources.event_types import event_hints, event_types
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.schema.layout import next_layout
from lakechime_dagster.schema.learning import gained
from lakechime_dagster.schema.replay import Replay
from lakechime_dagster.schema.repository import KnownType

_ASKED = 0  # the number of a replay that nobody has asked for


@dataclass(frozen=True, kw_only=True)
class WouldReplay:
    """What a replay of a type would do to its table as it is.

    Attributes:
        gained: The columns that the table would gain: name, and what each holds.
    """

    type: str
    replaced: int
    added: int
    gained: tuple[tuple[str, str], ...]


def would_replay(
    platform: Platform, group: EventGroup, types: Iterable[KnownType], log: Callable[[str], None], *, is_whole: bool = False
) -> list[WouldReplay]:
    """What replays of these types, which have tables, would change; by Spark, and nothing is written.

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
    hinted = group.with_hints(event_hints(platform).holding(group.name))
    location, repository = platform.location(bronze.name, bronze.location), event_types(platform)
    found = list[WouldReplay]()
    with open_driver(settings.spark, settings.home, jars=settings.jars, log=log) as driver, described():
        for one in types:
            uid = None if one.place.uid is None else TableUid(one.place.uid)
            end = SnapshotPlace(table_uid=uid, snapshot_id=SnapshotId(str(one.place.version)))
            job = GroupJob(
                group=hinted, groups=(hinted,), bronze=location, end=end, folder=platform.location(group.name),
                deployment=platform.ledger.deployment,
            )  # fmt: skip
            slices = Slices(driver.spark, bronze.name, platform.log_at(location, bronze.name), end)
            tables = TypeTables(job=job, open_log=platform.log_at)
            replayer = TypeReplayer(spark=driver.spark, slices=slices, tables=tables, repository=repository)
            layout = next_layout(one.layout, one.observed, hinted.contract_of(one.type))
            asked = Replay(replay_id=_ASKED, type=one.type, is_whole=is_whole)
            with replayer.difference(replace(one, layout=layout), asked) as difference:
                columns = tuple(gained(one.layout, layout))
                found.append(WouldReplay(type=one.type, replaced=difference.updated, added=difference.inserted, gained=columns))
    return found
