"""Reconciles tables with their own logs: commits that nobody registered become events, once."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakechime_dagster.dce.events import (
    EventQuery,
    OvertakenError,
    RegisteredEvent,
    Registration,
    Seen,
    SnapshotId,
    TableSwitchedError,
)
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.queries import TableRow
from lakechime_dagster.errors import LakeChimeError, TableAbsentError
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.lake import Table

if TYPE_CHECKING:
    from lakechime_dagster.formats.changes import ChangeLog

FIRST_PUSHES = (
    1000  # events looked at for the oldest pushed commit: they are nearly in the order of commits
)


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """What a look at a table's log registered, or would register in a dry run, and up to where the
    log is captured then.
    """

    registration: Registration
    seen: Seen


def reconcile(
    platform: Platform, tables: Iterable[Table]
) -> tuple[list[RegisteredEvent], list[str]]:
    """Register what the logs of tables hold and the store does not; a table that cannot be read
    hinders no other.

    Returns the events that were new, and a sentence per table that could not be read. Of a table
    that is not there yet, out of reach, or of another format, the declared levels become known.
    """
    found: list[RegisteredEvent] = []
    problems: list[str] = []
    captured = platform.store.captured()
    for table in tables:
        known = captured.get((platform.settings.cluster, table.name))
        try:
            logs = platform.change_logs(
                table.name, table.format, table.location, table.levels, known=known
            )
        except LakeChimeError as error:
            problems.append(problem_of(table.name, error))
            continue
        if not logs and table.levels:
            platform.store.declare(table.name, table.levels, platform.settings.cluster)
        for log in logs:
            try:
                at = captured.get((log.cluster, log.table))
                found += _polled(platform, log, table.levels, at).registration.registered
            except (TableAbsentError, TableSwitchedError):
                continue
            except LakeChimeError as error:
                problems.append(problem_of(log.table, error))
    return found, problems


def reconcile_table(
    platform: Platform, log: "ChangeLog", levels: PartitionLevels, *, dry_run: bool = False
) -> Reconciled:
    """Register the commits of one table since what was captured of it last, and remember up to
    where, in one transaction.

    Its declared levels become known; where none are declared, those of a table seen for the first
    time are its log's. A dry run changes nothing.

    Raises:
        TableAbsentError: there is no table.
        TableUnreadableError: its log cannot be read.
    """
    while True:
        known = platform.store.captured(log.table).get((log.cluster, log.table))
        # another poll, or the first push, was quicker: begin again with its events
        with suppress(OvertakenError):
            return _look(platform, log, levels, known, dry_run=dry_run)


def _polled(
    platform: Platform, log: "ChangeLog", levels: PartitionLevels, known: TableRow | None
) -> Reconciled:
    """`reconcile_table`, with what the store knew of the table a moment ago."""
    try:
        return _look(platform, log, levels, known)
    except OvertakenError:
        return reconcile_table(platform, log, levels)


def _look(
    platform: Platform,
    log: "ChangeLog",
    levels: PartitionLevels,
    known: TableRow | None,
    *,
    dry_run: bool = False,
) -> Reconciled:
    if not levels:
        levels = known.levels if known and (known.levels or known.seen) else log.levels()
    declared = {} if known and known.levels == levels else {(log.cluster, log.table): levels}
    if declared and not dry_run:
        platform.store.declare(log.table, levels, log.cluster)
    seen = (
        Seen(log.table, known.table_uid, known.seen, log.cluster)
        if known and known.table_uid and known.seen
        else None
    )
    captured = log.changes_after(seen, () if seen else _pushed(platform, log))
    if not captured.events and captured.seen == seen:
        return Reconciled(registration=Registration(), seen=captured.seen)
    mark = replace(
        captured.seen,
        began_at=(known.table_uid, known.seen) if known else (None, None),
        table_format=log.table_format,
    )
    if dry_run:
        registration = platform.store.would_register(captured.events, [mark], declared)
    else:
        registration = platform.store.register(captured.events, [mark])
    return Reconciled(registration=registration, seen=captured.seen)


def problem_of(table: str, error: LakeChimeError) -> str:
    """What hindered reconciling, with the name of its table."""
    return str(error) if table in str(error) else f"{table}: {error}"


def _pushed(platform: Platform, log: "ChangeLog") -> set[SnapshotId]:
    """The snapshots of a table that its writers registered before it was polled here."""
    events = platform.store.fetch(
        EventQuery(table=log.table, cluster=log.cluster, limit=FIRST_PUSHES)
    )
    uid = log.uid
    return {
        event.event.snapshot_id
        for event in events
        if event.event.table_uid in (None, uid) and event.event.snapshot_id is not None
    }
