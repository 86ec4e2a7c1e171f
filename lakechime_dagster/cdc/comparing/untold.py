"""What a statement of a database's schema did to rows, and no message of a row tells.

A comparison tells it. Whatever is not known to change no row, and not to tell of all that it changes, is taken to.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp

from lakechime_dagster.cdc.order import Position
from lakechime_dagster.cdc.position import position_of
from lakechime_dagster.cdc.remembering.table_schema import table_named

_CONSTANTS = (exp.Literal, exp.Null, exp.Boolean)
_COMPUTED = (exp.ComputedColumnConstraint, exp.GeneratedAsIdentityColumnConstraint, exp.GeneratedAsRowColumnConstraint)


@dataclass(frozen=True, kw_only=True)
class Untold:
    """A change of a table's schema of which no message tells what it did to rows.

    Attributes:
        at_ms: The database's time, in milliseconds since the epoch; None where it is not told.
        position: The place of the log.
        statement: As it was written.
        what: What it did, in words.
    """

    at_ms: int | None
    position: Position
    statement: str
    what: tuple[str, ...]


@dataclass(frozen=True)
class SeenSame:
    """The place of the database's log at which a table was seen to be the same, and when, in milliseconds since the epoch."""

    place: str
    at_ms: int


def untold_change(payload: Mapping[str, Any], table: str) -> Untold | None:
    """What a message of a connector's topic of schema changes tells of a table, `schema.name`, that changes of rows do not.

    None is nothing: it is of another table, or of a snapshot, which tells all rows after it.

    Raises:
        ValueError: It is no such message.
    """
    try:
        source, statement = payload["source"], payload["ddl"] or ""
        names = [name for change in payload["tableChanges"] or () for name in (change.get("id"), change.get("previousId")) if name]
        is_ours = str(source.get("snapshot") or "false") == "false" and table in map(table_named, names)
    except (KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"{repr(dict(payload))[:200]} is no schema change of Debezium: {problem!r}") from problem
    what = untold(statement) if is_ours else ()
    return Untold(at_ms=source.get("ts_ms"), position=position_of(source), statement=statement, what=what) if what else None


def untold(statement: str) -> tuple[str, ...]:
    """What a statement of MySQL or MariaDB does to the rows of its table, or to what they mean, and none of its events tells."""
    with _quiet_parser():
        try:
            parsed = sqlglot.parse_one(statement, dialect="mysql")
        except sqlglot.ParseError:
            return (f"may change rows: {_short(statement)}",)
    match parsed:
        case exp.Create() | exp.TruncateTable():
            return ()
        case exp.Drop():
            return ("drops the table",) if parsed.kind == "TABLE" else ()
        case exp.Alter():
            return tuple(what for action in parsed.args.get("actions") or () for what in _untold_action(action))
        case _:
            return (f"may change rows: {_short(statement)}",)


@contextmanager
def _quiet_parser() -> Iterator[None]:
    """It warns of each statement that it knows by its first word alone."""
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _untold_action(action: exp.Expr) -> Iterator[str]:
    match action:
        case exp.ColumnDef():
            yield from _untold_column(action)
        case exp.ModifyColumn():
            yield f"changes column {action.find(exp.Identifier)}"
        case exp.RenameColumn():
            yield f"renames column {action.this.sql('mysql')}"
        case exp.AlterRename():
            yield "renames the table"
        case exp.Drop() | exp.AddConstraint() | exp.AlterColumn() | exp.AlterIndex():
            pass  # a column that is dropped is not compared, of one that is altered only the default is
        case _:
            yield f"may change rows: {_short(action.sql('mysql'))}"


def _untold_column(column: exp.ColumnDef) -> Iterator[str]:
    """What rows that are there have in a column that is added, unless it is null or a constant that messages tell."""
    kinds = [constraint.kind for constraint in column.constraints]
    default = next((kind.this for kind in kinds if isinstance(kind, exp.DefaultColumnConstraint)), None)
    is_constant = isinstance(default.this if isinstance(default, exp.Neg) else default, _CONSTANTS)
    if any(isinstance(kind, _COMPUTED) for kind in kinds) or (default is not None and not is_constant):
        yield f"adds column {column.name}, whose values are computed"
    elif default is None and any(isinstance(kind, exp.NotNullColumnConstraint) and not kind.args.get("allow_null") for kind in kinds):
        yield f"adds column {column.name}, which may not be null and has no default"


def _short(statement: str, most: int = 120) -> str:
    text = " ".join(statement.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
