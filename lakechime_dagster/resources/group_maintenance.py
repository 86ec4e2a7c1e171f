"""The maintenance of a group's tables, which nobody declares: those of all types that the store knows, within one budget."""

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from lakechime_dagster.capture.folders import remove_empty_folders
from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.lake.group_maintenance import keeping_words
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.maintenance_plan import Subject, plan_together
from lakechime_dagster.resources.event_types import event_types
from lakechime_dagster.resources.maintenance import Kept, Looked, carried_out, policy_of, readers_of
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.spark import spark_of
from lakechime_dagster.store.lanes_at import lanes_at
from lakechime_dagster.triggers.grid import DAY_MS
from lakechime_dagster.triggers.lanes import LaneId

if TYPE_CHECKING:
    from lakechime_dagster.capture.delta import DeltaLog


def look_at_group(platform: Platform, lake: Lake, group: EventGroup, tables: Collection[str] = ()) -> list[Looked]:
    """The plans for the tables of a group's types now, or for these alone; they share the budget of a run.

    Nothing is rewritten beside what the group's steps need: they only append, and find their place in a table's log, which keeps
    the newest commit of the group.
    """
    now, logs, subjects = platform.store.now(), list["DeltaLog"](), list[Subject]()
    for type_name, log in _logs(platform, group, tables):
        logs.append(log)
        subjects.append(_subject(platform, lake, group, type_name, log, now))
    plans = plan_together(subjects, policy_of(group).budget, now)
    return [Looked(log=log, files=one.files, plan=made) for log, one, made in zip(logs, subjects, plans, strict=True)]


def keep_group(
    platform: Platform, lake: Lake, group: EventGroup, log: Callable[[str], None], tables: Collection[str] = ()
) -> list[Kept]:  # fmt: skip
    """Plan the maintenance of a group's tables, or of these alone, and do it; without anything to do no driver is asked for.

    Raises:
        SparkFailedError: what Spark said.
    """
    looked = look_at_group(platform, lake, group, tables)
    kept = carried_out(platform, looked, policy_of(group), log, spark_of(platform.settings, group))
    for one in looked:
        if removed := remove_empty_folders(one.log.location, platform.store.now() - DAY_MS):
            log(f"{one.plan.table}: {removed} empty folders were removed")
    return kept


def _logs(platform: Platform, group: EventGroup, tables: Collection[str]) -> "Iterator[tuple[str, DeltaLog]]":
    """The types of a group with the logs of their tables, so far as they are there."""
    for one in event_types(platform).types(group.name).values():
        name = f"{group.name}.{one.table}"
        log = platform.log(name)
        if one.place.commits and (not tables or name in tables) and log.exists():
            yield one.type, log


def _subject(platform: Platform, lake: Lake, group: EventGroup, type_name: str, log: "DeltaLog", now: int) -> Subject:
    from lakechime_dagster.capture.files import table_files

    files = table_files(log)
    lanes = lanes_at(platform.store.engine, log.table, platform.settings.cluster)
    told = _told(log, LaneId(platform.ledger.deployment, group.name, type_name))
    policy = keeping_words(policy_of(group), files, told, now)
    return Subject(files=files, readers=tuple(readers_of(platform, lake, log.table, log, lanes)), policy=policy)


def _told(log: "DeltaLog", lane: LaneId) -> int | None:
    """When the newest commit of a type's lane was made; None where the log does not hold it."""
    last = log.last_committed(lane)
    if last is None or last.is_stamp_lost:
        return None
    version = int(last.version)
    return log.commits(version - 1, version)[0].timestamp
