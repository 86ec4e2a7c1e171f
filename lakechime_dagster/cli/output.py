"""What a command prints: a table for a person, or one JSON document; messages go to standard error.

Names and values of others may be in all that people are told: of a cell, a line and a document's texts, each character that cannot be
seen is told by its code.
"""

import datetime as dt
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from lakechime_dagster.dce.text import printable
from lakechime_dagster.errors import LakeChimeError, shown


def print_json(document: Mapping[str, Any]) -> None:
    """The one document of a command, on standard output."""
    indent = 2 if sys.stdout.isatty() else None
    text = _with_codes(json.dumps(document, ensure_ascii=False, indent=indent))
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(document, indent=indent)
    print(text)


def _with_codes(text: str) -> str:
    """The same document: between its texts nothing is but ends of lines that cannot be seen."""
    lines = (line if line.isprintable() else "".join(map(_json_code, line)) for line in text.split("\n"))
    return "\n".join(lines)


def _json_code(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]


def say(text: str) -> None:
    """A line, or several, for a person on standard output."""
    console().print(_printable_lines(text), soft_wrap=True)


def note(text: str) -> None:
    """A line beside the result, on standard error."""
    relay(_printable_lines(text))


def relay(line: str) -> None:
    """A line of a program that we started, beside the result, as it wrote it: with its colours."""
    print(line, file=sys.stderr, flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Rows under their columns, or a sentence when there are none."""
    table = Table(*map(_cell, columns), box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*map(_cell, row))
    if table.row_count:
        console().print(table)
    else:
        say(empty)


def print_facts(facts: Mapping[str, object]) -> None:
    """Names and values below each other."""
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        table.add_row(_cell(name), _cell(value))
    console().print(table)


def _cell(value: object) -> str:
    return "" if value is None else printable(str(value))


def _printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


def console() -> Console:
    """Standard output for people; names are printed as they are, never read as markup."""
    width = None if sys.stdout.isatty() else 200
    return Console(markup=False, highlight=False, emoji=False, width=width)


def when(milliseconds: int | None) -> str:
    """A store's time for people."""
    if milliseconds is None:
        return ""
    return f"{dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def shown_fact(name: str, value: Any) -> object:
    """A value of a document for people: times, which end in `_ts`, as such, lists and maps in a line."""
    if name.endswith("_ts"):
        return when(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}:{one}" for key, one in value.items())
    return ", ".join(value) if isinstance(value, list) else value


def count(number: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def one_line(text: str) -> str:
    """A message without line breaks."""
    return " ".join(text.split())


def error_document(error: Exception) -> dict[str, Any]:
    """The JSON of an error: its type, its message and the facts that it carries, but for what Typer hangs on it."""
    facts = {name: value for name, value in vars(error).items() if name[0] != "_"} if isinstance(error, LakeChimeError) else {}
    plain = {name: value if isinstance(value, str | int | float | bool | None) else shown(value) for name, value in facts.items()}
    return {"error": {"type": type(error).__name__, "message": one_line(str(error)), **plain}}
