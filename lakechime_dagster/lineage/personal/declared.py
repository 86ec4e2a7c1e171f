"""Which columns a lake declares to be personal, under the names by which lineage knows them."""

from collections.abc import Iterator

from lakechime_dagster.lake.change_tables import ChangeTable
from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.names import folded
from lakechime_dagster.lake.personal import column_of
from lakechime_dagster.lake.tables import LakeTable
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.declared import PAYLOAD, ROOT, pointer

KEY, VALUE = "key", "value"  # of a table of messages


def declared_tags(lake: Lake) -> dict[ColumnRef, str]:
    """Categories by column. What a table that follows a database declares is personal in its messages too, and so with streams."""
    tags = {ColumnRef(table.name, name): tag.category for table in lake.tables for name, tag in table.personal.items()}
    for table in lake.tables:
        if isinstance(table, ChangeTable):
            tags |= {ColumnRef(table.bronze.name, name): category for name, category in _of_messages(table)}
    for group in lake.groups:
        tags |= {ColumnRef(group.stream.table.name, name): category for name, category in _of_stream(group)}
    return tags


def public_tables(lake: Lake) -> frozenset[str]:
    """The tables that are declared to be for everybody."""
    return frozenset(table.name for table in lake.tables if table.public)


def within_reach(lake: Lake) -> frozenset[str]:
    """The computed tables that read what is declared personal, or read what does, by their declarations; those that declare it too."""
    of_groups = tuple(f"{group.name}." for group in lake.groups if group.personal)
    tagged = {ref.table for ref in declared_tags(lake)}
    reached: set[str] = set()
    for table in lake.tables:  # inputs first
        is_of_group = table.name.startswith(of_groups)
        inputs = () if not isinstance(table, LakeTable) else table.inputs
        if is_of_group or table.name in tagged or not reached.isdisjoint(inputs):
            reached.add(table.name)
    return frozenset(table.name for table in lake.computed if table.name in reached)


def _of_messages(table: ChangeTable) -> Iterator[tuple[str, str]]:
    """Fields as lineage names them, and the texts in which they stand at a place that the envelope decides on."""
    there = {folded(here): name for name, here in table.names.items()}
    keys = {folded(key) for key in table.keys}
    for name, tag in table.personal.items():
        column = column_of(name)
        field = there.get(folded(column), column)
        yield pointer(field) + name.removeprefix(column), tag.category
        for text in (VALUE, KEY) if folded(column) in keys else (VALUE,):
            yield f"{text}:{ROOT}..{field}", tag.category


def _of_stream(group: EventGroup) -> Iterator[tuple[str, str]]:
    for path, tag in group.personal.items():
        name = pointer(*path.strip("/").split("/"))
        yield name, tag.category
        yield f"{PAYLOAD}:{name}", tag.category
