"""The lake: all declared tables, checked as a whole; and how that of a project is found."""

import datetime as dt
import importlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import NoReturn, TypeVar

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.dce.partitions import LevelType, PartitionLevels, typed_value
from lakechime_dagster.errors import (
    DeclarationError,
    InvalidValueError,
    LakeChimeError,
    NotFoundError,
    are_failures_kept,
    failures_kept,
    shown,
)
from lakechime_dagster.tables.cdc import BronzeTable, CDCTable
from lakechime_dagster.tables.events import EventGroup, EventStream, EventTable, checked_groups
from lakechime_dagster.tables.names import PART, checked_alarms, checked_aliases
from lakechime_dagster.tables.options import checked_format
from lakechime_dagster.tables.sources import TableRows
from lakechime_dagster.tables.tables import LakeTable, RefreshMode, SourceTable
from lakechime_dagster.triggers.schedule import Schedule, every
from lakechime_dagster.triggers.subscription import is_hourly
from lakechime_dagster.triggers.triggers import PartitionTrigger


def topological(inputs: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The tables, every input before its readers. The graph must have no cycle."""
    return tuple(
        TopologicalSorter(
            {table: [name for name in of if name in inputs] for table, of in inputs.items()}
        ).static_order()
    )


def find_cycle(inputs: Mapping[str, Iterable[str]]) -> tuple[str, ...] | None:
    """A cycle as the path from a table to its inputs and on to itself, or None."""
    try:
        topological(inputs)
    except CycleError as error:
        cycle = [*reversed(error.args[1])][1:]
        # so that it is shown alike each time
        at = cycle.index(next(table for table in inputs if table in cycle))
        return (*cycle[at:], *cycle[: at + 1])
    return None


DAY, HOUR = dt.timedelta(days=1), dt.timedelta(hours=1)
MOMENTS = (
    tuple(  # of a day's beginning and end, in two seasons, as a point's zone may save daylight
        dt.timedelta(days=days, minutes=minutes)
        for days, minutes in itertools.product((0, 182), (0, 1439))
    )
)


@dataclass(frozen=True, kw_only=True)
class TimeSpan:
    """From the first day to the one after the last; `end` is None where some trigger has no end.

    `days_ahead` and `hours_ahead` are how many days, or hours, are not over yet when a trigger
    fires for them.
    """

    start: dt.date
    end: dt.date | None = None
    days_ahead: int = 0
    hours_ahead: int = 0


def time_span(triggers: Iterable[tuple[PartitionTrigger, PartitionLevels]]) -> TimeSpan | None:
    """The span of triggers, each with the levels of its table, by which its keys name partitions;
    None where none speaks of a day.
    """
    starts: list[dt.date] = []
    ends: list[dt.date | None] = []
    ahead = {DAY: dt.timedelta(0), HOUR: dt.timedelta(0)}
    for trigger, levels in triggers:
        first = _hour(trigger, levels, trigger.every.first)
        if first is not None:
            starts.append(first.date())
            point = (
                trigger.every.last(dt.datetime.max.replace(tzinfo=dt.timezone.utc))
                if trigger.every.until
                else None
            )
            newest = _hour(trigger, levels, point) if point else None
            ends.append(newest.date() + DAY if newest else None)
        for width, longest in (*ahead.items(),):
            ahead[width] = max(longest, *_ahead(trigger, levels, width))
    if not starts:
        return None
    known = [end for end in ends if end is not None]
    days, hours = (-(-longest // width) for width, longest in ahead.items())
    return TimeSpan(
        start=min(starts),
        end=max(known) if len(known) == len(ends) else None,
        days_ahead=days,
        hours_ahead=hours,
    )


def _ahead(
    trigger: PartitionTrigger, levels: PartitionLevels, width: dt.timedelta
) -> Iterator[dt.timedelta]:
    """How long the newest window of a day or an hour goes on behind the moments at which a trigger
    fires for it.
    """
    yield dt.timedelta(0)
    for after in MOMENTS:
        moment = trigger.every.first + after
        hour = _hour(trigger, levels, moment)
        if hour is not None:
            yield (hour if width == HOUR else hour.replace(hour=0)) + width - moment


def _hour(
    trigger: PartitionTrigger, target: PartitionLevels, moment: dt.datetime
) -> dt.datetime | None:
    """Where the newest hour begins that the key of a moment speaks of; None for a key without a
    date.

    The date is that of the target's level where the key has it, else that of the first condition
    with one.
    """
    values = dict(trigger.key_at(moment).values)
    for levels in (target, *[condition.levels for condition in trigger.conditions]):
        for name, kind in zip(levels.names, levels.types, strict=True):
            if kind is LevelType.DATE and values.get(name) is not None:
                day = datetime_of_iso(str(typed_value(name, values[name], kind))).replace(
                    tzinfo=dt.timezone.utc
                )
                hour = values.get(levels.names[1]) if is_hourly(levels) else None
                return day + (hour if isinstance(hour, int) else 23) * HOUR
    return None


PACE = every(minutes=5)
READ = "__read"  # what the name of the subscription ends with that reads an audit table
SUCCEEDED = ("COMPLETE", "COMPLETED", "FINISHED", "SUCCEEDED", "SUCCESS")


@dataclass(frozen=True)
class QueryLog:
    """A table of executed SQL, a row for each statement, to which rows are appended.

    Args:
        table: a Delta table of the lake.
        sql: the column of the text as it was executed; never of templates.
        dialect: the engine, by sqlglot's name.
        at: the column with the time of its end: a timestamp, an ISO text or milliseconds since the
            epoch.
        state: the column with its final state; without one every row counts.
        succeeded: the states that count.
        user: the column of who asked; likewise `dashboard`, its `link`, `task` and `run`.
        user, dashboard, link, task, run: columns of who asked, for which dashboard and where that
        is, as which task and run.
        every: how often new rows are read; None reads them as they arrive.

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
        if self.every is not None and not isinstance(self.every, Schedule):
            raise DeclarationError(
                f"QueryLog {shown(self.table)}",
                "every",
                f"is {shown(self.every)}; write every(minutes=5)",
            )
        for name in ("table", "sql", "dialect", "at", *self.optional):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise DeclarationError(
                    f"QueryLog {shown(self.table)}", name, f"is {shown(value)}; write a name"
                )

    @property
    def optional(self) -> tuple[str, ...]:
        """The optional columns that are given."""
        return tuple(
            name
            for name in ("state", "user", "dashboard", "link", "task", "run")
            if getattr(self, name) is not None
        )

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the table that are read, by field."""
        return {name: getattr(self, name) for name in ("sql", "at", *self.optional)}


def reading_name(table: str) -> str:
    """The name of the subscription that reads an audit table, and of its asset as if it were a
    table.
    """
    return table + READ


def checked_query_logs(
    lake: str, logs: Iterable[QueryLog], formats: Mapping[str, object]
) -> tuple[QueryLog, ...]:
    """The declared audit tables.

    Raises:
        DeclarationError: one is no Delta table of the lake, declared twice, or read by what has the
            name of another table.
    """
    found: list[QueryLog] = []
    for one in logs:
        if not isinstance(one, QueryLog):
            raise DeclarationError(f"Lake {lake}", "query_logs", f"{shown(one)} is no QueryLog")
        named = f"QueryLog {one.table}"
        if one.table not in formats:
            raise DeclarationError(named, "table", f"is not in the lake; it has {_listed(formats)}")
        if formats[one.table] is not TableFormat.DELTA:
            raise DeclarationError(
                named, "table", f"is of {formats[one.table]}; audit tables are Delta tables"
            )
        if any(other.table == one.table for other in found):
            raise DeclarationError(named, "table", "is declared twice; keep one")
        if reading_name(one.table) in formats:
            raise DeclarationError(
                named,
                "table",
                f"is read by a subscription of the name {reading_name(one.table)}; rename the "
                f"table of that name",
            )
        found.append(one)
    return tuple(found)


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))


T = TypeVar("T")
Target = LakeTable | BronzeTable | CDCTable | EventTable  # what this lake writes
Table = SourceTable | Target


@dataclass(frozen=True, init=False)
class Lake:
    """Tables that are declared together; every input of a computed table is one of them.

    `tables` lists inputs before the tables that read them. `alarms` are URLs of apprise, or
    `$NAME`s of variables that hold them; failing checks are sent there if LAKECHIME_ALARMS is
    `send`. `aliases` map the names that other engines use to tables: a table to a table, or
    `hive.*` to `*` or `bronze.*` for all names below. `query_logs` are tables with executed SQL.
    `table_format` is that of computed tables that declare none: `delta`, `iceberg` or `hive`.

    Raises:
        DeclarationError: naming the table and the field that do not fit the others.
    """

    name: str
    tables: tuple[Table, ...]
    groups: tuple[EventGroup, ...]
    alarms: tuple[str, ...] = field(repr=False)
    aliases: Mapping[str, str] = field(hash=False)
    query_logs: tuple[QueryLog, ...]

    def __init__(
        self,
        name: str,
        tables: Iterable[Table | EventStream | EventGroup],
        *,
        alarms: Iterable[str] = (),
        aliases: Mapping[str, str] | None = None,
        query_logs: Iterable[QueryLog] = (),
        table_format: str = "delta",
    ) -> None:
        if not isinstance(name, str) or not PART.fullmatch(name):
            raise DeclarationError(
                f"Lake {shown(name)}", "name", "must be of letters, digits and _"
            )
        default = checked_format(f"Lake {name}", "table_format", table_format)
        declared = tuple(_of_format(one, default) for one in tables)
        given = [one for one in declared if not isinstance(one, EventStream | EventGroup)]
        for table in given:
            if not isinstance(table, SourceTable | LakeTable | CDCTable):
                remedy = (
                    "is neither a SourceTable nor the result of spark_table, sql_table, cdc_table, "
                    "event_stream or event_group"
                )
                raise DeclarationError(f"Lake {name}", "tables", f"{shown(table)} {remedy}")
        streams = [one.table for one in declared if isinstance(one, EventStream)]
        several = (
            *given,
            *(one for table in given if isinstance(table, CDCTable) for one in table.beside),
            *streams,
        )
        _check_names(several)
        groups = _checked_groups(_groups(declared), several)
        by_name = {table.name: table for table in several}
        _check_sources(by_name, groups)
        _check_inputs(by_name)
        cycle = find_cycle(_edges(several))
        if cycle:
            raise DeclarationError(
                cycle[0],
                "reads",
                f"is a cycle: {' ← '.join(cycle)}; break it by leaving out one of the reads",
            )
        for table in several:
            if isinstance(table, LakeTable):
                _check_trigger(table, by_name)
                _check_partitions(table, by_name)
        ordered = topological(_edges(several))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "tables", tuple(by_name[name] for name in ordered))
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "alarms", checked_alarms(name, alarms))
        formats = {table.name: table.format for table in several}
        object.__setattr__(self, "query_logs", checked_query_logs(name, query_logs, formats))
        object.__setattr__(self, "aliases", checked_aliases(name, aliases or {}, by_name))

    @property
    def sources(self) -> tuple[SourceTable, ...]:
        """The tables that are written externally."""
        return tuple(table for table in self.tables if isinstance(table, SourceTable))

    @property
    def targets(self) -> tuple[Target, ...]:
        """The tables that this lake writes, inputs first."""
        return tuple(table for table in self.tables if not isinstance(table, SourceTable))

    @property
    def working_groups(self) -> tuple[EventGroup, ...]:
        """The groups of event types whose declarations are right."""
        return tuple(group for group in self.groups if not group.problem)

    @property
    def computed(self) -> tuple[LakeTable, ...]:
        """The tables that this lake computes, inputs first."""
        return tuple(table for table in self.tables if isinstance(table, LakeTable))

    @property
    def levels(self) -> dict[str, PartitionLevels]:
        """The typed partition levels of each table."""
        return {table.name: table.levels for table in self.tables}

    @cached_property
    def span(self) -> TimeSpan | None:
        """The days of which its partition triggers speak; None where none does. Worked out once, as
        each table's partitions need it.
        """
        return time_span(
            (table.trigger, table.levels)
            for table in self.targets
            if isinstance(table.trigger, PartitionTrigger)
        )

    def table(self, name: str) -> Table:
        """The table of that name.

        Raises:
            NotFoundError: naming the tables that are there.
        """
        for table in self.tables:
            if table.name == name:
                return table
        raise NotFoundError(
            f"lake {self.name} has no table {shown(name)}; it has "
            f"{', '.join(table.name for table in self.tables)}"
        )

    def graph(self) -> dict[str, tuple[str, ...]]:
        """The inputs of each table; a source has none."""
        return _edges(self.tables)

    def readers(self, name: str) -> tuple[Target, ...]:
        """The tables of this lake that read this table."""
        return tuple(table for table in self.targets if name in table.inputs)


def named_types(lake: Lake, group: EventGroup) -> tuple[SourceTable, ...]:
    """The tables of a group's types that the lake names, in its list of tables or by a contract of
    their own, by name.
    """
    found = {table.name: table for table in map(group.table, group.contracts)}
    found |= {table.name: table for table in lake.sources if writer_of(lake, table) == group}
    return tuple(found[name] for name in sorted(found))


def foreign_sources(lake: Lake) -> tuple[SourceTable, ...]:
    """The tables of a lake that somebody else writes, of whom its groups are none."""
    return tuple(table for table in lake.sources if writer_of(lake, table) is None)


def writer_of(lake: Lake, table: SourceTable) -> EventGroup | None:
    """The group that writes a table, which is that of a type; None of any other."""
    return next(
        (group for group in lake.groups if group.name == table.name.partition(".")[0]), None
    )


def _of_format(one: T, default: TableFormat) -> T:
    """A computed table that declares no format gets the lake's; anything else stays as it is."""
    is_delta = default is TableFormat.DELTA  # which no declaration needs
    if is_delta or not isinstance(one, LakeTable) or one.storage.format is not None:
        return one
    return replace(one, storage=replace(one.storage, format=default))


def _groups(declared: Iterable[object]) -> tuple[EventGroup, ...]:
    """The groups of all streams, with one for what no other takes; a group's stream is declared
    with it.
    """
    # a declaration that is listed twice is one
    several = list({id(one): one for one in declared}.values())
    streams = [one for one in several if isinstance(one, EventStream)]
    groups = [one for one in several if isinstance(one, EventGroup)]
    for group in groups:
        if group.stream not in streams:
            raise DeclarationError(
                group.name, "stream", f"{group.stream.name} is not in the lake; add it to the list"
            )
    found = [
        one
        for stream in streams
        for one in checked_groups(stream, [group for group in groups if group.stream == stream])
    ]
    names: set[str] = set()
    for group in found:
        if group.name.casefold() in names:
            raise DeclarationError(
                group.name, "name", "is the name of two groups; rename one of them"
            )
        names.add(group.name.casefold())
    return tuple(found)


def _edges(tables: Iterable[Table]) -> dict[str, tuple[str, ...]]:
    return {table.name: () if isinstance(table, SourceTable) else table.inputs for table in tables}


def _check_names(tables: tuple[Table, ...]) -> None:
    names: dict[str, Table] = {}
    locations: dict[str, Table] = {}
    for table in tables:
        known = names.setdefault(table.name.casefold(), table)
        if known is not table and known.name != table.name:
            raise DeclarationError(
                table.name,
                "name",
                f"differs from {known.name} in letter case only; catalogs hold them for one table",
            )
        if known is not table:
            written = not isinstance(known, SourceTable) and not isinstance(table, SourceTable)
            problem = "is written by two declarations" if written else "is declared twice"
            raise DeclarationError(table.name, "name", f"{problem}; keep one")
        if table.location is not None:
            other = locations.setdefault(table.location.rstrip("/"), table)
            if other is not table:
                raise DeclarationError(
                    table.name,
                    "location",
                    f"is the location of {other.name} too; a table lies alone",
                )
    for table in tables:
        parts = table.name.casefold().split(".")
        for length in range(1, len(parts)):
            outer = names.get(".".join(parts[:length]))
            if outer is not None:
                raise DeclarationError(
                    table.name,
                    "name",
                    f"would lie inside the folder of {outer.name}; rename one of them",
                )


def _checked_groups(
    groups: Iterable[EventGroup], tables: Iterable[Table]
) -> tuple[EventGroup, ...]:
    """Refuse tables that have the name of a group, that this lake writes among those of a group, or
    that are types of a group in another format.

    When a location is loaded, a group whose folder holds another table fails alone.
    """
    found = {group.name.casefold(): group for group in groups}
    for table in tables:
        name = table.name.casefold()
        if name in found:
            raise DeclarationError(
                table.name, "name", "is the name of a group of types too; rename one of them"
            )
        outer = found.get(name.split(".")[0])
        if outer is not None and isinstance(table, SourceTable) and table.format != outer.format:
            problem = f"is that of {outer.name}, which writes it: {outer.format.lower()}"
            raise DeclarationError(table.name, "format", problem)
        if outer is not None and not isinstance(table, SourceTable):
            problem = (
                f"would lie among the tables of group {outer.name}, which has one for each type; "
                f"rename one of them"
            )
            error = DeclarationError(table.name, "name", problem)
            if not are_failures_kept():
                raise error
            found[outer.name.casefold()] = replace(outer, problem=outer.problem or str(error))
    return tuple(found.values())


def _check_sources(tables: Mapping[str, Table], groups: Iterable[EventGroup]) -> None:
    """Refuse tables as the sources of streams that are not there, or to which more is done than
    appended.
    """
    for table in tables.values():
        if not isinstance(table, EventTable) or not isinstance(table.source, TableRows):
            continue
        name, of_stream = (
            table.source.name,
            {group.name for group in groups if group.stream.table == table},
        )
        if name not in tables:
            raise DeclarationError(
                table.name,
                "source",
                f"reads {name}, which is not in the lake{_meant(name, tables, table.name)}",
            )
        source = tables[name]
        if source.format is not TableFormat.DELTA:
            raise DeclarationError(
                table.name, "source", f"{name} is of {source.format}; a stream reads Delta tables"
            )
        if name.split(".")[0] in of_stream:
            raise DeclarationError(
                table.name,
                "source",
                f"{name} is written from the stream itself; it would wake itself for ever",
            )
        if isinstance(source, EventTable):
            problem = (
                f"{name} is a stream's own table, in which reprocessing adds payloads again; read "
                f"{source.source} instead"
            )
            raise DeclarationError(table.name, "source", problem)
        appends = isinstance(source, SourceTable | BronzeTable) or (
            isinstance(source, LakeTable) and source.refresh is RefreshMode.ROWS and not source.keys
        )
        if not appends:
            raise DeclarationError(
                table.name,
                "source",
                f"rows of {name} are replaced; a stream takes rows that are only ever appended",
            )


def _check_inputs(tables: Mapping[str, Table]) -> None:
    for table in tables.values():
        if not isinstance(table, LakeTable):
            continue
        for alias, read in table.reads.items():
            for name in (read.table, read.rejoin):
                if name is not None and name not in tables:
                    field = "sql" if table.sql is not None else f"reads[{alias!r}]"
                    raise DeclarationError(
                        table.name,
                        field,
                        f"reads {name}, which is not in the lake{_meant(name, tables, table.name)}",
                    )


def _check_trigger(table: LakeTable, tables: Mapping[str, Table]) -> None:
    if table.trigger is None:
        return
    for name in table.trigger.tables:
        if name not in tables:
            raise DeclarationError(
                table.name,
                "trigger",
                f"waits for {name}, which is not in the lake{_meant(name, tables, table.name)}",
            )
        if name == table.name:
            raise DeclarationError(
                table.name, "trigger", "waits for the table itself; it would wake itself for ever"
            )
    if not isinstance(table.trigger, PartitionTrigger):
        return
    for condition in table.trigger.conditions:
        levels = tables[condition.table].levels.names
        unknown = [level for level, _ in condition.specs if level not in levels]
        if unknown or len(condition.specs) != len(levels):
            problem = (
                f"has no level {unknown[0]!r}" if unknown else f"needs all levels in {condition}"
            )
            raise DeclarationError(
                table.name,
                "trigger",
                f"{condition.table} {problem}; its levels are {', '.join(levels) or 'none'}",
            )


def _check_partitions(table: LakeTable, tables: Mapping[str, Table]) -> None:
    """Partitions of a target that are replaced must be found in those of its changing inputs."""
    if table.refresh is not RefreshMode.PARTITIONS:
        return
    for read in table.reads.values():
        if not read.is_changing:
            continue
        levels = tables[read.table].levels.as_dict()
        for column, kind in table.levels.as_dict().items():
            if column not in levels:
                there = f"it has {', '.join(levels)}" if levels else "it has none"
                remedy = (
                    "its changes do not determine which partitions to replace; partition it so, or "
                    "use affected_keys or full"
                )
                raise DeclarationError(
                    table.name,
                    "partitioned_by",
                    f"{column!r} is no partition level of {read.table} ({there}), so {remedy}",
                )
            if levels[column] != kind:
                problem = (
                    f"{column!r} is {kind} here and {levels[column]} in {read.table}; use one type"
                )
                raise DeclarationError(table.name, "partitioned_by", problem)


def _meant(name: str, tables: Mapping[str, Table], reader: str) -> str:
    last = name.rpartition(".")[2]
    near = [
        other for other in tables if other != reader and last in (other.rpartition(".")[2], other)
    ]
    near = [other for other in tables if other.casefold() == name.casefold()] or near
    return (
        f"; did you mean {near[0]}?"
        if near
        else "; declare it as a SourceTable, or add its declaration to the list"
    )


NO_LAKE = (
    "no lake is declared here: run this in a project whose pyproject.toml names its definitions, "
    "or set LAKECHIME_LAKE to your lake as module:attribute; lakechime_dagster.demo.flights:lake "
    "is the demo"
)


def find_lake(
    definitions: str | None, name: str | None, built: Callable[[str], Lake | None]
) -> Lake:
    """The lake of a project: the only one in the module of its definitions, else the one of which
    these are built; or the one of a name.

    Raises:
        LakeChimeError: neither is given, the lake cannot be found, or the definitions hold none or
            several.
    """
    if definitions:
        return lake_in(definitions) or built(definitions) or _no_lake_in(definitions)
    if name:
        return load_lake(name)
    raise LakeChimeError(NO_LAKE)


def load_lake(name: str) -> Lake:
    """The lake that LAKECHIME_LAKE names; event groups whose declaration is wrong are in it with
    their `problem`.

    Raises:
        InvalidValueError: when the module or the attribute is not there, or is no Lake.
    """
    module, _, attribute = name.partition(":")
    try:
        with failures_kept():
            found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise InvalidValueError(
            "LAKECHIME_LAKE", name, f"names no module {module}; is it installed or on PYTHONPATH?"
        ) from None
    if not isinstance(found, Lake):
        raise InvalidValueError(
            "LAKECHIME_LAKE", name, f"{module} has no Lake of the name {attribute}"
        )
    return found


def lake_in(module: str) -> Lake | None:
    """The only lake among the names of a module; None where there is none.

    Raises:
        InvalidValueError: it has several.
    """
    with failures_kept():
        found = {
            id(value): value
            for value in vars(importlib.import_module(module)).values()
            if isinstance(value, Lake)
        }
    if len(found) > 1:
        raise InvalidValueError(
            "LAKECHIME_LAKE",
            "",
            f"is not set, and {module} has {len(found)} lakes; set it to yours, as module:attribute",
        )
    return next(iter(found.values()), None)


def _no_lake_in(module: str) -> NoReturn:
    remedy = f"is not set, and {module} has no lake; set it to yours, as module:attribute"
    raise InvalidValueError("LAKECHIME_LAKE", "", remedy)
