"""The maintenance of tables, also of the typed tables of a group, which nobody declares."""

import datetime as dt
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakechime_dagster.dce.events import SnapshotId, TableFormat, TableUid, version_of
from lakechime_dagster.dce.snapshots import (
    CommitsMissingError,
    SnapshotCheckpoint,
    TableLog,
    since_first_change,
)
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.formats.files import folder_at, has_folder
from lakechime_dagster.runtime.maintenance import (
    Kept,
    Looked,
    carried_out,
    commits_after,
    policy_of,
    readers_of,
)
from lakechime_dagster.runtime.maintenance import keep as keep_table
from lakechime_dagster.runtime.maintenance import look as look_at_table
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.spark import spark_of
from lakechime_dagster.silver.requests import event_types
from lakechime_dagster.silver.schema import NOWHERE
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
    """Remove the empty folders of appends that nobody has touched since then, in milliseconds; how
    many there were.

    A vacuum leaves them. Object stores have no folders, so at a URL there is nothing to remove.
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


def keeping_newest(
    policy: Maintenance, files: TableFiles, committed_at: int | None, now: int
) -> Maintenance:
    """The policy of a table whose log keeps the newest commit of its group, also where that is old.

    Each commit of maintenance may let go of what is older than the log keeps, and a type that is
    not written any more makes no newer one that records its checkpoint. The log is set to keep it
    for so long that it need not be set again each time. `committed_at` is when that commit was
    made, None where the log holds none; in milliseconds, as `now`.
    """
    if committed_at is None:
        return policy
    age, ahead = dt.timedelta(milliseconds=now - committed_at), DEFAULTS[LOG]
    if log_kept({**files.properties, **policy.properties}) >= age + ahead / 2:
        return policy
    return replace(
        policy,
        properties={**policy.properties, LOG: f"interval {math.ceil((age + ahead) / DAY)} days"},
    )


def look(
    platform: Platform, lake: Lake, table: Target | EventGroup, tables: Collection[str] = ()
) -> list[Looked]:
    """The plans for a table now, or for the tables of a group's types, or for these alone, which
    share the budget of a run.

    Readers of a stream's table are also the types that are behind their groups. Tables of types are
    not rewritten: the group only appends, and finds its checkpoint in a table's log, which keeps
    its newest commit.
    """
    if not isinstance(table, EventGroup):
        return look_at_table(platform, lake, table, types_behind)
    now, logs, subjects, unread = (
        platform.store.now(),
        list["DeltaLog"](),
        list[Subject](),
        list[Looked](),
    )
    for consumer, log in _logs(platform, table, tables):
        try:
            subjects.append(_subject(platform, lake, table, consumer, log, now))
            logs.append(log)
        except LakeChimeError as error:
            unread.append(_unread(log, error))
    plans = plan_together(subjects, policy_of(table).budget, now)
    return [
        Looked(log=log, files=one.files, plan=made)
        for log, one, made in zip(logs, subjects, plans, strict=True)
    ] + unread


def keep(
    platform: Platform,
    lake: Lake,
    table: Target | EventGroup,
    log: Callable[[str], None],
    tables: Collection[str] = (),
) -> list[Kept]:
    """Plan the maintenance of these, and do it; without anything to do no driver is started.

    Raises:
        SparkFailedError: what Spark said.
    """
    if not isinstance(table, EventGroup):
        return keep_table(platform, lake, table, log, types_behind)
    looked = look(platform, lake, table, tables)
    kept = carried_out(platform, looked, policy_of(table), log, spark_of(platform.settings, table))
    for one in looked:
        if removed := remove_empty_folders(one.log.location, platform.store.now() - DAY_MS):
            log(f"{one.plan.table}: {removed} empty folders were removed")
    return kept


def types_behind(platform: Platform, consumer: ConsumerAt, log: TableLog) -> list[Reader]:
    """The types of a group whose checkpoints are behind that of its consumer: they failed, or wait,
    and read from there one day.
    """
    reached = version_of(consumer.read.snapshot_id) if consumer.read is not None else None
    at: dict[tuple[int, str | None], list[str]] = {}
    for name, known in sorted(event_types(platform).types(consumer.consumer.subscription).items()):
        if reached is not None and NOWHERE < known.checkpoint.version < reached:
            at.setdefault((known.checkpoint.version, known.checkpoint.uid), []).append(name)
    return [
        _reader(consumer.consumer.subscription, at[one], *one, log)
        for one in sorted(at, key=lambda one: (one[0], at[one]))
    ]


def _reader(
    group: str, types: Sequence[str], version: int, uid: str | None, log: TableLog
) -> Reader:
    checkpoint = SnapshotCheckpoint(
        table_uid=TableUid(uid) if uid else None, snapshot_id=SnapshotId(str(version))
    )
    name, waits = f"{len(types)} types of {group}, such as {types[0]},", ""
    try:
        commits = since_first_change(commits_after(log, checkpoint))
    except CommitsMissingError as missing:
        commits, waits = (
            [],
            f"commit {missing.version}, which they read next, is no longer in the log; put it back",
        )
    times = [commit.timestamp or 0 for commit in commits]
    unread = [commit.timestamp or 0 for commit in commits if commit.changes_data]
    return Reader(
        name=name, since=min(times, default=None), unread=min(unread, default=None), waits=waits
    )


def _logs(
    platform: Platform, group: EventGroup, tables: Collection[str]
) -> "Iterator[tuple[ConsumerId, DeltaLog]]":
    """The logs of the Delta tables of a group's types, so far as they are there, each with the
    consumer of its executions.
    """
    if group.format is not TableFormat.DELTA:
        return
    for one in event_types(platform).types(group.name).values():
        log = platform.log(one.table)
        if one.checkpoint.commits and (not tables or one.table in tables) and log.exists():
            yield ConsumerId(platform.ledger.deployment, one.home, one.type), log


def _subject(
    platform: Platform,
    lake: Lake,
    group: EventGroup,
    consumer: ConsumerId,
    log: "DeltaLog",
    now: int,
) -> Subject:
    from lakechime_dagster.formats.delta import table_files

    files = table_files(log)
    consumers = consumers_at(platform.store.engine, log.table, platform.settings.cluster)
    policy = keeping_newest(policy_of(group), files, _committed_at(log, consumer), now)
    return Subject(
        files=files,
        readers=tuple(readers_of(platform, lake, log.table, log, consumers)),
        policy=policy,
    )


def _unread(log: "DeltaLog", error: LakeChimeError) -> Looked:
    """A table that cannot be looked at, which hinders no other."""
    whole = Action(kind=Kind.COMPACT, reason="its files are not known")
    return Looked(
        log=log,
        files=TableFiles(table=log.table),
        plan=Plan(table=log.table, refused=(Refused(action=whole, why=str(error)),)),
    )


def _committed_at(log: "DeltaLog", consumer: ConsumerId) -> int | None:
    """When the newest commit of a type's consumer was made; None where the log does not hold it."""
    last = log.last_committed(consumer)
    if last is None or last.is_commit_metadata_lost:
        return None
    version = int(last.version)
    return log.commits(version - 1, version)[0].timestamp
