"""`lakechime cdc`: tables that follow a database; what they hold, remember and refused, and what a person does to them."""

import datetime as dt
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.cdc import compare, moves
from lakechime_dagster.cli.cdc import plan as cdc_plan
from lakechime_dagster.cli.context import followed_table, followed_tables, open_platform
from lakechime_dagster.cli.options import MAX_LIMIT, Json
from lakechime_dagster.cli.output import count, one_line, print_facts, print_json, print_table, say, shown_fact
from lakechime_dagster.errors import LakeChimeError, NotFoundError, shown

if TYPE_CHECKING:
    from lakechime_dagster.resources.following.followed import Followed
    from lakechime_dagster.store.ledger_rows import LaneRow

app = typer.Typer(name="cdc", help="Tables that follow a database: list, plan, explain a key, see what was refused, rebuild.")

Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc list` shows it.")]
MESSAGES = 20  # of a key, newest first

app.command("plan")(cdc_plan.plan)
app.command("rebuild")(moves.rebuild)
app.command("epoch")(moves.epoch)
app.command("compare")(compare.compare)
app.command("repair")(compare.repair)
app.command("load")(compare.load)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the tables that follow a database: what feeds them, up to where it was read, and what they hold."""
    from lakechime_dagster.resources.following.followed import Followed

    platform = open_platform()
    documents = [_document(Followed(platform, table)) for table in followed_tables(platform.settings)]
    if as_json:
        print_json({"tables": documents})
        return
    columns = ("name", "source", "envelope", "keys", "place", "lanes", "rows", "deleted", "remembered", "waiting", "quarantined")
    rows = [[shown_fact(column, one[column]) for column in columns] for one in (one | {"lanes": _lanes(one)} for one in documents)]
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
    from lakechime_dagster.lake.own_columns import HIDDEN
    from lakechime_dagster.resources.following.followed import Followed

    told = _key(key)
    platform = open_platform()
    followed = Followed(platform, followed_table(name, platform.settings))
    with parse.reading("--key"):
        values = followed.key(told)
    rows = followed.rows_of(values)
    remembered = followed.remembered_of(values)
    messages = followed.messages_of(values, MESSAGES)
    if not rows and not remembered and not messages:
        raise NotFoundError(f"nothing is known of key {shown(key)} of {name}: no row, no message, and nothing is remembered")
    document = {
        "table": name, "key": json.loads(key), "rows": [{n: _plain(value) for n, value in row.items() if n != HIDDEN} for row in rows],
        "orders": [_orders(row[HIDDEN]) for row in rows if row.get(HIDDEN)],
        "remembered": [_of_state(row) for row in remembered], "messages": [_plain(row) for row in messages],
    }  # fmt: skip
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
    from lakechime_dagster.resources.following.followed import Followed

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


def _document(followed: "Followed") -> dict[str, Any]:
    """A table; what of it cannot be read hinders no other."""
    table, bronze = followed.table, followed.table.bronze
    lanes = {flow: followed.lane(flow) for flow in (bronze.name, table.name)}
    fed = lanes[bronze.name]
    document: dict[str, Any] = {
        "name": table.name, "source": str(bronze.feed), "envelope": type(bronze.envelope).__name__, "keys": list(table.keys),
        "place": str(fed.place.feed) if fed is not None and fed.place.feed is not None else None,
        "lanes": {flow: _lane(lane) for flow, lane in lanes.items()}, "problems": [],
    }  # fmt: skip
    counted = {
        "rows": followed.rows, "deleted": followed.deleted, "remembered": followed.changes, "waiting": followed.waiting,
        "quarantined": followed.quarantine.count,
    }  # fmt: skip
    for fact, counts in counted.items():
        try:
            document[fact] = counts()
        except LakeChimeError as error:
            document[fact] = None
            document["problems"].append(one_line(str(error)))
    return document


def _lane(lane: "LaneRow | None") -> dict[str, Any]:
    if lane is None:
        return {"state": None, "reason": "", "settled": 0}
    return {"state": lane.state.value, "reason": lane.state_reason, "settled": lane.settled}


def _lanes(document: Mapping[str, Any]) -> str:
    """The states of its lanes in a word where they are the same."""
    states = {name: lane["state"] or "not begun" for name, lane in document["lanes"].items()}
    return next(iter(states.values())) if len({*states.values()}) == 1 else ", ".join(f"{name}: {state}" for name, state in states.items())


def _key(text: str) -> list[Any]:
    try:
        values = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list):
        raise parse.wrong("--key", f"{shown(text)} is no JSON array of the values of the key's columns; write such as '[1]'")
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
        "source": told["source"], "upserted": told["at"] and json.loads(told["at"]), "deleted": deleted and json.loads(deleted),
        "columns": {column: json.loads(order) for column, order in told.get("columns", {}).items()},
    }  # fmt: skip


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
