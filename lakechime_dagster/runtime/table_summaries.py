"""Shows the tables that are known, and how far each is captured."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from typing_extensions import assert_never

from lakechime_dagster.dce.events import Seen, TableFormat
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
    records = {record.key: record for record in platform.store.tables()}
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
            _of_log(platform, key[1], declared.get(key), records.get(key), found["format"])
            if logged
            else {}
        )

    with ThreadPoolExecutor(LOOKS) as pool:
        return list(pool.map(document, sorted(keys, key=lambda key: key[::-1])))


def _table_summary(
    platform: Platform,
    key: tuple[str, str],
    table: Table | None,
    known: TableRow | None,
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
    platform: Platform,
    name: str,
    table: Table | None,
    known: TableRow | None,
    its_format: TableFormat | None,
) -> dict[str, Any]:
    """Where the log of a table is, its newest snapshot, and how many commits that change data are
    not captured yet, with the age of the oldest.
    """
    declared = None if table is None else (table.format, table.location, table.levels)
    facts: dict[str, Any] = {}
    try:
        logs: list[ChangeLog] = (
            platform.change_logs(name, *declared, known=known)
            if declared
            else [platform.iceberg_log(name)]
            if its_format is TableFormat.ICEBERG
            else [platform.log(name)]
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
