"""The maintenance of a group's tables, which nobody declares: those of all types that the store knows, within one budget."""

import datetime as dt
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from lakechime_dagster.capture.folders import remove_empty_folders
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.maintenance import Maintenance
from lakechime_dagster.lake.maintenance_plan import Action, Kind, Plan, Refused, Subject, TableFiles, plan_together
from lakechime_dagster.lake.retention_properties import DEFAULTS, LOG, log_kept
from lakechime_dagster.resources.maintenance import Kept, Looked, carried_out, policy_of, readers_of
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.spark import spark_of
from lakechime_dagster.resources.streams.event_types import event_types
from lakechime_dagster.store.lanes_at import lanes_at
from lakechime_dagster.triggers.grid import DAY_MS
from lakechime_dagster.triggers.lanes import LaneId

if TYPE_CHECKING:
    from lakechime_dagster.capture.delta import DeltaLog


DAY = dt.timedelta(days=1)


def keeping_words(policy: Maintenance, files: TableFiles, told: int | None, now: int) -> Maintenance:
    """The policy of a table whose log keeps the newest commit of its group, also where that is old.

    Each commit of maintenance may let go of what is older than the log keeps, and a type that is not written any more makes no newer
    one that tells its place. The log is set to keep it for so long that it need not be set again at each look. `told` is when that
    commit was made, None where the log holds none; in milliseconds, as `now`.
    """
    if told is None:
        return policy
    age, ahead = dt.timedelta(milliseconds=now - told), DEFAULTS[LOG]
    if log_kept({**files.properties, **policy.properties}) >= age + ahead / 2:
        return policy
    return replace(policy, properties={**policy.properties, LOG: f"interval {math.ceil((age + ahead) / DAY)} days"})


def look_at_group(platform: Platform, lake: Lake, group: EventGroup, tables: Collection[str] = ()) -> list[Looked]:
    """The plans for the tables of a group's types now, or for these alone; they share the budget of a run.

    Nothing is rewritten beside what the group's steps need: they only append, and find their place in a table's log, which keeps
    the newest commit of the group.
    """
    now, logs, subjects, unread = platform.store.now(), list["DeltaLog"](), list[Subject](), list[Looked]()
    for lane, log in _logs(platform, group, tables):
        try:
            subjects.append(_subject(platform, lake, group, lane, log, now))
            logs.append(log)
        except LakeChimeError as error:
            unread.append(_unread(log, error))
    plans = plan_together(subjects, policy_of(group).budget, now)
    return [Looked(log=log, files=one.files, plan=made) for log, one, made in zip(logs, subjects, plans, strict=True)] + unread


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


def _logs(platform: Platform, group: EventGroup, tables: Collection[str]) -> "Iterator[tuple[LaneId, DeltaLog]]":
    """The logs of the tables of a group's types, so far as they are there, each with the lane of its steps."""
    for one in event_types(platform).types(group.name).values():
        home = one.home or group.name
        name = f"{home}.{one.table}"
        log = platform.log(name)
        if one.place.commits and (not tables or name in tables) and log.exists():
            yield LaneId(platform.ledger.deployment, home, one.type), log


def _subject(platform: Platform, lake: Lake, group: EventGroup, lane: LaneId, log: "DeltaLog", now: int) -> Subject:
    from lakechime_dagster.capture.files import table_files

    files = table_files(log)
    lanes = lanes_at(platform.store.engine, log.table, platform.settings.cluster)
    policy = keeping_words(policy_of(group), files, _told(log, lane), now)
    return Subject(files=files, readers=tuple(readers_of(platform, lake, log.table, log, lanes)), policy=policy)


def _unread(log: "DeltaLog", error: LakeChimeError) -> Looked:
    """A table that cannot be looked at, which hinders no other."""
    whole = Action(kind=Kind.COMPACT, reason="its files are not known")
    return Looked(
        log=log, files=TableFiles(table=log.table), plan=Plan(table=log.table, refused=(Refused(action=whole, why=str(error)),))
    )  # fmt: skip


def _told(log: "DeltaLog", lane: LaneId) -> int | None:
    """When the newest commit of a type's lane was made; None where the log does not hold it."""
    last = log.last_committed(lane)
    if last is None or last.is_stamp_lost:
        return None
    version = int(last.version)
    return log.commits(version - 1, version)[0].timestamp
