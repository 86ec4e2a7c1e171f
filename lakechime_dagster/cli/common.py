"""What all commands share: options, values as text, output, context."""

import dataclasses
import datetime as dt
import difflib
import getpass
import importlib
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.events import Position
from lakechime_dagster.dce.partitions import checked_milliseconds, printable
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, NotFoundError, shown
from lakechime_dagster.settings import (
    Settings,
    lake_name,
    load_settings,
    own_definitions,
    project_folder,
)
from lakechime_dagster.triggers.schedule import to_milliseconds

if TYPE_CHECKING:
    from lakechime_dagster.lineage.service import AskedLineage
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.tables.lake import Lake
    from lakechime_dagster.triggers.registry import By, SubscriptionRow
    from lakechime_dagster.triggers.subscription import Subscription


Result = TypeVar("Result")


def open_platform(*, dry_run: bool = False) -> "Platform":
    """Store, ledger and table logs of this deployment; a dry run creates nothing."""
    from lakechime_dagster.runtime import platform

    return platform.open_dry_platform() if dry_run else platform.open_platform()


def open_lineage() -> "AskedLineage":
    """The lineage of this deployment's store and lake."""
    from lakechime_dagster.lineage.service import AskedLineage

    platform = open_platform()
    return AskedLineage(platform, declared_lake(platform.settings))


def declared_subscriptions(
    module: str | None = None, *, manual: bool = False
) -> dict[str, "Subscription"]:
    """The subscriptions that are declared here: the lake's, or those that another module declares
    as it is imported.

    A table of the lake without a trigger has a subscription too, for the runs that a person
    launches; `manual` includes it.

    Raises:
        LakeChimeError: the module cannot be imported; its own message is in it.
    """
    if module is not None:
        _loaded(f"the triggers of {module}", lambda: importlib.import_module(module))
        from lakechime_dagster.runtime.resource import declared_subscriptions as declared

        return declared()
    settings = load_settings()
    if own := own_definitions(settings):
        return _loaded(f"the definitions of {own}", lambda: _subscriptions_of_definitions(own))
    from lakechime_dagster.assets.subscriptions import (
        group_subscription,
        log_subscription,
        subscription_of,
    )

    lake = declared_lake(settings)
    tables = [table for table in lake.targets if manual or table.trigger is not None]
    subscriptions = {table.name: subscription_of(table, settings.cluster) for table in tables}
    subscriptions |= {
        group.name: group_subscription(group, settings.cluster) for group in lake.groups
    }
    logs = [log_subscription(one, settings.cluster) for one in lake.query_logs]
    return subscriptions | {subscription.name: subscription for subscription in logs}


def declared_or_none(module: str | None = None) -> dict[str, "Subscription"]:
    """The declared subscriptions; a code location that cannot be loaded must not hide what is
    recorded.
    """
    try:
        return declared_subscriptions(module)
    except LakeChimeError as error:
        note(f"warning: {one_line(str(error))}; showing what is recorded")
        return {}


def _subscriptions_of_definitions(module: str) -> "dict[str, Subscription]":
    """The subscriptions that a project's definitions declare."""
    from lakechime_dagster.runtime.resource import declared_subscriptions as declared
    from lakechime_dagster.runtime.resource import load_definitions

    load_definitions(module)
    return declared()


def declared_lake(settings: Settings) -> "Lake":
    """The lake that LAKECHIME_LAKE names, else the one in the project's own definitions.

    Raises:
        LakeChimeError: there is none, or it cannot be loaded.
    """
    from lakechime_dagster.tables.lake import find_lake

    own, name = own_definitions(settings), lake_name(settings)
    return _loaded(
        f"the lake of {own}" if own else f"the lake {name}",
        lambda: find_lake(own, name, _lake_of_definitions),
    )


def _lake_of_definitions(module: str) -> "Lake | None":
    from lakechime_dagster.runtime.resource import lake_of_definitions

    return lake_of_definitions(module)


def lake_or_empty(settings: Settings) -> "Lake":
    """The declared lake; one that cannot be loaded must not hide what the store knows."""
    from lakechime_dagster.tables.lake import Lake

    try:
        return declared_lake(settings)
    except LakeChimeError as error:
        note(f"warning: {one_line(str(error))}; showing what the store knows")
        return Lake("none", [])


def subscription_declared(name: str, module: str | None, *, manual: bool = False) -> "Subscription":
    """The declared subscription of that name.

    Raises:
        NotFoundError: naming those that are there.
    """
    subscriptions = declared_subscriptions(module, manual=manual)
    if name not in subscriptions:
        raise NotFoundError(
            f"no trigger {name!r} is declared here; there are "
            f"{', '.join(sorted(subscriptions)) or 'none'}"
        )
    return subscriptions[name]


def group_problem(name: str, module: str | None) -> str:
    """What is wrong with the declaration of the lake's event group of that name; empty for any
    other trigger.
    """
    if module is not None:
        return ""
    try:
        groups = declared_lake(load_settings()).groups
    except LakeChimeError:  # of a project that has triggers and no lake
        return ""
    return next((group.problem for group in groups if group.name == name), "")


def subscription_known(
    platform: "Platform", name: str, module: str | None, *, dry_run: bool = False
) -> "SubscriptionRow":
    """The subscription as the ledger keeps it; one that is declared but new is activated, in a dry
    run only imagined.
    """
    from lakechime_dagster.runtime.sources import inactive

    if (known := platform.ledger.subscription(name)) is not None:
        return known
    subscription = subscription_declared(name, module, manual=True)
    return (
        inactive(platform, subscription) if dry_run else platform.evaluator.activate(subscription)
    )


def _loaded(what: str, load: Callable[[], Result]) -> Result:
    """What a user's module declares; its output during the import goes to standard error."""
    root = project_folder()
    for folder in (str(root), str(root / "src")):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        with redirect_stdout(sys.stderr):
            return load()
    except LakeChimeError:
        raise
    except Exception as error:
        raise LakeChimeError(f"{what} cannot be loaded: {_problem(error)}") from error


def _problem(error: BaseException) -> str:
    """What is wrong with a module; of Dagster's components the cause, as their own error only
    draws the tree of files below its first line.
    """
    if type(error).__name__ == "ComponentTreeException" and error.__cause__ is not None:
        return f"{str(error).partition(chr(10))[0]} {_problem(error.__cause__)}"
    return str(error) if isinstance(error, LakeChimeError) else f"{type(error).__name__}: {error}"


MAX_LIMIT = 2**31 - 1  # of rows; what every database takes

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; else only show what would happen.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept with who and when.")]
Who = Annotated[
    str | None,
    typer.Option("--who", help="Who does it; the user of the operating system unless given."),
]
OptionsTable = Annotated[
    str | None, typer.Option("--table", "-t", help="The table, as schema.table.")
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", help="The data platform, where there are several.")
]
TagPairs = Annotated[
    list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="A tag; may be repeated.")
]
Module = Annotated[
    str | None,
    typer.Option(
        "--module",
        "-m",
        envvar="LAKECHIME_MODULE",
        help="A Python module that declares the triggers, instead of the lake's.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", help="Rows from this day or time on, by the time column; all unless given."
    ),
]
Until = Annotated[str | None, typer.Option("--until", help="Rows before this day or time.")]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        "--time-column",
        help="The column that holds the day of a row, where no partition level does.",
    ),
]


def record(value: object, names: str, **more: object) -> dict[str, Any]:
    """The named attributes of a value, as JSON and tables show it; `names` are separated by
    blanks.
    """
    return {name: getattr(value, name) for name in names.split()} | more


def print_json(document: Mapping[str, Any]) -> None:
    """The one document of a command, on standard output; dataclasses in it are objects, and other
    values texts.
    """
    indent = 2 if sys.stdout.isatty() else None
    text = _with_codes(json.dumps(document, ensure_ascii=False, indent=indent, default=plain))
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(document, indent=indent, default=plain)
    print(text)


def plain(value: Any) -> Any:
    """What stands for a value of which JSON has no form."""
    if isinstance(value, dt.date):  # times too
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return (
        {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        if dataclasses.is_dataclass(value)
        else str(value)
    )


def _with_codes(text: str) -> str:
    """The same document: between its texts nothing is but ends of lines that cannot be seen."""
    lines = (
        line if line.isprintable() else "".join(map(_json_code, line)) for line in text.split("\n")
    )
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
    elif empty:
        say(empty)


def print_list(
    as_json: bool, name: str, documents: Sequence[Mapping[str, Any]], facts: str, *, empty: str
) -> None:
    """The result of a command that lists: a JSON document with all facts, or a table with some of
    them.
    """
    if as_json:
        print_json({name: documents})
    else:
        print_documents(documents, facts, empty=empty)


def print_documents(documents: Iterable[object], facts: str, *, empty: str = "") -> None:
    """Documents, or values by their attributes, as rows of a table; `facts` names its columns,
    separated by blanks.
    """
    names = facts.split()
    rows = (one if isinstance(one, Mapping) else record(one, facts) for one in documents)
    print_table(
        [*map(_head, names)],
        [[shown_fact(name, one.get(name)) for name in names] for one in rows],
        empty=empty,
    )


def print_facts(facts: Mapping[str, object]) -> None:
    """Names and values below each other, without those that are empty."""
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value is not None and value not in ("", [], {}):
            table.add_row(_cell(_head(name)), _cell(shown_fact(name, value)))
    console().print(table)


def answer(as_json: bool, document: Mapping[str, Any], *lines: str) -> None:
    """The result of a command: its document, or lines for a person."""
    if as_json:
        print_json(document)
        return
    for line in lines:
        say(line)


def nearest(name: str, names: Collection[str], most: int = 10) -> str:
    """What a person meant by a name that none has, or may name."""
    if near := difflib.get_close_matches(name, names, n=1):
        return f"did you mean {printable(near[0])}?"
    return f"there are {first([*map(printable, sorted(names))], most) or 'none'}"


def confirm(what: str, *, yes: bool, dry_run: bool) -> None:
    """Refuse to do what a person has not confirmed; a dry run does nothing anyway.

    Raises:
        LakeChimeError: saying what would be done.
    """
    if not (yes or dry_run):
        raise LakeChimeError(f"{what}; nothing was done: add --yes to do it")


def first(names: Sequence[object], most: int) -> str:
    """The first of some names, and how many more there are."""
    return ", ".join(map(str, names[:most])) + (
        f" and {len(names) - most:,} more" if len(names) > most else ""
    )


def would(dry_run: bool) -> str:
    """The verb of what is done, or would be."""
    return "would be" if dry_run else "is"


def would_be(dry_run: bool, done: str) -> str:
    """What was done, such as `registered`, or would be."""
    return f"would be {done}" if dry_run else done


def _head(name: str) -> str:
    return name.removesuffix("_ts").replace("_", " ")


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
    return (
        f"{dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    )


def shown_fact(name: str, value: Any) -> object:
    """A value of a document for people: times, which end in `_ts`, as such, lists and maps in a
    line.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return when(value) if name.endswith("_ts") else f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}:{one}" for key, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def count(number: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def one_line(text: str) -> str:
    """A message without line breaks."""
    return " ".join(text.split())


def error_document(error: Exception) -> dict[str, Any]:
    """The JSON of an error: its type, its message and its attributes, without those of Typer."""
    facts = (
        {name: value for name, value in vars(error).items() if name[0] != "_"}
        if isinstance(error, LakeChimeError)
        else {}
    )
    plain = {
        name: value if isinstance(value, str | int | float | bool | None) else shown(value)
        for name, value in facts.items()
    }
    return {"error": {"type": type(error).__name__, "message": one_line(str(error)), **plain}}


# a smaller number of milliseconds, before March 1973, is a year, a count of days or seconds
EARLIEST = 100_000_000_000
_AGE = re.compile(r"(\d{1,6})(m|h|d)", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def wrong(option: str, problem: str) -> typer.BadParameter:
    """A wrong usage that names its option."""
    return typer.BadParameter(problem, param_hint=f"'{option}'")


@contextmanager
def reading(option: str) -> Iterator[None]:
    """A value that a rule refuses is a wrong usage of this option."""
    try:
        yield
    except InvalidValueError as error:
        raise wrong(option, str(error)) from None


@contextmanager
def reading_fields(options: Mapping[str, str]) -> Iterator[None]:
    """A field that a rule refuses is a wrong usage of its option."""
    try:
        yield
    except InvalidValueError as error:
        field = error.field.partition("[")[0].partition(" ")[0]
        raise wrong(options[field], f"{shown(error.value)} {error.remedy}") from None


def milliseconds(option: str, text: str, otherwise: str = "") -> int:
    """An ISO 8601 date or time, in UTC where it names no zone, or milliseconds since the epoch;
    `otherwise`: what else is taken.
    """
    with reading(option):
        if text.isascii() and text.isdigit() and int(text[:20]) >= EARLIEST:
            return checked_milliseconds("time", int(text[:20]))
        return checked_milliseconds("time", to_milliseconds(_iso_time(text, otherwise)))


def optional_milliseconds(option: str, text: str | None) -> int | None:
    """The same for an option that need not be given."""
    return None if text is None else milliseconds(option, text)


def past_milliseconds(option: str, text: str, now_ms: int) -> int:
    """A time, or an age such as 30d, 12h or 45m."""
    age = _AGE.fullmatch(text)
    if age is None:
        return milliseconds(option, text, ", or as an age such as 30d")
    moment = now_ms - dt.timedelta(**{_UNITS[age.group(2)]: int(age.group(1))}) // dt.timedelta(
        milliseconds=1
    )
    if moment < 0:
        raise wrong(option, f"{shown(text)} ago was before 1970; give a shorter age")
    return moment


def position(option: str, text: str | None) -> Position | None:
    """A position that an event showed."""
    with reading(option):
        return None if text is None else Position.parse(text)


def partition(option: str, text: str | None) -> Any:
    """A JSON array with a value per level; `null`, like nothing, is an unpartitioned table."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise wrong(
            option, f"""{shown(text)} is not JSON; write such as '["2013-01-01", 5]'"""
        ) from None
    if value is not None and not isinstance(value, list):
        raise wrong(
            option, f"""{shown(text)} is not a JSON array; write such as '["2013-01-01", 5]'"""
        )
    return value


def tags(option: str, pairs: Sequence[str]) -> dict[str, str]:
    """Tags as `key=value`; the value may hold further equals signs."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise wrong(option, f"{shown(pair)} is not key=value")
        if found.setdefault(key, value) != value:
            raise wrong(option, f"{shown(key)} is given twice with different values")
    return found


def by(who: str | None, reason: str) -> "By":
    """Who does something, which is the user of the operating system unless given, and why."""
    from lakechime_dagster.triggers.registry import By

    with reading_fields({"who": "--who", "reason": "--reason"}):
        return By(who=_user() if who is None else who, reason=reason)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise wrong("--who", "this user has no name; say who you are") from None


def _iso_time(text: str, otherwise: str) -> dt.datetime:
    try:
        moment = None if text.isdigit() else datetime_of_iso(text)
    except ValueError:
        moment = None
    if moment is None:
        remedy = (
            f"write it as 2013-01-02T06:00, in UTC or with a zone, or in milliseconds since the "
            f"epoch (13 digits){otherwise}"
        )
        raise InvalidValueError("time", text, f"is not a time; {remedy}")
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.timezone.utc)
