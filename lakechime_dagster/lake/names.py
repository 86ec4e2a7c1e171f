"""Names that a declaration may use: tables, columns, groups, owners — checked once, with the table and field in the error."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from lakechime_dagster.dce.partition import PartitionLevels
from lakechime_dagster.errors import DeclarationError, InvalidValueError, shown

PART = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
OWNER = re.compile(r"team:[A-Za-z0-9_\-. ]+|\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
RESERVED = {  # what the names of tables end with that come beside others
    "__quarantine": "tables of refused rows",
    "__changes": "the messages of tables that follow a database",
    "__state": "what tables that follow a database remember",
    "__maintenance": "the maintenance of tables",
}
MAX_TABLE_NAME = 200  # characters; leaves room for the folders of a warehouse
MAX_TARGET_NAME = 128  # of a computed table: its flow has the same name


@lru_cache(65_536)
def folded(column: str) -> str:
    """A column's name without its letters' case: Spark takes names that fold alike for one column.

    Spark compares names character by character as Java's `equalsIgnoreCase` does, and whole names in lower case. Unlike
    `str.casefold` neither expands a character, so that `maße` and `masse` are two columns; `ı` and `İ` are the letter `i`.
    """
    if column.isascii():
        return column.lower()
    return "".join(map(_folded_character, column)).replace("i\u0307", "i")  # which is how `İ` is written in lower case


def spelled_as(names: Iterable[str], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Values by column, those of columns that Spark takes for one of the names under that name; others as they are.

    Columns that would have one name are left as they are: a row of two such columns is none that a table can hold.
    """
    exact = dict.fromkeys(names)
    own = {folded(name): name for name in exact}
    spelled = {column if column in exact else own.get(folded(column), column): value for column, value in columns.items()}
    return spelled if len(spelled) == len(columns) else dict(columns)


def _folded_character(one: str) -> str:
    upper = next((upper for upper in (one.upper(), one.title()) if len(upper) == 1), one)
    return upper.lower()[0]


def table_of_lake(declared: str, field: str, table: object) -> Any:
    """The name of a table of the same lake, of whatever names one.

    Raises:
        DeclarationError: it names a cluster: all tables of a lake are of the lake's own.
    """
    name = getattr(table, "name", table)
    if cluster := getattr(table, "cluster", ""):
        remedy = "all tables of a lake are of its own cluster: leave the cluster out, or copy the table into the lake"
        raise DeclarationError(declared, field, f"names {name} of the cluster {shown(cluster)}; {remedy}")
    return name


def checked_table_name(name: object, kind: str, limit: int = MAX_TARGET_NAME) -> str:
    """A table name of dotted parts, each of which can be a part of an asset key and a folder."""
    if not isinstance(name, str) or not name:
        raise DeclarationError(f"{kind} {shown(name)}", "name", "is not a table name; write it first, such as 'bronze.orders'")
    for part in name.split("."):
        if not PART.fullmatch(part):
            raise DeclarationError(
                shown(name), "name", f"the part {shown(part)} must be of letters, digits and _ (A-Z a-z 0-9 _), at least one of them"
            )
    if len(name) > limit:
        raise DeclarationError(shown(name), "name", f"has {len(name)} characters; use at most {limit}")
    for suffix, kept in RESERVED.items():
        if name.lower().endswith(suffix):
            raise DeclarationError(name, "name", f"ends with {suffix}, which is kept for {kept}; choose another")
    return name


def checked_word(table: str, field: str, value: object) -> str | None:
    """A single word of letters, digits and _, or None."""
    if value is None or (isinstance(value, str) and PART.fullmatch(value)):
        return value
    raise DeclarationError(table, field, f"{shown(value)} must be of letters, digits and _")


def checked_owner(table: str, value: object) -> str | None:
    """An owner as Dagster takes it: an e-mail address or `team:name`."""
    if value is None or (isinstance(value, str) and OWNER.fullmatch(value)):
        return value
    raise DeclarationError(table, "owner", f"{shown(value)} is neither an e-mail address nor of the form 'team:name'")


def checked_columns(table: str, field: str, value: object) -> tuple[str, ...]:
    """Column names as a tuple, each once."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise DeclarationError(table, field, f"{shown(value)} is not a list of columns; write [{shown(value)}]")
    columns = tuple(value)
    for column in columns:
        if not isinstance(column, str) or not column.strip():
            raise DeclarationError(table, field, f"{shown(column)} is not a column name")
    repeated = [column for index, column in enumerate(columns) if folded(column) in map(folded, columns[:index])]
    if repeated:
        raise DeclarationError(table, field, f"names column {shown(repeated[0])} twice; name each once")
    return columns


def checked_levels(table: str, value: object) -> PartitionLevels:
    """Typed partition levels as a user writes them: `{"flight_date": "date", "hour": "int"}`."""
    if isinstance(value, PartitionLevels):
        return value
    if value is not None and not isinstance(value, dict):
        raise DeclarationError(
            table, "partitioned_by", f'{shown(value)} has no types; write {{"column": "type"}}, such as {{"flight_date": "date"}}'
        )
    try:
        levels = PartitionLevels.of(value)
    except InvalidValueError as error:
        raise DeclarationError(table, "partitioned_by", str(error)) from None
    checked_columns(table, "partitioned_by", levels.names)
    return levels
