"""The maintenance of tables, also of the typed tables of a group, which nobody declares."""

import datetime as dt
import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from lakechime_dagster.dce.events import SnapshotId, TableUid, version_of
from lakechime_dagster.dce.snapshots import CommitsMissingError, SnapshotCheckpoint, TableLog, since_first_change
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.formats.files import folder_at, has_folder
from lakechime_dagster.runtime.maintenance import Kept, Looked, carried_out, commits_after, policy_of, readers_of
from lakechime_dagster.runtime.maintenance import keep as keep_table
from lakechime_dagster.runtime.maintenance import look as look_at_table
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.spark import spark_of
from lakechime_dagster.silver.requests import event_types
from lakechime_dagster.silver.schema import NOWHERE
from lakechime_dagster.silver.store import TypesAt, checkpoints_of
from lakechime_dagster.tables.events import EventGroup
from lakechime_dagster.tables.lake import Lake, Target
from lakechime_dagster.tables.maintenance import (
    DEFAULTS,
    LOG,
    Action,
    Kind,
    Maintenance,
    Plan,
    Reader,
    Refused,
    Subject,
    TableFiles,
    log_kept,
    plan_together,
)
from lakechime_dagster.triggers.consumers import ConsumerId
from lakechime_dagster.triggers.progress import ConsumerAt, consumers_at
from lakechime_dagster.triggers.schedule import DAY_MS

if TYPE_CHECKING:
    from lakechime_dagster.formats.delta import DeltaLog


_OF_AN_APPEND = re.compile(r"[0-9a-f]{32}")


def remove_empty_folders(location: str, before: int) -> int:
    """Remove the empty folders of appends that nobody has touched since then, in milliseconds; how many there were.

    A vacuum leaves them. Object stores have no folders; what is elsewhere than on this machine's disk has none to remove.
    """
    removed = 0
    for folder in folder_at(location).iterdir() if has_folder(location) else ():
        if _OF_AN_APPEND.fullmatch(folder.name) and folder.stat().st_mtime_ns < before * 1_000_000:
            try:
                folder.rmdir()
            except OSError:  # it holds something, or is no folder, or somebody else was first
                continue
            removed += 1
    return removed


DAY = dt.timedelta(days=1)


def keeping_words(policy: Maintenance, files: TableFiles, told: int | None, now: int) -> Maintenance:
    """The policy of a table whose log keeps the newest commit of its group, also where that is old.

    Each commit of maintenance may let go of what is older than the log keeps, and a type that is not written any more makes no newer
    one that tells its checkpoint. The log is set to keep it for so long that it need not be set again at each look. `told` is when that
    commit was made, None where the log holds none; in milliseconds, as `now`.
    """
    if told is None:
        return policy
    age, ahead = dt.timedelta(milliseconds=now - told), DEFAULTS[LOG]
    if log_kept({**files.properties, **policy.properties}) >= age + ahead / 2:
        return policy
    return replace(policy, properties={**policy.properties, LOG: f"interval {math.ceil((age + ahead) / DAY)} days"})


def look(platform: Platform, lake: Lake, table: Target | EventGroup, tables: Collection[str] = ()) -> list[Looked]:
    """The plans for a table now, or for the tables of a group's types, or for these alone.

    Readers of a stream's table are also the types that are behind their groups.
    """
    if isinstance(table, EventGroup):
        return look_at_group(platform, lake, table, tables)
    return look_at_table(platform, lake, table, types_behind)


def keep(
    platform: Platform, lake: Lake, table: Target | EventGroup, log: Callable[[str], None], tables: Collection[str] = ()
) -> list[Kept]:
    """Plan the maintenance of these, and do it; without anything to do no driver is asked for.

    Raises:
        SparkFailedError: what Spark said.
    """
    if isinstance(table, EventGroup):
        return keep_group(platform, lake, table, log, tables)
    return keep_table(platform, lake, table, log, types_behind)


def types_behind(platform: Platform, consumer: ConsumerAt, log: TableLog) -> list[Reader]:
    """The types of a group whose checkpoints are behind that of its consumer: they failed, or wait, and read from there one day."""
    reached = version_of(consumer.read.snapshot_id) if consumer.read is not None else None
    if reached is None:
        return []
    several = checkpoints_of(platform.store.engine, consumer.consumer.deployment, consumer.consumer.subscription)
    return [_reader(consumer, one, log) for one in several if NOWHERE < one.checkpoint.version < reached]


def _reader(consumer: ConsumerAt, at: TypesAt, log: TableLog) -> Reader:
    checkpoint = SnapshotCheckpoint(
        table_uid=TableUid(at.checkpoint.uid) if at.checkpoint.uid else None, snapshot_id=SnapshotId(str(at.checkpoint.version))
    )
    name, waits = f"{at.types} types of {consumer.consumer.subscription}, such as {at.example},", ""
    try:
        commits = since_first_change(commits_after(log, checkpoint))
    except CommitsMissingError as missing:
        commits, waits = [], f"commit {missing.version}, which they read next, is no longer in the log; put it back"
    times = [commit.timestamp or 0 for commit in commits]
    unread = [commit.timestamp or 0 for commit in commits if commit.changes_data]
    return Reader(name=name, since=min(times, default=None), unread=min(unread, default=None), waits=waits)


def look_at_group(platform: Platform, lake: Lake, group: EventGroup, tables: Collection[str] = ()) -> list[Looked]:
    """The plans for the tables of a group's types now, or for these alone; they share the budget of a run.

    Nothing is rewritten beside what the group's steps need: they only append, and find their checkpoint in a table's log, which keeps
    the newest commit of the group.
    """
    now, logs, subjects, unread = platform.store.now(), list["DeltaLog"](), list[Subject](), list[Looked]()
    for consumer, log in _logs(platform, group, tables):
        try:
            subjects.append(_subject(platform, lake, group, consumer, log, now))
            logs.append(log)
        except LakeChimeError as error:
            unread.append(_unread(log, error))
    plans = plan_together(subjects, policy_of(group).budget, now)
    return [Looked(log=log, files=one.files, plan=made) for log, one, made in zip(logs, subjects, plans, strict=True)] + unread


def keep_group(platform: Platform, lake: Lake, group: EventGroup, log: Callable[[str], None], tables: Collection[str] = ()) -> list[Kept]:
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


def _logs(platform: Platform, group: EventGroup, tables: Collection[str]) -> "Iterator[tuple[ConsumerId, DeltaLog]]":
    """The logs of the tables of a group's types, so far as they are there, each with the consumer of its steps."""
    for one in event_types(platform).types(group.name).values():
        home = one.home or group.name
        name = f"{home}.{one.table}"
        log = platform.log(name)
        if one.checkpoint.commits and (not tables or name in tables) and log.exists():
            yield ConsumerId(platform.ledger.deployment, home, one.type), log


def _subject(platform: Platform, lake: Lake, group: EventGroup, consumer: ConsumerId, log: "DeltaLog", now: int) -> Subject:
    from lakechime_dagster.formats.delta import table_files

    files = table_files(log)
    consumers = consumers_at(platform.store.engine, log.table, platform.settings.cluster)
    policy = keeping_words(policy_of(group), files, _told(log, consumer), now)
    return Subject(files=files, readers=tuple(readers_of(platform, lake, log.table, log, consumers)), policy=policy)


def _unread(log: "DeltaLog", error: LakeChimeError) -> Looked:
    """A table that cannot be looked at, which hinders no other."""
    whole = Action(kind=Kind.COMPACT, reason="its files are not known")
    return Looked(log=log, files=TableFiles(table=log.table), plan=Plan(table=log.table, refused=(Refused(action=whole, why=str(error)),)))


def _told(log: "DeltaLog", consumer: ConsumerId) -> int | None:
    """When the newest commit of a type's consumer was made; None where the log does not hold it."""
    last = log.last_committed(consumer)
    if last is None or last.is_commit_metadata_lost:
        return None
    version = int(last.version)
    return log.commits(version - 1, version)[0].timestamp
