"""Which columns of a table hold personal data, and of which kind; whether a table is for everybody."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lakechime_dagster.errors import DeclarationError, keep_or_raise, shown
from lakechime_dagster.lake.names import checked_columns, folded

CATEGORY = re.compile(r"[a-z][a-z0-9_]{0,39}", re.ASCII)
COLUMN = re.compile(r"[^:/$]+(:\$(\.[^.\[\]\s]+|\[\*?\])+)?")
PATH = re.compile(r"(/[^/]+)+")


@dataclass(frozen=True)
class Personal:
    """That a column holds personal data of a category: a word such as `email`, by which a person's own values are told apart."""

    category: str
    problem: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.category, str) or not CATEGORY.fullmatch(self.category):
            problem = f"{shown(self.category)} is no word of small letters, digits and _, such as 'email'; write personal('email')"
            keep_or_raise(self, DeclarationError("personal()", "category", problem))


def personal(category: str) -> Personal:
    """The tag of a column with personal data of a category."""
    return Personal(category)


PersonalColumns = Mapping[str, Personal]


def column_of(name: str) -> str:
    """The column of a name that may lead on into a JSON text, `payload:$.user.email`, or into a struct, `user.email`."""
    return name.partition(":")[0].partition(".")[0]


def checked_personal(table: str, value: object, *, levels: Iterable[str] = (), known: Collection[str] | None = None) -> PersonalColumns:
    """Personal columns by name, frozen.

    Args:
        table: Named in the error.
        value: A map of column names to `personal(…)`. Behind a name, `.field` leads into a struct, `:$.path` into a JSON text.
        levels: The partition levels, which are in names of folders and in each entry of the log.
        known: The columns that there are, where that is known.

    Raises:
        DeclarationError: naming the column and the remedy.
    """
    if not isinstance(value, Mapping):
        raise DeclarationError(table, "columns", f'{shown(value)} is no map of columns, such as {{"email": personal("email")}}')
    checked_columns(table, "columns", value.keys())
    for name, tag in value.items():
        if not isinstance(tag, Personal):
            raise DeclarationError(table, "columns", f'{shown(tag)} of {shown(name)} is no personal("email")')
        if tag.problem:
            raise DeclarationError(table, "columns", f"{shown(name)}: {tag.problem}")
        if not COLUMN.fullmatch(name):
            problem = f"{shown(name)} is no column; write such as 'email', 'user.email' within a struct, 'payload:$.user.email' within JSON"
            raise DeclarationError(table, "columns", problem)
        if folded(column_of(name)) in {folded(level) for level in levels}:
            problem = f"{name!r} is a partition level, whose values stand in names of folders; partition by another column"
            raise DeclarationError(table, "columns", problem)
        if known is not None and folded(column_of(name)) not in {folded(one) for one in known}:
            raise DeclarationError(table, "columns", f"{name!r} is no column of it; it has {', '.join(known)}")
    return MappingProxyType(dict(value))


def checked_personal_paths(group: str, value: object) -> PersonalColumns:
    """Personal values of events by patterns of their paths, frozen: `{"/user/email": personal("email")}`.

    Raises:
        DeclarationError: naming the path and the remedy.
    """
    if not isinstance(value, Mapping):
        raise DeclarationError(group, "columns", f'{shown(value)} is no map of paths, such as {{"/user/email": personal("email")}}')
    for path, tag in value.items():
        if not isinstance(path, str) or not PATH.fullmatch(path):
            raise DeclarationError(group, "columns", f"{shown(path)} is no path; write such as '/user/email' or '/items[]/email'")
        if not isinstance(tag, Personal):
            raise DeclarationError(group, "columns", f'{shown(tag)} of {shown(path)} is no personal("email")')
        if tag.problem:
            raise DeclarationError(group, "columns", f"{shown(path)}: {tag.problem}")
    return MappingProxyType(dict(value))


def check_unlisted(table: str, field: str, names: Iterable[str], tagged: PersonalColumns, why: str) -> None:
    """Refuse personal columns where their values, or bounds of them, would be written beside the rows."""
    columns = {folded(column_of(name)) for name in tagged}
    for name in names:
        if folded(name) in columns:
            raise DeclarationError(table, field, f"names {name!r}, which is personal: {why}")


def check_public(table: str, is_public: object, tagged: PersonalColumns) -> None:
    """Refuse a table for everybody that has personal columns."""
    if not isinstance(is_public, bool):
        raise DeclarationError(table, "public", f"{shown(is_public)} is neither True nor False")
    if is_public and tagged:
        problem = f"is for everybody, and {next(iter(tagged))!r} is personal; leave the column out of the table, or public=True"
        raise DeclarationError(table, "public", problem)
