"""`lakechime cdc transactions`: whether of each transaction as many changes came as its end tells."""

from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import followed_table, open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, print_json, say
from lakechime_dagster.errors import LakeChimeError

if TYPE_CHECKING:
    from lakechime_dagster.cdc.monitor import Counted, Lacking

Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc list` shows it.")]


def transactions(
    name: Name,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Count transactions that ended since then; by default within a day.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Count the changes of each transaction that ended, and name those of which some did not come.

    The database is not asked. The exit code is 1 when changes are lost, or when it could not be known.
    """
    from lakechime_dagster.lake.monitors import UNDECLARED
    from lakechime_dagster.resources.following.followed import Followed
    from lakechime_dagster.resources.following.monitor import transactions_counted

    platform, since_ms = open_platform(), parse.optional_milliseconds("--since", since)
    table = followed_table(name, platform.settings)
    if not table.bronze.feed.transactions:
        raise LakeChimeError(f"{name} declares no topic of transactions; declare transactions= of its source, such as shop.transaction")
    found = transactions_counted(Followed(platform, table), table.monitor or UNDECLARED, since_ms)
    if as_json:
        print_json(_document(name, found))
    else:
        _print(found)
    if not found.is_whole:
        raise typer.Exit(1)


def _document(name: str, found: "Counted") -> dict[str, object]:
    return {
        "table": name, "transactions": found.transactions, "changes": found.changes, "on_their_way": found.on_their_way,
        "unreadable": found.unreadable, "problems": list(found.problems), "lacking": [_lacking(one) for one in found.lacking],
    }  # fmt: skip


def _lacking(one: "Lacking") -> dict[str, object]:
    topic, partition, offset = one.end.where
    return {
        "source": one.source, "transaction": one.end.transaction, "position": list(one.position), "expected": one.expected,
        "found": one.found, "sure": one.is_sure, "end": {"topic": topic, "partition": partition, "offset": offset},
    }  # fmt: skip


def _print(found: "Counted") -> None:
    say(f"{count(found.transactions, 'transaction')} ended with {count(found.changes, 'change')} of the table")
    for one in found.lacking:
        say(str(one) if one.is_sure else f"{one}; they may be on their way, or unreadable")
    for problem in found.problems:
        say(problem)
    if found.on_their_way:
        say(f"{count(found.on_their_way, 'transaction')} wait for changes that may be on their way")
    if found.is_whole and not found.on_their_way:
        say("all of them came")
