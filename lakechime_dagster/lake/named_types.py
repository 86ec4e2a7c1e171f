"""The types of a group that a lake names: in its list of tables, for others to read, or by a contract of their own."""

from lakechime_dagster.lake.event_names import table_of
from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.tables import SourceTable


def named_types(lake: Lake, group: EventGroup) -> tuple[SourceTable, ...]:
    """The tables of a group's types that are named, by name; one that is in the list of tables is as it is there."""
    found = {table.name: table for table in map(group.table, group.contracts)}
    found |= {table.name: table for table in lake.sources if writer_of(lake, table) == group}
    return tuple(found[name] for name in sorted(found))


def foreign_sources(lake: Lake) -> tuple[SourceTable, ...]:
    """The tables of a lake that somebody else writes, of whom its groups are none."""
    return tuple(table for table in lake.sources if writer_of(lake, table) is None)


def writer_of(lake: Lake, table: SourceTable) -> EventGroup | None:
    """The group that writes a table, which is that of a type; None of any other."""
    schema, _, name = table.name.partition(".")
    having = [group for group in lake.groups if schema in group.homes]
    first = [group for group in having if group.name == table.group]  # as `EventGroup.table` declares it
    moved = [group for group in having if any(home == schema and table_of(kind) == name for kind, home in group.moved.items())]
    own = [group for group in having if group.name == schema]
    return next(iter((*first, *moved, *own, *having)), None)
