"""Reconciles tables with their own logs: commits that nobody registered become events, once; and
shows how far each table is captured.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import assert_never

from lakechime_dagster.dce.contract import (
    EventQuery,
    OvertakenError,
    Registration,
    Seen,
    TableRecord,
    TableSwitchedError,
)
from lakechime_dagster.dce.events import RegisteredEvent, SnapshotId, TableFormat
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.queries import TableRow
from lakechime_dagster.errors import LakeChimeError, TableAbsentError
from lakechime_dagster.formats.files import has_folder
from lakechime_dagster.runtime.maintenance import Dropped, restorable_tables
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.cdc import BronzeTable, CDCTable
from lakechime_dagster.tables.events import EventTable
from lakechime_dagster.tables.lake import Lake, Table
from lakechime_dagster.tables.tables import LakeTable, SourceTable

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


LOOKS = 8  # logs that are read at the same time


def table_summaries(
    platform: Platform,
    lake: Lake,
    types: Mapping[str, str],
    *,
    name: str | None = None,
    cluster: str | None = None,
) -> list[dict[str, Any]]:
    """The tables that are declared, recorded in the store or dropped, by name, each as JSON with
    how far capture is behind its log.

    `types` are the event groups of the tables of types. A log that cannot be read is the `problem`
    of its table.
    """
    ours = platform.settings.cluster
    declared = {(ours, table.name): table for table in lake.tables}
    records = {(record.cluster, record.name): record for record in platform.store.tables()}
    known = platform.store.captured(name)
    aside = {(ours, each): one for each, one in restorable_tables(platform).items()}
    keys = [
        key
        for key in {*records, *declared, *aside}
        if cluster in (None, key[0]) and name in (None, key[1])
    ]

    def document(key: tuple[str, str]) -> dict[str, Any]:
        found = _table_summary(
            platform, key, declared.get(key), records.get(key), aside.get(key), types.get(key[1])
        )
        logged = key[0] == ours and found["role"] != "dropped"
        return found | (
            _of_log(platform, key[1], declared.get(key), known.get(key)) if logged else {}
        )

    with ThreadPoolExecutor(LOOKS) as pool:
        return list(pool.map(document, sorted(keys, key=lambda key: key[::-1])))


def _table_summary(
    platform: Platform,
    key: tuple[str, str],
    table: Table | None,
    known: TableRecord | None,
    dropped: Dropped | None,
    group: str | None,
) -> dict[str, Any]:
    """What is declared and recorded of a table."""
    cluster, name = key
    is_ours = cluster == platform.settings.cluster
    group = group if is_ours else None
    is_away = table is None and is_ours and not has_folder(platform.location(name))
    dropped_ts = known.dropped_ts if known is not None and is_away else None
    levels = table.levels if table else known.levels if known else None
    if table is None and (dropped or dropped_ts is not None):
        role = "dropped"
    elif table is None and group is not None:
        role = "type"
    elif table is None and "@" in name:
        role = "migrated"  # the side of a table that its name does not stand for
    else:
        role = _role(table)
    return {
        "name": name,
        "cluster": cluster,
        "role": role,
        "group": group,
        "format": (known and known.format)
        or (table.format if table else TableFormat.DELTA if group else None),
        "levels": levels.as_dict() if levels else {},
        "events": known.events if known else 0,
        "last_event_ts": known and known.last_event_ts,
        "captured_by": known and ("log" if known.seen else "push" if known.events else None),
        "captured_up_to": known and known.seen,
        "lag_commits": None,
        "lag_seconds": None,
        "location": None,
        "version": None,
        "problem": None,
        "table_uid": known and known.table_uid,
        "dropped_ts": dropped_ts,
        "dropped_until": dropped and dropped.until,
        "kept_in": dropped and dropped.folder,
    }


def _of_log(
    platform: Platform, name: str, table: Table | None, known: TableRow | None
) -> dict[str, Any]:
    """Where the log of a table is, its newest snapshot, and how many commits that change data are
    not captured yet, with the age of the oldest.
    """
    declared = None if table is None else (table.format, table.location, table.levels)
    facts: dict[str, Any] = {}
    try:
        logs: list[ChangeLog] = (
            platform.change_logs(name, *declared, known=known) if declared else [platform.log(name)]
        )
        if not logs:
            return facts
        log = logs[0]
        facts["location"] = log.shown_location
        facts["version"] = log.newest
        is_moving = known is not None and known.migration is not None
        if table and log.table_format is not TableFormat(table.format) and not is_moving:
            now = log.table_format.lower()
            facts["problem"] = (
                f"{name} was migrated to {now}, and is declared as a table of {table.format.lower()}; "
                f'declare Storage(format="{now}")'
            )
        is_hive = log.table_format is TableFormat.HIVE
        if known and known.table_uid and known.seen and not is_hive:
            seen = Seen(name, known.table_uid, known.seen, known.cluster)
            events = log.changes_after(seen).events
            now = platform.store.now()
            times = [one.snapshot_ts for one in events if one.snapshot_ts is not None]
            facts["lag_commits"] = len({one.snapshot_id for one in events})
            facts["lag_seconds"] = max(0, now - min(times, default=now)) / 1000
    except TableAbsentError:
        pass
    except LakeChimeError as error:
        facts["problem"] = " ".join(str(error).split())
    return facts


def _role(table: Table | None) -> str:
    match table:
        case None:
            return "not declared"
        case SourceTable():
            return "source"
        case LakeTable():
            return "computed"
        case BronzeTable():
            return "bronze"
        case CDCTable():
            return "CDC"
        case EventTable():
            return "events"
        case _:
            assert_never(table)
