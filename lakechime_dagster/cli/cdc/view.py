"""`lakechime cdc view`: the statement that makes a view of a table's messages."""

from typing import Annotated

import typer

from lakechime_dagster.cdc.messages.bronze import ViewDialect
from lakechime_dagster.cli.context import followed_table, open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import print_json, say
from lakechime_dagster.errors import LakeChimeError

RECORDS = "__records"  # what the view's name ends with
Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc list` shows it.")]


def view(
    name: Name,
    dialect: Annotated[ViewDialect, typer.Option(help="Of the engine that shall have the view.")] = ViewDialect.SPARK,
    view_name: Annotated[str | None, typer.Option("--name", metavar="VIEW", help="The view's name instead of TABLE__records.")] = None,
    as_json: Json = False,
) -> None:
    """Write the view of a table's messages that has of each key the newest image, as JSON; of deletions the last one.

    Nothing is changed: the statement is for the engine that shall have the view.
    """
    from lakechime_dagster.cdc.messages.json_records import json_records_view
    from lakechime_dagster.lake.envelopes import Debezium
    from lakechime_dagster.resources.following.followed import Followed

    platform = open_platform()
    table = followed_table(name, platform.settings)
    if not isinstance(table.bronze.envelope, Debezium):
        told = f"{table.bronze.name} holds those of {type(table.bronze.envelope).__name__}, whose `value` may be queried itself"
        raise LakeChimeError(f"{name}: the view is of Debezium's messages, which tell a row as it was before and after; {told}")
    wanted = view_name or name + RECORDS
    statement = json_records_view(wanted, Followed(platform, table).bronze.log.shown_location, dialect)
    if as_json:
        print_json({"table": name, "view": wanted, "dialect": dialect.value, "statement": statement})
    else:
        say(f"{statement};")
