"""The platform of a process: store, ledger and the logs of tables, opened once from the
settings.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakechime_dagster.dce.engine import (
    check_version,
    current_version,
    memory_engine,
    open_engine,
    upgrade,
)
from lakechime_dagster.dce.events import DataChangeEvent, EventQuery, TableFormat, TableUid, Tags
from lakechime_dagster.dce.migration import Migration
from lakechime_dagster.dce.partitions import PartitionLevels, canonical_partition
from lakechime_dagster.dce.queries import TableRow, side_of
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.errors import (
    StoreUnreachableError,
    StoreVersionError,
    TableUnreadableError,
    needs,
)
from lakechime_dagster.formats.changes import SideLog
from lakechime_dagster.settings import Settings, load_settings, location_in_project, make_home
from lakechime_dagster.triggers.consumers import (
    COMPLETE,
    HOUR_MS,
    HOURS,
    LATE,
    Checkpoint,
    CommitMetadata,
    Committed,
    ConsumerId,
    ConsumerState,
    Execution,
)
from lakechime_dagster.triggers.evaluation import Evaluator
from lakechime_dagster.triggers.ledger import Beside, Ledger
from lakechime_dagster.triggers.registry import SubscriptionRow
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Subscription

if TYPE_CHECKING:
    from lakechime_dagster.formats.changes import ChangeLog
    from lakechime_dagster.formats.delta import DeltaLog
    from lakechime_dagster.formats.hive import HiveLog
    from lakechime_dagster.formats.iceberg import IcebergLog

    FormatLog = DeltaLog | IcebergLog | HiveLog


# among the facts of commit metadata: the partitions that the execution fired for, as values by
# level
FIRED = "partitions"


@dataclass(frozen=True)
class Platform:
    """Everything that a run, a sensor tick or a command needs of the store and the lake's logs."""

    settings: Settings
    store: DCEStore
    ledger: Ledger
    evaluator: Evaluator

    @property
    def warehouse(self) -> str:
        """The folder of the folders of schemas."""
        return self.settings.warehouse.rstrip("/")

    def location(self, table: str, declared: str | None = None) -> str:
        """Where a table lies: as declared, in the project's folder where that is relative, else
        `<warehouse>/<schema>/<table>`.
        """
        return (
            location_in_project(declared)
            if declared
            else "/".join([self.warehouse, *table.split(".")])
        )

    def log(self, table: str, declared: str | None = None) -> "DeltaLog":
        """The log of a Delta table."""
        return self.log_at(self.location(table, declared), table)

    def log_at(self, location: str, table: str) -> "DeltaLog":
        """The log of the Delta table at a location."""
        # imported by those who read a log only: a fifth of a second
        with needs(f"the log of the Delta table {table}"):
            from lakechime_dagster.formats.delta import DeltaLog
        return DeltaLog(location, table, self.settings.cluster)

    def change_logs(
        self,
        table: str,
        table_format: TableFormat,
        declared: str | None,
        levels: PartitionLevels,
        *,
        known: TableRow | None = None,
        lists_all: bool = False,
    ) -> "list[ChangeLog]":
        """The logs from which the events of a table are captured: one, or where it is migrated those
        of both sides, its own first; none of a Hive table where no metastore is set.

        Args:
            table: Its name.
            table_format: Its declared format.
            declared: Its declared location.
            levels: Its declared partition levels.
            known: What the store knows of it.
            lists_all: Whether all files of a Hive table are listed now.
        """
        migration = Migration.of(known) if known is not None else None
        its_format = known.format if known is not None else None
        sides = {its_format or table_format: table}
        if migration is not None:
            sides[migration.other] = migration.name_of(migration.other)
        logs: list[ChangeLog] = []
        for side, name in sides.items():
            if side is TableFormat.HIVE and not self.settings.metastore:
                continue
            log: ChangeLog
            if side is TableFormat.HIVE:
                log = self.hive_log(table, levels, name=name, lists_all=lists_all)
            else:
                log = self.log_of(table, side, declared, levels)
            logs.append(log if name == table else SideLog(log, name))
        return logs

    def iceberg_log(self, table: str, levels: PartitionLevels | None = None) -> "IcebergLog":
        """The log of an Iceberg table, in the catalog of the settings; `levels` are those by which
        its events name partitions.
        """
        with needs(f"the log of the Iceberg table {table}"):
            from lakechime_dagster.formats.iceberg import IcebergLog
        return IcebergLog(self.settings.iceberg_catalog, table, self.settings.cluster, levels)

    def format_of(
        self, table: str, declared: TableFormat, uid: TableUid | None = None
    ) -> TableFormat:
        """The format of a table, or of that with a uid: as declared, where it was never migrated."""
        found = side_of(self.store.engine, (self.settings.cluster, table), uid)
        return found or TableFormat(declared)

    def recorded_log(self, table: str) -> "FormatLog":
        """The log of a table that nothing declares, by the format that its events have."""
        known = self.store.fetch(EventQuery(table=table, cluster=self.settings.cluster, limit=1))
        recorded = known[0].event.table_format if known else TableFormat.DELTA
        return self.log_of(table, self.format_of(table, recorded))

    def target_of(self, subscription: Subscription) -> "FormatLog | None":
        """The log of the table that a subscription writes; None where it writes none."""
        name, location = subscription.target, subscription.location
        return None if name is None else self.log_of(name, subscription.target_format, location)

    def log_of(
        self,
        table: str,
        table_format: TableFormat,
        declared: str | None = None,
        levels: PartitionLevels | None = None,
    ) -> "FormatLog":
        """The log of a table of a format: of a Delta table at its declared location, of others with
        events by their declared levels.
        """
        if table_format is TableFormat.ICEBERG:
            named = None if levels is None else self._named(table, levels)
            return self.iceberg_log(table, named)
        if table_format is TableFormat.HIVE:
            return self.hive_log(table, levels or PartitionLevels())
        return self.log(table, declared)

    def hive_log(
        self,
        table: str,
        levels: PartitionLevels,
        *,
        name: str | None = None,
        lists_all: bool = False,
    ) -> "HiveLog":
        """The log of a Hive table, in the metastore of the settings, by its declared levels; its
        events are recorded under a `name` of their own where it has one.

        Raises:
            TableUnreadableError: the settings name no metastore.
        """
        if not self.settings.metastore:
            raise TableUnreadableError(
                f"{table}: no metastore is known; set LAKECHIME_METASTORE to its URL, such as "
                f"thrift://metastore:9083"
            )
        with needs(f"the Hive table {table}", extra="hive"):
            from lakechime_dagster.formats.hive import HiveLog
        cluster = self.settings.cluster
        listing = partial(self.store.listing, name or table, cluster)
        named = self._named(table, levels)
        return HiveLog(self.settings.metastore, table, cluster, named, listing, lists_all)

    def levels_of(self, table: str, declared: PartitionLevels) -> PartitionLevels:
        """The partition levels of a table, as declared, else as the store knows them."""
        return self._named(table, declared) or PartitionLevels()

    def _named(self, table: str, declared: PartitionLevels) -> PartitionLevels | None:
        """The levels by which events name partitions, as declared, else as the store knows them."""
        known = None if declared else self.store.captured(table).get((self.settings.cluster, table))
        return known.levels if known and (known.levels or known.seen) else declared or None

    def complete_if_committed(
        self, target: "FormatLog | None", execution: Execution, beside: Beside | None = None
    ) -> Committed | None:
        """Ask the target who committed this execution; if somebody did, register that commit and
        complete by it (law 7).

        A partition that the execution fired for and the commit did not touch gets its marker in the
        same registration: whoever completes, an empty day is complete too (law 16). `beside` is
        written in the completing transaction.
        """
        committed = (
            target.committed(execution.consumer, execution.number) if target is not None else None
        )
        if committed is not None and target is not None:
            events = target.events_of(committed)
            self.store.register(
                [
                    # those of a Hive table are captured, with what its files are then
                    *(one for one in events if one.table_format is not TableFormat.HIVE),
                    *markers_of(
                        committed.commit_metadata,
                        target.table,
                        target.levels(),
                        target.cluster,
                        events,
                    ),
                ]
            )
            self.ledger.complete(execution, committed, beside=beside)
        return committed

    def complete_without_commit(
        self, execution: Execution, markers: list[DataChangeEvent], reason: str
    ) -> bool:
        """Complete an execution that had nothing to write, after registering its markers (law 16)."""
        self.store.register(markers)
        return self.ledger.complete(execution, None, reason=reason)


def markers_of(
    commit_metadata: CommitMetadata,
    table: str,
    levels: PartitionLevels,
    cluster: str = "",
    events: Sequence[DataChangeEvent] = (),
) -> list[DataChangeEvent]:
    """A marker for each partition of a table that an execution fired for and that no event of its
    commit names, and the events of hours.
    """
    touched = {canonical_partition(event.partition, levels) for event in events}
    fired = [
        values
        for values in commit_metadata.facts.get(FIRED, ())
        if set(values) == set(levels.names)
    ]
    partitions = [tuple(values[name] for name in levels.names) for values in fired]
    return [
        DataChangeEvent(
            table=table,
            partition=partition,
            cluster=cluster,
            tags=Tags(commit_metadata.tags),
            event_key=f"marker/{commit_metadata.execution_id}/{partition}",
        )
        for partition in partitions
        if canonical_partition(partition, levels) not in touched
    ] + hours_of(commit_metadata, table, cluster)


def hours_of(
    commit_metadata: CommitMetadata, table: str, cluster: str = ""
) -> list[DataChangeEvent]:
    """The events of hours of the database's time of an execution of a CDC table; registered again,
    they are duplicates.

    A completeness marker for each hour that is complete since then, and for each that was complete
    before and that its commit changes an event that changes data: a trigger with `late="refire"`
    fires again for it. These hours have no snapshots of their own, as the partitions of a Hive
    table have none.
    """
    start, end = (int(moment) // HOUR_MS for moment in commit_metadata.facts.get(COMPLETE, (0, 0)))
    complete = [_hour_event(table, cluster, hour) for hour in range(start, end)]
    late = [
        _hour_event(table, cluster, hour, changes, commit_metadata.execution_id)
        for hour, changes in commit_metadata.facts.get(LATE, ())
    ]
    return complete + late


def _hour_event(
    table: str, cluster: str, hour: int, late: int = 0, execution_id: str = ""
) -> DataChangeEvent:
    moment = from_milliseconds(hour * HOUR_MS)
    named = f"{table}/{moment:%Y-%m-%d-%H}"
    return DataChangeEvent(
        table=table + HOURS,
        table_format=TableFormat.HIVE if late else TableFormat.DELTA,
        partition=(moment.date().isoformat(), moment.hour),
        cluster=cluster,
        tags=Tags({"complete": "true", **({"late": str(late)} if late else {})}),
        event_key=f"late/{named}/{execution_id}" if late else f"complete/{named}",
    )


def ask_target(target: "FormatLog | None") -> Callable[[ConsumerId], Committed | None]:
    """The newest commit in a target of a consumer that the ledger does not know."""
    return (
        (lambda consumer: target.last_committed(consumer))
        if target is not None
        else (lambda consumer: None)
    )


def open_platform(settings: Settings | None = None) -> Platform:
    """The platform of these settings, by default of the environment; the store is brought up to
    date once a process.
    """
    return _opened(settings or load_settings())


def open_dry_platform() -> Platform:
    """The platform for a dry run: it makes no store and upgrades none; where there is none yet, it
    has an empty one in memory.

    Raises:
        StoreVersionError: for a store that needs an upgrade.
    """
    settings = load_settings()
    engine = open_engine(settings.store_url)
    if current_version(engine) is None:
        return Platform(settings, *_parts(_empty_store(), settings.deployment))
    check_version(engine)
    return Platform(settings, *_parts(DCEStore(engine), settings.deployment))


def open_platform_without_store() -> tuple[Platform, str]:
    """The platform for what can do without the store, and why it has an empty one in memory
    instead: "" where it has the real one.
    """
    settings = load_settings()
    try:
        engine = open_engine(settings.store_url)
        if current_version(engine) is not None:
            return open_dry_platform(), ""
        why = "there is no store yet"
    except (StoreUnreachableError, StoreVersionError) as error:
        why = str(error)
    return Platform(settings, *_parts(_empty_store(), settings.deployment)), why


def _empty_store() -> DCEStore:
    engine = memory_engine()
    upgrade(engine)
    return DCEStore(engine)


@lru_cache(maxsize=8)
def _opened_at(store_url: str, deployment: str, home: Path) -> tuple[DCEStore, Ledger, Evaluator]:
    if store_url == f"sqlite:///{home / 'dce.sqlite'}":
        with suppress(OSError):  # to connect reports what is wrong there
            make_home(home)
    engine = open_engine(store_url)
    upgrade(engine)
    return _parts(DCEStore(engine), deployment)


def _opened(settings: Settings) -> Platform:
    return Platform(settings, *_opened_at(settings.store_url, settings.deployment, settings.home))


def _parts(store: DCEStore, deployment: str) -> tuple[DCEStore, Ledger, Evaluator]:
    ledger = Ledger(store.engine, deployment)
    return store, ledger, Evaluator(store.engine, ledger)


def ends_of_blocked(
    platform: Platform, subscription: Subscription, row: SubscriptionRow
) -> dict[str, Checkpoint]:
    """By the key of its consumer where an execution that asked for a person ends when it is tried
    again: after all later events.

    What answers its question may be in there, such as a new snapshot. What a claim took of a source
    stays as it is.
    """
    if subscription.source is not None:
        return {}
    # without those of replays, which end where they end
    consumers = platform.ledger.consumers(row, row.own_keys)
    return {
        key: platform.evaluator.end_of(subscription, row, consumer)
        for key, consumer in consumers.items()
        if consumer.state is ConsumerState.BLOCKED
    }
