"""Whom a change of one table reaches, along columns and tables: surely, or perhaps where what a reader computes cannot be told."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.planned.findings import GONE, Class, Finding
from lakechime_dagster.lineage.planned.manifest import Manifest


@dataclass(frozen=True)
class _Reading:
    """Who reads: a column, or a table for its rows or as a whole; not sure where the reader does not say what it reads."""

    ref: ColumnRef
    is_row: bool = False
    is_sure: bool = True


def followed(own: Iterable[Finding], before: Manifest, after: Manifest) -> Iterator[Finding]:
    """What the changes of tables do to those that read them, along columns; of each the nearest way, and a sure one before others."""
    for change in own:
        if change.kind is Class.INFORMS and change.what != GONE:
            continue
        for reading, is_sure, because in _reached(change.ref, before, after):
            hit = _hit(change, reading, because)
            yield hit if is_sure else replace(hit, kind=Class.UNSURE)


def _reached(start: ColumnRef, before: Manifest, after: Manifest) -> Iterator[tuple[_Reading, bool, tuple[ColumnRef, ...]]]:
    """First all that is surely reached, then what else is, perhaps: what a reader that is not sure makes is not sure either."""
    reached: dict[ColumnRef, tuple[ColumnRef, ...]] = {start: (start,)}
    for is_sure in (True, False):
        waiting = list(reached)
        while waiting:
            ref = waiting.pop(0)
            for reading in _readings(before, after, ref):
                if reading.ref in reached or (is_sure and not reading.is_sure):
                    continue
                reached[reading.ref] = (*reached[ref], reading.ref)
                waiting.append(reading.ref)
                yield reading, is_sure, reached[reading.ref]


def _readings(before: Manifest, after: Manifest, ref: ColumnRef) -> Iterator[_Reading]:
    """Who reads a column, or a table as a whole, by the code of now, or of before where nothing is known of now."""
    for table in (after.tables.get(name) or before.tables[name] for name in dict.fromkeys((*after.tables, *before.tables))):
        known = table if table.columns else before.tables.get(table.name, table)
        if not table.is_computed or ref.table not in (*table.inputs, *known.inputs):
            continue
        whole = ColumnRef(table.name)
        if ref.column is None:
            yield _Reading(whole, is_row=True)
            continue
        if any(source.ref == ref for source in known.indirect):
            yield _Reading(whole, is_row=True)
        if known.unknown:
            yield _Reading(whole, is_sure=False)
        for column in known.columns:
            is_named = any(source.ref == ref for source in column.sources)
            if is_named or (column.opaque and not known.unknown):
                yield _Reading(ColumnRef(table.name, column.name), is_sure=is_named)


def _hit(change: Finding, reading: _Reading, because: tuple[ColumnRef, ...]) -> Finding:
    start, last = because[0], because[-2]
    kind = Class.VALUES if change.kind is Class.BREAKS else change.kind
    if reading.is_row and kind is not Class.UNSURE:
        kind = Class.ROWS
    what = f"reads {last}" if reading.is_sure else f"may read {last}"
    if len(because) > 2:
        what = f"{what}, which comes from {start}"
        kind = Class.UNSURE if change.what == GONE else kind
    elif change.what == GONE:
        kind, what = Class.BREAKS, f"{what}, which {GONE}"
    return Finding(kind=kind, table=reading.ref.table, column=reading.ref.column, what=what, because=because, marks=change.marks)
