"""`lakechime cdc`: CDC tables."""

import datetime as dt
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    MAX_LIMIT,
    DryRun,
    Json,
    Who,
    Yes,
    answer,
    count,
    declared_lake,
    nearest,
    note,
    one_line,
    open_platform,
    print_documents,
    print_facts,
    print_json,
    print_table,
    record,
    say,
    subscription_declared,
    would,
)
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, NotFoundError, shown
from lakechime_dagster.settings import Settings, load_settings

if TYPE_CHECKING:
    from lakechime_dagster.cdc.compare import Monitored
    from lakechime_dagster.cdc.load_service import Chunk
    from lakechime_dagster.cdc.service import Replica
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.tables.cdc import BronzeTable, CDCTable
    from lakechime_dagster.tables.databases import Monitor

app = typer.Typer(
    name="cdc",
    help="CDC tables: show, check their setup, load, compare with the database and repair.",
)

Name = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc show` lists it.")
]
Document = dict[str, Any]
MESSAGES = 20  # of a key, newest first
MOST_KEYS = 50  # that are shown
MOST_ROWS = 100_000  # rows of a chunk, whose messages are in memory


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Show this table; else list all.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="JSON",
            help="Show one key, by the values of its columns, such as '[1]'.",
        ),
    ] = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Show the messages and changes that were refused.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_LIMIT, help="At most so many refused ones, newest first.")
    ] = 50,
    as_json: Json = False,
) -> None:
    """List the CDC tables, or show one: its source, its positions, what it holds, and why its
    consumer is blocked.

    Of a `--key`: its row with the position of each column, what is remembered of it, and its newest
    messages.
    """
    from lakechime_dagster.cdc.service import Replica, epochs_of

    if name is None and (key is not None or quarantine):
        raise common.wrong("TABLE", "name the table")
    platform = open_platform()
    if name is None:
        _list(
            [_document(Replica(platform, table)) for table in _tables(platform.settings).values()],
            as_json,
        )
        return
    replica = Replica(platform, _table(name, platform.settings))
    if key is not None:
        _show_key(replica, key, as_json)
        return
    if quarantine:
        _show_quarantine(replica, limit, as_json)
        return
    epochs = epochs_of(replica)
    positions = [
        record(one, "source topic partition epoch position offset") for one in epochs.positions
    ]
    document = _document(replica)
    if as_json:
        print_json(
            {
                "table": document
                | {"positions": positions, "opened": epochs.opened, "asks": epochs.asks or None}
            }
        )
        return
    consumers = {f"consumer {each}": _state(one) for each, one in document.pop("consumers").items()}
    print_facts(document | {"asks": epochs.asks} | consumers)
    say("")
    opened = [one | {"open_up_to": epochs.opened.get(one["source"])} for one in positions]
    print_documents(
        opened,
        "source topic partition epoch open_up_to position offset",
        empty="no position is recorded yet",
    )


def _list(documents: list[Document], as_json: bool) -> None:
    if as_json:
        print_json({"tables": documents})
        return
    rows = [
        one | {"consumers": ", ".join(dict.fromkeys(map(_state, one["consumers"].values())))}
        for one in documents
    ]
    facts = (
        "name source envelope keys checkpoint consumers rows deleted remembered waiting quarantined"
    )
    print_documents(rows, facts, empty="the lake declares no CDC table")
    for one in documents:
        for problem in one["problems"]:
            say(f"{one['name']}: {problem}")


def _tables(settings: Settings) -> "dict[str, CDCTable]":
    from lakechime_dagster.tables.cdc import CDCTable

    return {
        table.name: table for table in declared_lake(settings).tables if isinstance(table, CDCTable)
    }


def _table(name: str, settings: Settings) -> "CDCTable":
    """The CDC table of that name.

    Raises:
        NotFoundError: There is none; it names the nearest one, or all.
    """
    tables = _tables(settings)
    if name not in tables:
        raise NotFoundError(
            f"the lake declares no CDC table {shown(name)}; {nearest(name, tables)}"
        )
    return tables[name]


def _document(replica: "Replica") -> Document:
    """A table; a fact that cannot be read does not hide the others."""
    table, bronze = replica.table, replica.table.bronze
    consumers = {
        subscription: replica.consumer(subscription) for subscription in (bronze.name, table.name)
    }
    fed = consumers[bronze.name]
    checkpoint = (
        None if fed is None or fed.checkpoint.offsets is None else str(fed.checkpoint.offsets)
    )
    document: Document = {
        "name": table.name,
        **_setup(bronze),
        "checkpoint": checkpoint,
        "consumers": {
            name: one and record(one, "state completed", reason=one.state_reason)
            for name, one in consumers.items()
        },
        "problems": [],
    }
    counted = {
        "rows": replica.rows,
        "deleted": replica.deleted,
        "remembered": replica.changes,
        "waiting": replica.waiting,
        "quarantined": replica.quarantine.count,
    }
    for fact, counts in counted.items():
        try:
            document[fact] = counts()
        except LakeChimeError as error:
            document[fact] = None
            document["problems"].append(one_line(str(error)))
    return document


def _setup(bronze: "BronzeTable") -> Document:
    return {
        "source": str(bronze.source),
        "envelope": type(bronze.envelope).__name__,
        "keys": bronze.keys,
    }


def _state(consumer: Document | None) -> str:
    """The state of a consumer, and why it is blocked."""
    if consumer is None:
        return "not started"
    return f"{consumer['state']}: {consumer['reason']}" if consumer["reason"] else consumer["state"]


def _show_key(replica: "Replica", key: str, as_json: bool) -> None:
    from lakechime_dagster.tables.names import HIDDEN

    name = replica.table.name
    with common.reading("--key"):
        values = replica.key(_key(key))
    rows, remembered, messages = (
        replica.rows_of(values),
        replica.remembered_of(values),
        replica.messages_of(values, MESSAGES),
    )
    if not rows and not remembered and not messages:
        raise NotFoundError(
            f"nothing is known of key {shown(key)} of {name}: no row, no message, and nothing is "
            f"remembered"
        )
    document = {
        "table": name,
        "key": json.loads(key),
        "rows": [{n: value for n, value in row.items() if n != HIDDEN} for row in rows],
        "orders": [_orders(row[HIDDEN]) for row in rows if row.get(HIDDEN)],
        "remembered": [_of_state(row) for row in remembered],
        "messages": messages,
    }
    if as_json:
        print_json(document)
        return
    for row, orders in zip_longest(document["rows"], document["orders"], fillvalue={"columns": {}}):
        cells = [
            [column, _text(value), _text(orders["columns"].get(column))]
            for column, value in row.items()
        ]
        print_table(["column", "value", "position"], cells, empty="")
        print_facts({fact: _text(value) for fact, value in orders.items() if fact != "columns"})
    if not rows:
        say("the table has no row of this key")
    for title, several, facts in (
        (
            "remembered",
            document["remembered"],
            "role op source order columns omitted continues ts_ms",
        ),
        (
            "messages, newest first",
            messages,
            "topic partition offset timestamp kind op position ts_ms snapshot problem",
        ),
    ):
        say(f"\n{title}:")
        print_documents(
            [{fact: _text(value) for fact, value in row.items()} for row in several],
            facts,
            empty="none",
        )


def _key(text: str) -> list[Any]:
    try:
        values = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list):
        raise common.wrong(
            "--key",
            f"{shown(text)} is no JSON array of the values of the key's columns; write such as "
            f"'[1]'",
        )
    return values


def _orders(text: str) -> Document:
    """The hidden column: the source, the orders of the newest upsert and deletion, and those of
    columns that differ from them.
    """
    hidden = json.loads(text)
    deleted = hidden["ended"][0] if "ended" in hidden else hidden.get("deleted")
    return {
        "source": hidden["source"],
        "upserted": hidden["at"] and json.loads(hidden["at"]),
        "deleted": deleted and json.loads(deleted),
        "columns": {
            column: json.loads(order) for column, order in hidden.get("columns", {}).items()
        },
    }


def _of_state(row: Mapping[str, Any]) -> Document:
    """A row of what is remembered, its texts as the JSON that they are."""
    parsed = {
        name: json.loads(row[name])
        for name in ("order", "columns", "omitted", "continues")
        if row.get(name) is not None
    }
    return {**row, **parsed}


def _text(value: Any) -> str:
    """A value in a cell of a table for people."""
    return (
        ""
        if value is None
        else value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, default=common.plain)
    )


def _show_quarantine(replica: "Replica", limit: int, as_json: bool) -> None:
    name, total, refused = replica.table.name, replica.quarantine.count(), replica.refused(limit)
    if as_json:
        print_json({"table": name, "total": total, "refused": refused})
        return
    print_documents(
        refused, "number topic partition offset reason", empty=f"{name} has refused nothing"
    )
    if total > len(refused):
        say(f"{count(total - len(refused), 'older one')} not shown; --limit shows more")


@app.command()
def epoch(
    name: Name,
    source: Annotated[
        str | None,
        typer.Option("--source", help="Only if this source is the one that is asked about."),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", help="Why; it is kept with who and when.")
    ] = "its positions restart",
    who: Who = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Confirm that positions of a source restart at lower values: its next changes are newer than
    all before.

    For a consumer that is blocked since positions went back, as where a database was replaced, or
    its log restarted; `lakechime cdc show TABLE` shows the positions and the reason. The blocked
    execution is retried.
    """
    from lakechime_dagster.cdc.service import Replica, confirm_epoch, epochs_of

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    replica = Replica(platform, _table(name, platform.settings))
    epochs = epochs_of(replica)
    if source is not None and source != epochs.asks:
        raise common.wrong(
            "--source",
            f"{shown(source)} is not asked about: {name} asks about {epochs.asks or 'no source'}",
        )
    if epochs.execution is None:
        consumer = replica.consumer(name)
        why = (
            f"is BLOCKED: {consumer.state_reason}"
            if consumer is not None and consumer.state_reason
            else "is not blocked"
        )
        raise LakeChimeError(
            f"no execution of {name} asks whether positions restart: its consumer {why}; nothing "
            f"was changed"
        )
    confirmed = (
        epochs.next
        if dry_run
        else confirm_epoch(replica, subscription_declared(name, None, manual=True), epochs, by)
    )
    sentence = (
        f"epoch {confirmed} of {epochs.asks} {would(dry_run)} open; the execution of {name} "
        f"{would(dry_run)} retried by its sensor"
    )
    answer(
        as_json,
        {"table": name, "asks": epochs.asks, "confirmed": confirmed, "dry_run": dry_run},
        sentence,
    )


SourceUrl = Annotated[
    str | None,
    typer.Option(
        "--source-url",
        envvar="LAKECHIME_SOURCE_URL",
        help="With --types: the database, as mysql://reader@host/shop; else the monitor's.",
    ),
]
SourceTable = Annotated[
    str | None,
    typer.Option(
        "--source-table",
        metavar="SCHEMA.TABLE",
        help="The table of the database; else the monitor's.",
    ),
]


@app.command()
def check(
    name: Name,
    url: SourceUrl = None,
    of_database: SourceTable = None,
    of_types: Annotated[
        bool,
        typer.Option(
            "--types",
            help=(
                "Only write the types={…} of a table whose messages have none, as the database has "
                "its columns."
            ),
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the setup of a table: show its tables, and how its connector should be set up, by the
    newest 200 messages of its bronze table.

    With `--types` the database is read, and the exit code is 1 when a column has no exact type.
    """
    from lakechime_dagster.cdc.plan import findings, sample_of
    from lakechime_dagster.cdc.service import Replica

    settings = load_settings()
    table = _table(name, settings)
    if of_types:
        _types(table, url, _source_table(of_database, table), settings, as_json=as_json)
        return
    replica = Replica(open_platform(), table)
    sample = sample_of(replica)
    tables = {
        "messages": replica.bronze,
        "rows": replica.target,
        "remembered": replica.state,
        "refused": replica.quarantine,
    }
    document = {
        "table": table.name,
        **_setup(table.bronze),
        "tables": [
            {
                "role": role,
                "name": rows.log.table,
                "location": rows.log.shown_location,
                "exists": rows.log.exists(),
            }
            for role, rows in tables.items()
        ],
        "sample": record(sample, "kinds sources columns", messages=len(sample.messages)),
        "findings": findings(sample),
    }
    if as_json:
        print_json(document)
        return
    print_facts({name: document[name] for name in ("table", "source", "envelope", "keys")})
    say("")
    print_documents(document["tables"], "role name location exists")
    kinds = ", ".join(f"{kind} {number}" for kind, number in sample.kinds.items())
    say(f"\n{count(len(sample.messages), 'message')} of the bronze table read: {kinds or 'none'}")
    print_facts(
        {
            "sources": sample.sources,
            "columns": [f"{name} {ddl}" for name, ddl in sample.columns.items()],
        }
    )
    say("")
    for one in document["findings"]:
        say(f"{one.weight}, {one.about}: {one_line(one.problem)}\n    {one.remedy}")
    if not document["findings"]:
        say(
            "no problem was found"
            if sample.messages
            else "nothing was checked: let the table run once, so that it has messages"
        )


def _source_url(given: str | None, table: "CDCTable", settings: Settings) -> str | None:
    """The database: the one that is given, or that of the table's monitor; none where the
    environment lacks it.

    Raises:
        LakeChimeError: One is given, and this deployment must not query any.
    """
    from lakechime_dagster.cdc.database import QUERIES_OFF, check_source_queries, dialect_of

    if given is not None:
        with common.reading("--source-url"):
            dialect_of(given)
        check_source_queries(settings)
        return given
    if table.monitor is None or table.monitor.database is None:
        return None
    try:
        if settings.may_ask_sources:
            return table.monitor.database.address(os.environ)
        note(QUERIES_OFF)
    except InvalidValueError as error:
        note(f"the database is not queried: {error}")
    return None


def _source_table(given: str | None, table: "CDCTable") -> str | None:
    if given is not None and [bool(part) for part in given.split(".")] != [True, True]:
        raise common.wrong(
            "--source-table",
            f"{shown(given)} is no schema.table of the database, such as shop.orders",
        )
    declared = table.monitor.database if table.monitor is not None else None
    return given or (declared.table if declared is not None else None)


def _types(
    table: "CDCTable",
    url: str | None,
    source_table: str | None,
    settings: Settings,
    *,
    as_json: bool,
) -> None:
    """Write the types={…} of a table; the exit code is 1 when a column has no exact one."""
    from lakechime_dagster.cdc.database import check_source_queries

    check_source_queries(settings)
    columns = _columns(table, _source_url(url, table, settings), source_table)
    refused = {column: kind for column, (kind, ddl) in columns.items() if ddl is None}
    if as_json:
        known = {column: ddl for column, (_, ddl) in columns.items() if ddl is not None}
        print_json(
            {"table": table.name, "source_table": source_table, "types": known, "refused": refused}
        )
    else:
        say("types={")
        for column, (kind, ddl) in columns.items():
            written = json.dumps(column, ensure_ascii=False)
            say(
                f'    {written}: "{ddl}",'
                if ddl is not None
                else f"    # {written}: {one_line(kind)} has no exact type"
            )
        say("},")
    if missing := [key for key in table.bronze.keys if key not in columns]:
        note(
            f"{source_table} has no column {', '.join(missing)} of the declared key; is it this "
            f"table?"
        )
    if refused:
        several = ", ".join(f"{column} ({one_line(kind)})" for column, kind in refused.items())
        note(
            f'no exact type for {several}: declare "string" to keep the text that the tool writes, '
            f"or let the tool leave the column out"
        )
        raise typer.Exit(1)


def _columns(
    table: "CDCTable", url: str | None, source_table: str | None
) -> Mapping[str, tuple[str, str | None]]:
    """Of each column its type in the database, and the lake's."""
    from lakechime_dagster.cdc.canonical import Dialect
    from lakechime_dagster.cdc.database import column_types, connected
    from lakechime_dagster.cdc.database_types import lake_type
    from lakechime_dagster.tables.databases import Canal, Debezium, Maxwell

    envelope = table.bronze.envelope
    if isinstance(envelope, Debezium):
        remedy = (
            "set value.converter.schemas.enable=true in the connector, or declare "
            "SourceSchema(read_from=…)"
        )
        raise LakeChimeError(
            f"{table.name} declares no types: messages of Debezium bring them; {remedy}"
        )
    if url is None:
        raise common.wrong(
            "--source-url",
            "give the URL of the database, or declare cdc_table(…, monitor=Monitor(…))",
        )
    if source_table is None:
        raise common.wrong("--source-table", "give the table of the database, such as shop.orders")
    schema, _, name = source_table.partition(".")
    with connected(url) as (connection, dialect):
        if dialect is Dialect.POSTGRES and isinstance(envelope, Canal | Maxwell):
            raise common.wrong(
                "--source-url",
                f"{type(envelope).__name__} captures MySQL and MariaDB, and this is PostgreSQL",
            )
        found = column_types(connection, schema, name)
    return {column: (kind, lake_type(dialect, kind)) for column, kind in found.items()}


@app.command()
def compare(
    name: Name,
    within: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="For how long a row may differ while it is on its way; as declared unless given.",
        ),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Append the database's rows of keys that differ to the bronze table, to be merged.",
        ),
    ] = False,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="JSON",
            help="Repair this key, such as '[1]', without comparing; may be repeated.",
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Compare a table with its database, once, at a consistent snapshot and while its runs
    continue; repair it with `--repair`.

    The exit code is 1 when rows differ, or the comparison is incomplete; with `--repair` when the
    comparison is, or a key stays unrepaired, as one that the lake has twice. The database is only
    read.
    """
    from lakechime_dagster.cdc.compare import document

    if (keys or dry_run) and not repair:
        raise common.wrong("--key" if keys else "--dry-run", "is of a repair; give --repair too")
    platform = open_platform(dry_run=dry_run)
    table = _table(name, platform.settings)
    monitor = _monitor(platform, table, within)
    if repair:
        is_same = _repair(platform, table, monitor, keys or [], dry_run=dry_run, as_json=as_json)
    else:
        found = _compared(platform, table, monitor)
        is_same = found.is_same
        if as_json:
            print_json(document(found, MOST_KEYS))
        else:
            _print_found(found)
    if not is_same:
        raise typer.Exit(1)


def _monitor(platform: "Platform", table: "CDCTable", within: float | None = None) -> "Monitor":
    """The monitor of a table whose database may be queried.

    Raises:
        LakeChimeError: it may not, or none is declared.
    """
    from lakechime_dagster.cdc.database import check_source_queries

    check_source_queries(platform.settings)
    if table.monitor is None or not table.monitor.is_comparing:
        raise LakeChimeError(
            f"{table.name} declares no database to compare it with; declare cdc_table(…, "
            f"monitor=Monitor(…))"
        )
    return (
        table.monitor
        if within is None
        else replace(table.monitor, within=dt.timedelta(seconds=within))
    )


def _compared(platform: "Platform", table: "CDCTable", monitor: "Monitor") -> "Monitored":
    from lakechime_dagster.cdc.service import Replica
    from lakechime_dagster.cdc.spark_compare import monitored, opened_driver

    with opened_driver(platform, note) as driver:
        return monitored(driver.spark, Replica(platform, table).tables, monitor)


def _repair(
    platform: "Platform",
    table: "CDCTable",
    monitor: "Monitor",
    given: list[str],
    *,
    dry_run: bool,
    as_json: bool,
) -> bool:
    """Append the database's rows of the keys, or of those that differ; whether none is left."""
    from lakechime_dagster.cdc.compare import Fault, key_given, key_shown
    from lakechime_dagster.cdc.load_service import repair_declared

    with common.reading("--key"):
        keys, twice, unresolved = [key_given(key, len(table.keys)) for key in given], [], 0
    if not keys:
        found = _compared(platform, table, monitor)
        if found.is_truncated:
            raise LakeChimeError(
                f"{found.table} was truncated after the snapshot, so that nothing is known of its "
                f"rows; compare again"
            )
        keys = [key for key, fault in found.faults.items() if fault is not Fault.DUPLICATE]
        twice = [key_shown(key) for key, fault in found.faults.items() if fault is Fault.DUPLICATE]
        unresolved = found.unresolved
    is_repaired = not twice and not unresolved
    done = repair_declared(platform, table, monitor, keys, dry_run=dry_run) if keys else None
    if as_json:
        appended = {
            of: [*map(key_shown, getattr(done, of))] if done else [] for of in ("rows", "deletions")
        }
        commit = record(done, "snapshot version") if done else {}
        left = {"twice": twice, "not_compared_ranges": unresolved}
        print_json({"table": table.name, **commit, **appended, **left, "dry_run": dry_run})
        return is_repaired
    if done is None:
        say(f"no row of {table.name} is to be repaired")
    else:
        rows, gone = count(len(done.rows), "row"), count(len(done.deletions), "deletion")
        where = (
            f"version {done.version} of {table.bronze.name}"
            if done.version is not None
            else table.bronze.name
        )
        say(
            f"{rows} and {gone} {'would be' if dry_run else 'were'} appended to {where}, as the "
            f"database has them at {done.snapshot}"
        )
    for key in twice:
        remedy = (
            f"`lakechime trigger seek {table.name} --to beginning --reason …` rebuilds the table"
        )
        say(f"the lake has {key} twice, which a repair does not change: {remedy}")
    _print_unresolved(unresolved)
    return is_repaired


def _print_found(found: "Monitored") -> None:
    from lakechime_dagster.cdc.compare import key_shown

    say(
        f"{found.table} at version {found.version}, the database at {found.snapshot}: "
        f"{found.lake_rows:,} and {found.source_rows:,} rows"
    )
    rows = [[key_shown(key), fault.value] for key, fault in list(found.faults.items())[:MOST_KEYS]]
    print_table(["key", "is"], rows, empty="no row differs")
    if len(found.faults) > MOST_KEYS:
        say(f"and {len(found.faults) - MOST_KEYS:,} more")
    if found.faults and not found.is_passed:
        say("the lake has not read past the snapshot: what is missing may still be on its way")
    if found.left_out:
        say(f"{count(found.left_out, 'key')} left out: the lake is past the snapshot with them")
    _print_unresolved(found.unresolved)
    if found.is_truncated:
        say(
            "the table was truncated after the snapshot, so that nothing is known of its rows; "
            "compare again"
        )
    for column, reason in found.unchecked.items():
        say(f"not compared: {shown(column)}, as {reason}")


def _print_unresolved(ranges: int) -> None:
    if ranges:
        say(
            f"{count(ranges, 'range')} not compared: too much differs; repair or rebuild, and "
            f"compare again"
        )


@app.command()
def load(
    name: Name,
    path: Annotated[
        Path, typer.Option("--from", metavar="PATH", help="The dump: Parquet or JSON lines.")
    ],
    as_of: Annotated[
        str,
        typer.Option(
            "--as-of",
            metavar="POSITION",
            help="The position of the database's log at which the dump was made.",
        ),
    ],
    chunk: Annotated[
        int,
        typer.Option("--chunk", min=1, max=MOST_ROWS, metavar="ROWS", help="So many rows at once."),
    ] = 10_000,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Load the rows of a dump into the bronze table, from which the table's runs merge them.

    For a connector that took no snapshot. A dump is a file, or a folder, of Parquet or of JSON
    lines. No consumer stops.
    """
    from lakechime_dagster.cdc.change import stated_position
    from lakechime_dagster.cdc.compare import key_shown
    from lakechime_dagster.cdc.load_service import load_dump

    with common.reading("--as-of"):
        stated = stated_position(as_of)
    is_done = yes and not dry_run
    platform = open_platform(dry_run=not is_done)
    table = _table(name, platform.settings)
    chunks: list[Chunk] = []
    for one in load_dump(
        platform, table, path.expanduser().absolute(), stated, chunk, dry_run=not is_done
    ):
        chunks.append(one)
        if is_done:
            note(f"{count(one.total, 'row')} loaded, the last of them {key_shown(one.last)}")
    if not chunks:
        raise LakeChimeError(
            f"the dump has no row for {table.bronze.name}; name the dump of a table with rows"
        )
    last, bronze = chunks[-1], table.bronze.name
    planned = (
        f"{count(last.rows, 'row')}, the last of them {key_shown(last.last)}, would be loaded into "
        f"{bronze}"
    )
    common.confirm(planned, yes=yes, dry_run=dry_run)
    loaded = [record(one, "snapshot rows version", last=key_shown(one.last)) for one in chunks]
    compares = (
        "" if table.monitor is None else f", and `lakechime cdc compare {table.name}` compares"
    )
    done = (
        f"{count(last.total, 'row')} loaded into {bronze} in {count(len(chunks), 'chunk')}; its "
        f"consumer merges them{compares}"
    )
    document = {"table": table.name, "rows": last.total, "chunks": loaded, "dry_run": dry_run}
    answer(as_json, document, done if is_done else planned)
