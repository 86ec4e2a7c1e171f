"""The sensor that registers commits that nobody registered, and reports on tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from lakechime_dagster.dce.events import Position, RegisteredEvent, version_of
from lakechime_dagster.dce.snapshots import CommitsMissingError
from lakechime_dagster.errors import InvalidValueError, LakeChimeError
from lakechime_dagster.lineage.schema_check import resume_fitting
from lakechime_dagster.runtime.names import asset_key, dagster_name
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.reconcile import reconcile
from lakechime_dagster.tables.lake import Lake, foreign_sources
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.subscription import partition_key

INTERVAL_SECONDS = 4
MAX_SHOWN = 500  # runless materializations a tick; Dagster takes about 5 ms for each


def events_sensor(
    lake: Lake, partitioned: Mapping[str, dg.PartitionsDefinition | None]
) -> dg.SensorDefinition:
    """The sensor of a lake's events; `partitioned` says which sources Dagster shows by
    partition.
    """

    @dg.sensor(
        name=dagster_name(f"{lake.name}__events"),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Registers commits that no producer registered, from the tables' own logs, and shows "
            "the sources' changes."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            platform = open_platform()
            found, problems = reconcile(platform, lake.tables)
            resumed = resume_fitting(platform, lake)
            page = platform.store.feed(_cursor(context.cursor, platform.store.head()), MAX_SHOWN)
        except LakeChimeError as error:
            return dg.SensorResult(skip_reason=str(error))
        foreign = foreign_sources(lake)  # others are shown by their own runs
        writers = Writers(platform, {source.name: source.location for source in foreign})
        shown, odd = materializations(
            foreign, partitioned, page.events, {event.position for event in found}, writers
        )
        problems += odd
        reasons = [f"{len(found)} commits were found that nobody had registered"] if found else []
        reasons += [f"{name} goes on: schema and code fit again" for name in resumed]
        reasons += problems or ([] if shown else ["no new event"])
        return dg.SensorResult(
            skip_reason="; ".join(reasons) or None, cursor=str(page.through), asset_events=shown
        )

    return sensor


@dataclass(frozen=True)
class _Shown:
    """The newest event of one partition of a source, and how many there were of it in this page."""

    event: RegisteredEvent
    count: int


class Writers:
    """Who wrote commits, as their tables' logs say; each commit is looked up once."""

    def __init__(self, platform: Platform, locations: Mapping[str, str | None]) -> None:
        self._platform = platform
        self._locations = locations
        self._known: dict[tuple[str, str], str] = {}

    def of(self, event: RegisteredEvent) -> str:
        """The program and its operation, such as `WRITE by delta-rs.1.6.6`."""
        key = (event.event.table, event.event.snapshot_id or "")
        if key not in self._known:
            self._known[key] = self._look_up(*key)
        return self._known[key]

    def _look_up(self, table: str, snapshot: str) -> str:
        version = version_of(snapshot)
        if version is None:
            return "unknown: the event names no commit of a Delta table"
        log = self._platform.log(table, self._locations.get(table))
        try:
            [commit] = log.commits(version - 1, version)
        except (LakeChimeError, CommitsMissingError):
            return "unknown: the commit is no longer in the table's log"
        return (
            f"{commit.operation or 'a write'} by {commit.engine or 'a program that does not say'}"
        )


def materializations(
    sources: Sequence[SourceTable],
    partitioned: Mapping[str, dg.PartitionsDefinition | None],
    events: Iterable[RegisteredEvent],
    reconciled: set[Position],
    writers: "Writers",
) -> tuple[list[dg.AssetMaterialization], list[str]]:
    """What Dagster shows of the sources' changes: one per partition, with the newest event of it.

    An event that cannot be shown hinders no other; the sentences say which, and why.
    """
    by_name = {source.name: source for source in sources}
    newest: dict[tuple[str, str], _Shown] = {}
    for event in events:
        if event.event.table in by_name and event.changes_data:
            key = (event.event.table, event.canonical)
            newest[key] = _Shown(event, newest[key].count + 1 if key in newest else 1)
    found: list[dg.AssetMaterialization] = []
    problems: list[str] = []
    for (table, canonical), shown in newest.items():
        try:
            found.append(
                _materialization(by_name[table], partitioned.get(table), shown, reconciled, writers)
            )
        except (LakeChimeError, dg.DagsterError) as error:
            problems.append(
                f"{table}{canonical}: the change at {shown.event.position} cannot be shown: {error}"
            )
    return found, problems


def _materialization(
    source: SourceTable,
    partitions: dg.PartitionsDefinition | None,
    shown: _Shown,
    reconciled: set[Position],
    writers: Writers,
) -> dg.AssetMaterialization:
    event = shown.event
    partition = None
    if partitions is not None and event.event.partition is not None:
        key = partition_key(source.levels, source.levels.typed(event.event.partition))
        partition = key if partitions.has_partition_key(key) else None
    metadata = {
        "commit": event.event.snapshot_id or "none",
        "operation": event.event.operation_type.value,
        "partition": event.canonical or "the whole table",
        "written by": writers.of(event),
        "registered by": "the reconciler, from the table's log"
        if event.position in reconciled
        else "its producer",
        "events": shown.count,
        "position": str(event.position),
    }
    tags = {"dagster/data_version": event.event.snapshot_id} if event.event.snapshot_id else None
    return dg.AssetMaterialization(
        asset_key(source.name), partition=partition, metadata=metadata, tags=tags
    )


def _cursor(text: str | None, head: Position) -> Position:
    """Where showing goes on. A cursor that is gone, broken or of a store that was created again
    only shows events again.

    What runs consume is in the ledger.
    """
    try:
        cursor = Position.parse(text) if text else Position.ORIGIN
    except InvalidValueError:
        return Position.ORIGIN
    return cursor if cursor <= head else Position.ORIGIN
