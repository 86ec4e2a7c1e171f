"""The maintenance of declared tables: plans it from their files and readers, and removes dropped
tables.
"""

import datetime as dt
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakechime_dagster.dce.events import TableFormat, version_of
from lakechime_dagster.dce.snapshots import (
    CommitsMissingError,
    SnapshotCheckpoint,
    TableCommit,
    TableLog,
    own_uid,
    since_first_change,
)
from lakechime_dagster.errors import ConsumerConflictError, LakeChimeError, NotFoundError
from lakechime_dagster.formats.files import (
    folder_at,
    folders_below,
    has_folder,
    is_local,
    remove_folder,
)
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.tables.cdc import CHANGES, STATE, CDCTable
from lakechime_dagster.tables.events import CLUSTERED, EventGroup, EventTable
from lakechime_dagster.tables.lake import Lake, Target
from lakechime_dagster.tables.maintenance import (
    Maintained,
    Maintenance,
    Plan,
    Reader,
    Refused,
    TableFiles,
    plan,
)
from lakechime_dagster.tables.names import Account
from lakechime_dagster.tables.tables import LakeTable
from lakechime_dagster.triggers.consumers import ConsumerState
from lakechime_dagster.triggers.interventions import Interventions
from lakechime_dagster.triggers.progress import ConsumerAt, consumers_at
from lakechime_dagster.triggers.registry import By, SubscriptionRow
from lakechime_dagster.triggers.schedule import from_milliseconds

if TYPE_CHECKING:
    from upath import UPath

    from lakechime_dagster.formats.delta import DeltaLog
    from lakechime_dagster.formats.hive import HiveLog
    from lakechime_dagster.formats.iceberg import IcebergLog


@dataclass(frozen=True, kw_only=True)
class Looked:
    """A table's files and what is planned for them."""

    log: "DeltaLog"
    files: TableFiles
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a run of maintenance did to one table: its files before and after, and what was done and
    not.
    """

    before: Looked
    after: TableFiles
    maintained: Maintained
    seconds: float

    @property
    def refused(self) -> tuple[Refused, ...]:
        """What was not done: as planned, and as it turned out."""
        return (*self.before.plan.refused, *self.maintained.refused)


FurtherReaders = Callable[[Platform, ConsumerAt, TableLog], Sequence[Reader]]


def _none(platform: Platform, consumer: ConsumerAt, log: TableLog) -> Sequence[Reader]:
    return ()


def look(
    platform: Platform, lake: Lake, table: Target, further: FurtherReaders = _none
) -> list[Looked]:
    """The plans for a table now, and for the state of a CDC table; a table that does not exist has
    none.

    `further` returns readers of a consumer that are behind its own checkpoint.
    """
    from lakechime_dagster.formats.delta import table_files

    found = []
    for log in _logs(platform, table):
        if log.exists():
            files = table_files(log, _cluster_by(platform, table, log))
            made = plan(
                files,
                readers(platform, lake, table, log, further),
                policy_of(table),
                platform.store.now(),
            )
            found.append(Looked(log=log, files=files, plan=made))
    return found


def keep(
    platform: Platform,
    lake: Lake,
    table: Target,
    log: Callable[[str], None],
    further: FurtherReaders = _none,
) -> list[Kept]:
    """Plan the maintenance of a table, and do it; without anything to do no driver is asked for.

    Raises:
        SparkFailedError: Spark's own message.
    """
    looked = look(platform, lake, table, further)
    return carried_out(
        platform, looked, policy_of(table), log, platform.settings.spark, table.write_as
    )


def carried_out(
    platform: Platform,
    looked: Sequence[Looked],
    policy: Maintenance,
    log: Callable[[str], None],
    by: SparkSettings,
    account: Account | None = None,
) -> list[Kept]:
    """Do what is planned for some tables on one driver, as this account; without anything to do
    none is asked for.

    Raises:
        SparkFailedError: Spark's own message.
    """
    if not any(one.plan.actions for one in looked):
        return [
            Kept(before=one, after=one.files, maintained=Maintained(), seconds=0.0)
            for one in looked
        ]
    from lakechime_dagster.spark.driver import described, open_driver
    from lakechime_dagster.spark.maintain import maintain
    from lakechime_dagster.spark.session import session_confs

    settings = platform.settings
    kept = []
    with open_driver(by, settings.home, jars=settings.jars, log=log) as driver, described():
        for one in looked:
            start = time.monotonic()
            confs = {} if account is None else account.confs(one.log.location, os.environ)
            with session_confs(driver.spark, confs):
                maintained = maintain(driver.spark, one.log, one.plan, policy, platform.store.now)
            after = _files(one.log) if one.plan.actions else one.files
            kept.append(
                Kept(
                    before=one, after=after, maintained=maintained, seconds=time.monotonic() - start
                )
            )
    return kept


def policy_of(table: Target | EventGroup) -> Maintenance:
    """What is declared of the maintenance of a table, or of a group's, or what is usual."""
    return table.maintenance or Maintenance()


def readers(
    platform: Platform, lake: Lake, table: Target, log: TableLog, further: FurtherReaders = _none
) -> list[Reader]:
    """The consumers at a table as its planner sees them; the state of a CDC table is read only by
    those that write it.
    """
    consumers = consumers_at(platform.store.engine, table.name, platform.settings.cluster)
    if log.location != platform.location(table.name, table.location):
        consumers = [consumer for consumer in consumers if consumer.writes]
    return [
        *readers_of(platform, lake, table.name, log, consumers),
        *(one for each in consumers for one in further(platform, each, log)),
    ]


def readers_of(
    platform: Platform, lake: Lake, table: str, log: TableLog, consumers: Sequence[ConsumerAt]
) -> list[Reader]:
    """These consumers at a table as its planner sees them."""
    return [
        _reader(consumer, log, reads_changes=_reads_changes(platform, lake, table, consumer))
        for consumer in consumers
    ]


def _logs(platform: Platform, table: Target) -> "list[DeltaLog]":
    location = platform.location(table.name, table.location)
    state = (
        [platform.log_at(location.rstrip("/") + STATE, table.name + STATE)]
        if isinstance(table, CDCTable)
        else []
    )
    own = [platform.log_at(location, table.name)] if table.format is TableFormat.DELTA else []
    return [*own, *state]


def _cluster_by(platform: Platform, table: Target, log: TableLog) -> tuple[str, ...]:
    """The columns by which a table is clustered; the state of a CDC table is by none."""
    is_own = log.location == platform.location(table.name, table.location)
    if isinstance(table, EventTable):
        return CLUSTERED
    return table.cluster_by if isinstance(table, CDCTable) and is_own else ()


def _reads_changes(platform: Platform, lake: Lake, table: str, consumer: ConsumerAt) -> bool:
    """Whether a consumer reads what changed in a table; one that this lake does not declare is
    taken to.
    """
    declared = (
        {one.name: one for one in lake.targets}
        if consumer.consumer.deployment == platform.ledger.deployment
        else {}
    )
    reader = declared.get(consumer.consumer.subscription)
    if not isinstance(reader, LakeTable):
        return True
    return any(
        read.rejoin == table or (read.table == table and read.is_changing)
        for read in reader.reads.values()
    )


def _reader(consumer: ConsumerAt, log: TableLog, *, reads_changes: bool) -> Reader:
    waits = (
        f"it is {consumer.state.value}: {consumer.state_reason}"
        if consumer.state is not ConsumerState.ACTIVE
        else ""
    )
    opened = [] if consumer.open_since is None else [consumer.open_since]
    try:
        unread = since_first_change(commits_after(log, consumer.read if reads_changes else None))
        commits = [*unread, *commits_after(log, consumer.pinned)]
    except CommitsMissingError as missing:
        gone = f"commit {missing.version}, which it reads next, is no longer in the log"
        commits, waits = (
            [],
            waits
            or (
                f"{gone}; let it run, or `lakechime trigger forget "
                f"{consumer.consumer.subscription}` where it is declared no more"
            ),
        )
    return Reader(
        name=f"{consumer.consumer.subscription}[{consumer.consumer.key}]"
        if consumer.consumer.key
        else consumer.consumer.subscription,
        since=min([*opened, *(commit.timestamp or 0 for commit in commits)], default=None),
        unread=min(
            [*opened, *(commit.timestamp or 0 for commit in commits if commit.changes_data)],
            default=None,
        ),
        waits=waits,
    )


def commits_after(log: TableLog, checkpoint: SnapshotCheckpoint | None) -> Sequence[TableCommit]:
    """The commits after a snapshot of this very table."""
    if checkpoint is None or (
        checkpoint.table_uid is not None and own_uid(checkpoint.table_uid) != log.uid
    ):
        return ()
    version, head = version_of(checkpoint.snapshot_id), log.version
    return log.commits(version, head) if version is not None and version < head else ()


def _files(log: "DeltaLog") -> TableFiles:
    from lakechime_dagster.formats.delta import table_files

    return table_files(log)


BESIDE = ("", CHANGES, STATE, "__quarantine")  # what the names of a table's own folders end with
UNTIL = "__dropped_until_"
TIME = "%Y%m%dT%H%M%SZ"
_ASIDE = re.compile(rf"\w+{UNTIL}(\d{{8}}T\d{{6}}Z)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A folder that was put aside, and until when it stays."""

    folder: "UPath"
    until: dt.datetime


@dataclass(frozen=True, kw_only=True)
class Drop:
    """What dropping a table takes: its entry in a catalog, its folders, and the subscriptions that
    write them.
    """

    table: str
    entry: "IcebergLog | HiveLog | None"
    folders: "tuple[UPath, ...]"
    subscriptions: tuple[SubscriptionRow, ...]


def to_drop(platform: Platform, table: str) -> Drop:
    """What is to be dropped of a table that is declared no more.

    Of an Iceberg or a Hive table that lies outside of the warehouse only the entry in its catalog
    is.

    Raises:
        NotFoundError: nothing of it lies in the warehouse.
        ConsumerConflictError: another consumer is at it.
        LakeChimeError: the warehouse is no local folder.
    """
    own = (table, table + CHANGES)
    consumers = [
        consumer
        for name in own
        for consumer in consumers_at(platform.store.engine, name, platform.settings.cluster)
    ]
    others = [
        one.consumer
        for one in consumers
        if one.consumer.subscription not in own
        or one.consumer.deployment != platform.ledger.deployment
    ]
    if others:
        names = ", ".join(
            sorted({f"{consumer.subscription} of {consumer.deployment}" for consumer in others})
        )
        raise ConsumerConflictError(
            f"{table} is used by {names}; remove these from the code first, and `lakechime trigger "
            f"forget` each"
        )
    location = platform.location(table)
    if not is_local(location):
        raise LakeChimeError(
            f"{table} lies in {location}, where a folder cannot be renamed in a moment; remove it "
            f"there by its own tools"
        )
    folders = tuple(
        folder_at(location + suffix) for suffix in BESIDE if has_folder(location + suffix)
    )
    log = platform.recorded_log(table)
    entry = log if log.table_format is not TableFormat.DELTA and log.exists() else None
    if not folders and entry is None:
        raise NotFoundError(
            f"nothing of {table} lies at {location}; what was declared with another location is to "
            f"be removed by hand"
        )
    subscriptions = [
        subscription
        for name in own
        if (subscription := platform.ledger.subscription(name)) is not None
    ]
    return Drop(table=table, entry=entry, folders=folders, subscriptions=tuple(subscriptions))


def drop(
    platform: Platform, what: Drop, keep_for: dt.timedelta, by: By, *, dry_run: bool = False
) -> list[Dropped]:
    """Forget the consumers of a table, and put its folders aside. A drop that was interrupted is
    completed by another one.

    Raises:
        ConsumerConflictError: one of its consumers is at work; nothing was done.
    """
    people = Interventions(platform.ledger)
    for is_dry in (True, False)[: 1 if dry_run else 2]:  # all of them can be forgotten, or none is
        for subscription in what.subscriptions:
            people.forget(subscription, by, dry_run=is_dry)
    until = from_milliseconds(platform.store.now()).replace(microsecond=0) + keep_for
    aside = [
        Dropped(folder=folder.with_name(f"{folder.name}{UNTIL}{until:{TIME}}"), until=until)
        for folder in what.folders
    ]
    if not dry_run:
        platform.store.note_dropped(what.table, platform.settings.cluster)
        if what.entry is not None:
            what.entry.drop()
        for folder, put in zip(what.folders, aside, strict=True):
            folder.rename(put.folder)
    return aside


def dropped(platform: Platform) -> list[Dropped]:
    """The folders of the warehouse that were put aside, those first that go first."""
    return sorted(_aside(platform.settings.warehouse), key=lambda one: (one.until, one.folder))


def dropped_tables(platform: Platform) -> dict[str, Dropped]:
    """What was put aside by the name of its table, or of what is its own; of one that was dropped
    twice the newer one.
    """
    warehouse = platform.settings.warehouse
    return {
        ".".join(one.folder.relative_to(warehouse).parts).partition(UNTIL)[0]: one
        for one in dropped(platform)
    }


def expired(platform: Platform) -> list[Dropped]:
    """The folders whose time is over."""
    now = from_milliseconds(platform.store.now())
    return [one for one in dropped(platform) if one.until <= now]


def remove_expired(platform: Platform) -> list[Dropped]:
    """Remove the folders whose time is over; those that could not be removed whole are tried again
    by the next one.
    """
    return [one for one in expired(platform) if remove_folder(one.folder)]


def _aside(warehouse: str) -> Iterator[Dropped]:
    """What was put aside between the tables of a local warehouse."""
    for folder in folders_below(warehouse):
        if found := _ASIDE.fullmatch(folder.name):
            yield Dropped(
                folder=folder,
                until=dt.datetime.strptime(found[1], TIME).replace(tzinfo=dt.timezone.utc),
            )


def restorable_tables(platform: Platform) -> dict[str, Dropped]:
    """The tables that were dropped and can still be restored; not those that exist again."""
    beside = tuple(suffix for suffix in BESIDE if suffix)
    found = dropped_tables(platform).items()
    return {
        name: one
        for name, one in found
        if not name.endswith(beside) and not has_folder(platform.location(name))
    }
