"""`cdc_table`: declares a CDC table."""

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import ClassVar

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.tables.databases import Database, Debezium, Envelope, Monitor
from lakechime_dagster.tables.names import (
    MAX_TARGET_NAME,
    checked_columns,
    checked_table_name,
    folded,
    spelled_as,
    why_refused,
)
from lakechime_dagster.tables.options import (
    Asset,
    Storage,
    checked_asset,
    checked_storage,
    column_of,
)
from lakechime_dagster.tables.sources import (
    JsonLines,
    KafkaTopic,
    MessageSource,
    MessageTable,
    shard_columns,
)
from lakechime_dagster.tables.tables import SourceTable, WrittenTable
from lakechime_dagster.triggers.consumers import HOURS
from lakechime_dagster.triggers.triggers import SnapshotTrigger

# of messages that a CDC table takes with a claim: each may hold as much as an execution of theirs reads
MAX_COMMITS = 4


class Deletes(StrEnum):
    """What happens to a row of a CDC table when the database deletes it.

    It leaves the table (`hard`), or stays with its last values and the time of its deletion
    (`soft`).
    """

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True, kw_only=True)
class CDCMerge:
    """How changes are merged, with the arguments of Spark's AUTO CDC and more. All columns are
    named as the table names them.

    Attributes:
        keys: The columns that name a row.
        stored_as_scd_type: 1 holds the rows as they are; 2 their histories too, a row for each time
            that a tracked column changed, from `__START_AT` up to `__END_AT` (the database's times)
            by the orders `__START_SEQ` and `__END_SEQ`.
        apply_as_truncates: A truncation of the database's table deletes the rows; otherwise they
            stay.
        ignore_null_updates: An update with a null leaves the column unchanged.
        column_list: The columns of the table, with the key's; None is all.
        except_column_list: All but these.
        track_history_column_list: The columns whose changes begin another row of a history; None is
            all.
        track_history_except_column_list: All but these.
        deletes: With `soft` a row that the database deleted stays with its last values, and
            `__DELETED_AT` is the time of its deletion, null in other rows.
        max_delete_ratio: A snapshot that would delete a larger part of the rows, from 0 to 1,
            blocks the table.
        allowed_lateness: A change that arrives later than this, by the database's times, may be
            refused, because the state that its merge needs is gone.
        max_transaction: The longest that a transaction of the database lasts. With it, tables may
            wait for complete hours (`table.hours`).
        max_continuous_empty_commits: An execution that changes no row makes no commit. For readers
            that take the watermark from the table's log: after this many in a row, one makes an
            empty commit. 0 lets each commit; None is no limit.
    """

    keys: tuple[str, ...]
    stored_as_scd_type: int = 1
    apply_as_truncates: bool = True
    ignore_null_updates: bool = False
    column_list: tuple[str, ...] | None = None
    except_column_list: tuple[str, ...] = ()
    track_history_column_list: tuple[str, ...] | None = None
    track_history_except_column_list: tuple[str, ...] = ()
    deletes: str | Deletes = Deletes.HARD
    max_delete_ratio: float = 0.1
    allowed_lateness: dt.timedelta = dt.timedelta(days=1)
    max_transaction: dt.timedelta | None = None
    max_continuous_empty_commits: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", checked_columns("CDCMerge", "keys", self.keys))
        if not self.keys:
            raise DeclarationError(
                "CDCMerge", "keys", "is empty; name the columns of the table's key"
            )
        if self.stored_as_scd_type not in (1, 2):
            raise DeclarationError(
                "CDCMerge",
                "stored_as_scd_type",
                f"{shown(self.stored_as_scd_type)} is neither 1 nor 2",
            )
        self._check_lists("column_list", "except_column_list")
        self._check_lists("track_history_column_list", "track_history_except_column_list")
        left_out = [key for key in self.keys if not self.takes(key)]
        if left_out:
            raise DeclarationError(
                "CDCMerge",
                "column_list",
                f"leaves out {left_out[0]!r}, a column of the key; take it",
            )
        tracked = (
            self.track_history_column_list is not None or self.track_history_except_column_list
        )
        if self.stored_as_scd_type == 1 and tracked:
            raise DeclarationError(
                "CDCMerge",
                "track_history_column_list",
                "is for stored_as_scd_type=2, which keeps histories",
            )
        object.__setattr__(self, "deletes", _deletes(self.deletes))
        if self.keeps_deleted and self.stored_as_scd_type == 2:
            problem = (
                "'soft' goes without stored_as_scd_type=2, whose histories keep deleted rows; "
                "leave it out"
            )
            raise DeclarationError("CDCMerge", "deletes", problem)
        self._check_limits()

    def _check_limits(self) -> None:
        ratio, lateness, transaction = (
            self.max_delete_ratio,
            self.allowed_lateness,
            self.max_transaction,
        )
        if not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
            raise DeclarationError(
                "CDCMerge",
                "max_delete_ratio",
                f"{shown(ratio)} is no part of all rows, from 0 to 1",
            )
        if not isinstance(lateness, dt.timedelta) or lateness <= dt.timedelta(0):
            raise DeclarationError(
                "CDCMerge", "allowed_lateness", f"{shown(lateness)} is not a positive timedelta"
            )
        if transaction is not None and (
            not isinstance(transaction, dt.timedelta) or transaction < dt.timedelta(0)
        ):
            raise DeclarationError(
                "CDCMerge", "max_transaction", f"{shown(transaction)} is no timedelta of 0 or more"
            )
        empty = self.max_continuous_empty_commits
        if empty is not None and (type(empty) is not int or empty < 0):
            problem = (
                f"{shown(empty)} is no number of executions, 0 or more; leave it out to commit "
                f"only what changes rows"
            )
            raise DeclarationError("CDCMerge", "max_continuous_empty_commits", problem)

    def _check_lists(self, listed: str, excepted: str) -> None:
        """Check two lists of columns, of which one at most is given."""
        if getattr(self, listed) is not None:
            object.__setattr__(
                self, listed, checked_columns("CDCMerge", listed, getattr(self, listed))
            )
            if getattr(self, excepted):
                raise DeclarationError(
                    "CDCMerge", excepted, f"goes without {listed}; give one of them"
                )
        object.__setattr__(
            self, excepted, checked_columns("CDCMerge", excepted, getattr(self, excepted))
        )

    @property
    def keeps_deleted(self) -> bool:
        """Whether a row that the database deleted stays."""
        return self.deletes == Deletes.SOFT

    @property
    def named(self) -> tuple[str, ...]:
        """All columns that it names."""
        listed = (
            self.column_list,
            self.except_column_list,
            self.track_history_column_list,
            self.track_history_except_column_list,
        )
        return (
            *self.keys,
            *(name for several in listed if several is not None for name in several),
        )

    def spelled_as(self, columns: Iterable[str]) -> "CDCMerge":
        """The same with the names of a table's columns, of those that Spark takes for one."""
        own = {folded(column): column for column in columns}

        def spelled(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(own.get(folded(name), name) for name in names)

        listed, tracked = self.column_list, self.track_history_column_list
        return replace(
            self,
            keys=spelled(self.keys),
            column_list=None if listed is None else spelled(listed),
            except_column_list=spelled(self.except_column_list),
            track_history_column_list=None if tracked is None else spelled(tracked),
            track_history_except_column_list=spelled(self.track_history_except_column_list),
        )

    def takes(self, column: str) -> bool:
        """Whether the table has a column of its database's table."""
        listed = self.except_column_list if self.column_list is None else self.column_list
        return (folded(column) in map(folded, listed)) is (self.column_list is not None)


def _deletes(value: object) -> Deletes:
    try:
        return Deletes(str(value))
    except ValueError:
        raise DeclarationError(
            "CDCMerge", "deletes", f"{shown(value)} is neither {' nor '.join(Deletes)}"
        ) from None


class Drift(StrEnum):
    """Policies for columns of a change that differ from the table's, named as in Flink CDC.

    | what is found | EXCEPTION | EVOLVE | LENIENT |
    |---|---|---|---|
    | a new column | refused | added | added |
    | values of a wider type | refused | widened | widened |
    | values that no other type holds with those before | refused | refused | the column becomes text |
    | a column that is missing | refused | stays, null in new rows | stays, null in new rows |

    A renamed column is a new one and a missing one. A refused change blocks the consumer and
    changes nothing. No policy drops a column: messages do not distinguish a dropped column from one
    that did not exist yet. To keep new columns out of the table, list its columns
    (`CDCMerge.column_list`). A new table gets all columns by any policy. A column of the key never
    becomes text, because values of several types may have the same one.

    The rows do not depend on the order in which messages arrive or on how they are split into
    executions.
    """

    EXCEPTION = "exception"
    EVOLVE = "evolve"
    LENIENT = "lenient"


CHANGES, STATE = "__changes", "__state"  # suffixes of a table's bronze table and of its state
HOUR_LEVELS = {"source_date": "date", "source_hour": "int"}


@dataclass(frozen=True, kw_only=True)
class SourceSchema:
    """The columns of a database's table: where their types are found, how the CDC table names them,
    and what happens when they change.

    Attributes:
        types: The type of each column, such as `{"id": "bigint"}`, of envelopes whose messages
            bring no schema (not Debezium's).
        read_from: The database in which the types are read with each execution, where messages of
            Debezium bring no schema.
        names: Names in the CDC table of columns that have others in the database, such as `{"amt":
            "amount"}`.
        on_drift: What happens when columns of the database's table change: `lenient` (the default),
            `evolve` or `exception`; see `Drift`.
    """

    types: Mapping[str, str] | None = field(default=None, hash=False)
    read_from: Database | None = None
    names: Mapping[str, str] | None = field(default=None, hash=False)
    on_drift: str | Drift = Drift.LENIENT


@dataclass(frozen=True, kw_only=True)
class BronzeTable(MessageTable):
    """The messages of a database's changes as they arrived from a source, appended.

    `keys` and `schema` say how its envelope is read where a message does not say it itself.
    """

    source: MessageSource
    envelope: Envelope
    keys: tuple[str, ...]
    schema: SourceSchema = SourceSchema()

    @property
    def heartbeats(self) -> str:
        """A glob of the topics among the source's that hold the changes of a heartbeat table; empty
        without.
        """
        return self.source.heartbeats if isinstance(self.source, KafkaTopic) else ""

    @property
    def is_typed_externally(self) -> bool:
        """Whether the columns of messages that bring no schema are read in the database."""
        return self.schema.read_from is not None


@dataclass(frozen=True, kw_only=True)
class CDCTable(WrittenTable):
    """A replica of a database's table, merged from the changes in its bronze table.

    `monitor` names the database's table that it is compared with.
    """

    bronze: BronzeTable
    merge: CDCMerge
    schema: SourceSchema = SourceSchema()
    monitor: Monitor | None = None
    kind: ClassVar[str] = "a cdc_table"
    unused: ClassVar[tuple[str, ...]] = ("partitioned_by", "expect", "watermark", "fresh_within")

    @property
    def names(self) -> Mapping[str, str]:
        """Its names of columns that have others in the database, by those."""
        return self.schema.names or {}

    @property
    def cluster_by(self) -> tuple[str, ...]:
        """The columns by whose values its rows are clustered."""
        return tuple(self.storage.cluster_by)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.merge.keys

    @property
    def hours(self) -> SourceTable:
        """The hours of the database's time that are complete in this table:
        `orders.hours.partitions(source_date=…, source_hour=…)`.

        An hour is complete when each of the table's sources has reported a change newer than its
        end by `max_transaction`.

        Raises:
            DeclarationError: `max_transaction` is not declared.
        """
        if self.merge.max_transaction is None:
            raise DeclarationError(
                self.name,
                "max_transaction",
                "is not declared in CDCMerge(…); without it no hour is known to be complete",
            )
        about = f"The hours of its database's time that are complete in {self.name}"
        return SourceTable(
            self.name + HOURS,
            storage=Storage(partitioned_by=HOUR_LEVELS),
            asset=Asset(owner=self.owner, group=self.group, description=about),
        )

    @property
    def beside(self) -> tuple[BronzeTable | SourceTable, ...]:
        """What a lake has with it."""
        return (self.bronze,) if self.merge.max_transaction is None else (self.bronze, self.hours)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The bronze table."""
        return (self.bronze.name,)

    @property
    def trigger(self) -> SnapshotTrigger:
        """As changes come to the bronze table."""
        return SnapshotTrigger(self.inputs, max_commits=MAX_COMMITS)


def cdc_table(
    name: str,
    *,
    source: MessageSource,
    envelope: Envelope,
    merge: CDCMerge,
    schema: SourceSchema = SourceSchema(),
    monitor: Monitor | None = None,
    storage: Storage = Storage(),
    asset: Asset = Asset(),
) -> CDCTable:
    """Declare a table that replicates a table of a business database from the messages of its
    changes.

    `<name>__changes` holds the messages as they arrived, and `<name>__state` what is remembered of
    changes that are not in the table's rows.

    Args:
        name: Of dotted parts, such as `silver.orders`, which are also its asset key.
        source: `KafkaTopic` or `JsonLines`: where the messages are, and how often it is polled.
        envelope: `Debezium`, `Canal`, `Maxwell` or `Dms`: the tool that writes the messages, and
            its settings.
        merge: The columns of the key, and how changes are merged.
        schema: Where the types of the columns are found, other names for them, and what happens
            when they change.
        monitor: The database's table with which it is compared, and when. None: it is not compared.
        storage: How and where its files are stored; `location` and `maintenance` are also those of
            the tables of messages and of what is remembered, in folders with their suffixes. These
            are Delta tables in every format, and `maintenance` is theirs alone beside an Iceberg
            table.
        asset: What its asset shows. `columns` that hold personal data are named as in this table.

    Raises:
        DeclarationError: naming the table, the field and the remedy.
    """
    checked_table_name(name, "cdc_table", MAX_TARGET_NAME - len(CHANGES))
    _check_source(name, source, envelope)
    if not isinstance(merge, CDCMerge):
        raise DeclarationError(name, "merge", f"{shown(merge)} is no CDCMerge(keys=[…])")
    files = checked_storage(name, storage)
    table_format = TableFormat(files.format or TableFormat.DELTA)
    columns = _checked_schema(name, schema, source, envelope, merge, table_format)
    _check_monitor(name, monitor, source)
    there = {folded(here): there for there, here in (columns.names or {}).items()}
    keys = tuple(there.get(folded(key), key) for key in merge.keys)
    about = checked_asset(name, asset, files)
    bronze = BronzeTable(
        name=name + CHANGES,
        source=source,
        envelope=envelope,
        keys=keys,
        schema=replace(columns, types=MappingProxyType(spelled_as(keys, columns.types or {}))),
        storage=Storage(
            location=None if files.location is None else files.location.rstrip("/") + CHANGES,
            maintenance=files.maintenance,
            write_as=files.write_as,
        ),
        asset=Asset(
            owner=about.owner,
            group=about.group,
            description=f"The changes of {name} as they arrived from {source}",
        ),
    )
    table = CDCTable(
        name=name,
        bronze=bronze,
        merge=merge,
        schema=columns,
        monitor=monitor,
        storage=files,
        asset=about,
    )
    left_out = [one for one in table.personal if not merge.takes(column_of(one))]
    if left_out:
        raise DeclarationError(
            name,
            "columns",
            f"{left_out[0]!r} is personal, and merge.column_list leaves it out; leave it out here "
            f"too",
        )
    return table


def _check_source(name: str, source: object, envelope: object) -> None:
    if not isinstance(source, JsonLines | KafkaTopic):
        raise DeclarationError(
            name,
            "source",
            f"{shown(source)} is neither JsonLines(folder) nor KafkaTopic(topic, bootstrap=…)",
        )
    if not isinstance(envelope, Envelope):
        raise DeclarationError(
            name, "envelope", f"{shown(envelope)} is none of Debezium(), Canal(), Maxwell(), Dms()"
        )
    _check_heartbeats(name, source, envelope)
    _check_transactions(name, source, envelope)


def _checked_schema(
    name: str,
    schema: object,
    source: MessageSource,
    envelope: Envelope,
    merge: CDCMerge,
    table_format: TableFormat,
) -> SourceSchema:
    if not isinstance(schema, SourceSchema):
        raise DeclarationError(name, "schema", f"{shown(schema)} is no SourceSchema(…)")
    _check_read_from(name, source, envelope, schema.read_from)
    types = {} if schema.types is None else schema.types
    _check_types(name, types, envelope)
    given = {} if schema.names is None else schema.names
    names = _checked_names(name, given, merge, table_format)
    _check_taken(name, merge, types, names, table_format)
    return replace(
        schema,
        types=MappingProxyType(dict(types)),
        names=names,
        on_drift=_drift(name, schema.on_drift),
    )


def _check_read_from(name: str, source: MessageSource, envelope: object, read_from: object) -> None:
    if read_from is None:
        return
    if not isinstance(read_from, Database):
        raise DeclarationError(name, "read_from", f"{shown(read_from)} is no Database(url, table)")
    if not isinstance(envelope, Debezium):
        remedy = "declare types={…}, as `lakechime cdc check --types` writes them"
        raise DeclarationError(
            name, "read_from", f"is for Debezium's messages without a schema; {remedy}"
        )
    if source.shards:
        remedy = "let the connector write schemas (value.converter.schemas.enable=true)"
        raise DeclarationError(
            name,
            "read_from",
            f"is one database's table, and this one replicates those of all shards; {remedy}",
        )


def _check_monitor(name: str, monitor: object, source: MessageSource) -> None:
    if monitor is None:
        return
    if not isinstance(monitor, Monitor):
        raise DeclarationError(
            name, "monitor", f"{shown(monitor)} is no Monitor(database=Database(url, table))"
        )
    if monitor.database and source.shards:
        problem = (
            "compares with one database's table; this one replicates those of all shards: name "
            "each one's, Monitor(shards={…})"
        )
        raise DeclarationError(name, "monitor", problem)
    names = shard_columns(source.shards)
    for values in monitor.databases if monitor.shards else ():
        if len(values) != len(names):
            by = (
                f"have {', '.join(names)}"
                if names
                else "are of one database: the source declares no shards="
            )
            raise DeclarationError(
                name,
                "monitor",
                f"shards={shown(values)} has {len(values)} values, and the names of the topics {by}",
            )


def _check_heartbeats(name: str, source: MessageSource, envelope: Envelope) -> None:
    if not isinstance(source, KafkaTopic) or not source.heartbeats:
        return
    if not isinstance(envelope, Debezium):
        raise DeclarationError(
            name,
            "source",
            f"heartbeats={shown(source.heartbeats)} are of a table that Debezium captures; leave "
            f"them out",
        )
    if fnmatchcase(source.topic, source.heartbeats):
        raise DeclarationError(
            name,
            "source",
            f"heartbeats={shown(source.heartbeats)} are also the topic of its rows; name another "
            f"table's",
        )


def _check_transactions(name: str, source: MessageSource, envelope: Envelope) -> None:
    topics = source.transactions
    if not topics:
        return
    if not isinstance(topics, str):
        raise DeclarationError(
            name,
            "source",
            f"transactions={shown(topics)} is no name of topics, such as shop.transaction",
        )
    if not isinstance(envelope, Debezium):
        raise DeclarationError(
            name,
            "source",
            f"transactions={shown(topics)} are reported by Debezium alone; leave them out",
        )
    if isinstance(source, KafkaTopic) and (
        fnmatchcase(source.topic, topics) or fnmatchcase(topics, source.heartbeats)
    ):
        own = "of its rows" if fnmatchcase(source.topic, topics) else "of heartbeats"
        problem = (
            f"transactions={shown(topics)} are also the topic {own}; name the connector's own, "
            f"such as shop.transaction"
        )
        raise DeclarationError(name, "source", problem)


def _check_types(name: str, types: object, envelope: Envelope) -> None:
    if not isinstance(types, Mapping) or not all(
        isinstance(part, str) for pair in types.items() for part in pair
    ):
        raise DeclarationError(
            name,
            "types",
            f'{shown(types)} is no map of columns to their types, such as {{"id": "bigint"}}',
        )
    if types and isinstance(envelope, Debezium):
        raise DeclarationError(
            name,
            "types",
            "is not read, as messages of Debezium bring their columns' types; leave it out",
        )


def _checked_names(
    name: str, names: object, merge: CDCMerge, table_format: TableFormat
) -> Mapping[str, str]:
    """The names here of columns that have others in the database; no two have one."""
    if not isinstance(names, Mapping):
        raise DeclarationError(
            name, "names", f'{shown(names)} is no map of names, such as {{"amt": "amount"}}'
        )
    checked_columns(name, "names", names.keys())
    here = checked_columns(name, "names", names.values())
    for one in here:
        if why := why_refused(one, table_format):
            raise DeclarationError(name, "names", f"names {one!r}: {why}; give it another name")
    left_out = [one for one in here if not merge.takes(one)]
    if left_out:
        problem = (
            f"names {left_out[0]!r}, which merge.column_list leaves out; merge speaks of the names "
            f"here"
        )
        raise DeclarationError(name, "names", problem)
    return MappingProxyType(dict(names))


def _check_taken(
    name: str,
    merge: CDCMerge,
    types: Mapping[str, str],
    names: Mapping[str, str],
    table_format: TableFormat,
) -> None:
    """Refuse columns whose names no table can have."""
    given = {folded(there): here for there, here in names.items()}
    for where, columns in (("merge", merge.keys), ("types", types)):
        for column in columns:
            here = given.get(folded(column), column) if where == "types" else column
            if merge.takes(here) and (why := why_refused(here, table_format)):
                remedy = f"give it another name by names={{{column!r}: …}}"
                raise DeclarationError(
                    name,
                    where,
                    f"names {column!r}: {why}; {remedy}, or leave it out by "
                    f"merge.except_column_list",
                )


def _drift(name: str, value: object) -> Drift:
    try:
        return Drift(str(value))
    except ValueError:
        raise DeclarationError(
            name, "on_drift", f"{shown(value)} is none of {', '.join(Drift)}"
        ) from None
