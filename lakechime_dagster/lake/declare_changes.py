"""Declaring a table that follows one of a business database, and the refusal of what cannot work."""

import datetime as dt
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.lake.accounts import Account
from lakechime_dagster.lake.cdc_merge import CDCMerge
from lakechime_dagster.lake.change_tables import CHANGES, BronzeTable, ChangeTable
from lakechime_dagster.lake.databases import Database
from lakechime_dagster.lake.deletes import Deletes
from lakechime_dagster.lake.drift import Drift
from lakechime_dagster.lake.envelopes import Canal, Debezium, Dms, Envelope, Maxwell
from lakechime_dagster.lake.feeds import Feed, JsonLines, KafkaTopic, shard_columns
from lakechime_dagster.lake.maintenance import Maintenance
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.lake.names import MAX_TARGET_NAME, checked_columns, checked_table_name, folded, spelled_as
from lakechime_dagster.lake.own_columns import why_refused
from lakechime_dagster.lake.personal import Personal, PersonalColumns, check_unlisted, checked_personal, column_of
from lakechime_dagster.lake.readers import checked_readers
from lakechime_dagster.lake.reads import Passthrough
from lakechime_dagster.lake.snapshots import Snapshot
from lakechime_dagster.triggers.grid import Schedule


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
    columns: Mapping[str, str | Personal] | None = None,
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
    public: bool = False,
    dagster: Passthrough | None = None,
) -> ChangeTable:
    """Declare a table that follows one of a business database, whose changes a feed brings.

    Beside it lie `<name>__changes`, the messages as they came, and `<name>__state`, what is remembered of changes that are
    not in the table's rows.

    The messages come from `source`, which is asked `every` so often, written as `envelope` says; `types` gives the type of each
    column for envelopes whose messages never bring a schema, or `schema_from` names the database in which they are read, and
    `types` those that it does not tell. Where Debezium's messages bring none, the source's `ddl` names the topic that tells the
    columns, or `schema_from` does as for others. `merge` names the key, and says how changes are merged; `on_drift` what
    becomes of columns that changes bring otherwise than the table has them. A change that comes later than `allowed_lateness`,
    by the database's times, may be refused, as what it needs is forgotten. `columns` gives the names here of columns that have
    others in the database, and of columns by the names here that they hold personal data (`{"email": personal("email")}`);
    `merge` speaks of the names here; a `public` table may hold none. `cluster_by` names columns by which rows lie together, and
    `readers` the programs that read the table beside Spark. With `deletes="soft"` a row that the database deleted stays with
    its last values, and `__DELETED_AT` says when that was; it is null of rows that are there. A snapshot that would delete more
    than `max_delete_ratio` of the rows holds the lane. With `max_transaction`, the longest that a transaction of the database
    lasts, tables may wait for complete hours (`hours`). A step that changes no row leaves no commit; for readers who take the
    watermark from the table's own log, at most `max_continuous_empty_commits` in a row do, and the next one commits it with no
    row: 0 lets each commit. `monitor` says with which table of which database it is compared, `history` names a dump of the
    database's table, whose rows `lakechime cdc load` tells to the table. `maintenance` says how the files of all three tables
    are kept, `write_as` which account writes them.

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
    _check_numbers(name, max_delete_ratio, max_continuous_empty_commits)
    _check_history(name, history, source, envelope)
    names, tagged = _checked_names(name, columns or {}, merge), _checked_personal(name, columns or {}, merge)
    _check_taken(name, merge, types or {}, names)
    clustered = checked_columns(name, "cluster_by", cluster_by)
    check_unlisted(name, "cluster_by", clustered, tagged, "rows lie together by statistics, which it has none of; leave it out")
    there = {folded(here): there for there, here in names.items()}
    keys = tuple(there.get(folded(key), key) for key in merge.keys)
    bronze = BronzeTable(
        name=name + CHANGES, feed=source, envelope=envelope, keys=keys, every=every,
        types=MappingProxyType(spelled_as(keys, types or {})), schema_from=schema_from,
        location=None if location is None else location.rstrip("/") + CHANGES,
        owner=owner, group=group, maintenance=maintenance, write_as=write_as,
        description=f"The changes of {name} as they came from {source}",
    )  # fmt: skip
    return ChangeTable(
        name=name, bronze=bronze, merge=merge, on_drift=_drift(name, on_drift), allowed_lateness=allowed_lateness, owner=owner, group=group,
        location=location, description=description, kinds=tuple(kinds), monitor=monitor, dagster=dagster or {}, columns=names,
        maintenance=maintenance, history=history, write_as=write_as,
        cluster_by=clustered, personal=tagged, public=public, readers=checked_readers(name, readers),
        deletes=_deletes(name, deletes, merge), max_delete_ratio=max_delete_ratio, max_transaction=max_transaction,
        max_continuous_empty_commits=max_continuous_empty_commits,
    )  # fmt: skip


def _check_source(name: str, source: object, envelope: object, types: object) -> None:
    if not isinstance(source, JsonLines | KafkaTopic):
        raise DeclarationError(name, "source", f"{shown(source)} is neither JsonLines(folder) nor KafkaTopic(topic, bootstrap=…)")
    if not isinstance(envelope, Debezium | Canal | Maxwell | Dms):
        raise DeclarationError(name, "envelope", f"{shown(envelope)} is none of Debezium(), Canal(), Maxwell(), Dms()")
    _check_heartbeats(name, source, envelope)
    _check_transactions(name, source, envelope)
    _check_types(name, types, envelope)


def _check_schema_from(name: str, source: Feed, envelope: object, schema_from: object) -> None:
    if schema_from is not None and not isinstance(schema_from, Database):
        raise DeclarationError(name, "schema_from", f"{shown(schema_from)} is no Database(url, table)")
    is_of_debezium = isinstance(envelope, Debezium)
    if schema_from is not None and source.shards:
        remedy = "name the topic of their schema changes by ddl=" if is_of_debezium else "declare types={…}"
        raise DeclarationError(name, "schema_from", f"is one database's table; this one follows those of all shards: {remedy}")
    if isinstance(envelope, Canal | Maxwell) and schema_from is not None and schema_from.is_postgres:
        tool = type(envelope).__name__
        raise DeclarationError(name, "schema_from", f"is in PostgreSQL, which {tool} does not follow; name the database that it reads")
    if source.ddl and not is_of_debezium:
        remedy = "is for Debezium's messages; of this envelope declare schema_from=, or types={…} as `lakechime cdc types` writes them"
        raise DeclarationError(name, "source", f"ddl={shown(source.ddl)} {remedy}")


def _check_times(name: str, every: object, allowed_lateness: object, max_transaction: object) -> None:
    if every is not None and not isinstance(every, Schedule):
        raise DeclarationError(name, "every", f"{shown(every)} is no schedule; write every(minutes=5)")
    if not isinstance(allowed_lateness, dt.timedelta) or allowed_lateness <= dt.timedelta(0):
        raise DeclarationError(name, "allowed_lateness", f"{shown(allowed_lateness)} is not a positive timedelta")
    if max_transaction is not None and (not isinstance(max_transaction, dt.timedelta) or max_transaction < dt.timedelta(0)):
        raise DeclarationError(name, "max_transaction", f"{shown(max_transaction)} is no timedelta of 0 or more")


def _check_numbers(name: str, max_delete_ratio: object, max_continuous_empty_commits: object) -> None:
    if not isinstance(max_delete_ratio, int | float) or not 0 <= max_delete_ratio <= 1:
        raise DeclarationError(name, "max_delete_ratio", f"{shown(max_delete_ratio)} is no part of all rows, from 0 to 1")
    empty = max_continuous_empty_commits
    if empty is not None and (type(empty) is not int or empty < 0):
        problem = f"{shown(empty)} is no number of steps, 0 or more; leave it out to commit only what changes rows"
        raise DeclarationError(name, "max_continuous_empty_commits", problem)


def _check_monitor(name: str, monitor: object, source: Feed) -> None:
    if monitor is None:
        return
    if not isinstance(monitor, Monitor):
        raise DeclarationError(name, "monitor", f"{shown(monitor)} is no Monitor(database=…, table=…)")
    if monitor.database and source.shards:
        problem = "compares with one database's table; this one follows those of all shards: name each one's, Monitor(shards={…})"
        raise DeclarationError(name, "monitor", problem)
    told = shard_columns(source.shards)
    for values in monitor.databases if monitor.shards else ():
        if len(values) != len(told):
            by = f"tell {', '.join(told)}" if told else "are of one database: the source declares no shards="
            raise DeclarationError(name, "monitor", f"shards={shown(values)} has {len(values)} values, and the names of the topics {by}")


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


def _check_transactions(name: str, source: Feed, envelope: Envelope) -> None:
    topics = source.transactions
    if not topics:
        return
    if not isinstance(topics, str):
        raise DeclarationError(name, "source", f"transactions={shown(topics)} is no name of topics, such as shop.transaction")
    if not isinstance(envelope, Debezium):
        raise DeclarationError(name, "source", f"transactions={shown(topics)} are told by Debezium alone; leave them out")
    if isinstance(source, KafkaTopic) and (fnmatchcase(source.topic, topics) or fnmatchcase(topics, source.heartbeats)):
        own = "of its rows" if fnmatchcase(source.topic, topics) else "of heartbeats"
        problem = f"transactions={shown(topics)} are also the topic {own}; name the connector's own, such as shop.transaction"
        raise DeclarationError(name, "source", problem)


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
    named = {there: here for there, here in columns.items() if not isinstance(here, Personal)}
    here = checked_columns(name, "columns", named.values())
    for one in here:
        if why := why_refused(one):
            raise DeclarationError(name, "columns", f"names {one!r}: {why}; give it another name")
    left_out = [one for one in here if not merge.takes(one)]
    if left_out:
        raise DeclarationError(
            name, "columns", f"names {left_out[0]!r}, which merge.column_list leaves out; merge speaks of the names here"
        )
    return MappingProxyType(named)


def _check_taken(name: str, merge: CDCMerge, types: Mapping[str, str], names: Mapping[str, str]) -> None:
    """Refuse columns whose names no table can have."""
    given = {folded(there): here for there, here in names.items()}
    for where, columns in (("merge", merge.keys), ("types", types)):
        for column in columns:
            here = given.get(folded(column), column) if where == "types" else column
            if merge.takes(here) and (why := why_refused(here)):
                remedy = f"give it another name by columns={{{column!r}: …}}"
                raise DeclarationError(name, where, f"names {column!r}: {why}; {remedy}, or leave it out by merge.except_column_list")


def _checked_personal(name: str, columns: Mapping[str, object], merge: CDCMerge) -> PersonalColumns:
    """The columns that are personal, by their names here."""
    tagged = checked_personal(name, {here: tag for here, tag in columns.items() if isinstance(tag, Personal)})
    left_out = [here for here in tagged if not merge.takes(column_of(here))]
    if left_out:
        raise DeclarationError(name, "columns", f"{left_out[0]!r} is personal, and merge.column_list leaves it out; leave it out here too")
    return tagged


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
