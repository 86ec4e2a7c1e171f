"""Audit tables: tables of the lake in which an engine, or who uses it, writes down the SQL that was executed."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lakechime_dagster.dce.event import TableFormat
from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.triggers import Schedule, every

PACE = every(minutes=5)
READ = "__read"  # what the name of the flow ends with that reads an audit table
SUCCEEDED = ("COMPLETE", "COMPLETED", "FINISHED", "SUCCEEDED", "SUCCESS")


@dataclass(frozen=True)
class QueryLog:
    """A table of executed SQL, a row for each statement, to which rows are appended.

    Args:
        table: a Delta table of the lake.
        sql: the column of the text as it was executed; never of templates.
        dialect: the engine, by sqlglot's name.
        at: the column of when it ended: a timestamp, an ISO text or milliseconds since the epoch.
        state: the column of how it ended; without one every row counts. `succeeded` are the texts that count.
        user, dashboard, link, task, run: columns of who asked, for which dashboard and where that is, as which task and run.
        every: how often what came is read; None reads it as it comes.

    Raises:
        DeclarationError: a name is empty, or the pace is none.
    """

    table: str
    sql: str = "sql"
    dialect: str = "trino"
    at: str = "at"
    state: str | None = None
    succeeded: tuple[str, ...] = SUCCEEDED
    user: str | None = None
    dashboard: str | None = None
    link: str | None = None
    task: str | None = None
    run: str | None = None
    every: Schedule | None = PACE

    def __post_init__(self) -> None:
        _check_pace(self)
        for name in ("table", "sql", "dialect", "at", *self.optional):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise DeclarationError(f"QueryLog {shown(self.table)}", name, f"is {shown(value)}; write a name")

    @property
    def optional(self) -> tuple[str, ...]:
        """The fields of columns that are given beside text and time."""
        return tuple(name for name in ("state", "user", "dashboard", "link", "task", "run") if getattr(self, name) is not None)

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the table that are read, by what they tell."""
        return {name: getattr(self, name) for name in ("sql", "at", *self.optional)}


@dataclass(frozen=True)
class TrinoLog:
    """A table of what Trino's event listener tells of completed queries, an event for each, to which rows are appended.

    Args:
        table: a Delta table of the lake.
        event: the column of the event, as JSON text.
        every: how often what came is read; None reads it as it comes.

    Raises:
        DeclarationError: a name is empty, or the pace is none.
    """

    table: str
    event: str = "event"
    every: Schedule | None = PACE

    def __post_init__(self) -> None:
        _check_pace(self)
        for name in ("table", "event"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise DeclarationError(f"TrinoLog {shown(self.table)}", name, f"is {shown(getattr(self, name))}; write a name")

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the table that are read, by what they tell."""
        return {"event": self.event}


AuditLog = QueryLog | TrinoLog


def reading_name(table: str) -> str:
    """The name of the flow that reads an audit table, and of its asset as if it were a table."""
    return table + READ


def checked_query_logs(lake: str, logs: Iterable[AuditLog], formats: Mapping[str, object]) -> tuple[AuditLog, ...]:
    """The declared audit tables.

    Raises:
        DeclarationError: one is no Delta table of the lake, declared twice, or read by what has the name of another table.
    """
    found: list[AuditLog] = []
    for one in logs:
        if not isinstance(one, QueryLog | TrinoLog):
            raise DeclarationError(f"Lake {lake}", "query_logs", f"{shown(one)} is neither a QueryLog nor a TrinoLog")
        named = f"{type(one).__name__} {one.table}"
        if one.table not in formats:
            raise DeclarationError(named, "table", f"is not in the lake; it has {_listed(formats)}")
        if formats[one.table] is not TableFormat.DELTA:
            raise DeclarationError(
                f"{type(one).__name__} {one.table}", "table", f"is of {formats[one.table]}; audit tables are Delta tables"
            )
        if any(other.table == one.table for other in found):
            raise DeclarationError(named, "table", "is declared twice; keep one")
        if reading_name(one.table) in formats:
            raise DeclarationError(
                named, "table", f"is read by a flow of the name {reading_name(one.table)}; rename the table of that name"
            )
        found.append(one)
    return tuple(found)


def _check_pace(one: AuditLog) -> None:
    if one.every is not None and not isinstance(one.every, Schedule):
        raise DeclarationError(f"{type(one).__name__} {shown(one.table)}", "every", f"is {shown(one.every)}; write every(minutes=5)")


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
