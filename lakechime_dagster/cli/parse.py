"""Values of options as text, and what they mean; one that cannot be read is a wrong usage that names its option."""

import datetime as dt
import getpass
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.text import checked_milliseconds
from lakechime_dagster.errors import InvalidValueError, shown
from lakechime_dagster.triggers.grid import to_milliseconds

if TYPE_CHECKING:
    from lakechime_dagster.store.interventions import By

EARLIEST = 100_000_000_000  # a smaller number of milliseconds, before March 1973, is a year, a count of days or seconds
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
    """An ISO 8601 date or time, in UTC where it names no zone, or milliseconds since the epoch; `otherwise`: what else is taken."""
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
    moment = now_ms - dt.timedelta(**{_UNITS[age.group(2)]: int(age.group(1))}) // dt.timedelta(milliseconds=1)
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
        raise wrong(option, f"""{shown(text)} is not JSON; write such as '["2013-01-01", 5]'""") from None
    if value is not None and not isinstance(value, list):
        raise wrong(option, f"""{shown(text)} is not a JSON array; write such as '["2013-01-01", 5]'""")
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
    from lakechime_dagster.store.interventions import By

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
        remedy = f"write it as 2013-01-02T06:00, in UTC or with a zone, or in milliseconds since the epoch (13 digits){otherwise}"
        raise InvalidValueError("time", text, f"is not a time; {remedy}")
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.timezone.utc)
