"""Columns of its inputs that a table's code does not read, as its manifest has it: a change of nothing else need not wake it."""

from collections.abc import Iterator, Mapping

from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.tables import LakeTable, code_digest
from lakechime_dagster.lineage.planned.manifest import Manifest, PlannedTable
from lakechime_dagster.triggers.model import SnapshotTrigger

Columns = frozenset[str]  # in lower case, as Spark finds a column in any


def unread_columns(lake: Lake, manifest: Manifest | None) -> Mapping[str, Mapping[str, Columns]]:
    """By table, and by those of its inputs that wake it, the columns that it is known not to read.

    A table is left out whose code is another than the one that was planned, or of which anything could not be told; so is one
    whose trigger asks for tags or partitions, as it is woken by what they say.
    """
    if manifest is None or manifest.lake != lake.name:
        return {}
    found = {table.name: _unread(lake, table, manifest) for table in lake.computed if table.name in manifest.tables}
    return {name: inputs for name, inputs in found.items() if inputs}


def _unread(lake: Lake, table: LakeTable, manifest: Manifest) -> Mapping[str, Columns]:
    planned, trigger = manifest.tables[table.name], table.trigger
    if not isinstance(trigger, SnapshotTrigger) or trigger.tags or not _is_whole(planned) or planned.code != code_digest(table):
        return {}
    read = _read(planned)
    found: dict[str, Columns] = {}
    for name in table.inputs:
        columns = read.get(name, set())
        if name in trigger.tables and name in manifest.tables and None not in columns:
            known = {column.name.casefold() for column in manifest.tables[name].columns}
            said = [*(column for column in columns if column is not None), *_laid_out(lake, name)]
            used = {one for one in known if any(_is_of(one, name.casefold()) for name in said)}
            found[name] = frozenset(one for one in known - used if not any(one in text.casefold() for text in _conditions(table, name)))
    return {name: columns for name, columns in found.items() if columns}


def _is_whole(planned: PlannedTable) -> bool:
    told = planned.statement
    return bool(told.columns) and not told.not_known and not any(column.not_known for column in told.columns)


def _read(planned: PlannedTable) -> Mapping[str, set[str | None]]:
    """By table the columns that take part in anything; None where the table as a whole does."""
    found: dict[str, set[str | None]] = {}
    for source in planned.statement.sources:
        found.setdefault(source.ref.table, set()).add(source.ref.column)
    return found


def _is_of(column: str, name: str) -> bool:
    """Whether a name is that of a column, or of something within it."""
    return name == column or name.startswith((f"{column}.", f"{column}:"))


def _laid_out(lake: Lake, name: str) -> Iterator[str]:
    """The keys of a table and its partition columns: they say which rows and which files a range touches."""
    table = lake.table(name)
    yield from table.levels.names
    if isinstance(table, LakeTable):
        yield from table.keys


def _conditions(table: LakeTable, name: str) -> Iterator[str]:
    """What the declaration says of rows beside the code, as text: a column that may stand in it counts as read."""
    yield from table.expect.values()
    for columns in table.key_columns.get(name, {}).values():
        yield from columns.values()
    yield from (column for read in table.reads.values() if name in (read.table, read.rejoin) for column in read.on)
    if table.watermark is not None:
        yield table.watermark
