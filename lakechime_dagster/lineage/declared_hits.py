"""What a change reaches by declarations alone: tables that read tables, with no word on columns."""

from collections.abc import Iterable, Mapping

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.digests import Hit


def declared_hits(inputs: Mapping[str, Iterable[str]], owners: Mapping[str, str | None], refs: Iterable[ColumnRef]) -> tuple[Hit, ...]:
    """The tables of these refs, and all that read them over any number of steps, by the tables that each one reads.

    Where a column changes it is not sure that a reader of its table reads it.
    """
    columns: dict[str, set[str | None]] = {}
    for ref in refs:
        columns.setdefault(ref.table, set()).add(ref.column)
    readers: dict[str, list[str]] = {}
    for table, several in inputs.items():
        for name in several:
            readers.setdefault(name, []).append(table)
    is_whole = {table for table, several in columns.items() if None in several}
    layers = _layers(readers, columns)
    sure = _layers(readers, is_whole)
    return tuple(
        Hit(
            table=table, layer=layer, owners=tuple(owner for owner in (owners.get(table),) if owner),
            columns=tuple(sorted(name for name in columns[table] if name)) if layer == 0 and table not in is_whole else None,
            is_sure=layer == 0 or table in sure,
        )
        for table, layer in layers.items()
    )  # fmt: skip


def _layers(readers: Mapping[str, Iterable[str]], starts: Iterable[str]) -> dict[str, int]:
    """The fewest steps from any of these to each table that they reach, themselves 0."""
    found = dict.fromkeys(starts, 0)
    queue = list(found)
    for table in queue:
        for reader in readers.get(table, ()):
            if reader not in found:
                found[reader] = found[table] + 1
                queue.append(reader)
    return found
