"""`change_table`: how a user declares a table that replicates one of a business database."""

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from types import MappingProxyType

from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.lake.cdc_merge import CDCMerge
from lakechime_dagster.lake.change_tables import CHANGES, BronzeTable, ChangeTable, SourceSchema
from lakechime_dagster.lake.databases import Database
from lakechime_dagster.lake.drift import Drift
from lakechime_dagster.lake.envelopes import Canal, Debezium, Dms, Envelope, Maxwell
from lakechime_dagster.lake.feeds import Feed, JsonLines, KafkaTopic, shard_columns
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.lake.names import MAX_TARGET_NAME, checked_columns, checked_table_name, folded, spelled_as
from lakechime_dagster.lake.options import Asset, Storage, checked_asset, checked_storage
from lakechime_dagster.lake.own_columns import why_refused
from lakechime_dagster.lake.personal import column_of


def change_table(
    name: str,
    *,
    source: Feed,
    envelope: Envelope,
    merge: CDCMerge,
    schema: SourceSchema = SourceSchema(),
    monitor: Monitor | None = None,
    storage: Storage = Storage(),
    asset: Asset = Asset(),
) -> ChangeTable:
    """Declare a table that replicates a table of a business database from the messages of its changes.

    `<name>__changes` holds the messages as they arrived, and `<name>__state` what is remembered of changes that are not in the
    table's rows.

    Args:
        name: Of dotted parts, such as `silver.orders`, which are also its asset key.
        source: `KafkaTopic` or `JsonLines`: where the messages are, and how often it is polled.
        envelope: `Debezium`, `Canal`, `Maxwell` or `Dms`: the tool that writes the messages, and its settings.
        merge: The columns of the key, and how changes are merged.
        schema: Where the types of the columns are found, other names for them, and what happens when they change.
        monitor: The database's table with which it is compared, and when. None: it is not compared.
        storage: How and where its files are stored; `location` and `maintenance` are also those of the tables of messages and of what
            is remembered, in folders with their suffixes.
        asset: What its asset shows. `columns` that hold personal data are named as in this table.

    Raises:
        DeclarationError: naming the table, the field and the remedy.
    """
    checked_table_name(name, "change_table", MAX_TARGET_NAME - len(CHANGES))
    _check_source(name, source, envelope)
    if not isinstance(merge, CDCMerge):
        raise DeclarationError(name, "merge", f"{shown(merge)} is no CDCMerge(keys=[…])")
    columns = _checked_schema(name, schema, source, envelope, merge)
    _check_monitor(name, monitor, source)
    _check_history(name, merge, source, envelope)
    there = {folded(here): there for there, here in (columns.names or {}).items()}
    keys = tuple(there.get(folded(key), key) for key in merge.keys)
    files = checked_storage(name, storage)
    about = checked_asset(name, asset, files)
    bronze = BronzeTable(
        name=name + CHANGES,
        feed=source,
        envelope=envelope,
        keys=keys,
        schema=replace(columns, types=MappingProxyType(spelled_as(keys, columns.types or {}))),
        storage=Storage(
            location=None if files.location is None else files.location.rstrip("/") + CHANGES,
            maintenance=files.maintenance,
            write_as=files.write_as,
        ),
        asset=Asset(owner=about.owner, group=about.group, description=f"The changes of {name} as they came from {source}"),
    )
    table = ChangeTable(name=name, bronze=bronze, merge=merge, schema=columns, monitor=monitor, storage=files, asset=about)
    left_out = [one for one in table.personal if not merge.takes(column_of(one))]
    if left_out:
        raise DeclarationError(name, "columns", f"{left_out[0]!r} is personal, and merge.column_list leaves it out; leave it out here too")
    return table


def _check_source(name: str, source: object, envelope: object) -> None:
    if not isinstance(source, JsonLines | KafkaTopic):
        raise DeclarationError(name, "source", f"{shown(source)} is neither JsonLines(folder) nor KafkaTopic(topic, bootstrap=…)")
    if not isinstance(envelope, Debezium | Canal | Maxwell | Dms):
        raise DeclarationError(name, "envelope", f"{shown(envelope)} is none of Debezium(), Canal(), Maxwell(), Dms()")
    _check_heartbeats(name, source, envelope)
    _check_transactions(name, source, envelope)


def _checked_schema(name: str, schema: object, source: Feed, envelope: Envelope, merge: CDCMerge) -> SourceSchema:
    if not isinstance(schema, SourceSchema):
        raise DeclarationError(name, "schema", f"{shown(schema)} is no SourceSchema(…)")
    _check_read_from(name, source, envelope, schema.read_from)
    types = {} if schema.types is None else schema.types
    _check_types(name, types, envelope)
    names = _checked_names(name, {} if schema.names is None else schema.names, merge)
    _check_taken(name, merge, types, names)
    return replace(schema, types=MappingProxyType(dict(types)), names=names, on_drift=_drift(name, schema.on_drift))


def _check_read_from(name: str, source: Feed, envelope: object, read_from: object) -> None:
    if read_from is not None and not isinstance(read_from, Database):
        raise DeclarationError(name, "read_from", f"{shown(read_from)} is no Database(url, table)")
    is_of_debezium = isinstance(envelope, Debezium)
    if read_from is not None and source.shards:
        remedy = "name the topic of their schema changes by ddl=" if is_of_debezium else "declare SourceSchema(types={…})"
        raise DeclarationError(name, "read_from", f"is one database's table; this one follows those of all shards: {remedy}")
    if isinstance(envelope, Canal | Maxwell) and read_from is not None and read_from.is_postgres:
        tool = type(envelope).__name__
        raise DeclarationError(name, "read_from", f"is in PostgreSQL, which {tool} does not follow; name the database that it reads")
    if source.ddl and not is_of_debezium:
        remedy = "is for Debezium's messages; declare SourceSchema(read_from=…), or types={…} as `lakechime cdc plan --types` writes them"
        raise DeclarationError(name, "source", f"ddl={shown(source.ddl)} {remedy}")


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


def _check_history(name: str, merge: CDCMerge, source: Feed, envelope: Envelope) -> None:
    if merge.history is None:
        return
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
    if not isinstance(types, Mapping) or not all(isinstance(part, str) for pair in types.items() for part in pair):
        raise DeclarationError(name, "types", f'{shown(types)} is no map of columns to their types, such as {{"id": "bigint"}}')
    if types and isinstance(envelope, Debezium):
        raise DeclarationError(name, "types", "is not read, as messages of Debezium bring their columns' types; leave it out")


def _checked_names(name: str, names: object, merge: CDCMerge) -> Mapping[str, str]:
    """The names here of columns that have others in the database; no two have one."""
    if not isinstance(names, Mapping):
        raise DeclarationError(name, "names", f'{shown(names)} is no map of names, such as {{"amt": "amount"}}')
    checked_columns(name, "names", names.keys())
    here = checked_columns(name, "names", names.values())
    for one in here:
        if why := why_refused(one):
            raise DeclarationError(name, "names", f"names {one!r}: {why}; give it another name")
    left_out = [one for one in here if not merge.takes(one)]
    if left_out:
        problem = f"names {left_out[0]!r}, which merge.column_list leaves out; merge speaks of the names here"
        raise DeclarationError(name, "names", problem)
    return MappingProxyType(dict(names))


def _check_taken(name: str, merge: CDCMerge, types: Mapping[str, str], names: Mapping[str, str]) -> None:
    """Refuse columns whose names no table can have."""
    given = {folded(there): here for there, here in names.items()}
    for where, columns in (("merge", merge.keys), ("types", types)):
        for column in columns:
            here = given.get(folded(column), column) if where == "types" else column
            if merge.takes(here) and (why := why_refused(here)):
                remedy = f"give it another name by names={{{column!r}: …}}"
                raise DeclarationError(name, where, f"names {column!r}: {why}; {remedy}, or leave it out by merge.except_column_list")


def _drift(name: str, value: object) -> Drift:
    try:
        return Drift(str(value))
    except ValueError:
        raise DeclarationError(name, "on_drift", f"{shown(value)} is none of {', '.join(Drift)}") from None
