"""`lakechime cdc`: CDC tables."""

import datetime as dt
import json
import os
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import cdc_compare, common
from lakechime_dagster.cli.common import (
    MAX_LIMIT,
    DryRun,
    Json,
    Reason,
    Who,
    count,
    followed_table,
    followed_tables,
    note,
    one_line,
    open_platform,
    print_facts,
    print_json,
    print_table,
    say,
    shown_fact,
    subscription_declared,
)
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, NotFoundError, shown
from lakechime_dagster.settings import Settings, load_settings

if TYPE_CHECKING:
    from lakechime_dagster.cdc.plan import Finding, Sample
    from lakechime_dagster.cdc.service import Epochs, Followed
    from lakechime_dagster.formats.delta_rows import DeltaRows
    from lakechime_dagster.tables.cdc import ChangeTable
    from lakechime_dagster.triggers.registry import ConsumerRow


Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc list` shows it.")]


def rebuild(
    name: Name,
    reason: Reason,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only said what would happen.")] = False,
    who: Who = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make a table anew from all messages of its bronze table; nothing is asked of the database.

    It is put back to the beginning, as by `trigger seek TABLE --to beginning`, so that its next run replaces it.
    """
    from lakechime_dagster.cdc.service import Followed
    from lakechime_dagster.cli.trigger import sought
    from lakechime_dagster.triggers.triggers import StartFrom

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    followed = Followed(platform, followed_table(name, platform.settings))
    subscription, beginning = subscription_declared(name, None, manual=True), StartFrom("beginning")
    facts = _replaced(followed)
    if not facts["messages"]:
        raise LakeChimeError(f"{followed.table.bronze.name} holds no message, so that {name} would be empty; nothing was done")
    if not (dry_run or yes):
        raise LakeChimeError(f"{_sentence(name, facts)}; nothing was done: say --yes to do it")
    moved = sought(platform, subscription, beginning, by, dry_run=dry_run)
    if as_json:
        places = [{"before": consumer.checkpoint.to_json(), "after": place.to_json()} for consumer, place in moved]
        print_json({"table": name, **facts, "consumers": places, "dry_run": dry_run})
    else:
        say(f"{_sentence(name, facts)}{'; nothing was done' if dry_run else ''}")


def epoch(
    name: Name,
    confirm: Annotated[bool, typer.Option("--confirm", help="What follows is newer, though its positions are lower: go on.")] = False,
    source: Annotated[str | None, typer.Option("--source", help="Only if this source is asked about.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept with who and when.")] = "its positions begin anew",
    who: Who = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Show how far a table's sources have come and why its consumer is held; with `--confirm` let positions begin anew.

    Positions go back where a database was replaced by another, or its log began anew. Confirmed, all that follows counts as
    newer than all that came before.
    """
    from lakechime_dagster.cdc.service import Followed, confirm_epoch, epochs_of

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    followed = Followed(platform, followed_table(name, platform.settings))
    epochs = epochs_of(followed)
    if source is not None and source != epochs.asks:
        asked = f"about {epochs.asks}" if epochs.asks else "about no source"
        raise common.wrong("--source", f"{shown(source)} is not asked about: {name} asks {asked}")
    if confirm and epochs.step is None:
        consumer = followed.consumer(name)
        why = f"is BLOCKED: {consumer.state_reason}" if consumer is not None and consumer.state_reason else "waits for nobody"
        raise LakeChimeError(f"no step of {name} asks whether positions may begin anew: its consumer {why}; nothing was changed")
    opened = None
    if confirm:
        subscription = subscription_declared(name, None, manual=True)
        opened = epochs.next if dry_run else confirm_epoch(followed, subscription, epochs, by)
    document = _document(followed, epochs) | {"confirmed": opened, "dry_run": dry_run}
    if as_json:
        print_json(document)
    elif confirm:
        would = "would be" if dry_run else "is"
        say(f"epoch {opened} of {epochs.asks} {would} open; the step of {name} {would} tried again by its sensor")
    else:
        _print(document)


def _replaced(followed: "Followed") -> dict[str, Any]:
    """What a rebuild reads and replaces."""
    return {"messages": followed.bronze.count(), "rows": followed.target.count(), "remembered": followed.changes()}


def _sentence(name: str, facts: dict[str, Any]) -> str:
    return (
        f"the next run of {name} reads all {count(facts['messages'], 'message')} of its bronze table again, and replaces its "
        f"{count(facts['rows'], 'row')} and the {count(facts['remembered'], 'change')} that are remembered; what it refuses again comes "
        "to its quarantine once more"
    )


def _document(followed: "Followed", epochs: "Epochs") -> dict[str, Any]:
    consumer = followed.consumer(followed.table.name)
    places = [
        {
            "source": one.source,
            "topic": one.topic,
            "partition": one.partition,
            "epoch": one.epoch,
            "position": list(one.position),
            "offset": one.offset,
        }
        for one in epochs.places
    ]
    return {
        "table": followed.table.name,
        "state": consumer.state.value if consumer else None,
        "reason": consumer.state_reason if consumer else "",
        "asks": epochs.asks or None,
        "opened": epochs.opened,
        "places": places,
    }


def _print(document: dict[str, Any]) -> None:
    facts = {"table": document["table"], "consumer": document["state"] or "not begun", "reason": document["reason"]}
    print_facts({name: value for name, value in facts.items() if value})
    say("")
    rows = [
        [one["source"], one["topic"], one["partition"], one["epoch"], document["opened"].get(one["source"]), one["position"], one["offset"]]
        for one in document["places"]
    ]
    columns = ["source", "topic", "partition", "epoch", "open up to", "position", "offset"]
    print_table(columns, rows, empty="nothing is remembered of positions yet")


SourceUrl = Annotated[
    str | None,
    typer.Option(
        "--source-url",
        envvar="LAKECHIME_SOURCE_URL",
        help="With --types: the database, such as mysql://reader@host/shop; else the monitor's.",
    ),
]
SourceTable = Annotated[str | None, typer.Option("--source-table", metavar="SCHEMA.TABLE", help="The table there; else the monitor's.")]


def source_url(given: str | None, table: "ChangeTable", settings: Settings) -> str | None:
    """The database: the one that is given, or that a monitor compares the table with; none where the environment lacks it.

    Raises:
        LakeChimeError: One is given, and this deployment may ask none.
    """
    from lakechime_dagster.cdc.database import QUERIES_OFF, check_source_queries, dialect_of

    if given is not None:
        with common.reading("--source-url"):
            dialect_of(given)
        check_source_queries(settings)
        return given
    if table.monitor is not None and not settings.may_ask_sources:
        note(QUERIES_OFF)
        return None
    try:
        return table.monitor.url(os.environ) if table.monitor is not None else None
    except InvalidValueError as error:
        note(f"the database is not asked: {error}")
        return None


def source_table(given: str | None, table: "ChangeTable") -> str | None:
    """The table there: the one that is given, or that a monitor compares the table with."""
    if given is not None and [bool(part) for part in given.split(".")] != [True, True]:
        raise common.wrong("--source-table", f"{shown(given)} is no schema.table of the database, such as shop.orders")
    return given or (table.monitor.table if table.monitor is not None else None)


def plan(
    name: Name,
    url: SourceUrl = None,
    there: SourceTable = None,
    of_types: Annotated[
        bool,
        typer.Option("--types", help="Only write the types={…} of a table whose messages have none, as the database has its columns."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a table is made of, and how its connector should be set up, by the newest 200 messages of its bronze table.

    With `--types` the database is read, and the exit code is 1 when a column has no exact type.
    """
    from lakechime_dagster.cdc.plan import findings, sample_of
    from lakechime_dagster.cdc.service import Followed

    if of_types:
        settings = load_settings()
        table = followed_table(name, settings)
        _types(table, url, source_table(there, table), settings, as_json=as_json)
        return
    platform = open_platform()
    table = followed_table(name, platform.settings)
    followed = Followed(platform, table)
    sample = sample_of(followed)
    document = _plan_document(followed, sample, findings(sample))
    if as_json:
        print_json(document)
    else:
        _plan_print(document)


def _plan_document(followed: "Followed", sample: "Sample", found: "list[Finding]") -> dict[str, Any]:
    bronze = followed.table.bronze
    tables = {"messages": followed.bronze, "rows": followed.target, "remembered": followed.state, "refused": followed.quarantine}
    return {
        "table": followed.table.name,
        "source": str(bronze.feed),
        "envelope": type(bronze.envelope).__name__,
        "keys": list(bronze.keys),
        "tables": [_table(role, rows) for role, rows in tables.items()],
        "sample": {"messages": len(sample.messages), "kinds": sample.kinds, "sources": sample.sources, "columns": sample.columns},
        "findings": [vars(one) | {"weight": one.weight.value} for one in found],
    }


def _table(role: str, rows: "DeltaRows") -> dict[str, Any]:
    return {"role": role, "name": rows.log.table, "location": rows.log.shown_location, "exists": rows.log.exists()}


def _plan_print(document: Mapping[str, Any]) -> None:
    sample = document["sample"]
    print_facts({name: document[name] for name in ("table", "source", "envelope")} | {"keys": ", ".join(document["keys"])})
    say("")
    rows = [[one["role"], one["name"], one["location"], "yes" if one["exists"] else "not yet"] for one in document["tables"]]
    print_table(["holds", "table", "location", "is there"], rows, empty="")
    say("")
    kinds = ", ".join(f"{kind} {number}" for kind, number in sample["kinds"].items())
    say(f"{count(sample['messages'], 'message')} of the bronze table read: {kinds or 'none'}")
    facts = {"sources": ", ".join(sample["sources"])}
    facts |= {"columns": ", ".join(f"{name} {ddl}" for name, ddl in sample["columns"].items())}
    print_facts({name: value for name, value in facts.items() if value})
    say("")
    for one in document["findings"]:
        say(f"{one['weight']}, {one['about']}: {one_line(one['problem'])}\n    {one['remedy']}")
    if not document["findings"]:
        say("nothing stands in the way")


def _types(table: "ChangeTable", url: str | None, place: str | None, settings: Settings, *, as_json: bool) -> None:
    """Write the types={…} of a table; the exit code is 1 when a column has no exact one."""
    from lakechime_dagster.cdc.database import check_source_queries

    check_source_queries(settings)
    columns = _columns(table, source_url(url, table, settings), place)
    known = {column: ddl for column, (_, ddl) in columns.items() if ddl is not None}
    refused = {column: kind for column, (kind, ddl) in columns.items() if ddl is None}
    if as_json:
        print_json({"table": table.name, "source_table": place, "types": known, "refused": refused})
    else:
        _print_types(columns)
    if missing := [key for key in table.bronze.keys if key not in columns]:
        note(f"{place} has no column {', '.join(missing)} of the declared key; is it this table?")
    if refused:
        told = ", ".join(f"{column} ({one_line(kind)})" for column, kind in refused.items())
        note(f'no exact type for {told}: declare "string" to keep the text that the tool writes, or let the tool leave the column out')
        raise typer.Exit(1)


def _columns(table: "ChangeTable", url: str | None, place: str | None) -> Mapping[str, tuple[str, str | None]]:
    """Of each column its type in the database, and the lake's."""
    from lakechime_dagster.cdc.canonical import Dialect
    from lakechime_dagster.cdc.database import column_types, connected
    from lakechime_dagster.cdc.database_types import lake_type
    from lakechime_dagster.tables.databases import Canal, Debezium, Maxwell

    envelope = table.bronze.envelope
    if isinstance(envelope, Debezium):
        remedy = "set value.converter.schemas.enable=true in the connector, or declare SourceSchema(read_from=…)"
        raise LakeChimeError(f"{table.name} declares no types: messages of Debezium bring them; {remedy}")
    if url is None:
        raise common.wrong("--source-url", "give the URL of the database, or declare change_table(…, monitor=Monitor(…))")
    if place is None:
        raise common.wrong("--source-table", "give the table of the database, such as shop.orders")
    schema, _, name = place.partition(".")
    with connected(url) as (connection, dialect):
        if dialect is Dialect.POSTGRES and isinstance(envelope, Canal | Maxwell):
            raise common.wrong("--source-url", f"{type(envelope).__name__} follows MySQL and MariaDB, and this is PostgreSQL")
        found = column_types(connection, schema, name)
    return {column: (kind, lake_type(dialect, kind)) for column, kind in found.items()}


def _print_types(columns: Mapping[str, tuple[str, str | None]]) -> None:
    say("types={")
    for column, (kind, ddl) in columns.items():
        written = json.dumps(column, ensure_ascii=False)
        say(f'    {written}: "{ddl}",' if ddl is not None else f"    # {written}: {one_line(kind)} has no exact type")
    say("},")


app = typer.Typer(name="cdc", help="Tables that follow a database: list, plan, explain a key, see what was refused, rebuild.")

MESSAGES = 20  # of a key, newest first

app.command("plan")(plan)
app.command("rebuild")(rebuild)
app.command("epoch")(epoch)
app.command("compare")(cdc_compare.compare)
app.command("repair")(cdc_compare.repair)
app.command("load")(cdc_compare.load)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the tables that follow a database: what feeds them, up to where it was read, and what they hold."""
    from lakechime_dagster.cdc.service import Followed

    platform = open_platform()
    documents = [_app_document(Followed(platform, table)) for table in followed_tables(platform.settings)]
    if as_json:
        print_json({"tables": documents})
        return
    columns = ("name", "source", "envelope", "keys", "place", "consumers", "rows", "deleted", "remembered", "waiting", "quarantined")
    rows = [[shown_fact(column, one[column]) for column in columns] for one in (one | {"consumers": _consumers(one)} for one in documents)]
    print_table(columns, rows, empty="the lake declares no table that follows a database")
    for one in documents:
        for problem in one["problems"]:
            say(f"{one['name']}: {problem}")


@app.command()
def explain(
    name: Name,
    key: Annotated[str, typer.Option("--key", metavar="JSON", help="The values of the key's columns, such as '[1]'.")],
    as_json: Json = False,
) -> None:
    """Show all that is known of one key: its row with where each column comes from, what is remembered, its newest messages."""
    from lakechime_dagster.cdc.service import Followed
    from lakechime_dagster.tables.names import HIDDEN

    told = _key(key)
    platform = open_platform()
    followed = Followed(platform, followed_table(name, platform.settings))
    with common.reading("--key"):
        values = followed.key(told)
    rows = followed.rows_of(values)
    remembered = followed.remembered_of(values)
    messages = followed.messages_of(values, MESSAGES)
    if not rows and not remembered and not messages:
        raise NotFoundError(f"nothing is known of key {shown(key)} of {name}: no row, no message, and nothing is remembered")
    document = {
        "table": name,
        "key": json.loads(key),
        "rows": [{n: _plain(value) for n, value in row.items() if n != HIDDEN} for row in rows],
        "orders": [_orders(row[HIDDEN]) for row in rows if row.get(HIDDEN)],
        "remembered": [_of_state(row) for row in remembered],
        "messages": [_plain(row) for row in messages],
    }
    if as_json:
        print_json(document)
        return
    _print_rows(document)
    columns = ("role", "op", "source", "order", "columns", "omitted", "continues", "ts_ms")
    say("\nremembered:")
    print_table(columns, [[_text(row[column]) for column in columns] for row in document["remembered"]], empty="nothing")
    columns = ("topic", "partition", "offset", "timestamp", "kind", "op", "position", "ts_ms", "snapshot", "problem")
    say("\nmessages, newest first:")
    print_table(columns, [[_text(row[column]) for column in columns] for row in document["messages"]], empty="none")


@app.command()
def quarantine(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="At most so many, newest first.")] = 50,
    as_json: Json = False,
) -> None:
    """Show the messages and changes that a table refused, each with its place and the reason."""
    from lakechime_dagster.cdc.service import Followed

    platform = open_platform()
    followed = Followed(platform, followed_table(name, platform.settings))
    total, refused = followed.quarantine.count(), followed.refused(limit)
    if as_json:
        print_json({"table": name, "total": total, "refused": [_plain(row) for row in refused]})
        return
    columns = ("step", "topic", "partition", "offset", "reason")
    print_table(columns, [[row[column] for column in columns] for row in refused], empty=f"{name} has refused nothing")
    if total > len(refused):
        say(f"{count(total - len(refused), 'older one')} not shown; --limit shows more")


def _app_document(followed: "Followed") -> dict[str, Any]:
    """A table; what of it cannot be read hinders no other."""
    table, bronze = followed.table, followed.table.bronze
    consumers = {subscription: followed.consumer(subscription) for subscription in (bronze.name, table.name)}
    fed = consumers[bronze.name]
    document: dict[str, Any] = {
        "name": table.name,
        "source": str(bronze.feed),
        "envelope": type(bronze.envelope).__name__,
        "keys": list(table.keys),
        "place": str(fed.checkpoint.feed) if fed is not None and fed.checkpoint.feed is not None else None,
        "consumers": {subscription: _consumer(consumer) for subscription, consumer in consumers.items()},
        "problems": [],
    }
    counted = {
        "rows": followed.rows,
        "deleted": followed.deleted,
        "remembered": followed.changes,
        "waiting": followed.waiting,
        "quarantined": followed.quarantine.count,
    }
    for fact, counts in counted.items():
        try:
            document[fact] = counts()
        except LakeChimeError as error:
            document[fact] = None
            document["problems"].append(one_line(str(error)))
    return document


def _consumer(consumer: "ConsumerRow | None") -> dict[str, Any]:
    if consumer is None:
        return {"state": None, "reason": "", "completed": 0}
    return {"state": consumer.state.value, "reason": consumer.state_reason, "completed": consumer.completed}


def _consumers(document: Mapping[str, Any]) -> str:
    """The states of its consumers in a word where they are the same."""
    states = {name: consumer["state"] or "not begun" for name, consumer in document["consumers"].items()}
    return next(iter(states.values())) if len({*states.values()}) == 1 else ", ".join(f"{name}: {state}" for name, state in states.items())


def _key(text: str) -> list[Any]:
    try:
        values = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list):
        raise common.wrong("--key", f"{shown(text)} is no JSON array of the values of the key's columns; write such as '[1]'")
    return values


def _print_rows(document: Mapping[str, Any]) -> None:
    for number, row in enumerate(document["rows"]):
        orders = document["orders"][number]["columns"] if number < len(document["orders"]) else {}
        print_table(
            ["column", "value", "told at"], [[column, _text(value), _text(orders.get(column))] for column, value in row.items()], empty=""
        )
        if number < len(document["orders"]):
            print_facts({fact: _text(value) for fact, value in document["orders"][number].items() if fact != "columns"})
    if not document["rows"]:
        say("the table has no row of this key")


def _orders(text: str) -> dict[str, Any]:
    """What the hidden column tells: the source, the orders of the newest upsert and deletion, and those of columns told otherwise."""
    told = json.loads(text)
    deleted = told["ended"][0] if "ended" in told else told.get("deleted")
    return {
        "source": told["source"],
        "upserted": told["at"] and json.loads(told["at"]),
        "deleted": deleted and json.loads(deleted),
        "columns": {column: json.loads(order) for column, order in told.get("columns", {}).items()},
    }


def _of_state(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of what is remembered, its texts as the JSON that they are."""
    parsed = {name: json.loads(row[name]) for name in ("order", "columns", "omitted", "continues") if row.get(name) is not None}
    return {**_plain(row), **parsed}


def _plain(value: Any) -> Any:
    """A value of a table as JSON has it; what that has no value for is text."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.date):  # of times too
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _text(value: Any) -> str:
    """A value in a cell of a table for people."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
