"""Tables that follow a table of a business database, and the bronze tables of its changes beside them."""

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType

from lakechime_dagster.dce.event import TableFormat
from lakechime_dagster.dce.partition import PartitionLevels
from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.lake.accounts import Account
from lakechime_dagster.lake.databases import Database
from lakechime_dagster.lake.deletes import Deletes
from lakechime_dagster.lake.drift import Drift
from lakechime_dagster.lake.envelopes import Canal, Debezium, Dms, Envelope, Maxwell
from lakechime_dagster.lake.feeds import Feed, JsonLines, KafkaTopic
from lakechime_dagster.lake.maintenance import Maintenance
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.lake.names import MAX_TARGET_NAME, checked_columns, checked_table_name
from lakechime_dagster.lake.own_columns import is_own_column
from lakechime_dagster.lake.readers import checked_readers
from lakechime_dagster.lake.reads import Passthrough, Readable
from lakechime_dagster.lake.snapshots import Snapshot
from lakechime_dagster.lake.tables import SourceTable, check_common
from lakechime_dagster.triggers.grid import Schedule
from lakechime_dagster.triggers.lanes import HOURS
from lakechime_dagster.triggers.model import SnapshotTrigger

CHANGES, STATE = "__changes", "__state"  # beside a table: the messages as they came; what the table must remember of them
HOUR_LEVELS = {"source_date": "date", "source_hour": "int"}


@dataclass(frozen=True, kw_only=True)
class CDCMerge:
    """How changes are merged, by the arguments of Spark's AUTO CDC.

    Attributes:
        keys: The columns that name a row.
        stored_as_scd_type: 1 holds the rows as they are; 2 their histories too, a row for each time that a tracked column
            changed, from `__START_AT` up to `__END_AT` (the database's times) by the orders `__START_SEQ` and `__END_SEQ`.
        apply_as_truncates: A truncation of the database's table takes the rows; otherwise they stay.
        ignore_null_updates: An update leaves a column as it is where it brings null.
        column_list: The columns that the table has, the key's among them; None is all.
        except_column_list: All but these.
        track_history_column_list: The columns whose changes begin another row of a history; None is all.
        track_history_except_column_list: All but these.
    """

    keys: tuple[str, ...]
    stored_as_scd_type: int = 1
    apply_as_truncates: bool = True
    ignore_null_updates: bool = False
    column_list: tuple[str, ...] | None = None
    except_column_list: tuple[str, ...] = ()
    track_history_column_list: tuple[str, ...] | None = None
    track_history_except_column_list: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", checked_columns("CDCMerge", "keys", self.keys))
        if not self.keys:
            raise DeclarationError("CDCMerge", "keys", "is empty; name the columns of the table's key")
        if self.stored_as_scd_type not in (1, 2):
            raise DeclarationError("CDCMerge", "stored_as_scd_type", f"{shown(self.stored_as_scd_type)} is neither 1 nor 2")
        self._check_lists("column_list", "except_column_list")
        self._check_lists("track_history_column_list", "track_history_except_column_list")
        left_out = [key for key in self.keys if not self.takes(key)]
        if left_out:
            raise DeclarationError("CDCMerge", "column_list", f"leaves out {left_out[0]!r}, a column of the key; take it")
        tracked = self.track_history_column_list is not None or self.track_history_except_column_list
        if self.stored_as_scd_type == 1 and tracked:
            raise DeclarationError("CDCMerge", "track_history_column_list", "is for stored_as_scd_type=2, which keeps histories")

    def _check_lists(self, listed: str, excepted: str) -> None:
        """Check two lists of columns, of which one at most is given."""
        if getattr(self, listed) is not None:
            object.__setattr__(self, listed, checked_columns("CDCMerge", listed, getattr(self, listed)))
            if getattr(self, excepted):
                raise DeclarationError("CDCMerge", excepted, f"goes without {listed}; give one of them")
        object.__setattr__(self, excepted, checked_columns("CDCMerge", excepted, getattr(self, excepted)))

    def takes(self, column: str) -> bool:
        """Whether the table has a column of its database's table."""
        return column not in self.except_column_list if self.column_list is None else column in self.column_list


@dataclass(frozen=True, kw_only=True)
class BronzeTable(Readable):
    """The messages of a database's changes as they came: what a feed holds, appended.

    `keys` and `types` say how its envelope is read where a message does not say it itself; `schema_from` is the database that is asked
    for the columns of messages that bring no schema.
    """

    name: str
    feed: Feed
    envelope: Envelope
    keys: tuple[str, ...]
    types: Mapping[str, str] = field(default_factory=dict, hash=False)
    schema_from: Database | None = None
    every: Schedule | None = None
    partitioned_by: Mapping[str, str] | PartitionLevels | None = None
    owner: str | None = None
    location: str | None = None
    format: str | TableFormat = TableFormat.DELTA
    fresh_within: dt.timedelta | None = None
    maintenance: Maintenance | None = None
    write_as: Account | None = None
    description: str = ""
    group: str | None = None
    kinds: tuple[str, ...] = ()
    dagster: Passthrough = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_common(self)

    @property
    def inputs(self) -> tuple[str, ...]:
        """It reads no table."""
        return ()

    @property
    def heartbeats(self) -> str:
        """A glob of the topics among the feed's that hold the changes of a heartbeat table; empty without."""
        return self.feed.heartbeats if isinstance(self.feed, KafkaTopic) else ""

    @property
    def is_typed_elsewhere(self) -> bool:
        """Whether the columns of messages that bring no schema are told by schema changes, or read in the database."""
        return bool(self.feed.ddl) or self.schema_from is not None

    @property
    def trigger(self) -> SnapshotTrigger:
        """Without tables: its feed is asked, `every` so often."""
        return SnapshotTrigger((), self.every)


@dataclass(frozen=True, kw_only=True)
class ChangeTable(Readable):
    """A table of the lake that is what a business database's table is, by the changes in its bronze table.

    `columns` gives the names here of columns that have others in the database. `cluster_by` names columns by which its rows
    lie together; `readers` the programs that read it beside Spark, by which its features are chosen. Where `deletes` are soft,
    a row that the database deleted stays, with the time of that in `__DELETED_AT`. A transaction of the database lasts
    `max_transaction` at most, where that is known. At most `max_continuous_empty_commits` steps in a row leave it without a
    commit; None is any number. `history` is a dump with whose rows it begins, once a person loads it.
    """

    name: str
    bronze: BronzeTable
    merge: CDCMerge
    on_drift: Drift = Drift.LENIENT
    allowed_lateness: dt.timedelta = dt.timedelta(days=1)
    columns: Mapping[str, str] = field(default_factory=dict, hash=False)
    cluster_by: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    deletes: Deletes = Deletes.HARD
    max_delete_ratio: float = 0.1
    max_transaction: dt.timedelta | None = None
    max_continuous_empty_commits: int | None = None
    partitioned_by: Mapping[str, str] | PartitionLevels | None = None
    owner: str | None = None
    location: str | None = None
    format: str | TableFormat = TableFormat.DELTA
    fresh_within: dt.timedelta | None = None
    maintenance: Maintenance | None = None
    write_as: Account | None = None
    description: str = ""
    group: str | None = None
    kinds: tuple[str, ...] = ()
    monitor: Monitor | None = None
    history: Snapshot | None = None
    dagster: Passthrough = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_common(self)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.merge.keys

    @property
    def hours(self) -> SourceTable:
        """The hours of the database's time that are complete in this table: `orders.hours.partitions(source_date=…, source_hour=…)`.

        An hour is when each of the table's sources has told of a change that is newer than its end by `max_transaction`.

        Raises:
            DeclarationError: `max_transaction` is not declared.
        """
        if self.max_transaction is None:
            raise DeclarationError(self.name, "max_transaction", "is not declared; without it nobody knows when an hour is complete")
        about = f"The hours of its database's time that are complete in {self.name}"
        return SourceTable(self.name + HOURS, partitioned_by=HOUR_LEVELS, owner=self.owner, group=self.group, description=about)

    @property
    def beside(self) -> tuple[BronzeTable | SourceTable, ...]:
        """What a lake has with it."""
        return (self.bronze,) if self.max_transaction is None else (self.bronze, self.hours)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The bronze table."""
        return (self.bronze.name,)

    @property
    def trigger(self) -> SnapshotTrigger:
        """As changes come to the bronze table."""
        return SnapshotTrigger(self.inputs)


def change_table(
    name: str,
    *,
    source: Feed,
    envelope: Envelope,
    merge: CDCMerge,
    types: Mapping[str, str] | None = None,
    schema_from: Database | None = None,
    on_drift: str | Drift = Drift.LENIENT,
    allowed_lateness: dt.timedelta = dt.timedelta(days=1),
    columns: Mapping[str, str] | None = None,
    cluster_by: Iterable[str] = (),
    readers: Iterable[str] = (),
    deletes: str | Deletes = Deletes.HARD,
    max_delete_ratio: float = 0.1,
    max_transaction: dt.timedelta | None = None,
    max_continuous_empty_commits: int | None = None,
    every: Schedule | None = None,
    monitor: Monitor | None = None,
    history: Snapshot | None = None,
    maintenance: Maintenance | None = None,
    write_as: Account | None = None,
    owner: str | None = None,
    location: str | None = None,
    description: str = "",
    group: str | None = None,
    kinds: Iterable[str] = (),
    dagster: Passthrough | None = None,
) -> ChangeTable:
    """Declare a table that follows one of a business database, whose changes a feed brings.

    Beside it lie `<name>__changes`, the messages as they came, and `<name>__state`, what is remembered of changes that are
    not in the table's rows.

    The messages come from `source`, which is asked `every` so often, written as `envelope` says; `types` gives the type of
    each column for envelopes whose messages never bring a schema. Where Debezium's messages bring none, the source's `ddl`
    names the topic that tells the columns, or `schema_from` the database in which they are read. `merge` names the key, and
    says how changes are merged; `on_drift` what becomes of columns that changes bring otherwise than the table has them. A
    change that comes later than `allowed_lateness`, by the database's times, may be refused, as what it needs is forgotten.
    `columns` gives the names here of columns that have others in the database; `merge` speaks of the names here. `cluster_by`
    names columns by which rows lie together, and `readers` the programs that read the table beside Spark. With `deletes="soft"`
    a row that the database deleted stays with its last values, and `__DELETED_AT` says when that was; it is null of rows that are
    there. A snapshot that would delete more than `max_delete_ratio` of the rows holds the lane. With `max_transaction`, the
    longest that a transaction of the database lasts, tables may wait for complete hours (`hours`). A step that changes no row
    leaves no commit; for readers who take the watermark from the table's own log, at most `max_continuous_empty_commits` in a
    row do, and the next one commits it with no row: 0 lets each commit. `monitor` says with which table of which database it
    is compared, `history` names a dump of the database's table, whose rows `lakechime cdc load` tells to the table.
    `maintenance` says how the files of all three tables are kept, `write_as` which account writes them.

    Raises:
        DeclarationError: naming the table, the field and the remedy.
    """
    checked_table_name(name, "change_table", MAX_TARGET_NAME - len(CHANGES))
    _check_source(name, source, envelope, types)
    _check_schema_from(name, source, envelope, schema_from)
    if not isinstance(merge, CDCMerge):
        raise DeclarationError(name, "merge", f"{shown(merge)} is no CDCMerge(keys=[…])")
    _check_times(name, every, allowed_lateness, max_transaction)
    _check_monitor(name, monitor, source)
    empty = max_continuous_empty_commits
    if empty is not None and (type(empty) is not int or empty < 0):
        problem = f"{shown(empty)} is no number of steps, 0 or more; leave it out to commit only what changes rows"
        raise DeclarationError(name, "max_continuous_empty_commits", problem)
    _check_history(name, history, source, envelope)
    names = _checked_names(name, columns or {}, merge)
    if not isinstance(max_delete_ratio, int | float) or not 0 <= max_delete_ratio <= 1:
        raise DeclarationError(name, "max_delete_ratio", f"{shown(max_delete_ratio)} is no part of all rows, from 0 to 1")
    there = {here: there for there, here in names.items()}
    bronze = BronzeTable(
        name=name + CHANGES, feed=source, envelope=envelope, keys=tuple(there.get(key, key) for key in merge.keys), every=every,
        types=MappingProxyType(dict(types or {})), schema_from=schema_from,
        location=None if location is None else location.rstrip("/") + CHANGES,
        owner=owner, group=group, maintenance=maintenance, write_as=write_as,
        description=f"The changes of {name} as they came from {source}",
    )  # fmt: skip
    return ChangeTable(
        name=name, bronze=bronze, merge=merge, on_drift=_drift(name, on_drift), allowed_lateness=allowed_lateness, owner=owner, group=group,
        location=location, description=description, kinds=tuple(kinds), monitor=monitor, dagster=dagster or {}, columns=names,
        maintenance=maintenance, history=history, write_as=write_as,
        cluster_by=checked_columns(name, "cluster_by", cluster_by), readers=checked_readers(name, readers),
        deletes=_deletes(name, deletes, merge), max_delete_ratio=max_delete_ratio, max_transaction=max_transaction,
        max_continuous_empty_commits=max_continuous_empty_commits,
    )  # fmt: skip


def _check_source(name: str, source: object, envelope: object, types: object) -> None:
    if not isinstance(source, JsonLines | KafkaTopic):
        raise DeclarationError(name, "source", f"{shown(source)} is neither JsonLines(folder) nor KafkaTopic(topic, bootstrap=…)")
    if not isinstance(envelope, Debezium | Canal | Maxwell | Dms):
        raise DeclarationError(name, "envelope", f"{shown(envelope)} is none of Debezium(), Canal(), Maxwell(), Dms()")
    _check_heartbeats(name, source, envelope)
    _check_types(name, types, envelope)


def _check_schema_from(name: str, source: Feed, envelope: object, schema_from: object) -> None:
    if schema_from is not None and not isinstance(schema_from, Database):
        raise DeclarationError(name, "schema_from", f"{shown(schema_from)} is no Database(url, table)")
    if isinstance(envelope, Debezium):
        if schema_from is not None and source.shards:
            problem = "is one database's table; this one follows those of all shards: name the topic of their schema changes by ddl="
            raise DeclarationError(name, "schema_from", problem)
        return
    remedy = "is for Debezium's messages; of this envelope declare types={…}, as `lakechime cdc types` writes them"
    if schema_from is not None:
        raise DeclarationError(name, "schema_from", remedy)
    if source.ddl:
        raise DeclarationError(name, "source", f"ddl={shown(source.ddl)} {remedy}")


def _check_times(name: str, every: object, allowed_lateness: object, max_transaction: object) -> None:
    if every is not None and not isinstance(every, Schedule):
        raise DeclarationError(name, "every", f"{shown(every)} is no schedule; write every(minutes=5)")
    if not isinstance(allowed_lateness, dt.timedelta) or allowed_lateness <= dt.timedelta(0):
        raise DeclarationError(name, "allowed_lateness", f"{shown(allowed_lateness)} is not a positive timedelta")
    if max_transaction is not None and (not isinstance(max_transaction, dt.timedelta) or max_transaction < dt.timedelta(0)):
        raise DeclarationError(name, "max_transaction", f"{shown(max_transaction)} is no timedelta of 0 or more")


def _check_monitor(name: str, monitor: object, source: Feed) -> None:
    if monitor is None:
        return
    if not isinstance(monitor, Monitor):
        raise DeclarationError(name, "monitor", f"{shown(monitor)} is no Monitor(database=…, table=…)")
    if monitor.database and source.shards:
        problem = "compares with one database's table; this one follows those of all shards: leave database= out"
        raise DeclarationError(name, "monitor", problem)


def _check_history(name: str, history: object, source: Feed, envelope: Envelope) -> None:
    if history is None:
        return
    if not isinstance(history, Snapshot):
        raise DeclarationError(name, "history", f"{shown(history)} is no Snapshot(path, as_of=…)")
    if not isinstance(envelope, Debezium):
        tool = type(envelope).__name__
        problem = f"messages of {tool} cannot be written yet, only Debezium's; load the rows by that tool"
        raise DeclarationError(name, "history", problem)
    if source.shards:
        problem = "is a dump of one database's table; this one follows those of all shards: leave it out"
        raise DeclarationError(name, "history", problem)


def _check_heartbeats(name: str, source: Feed, envelope: Envelope) -> None:
    if not isinstance(source, KafkaTopic) or not source.heartbeats:
        return
    if not isinstance(envelope, Debezium):
        raise DeclarationError(
            name, "source", f"heartbeats={shown(source.heartbeats)} are of a table that Debezium follows; leave them out"
        )
    if fnmatchcase(source.topic, source.heartbeats):
        raise DeclarationError(
            name, "source", f"heartbeats={shown(source.heartbeats)} are also the topic of its rows; name another table's"
        )


def _check_types(name: str, types: object, envelope: Envelope) -> None:
    if types is None:
        return
    if not isinstance(types, Mapping) or not all(isinstance(part, str) for pair in types.items() for part in pair):
        raise DeclarationError(name, "types", f'{shown(types)} is no map of columns to their types, such as {{"id": "bigint"}}')
    if isinstance(envelope, Debezium):
        raise DeclarationError(name, "types", "is not read, as messages of Debezium bring their columns' types; leave it out")


def _checked_names(name: str, columns: object, merge: CDCMerge) -> Mapping[str, str]:
    """The names here of columns that have others in the database; no two have one."""
    if not isinstance(columns, Mapping):
        raise DeclarationError(name, "columns", f'{shown(columns)} is no map of names, such as {{"amount": "amt"}}')
    checked_columns(name, "columns", columns.keys())
    here = checked_columns(name, "columns", columns.values())
    own = [one for one in here if is_own_column(one)]
    if own:
        raise DeclarationError(name, "columns", f"names {own[0]!r}, which tables have of their own; give it another name")
    left_out = [one for one in here if not merge.takes(one)]
    if left_out:
        raise DeclarationError(
            name, "columns", f"names {left_out[0]!r}, which merge.column_list leaves out; merge speaks of the names here"
        )
    return MappingProxyType(dict(columns))


def _deletes(name: str, value: object, merge: CDCMerge) -> Deletes:
    try:
        deletes = Deletes(str(value))
    except ValueError:
        raise DeclarationError(name, "deletes", f"{shown(value)} is neither {' nor '.join(Deletes)}") from None
    if deletes is Deletes.SOFT and merge.stored_as_scd_type == 2:
        raise DeclarationError(name, "deletes", "'soft' goes without stored_as_scd_type=2, whose histories keep deleted rows; leave it out")
    return deletes


def _drift(name: str, value: object) -> Drift:
    try:
        return Drift(str(value))
    except ValueError:
        raise DeclarationError(name, "on_drift", f"{shown(value)} is none of {', '.join(Drift)}") from None
