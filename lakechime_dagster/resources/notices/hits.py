"""What a change reaches, as runs and declarations tell it: tables, their columns and owners, and who reads them."""

from collections.abc import Collection, Iterable, Mapping

from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.lake import Lake
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph import answers
from lakechime_dagster.lineage.graph.consumers import ConsumerHit
from lakechime_dagster.lineage.graph.facts import TableFacts
from lakechime_dagster.lineage.graph.reach import Certainty
from lakechime_dagster.lineage.notices.digests import Hit, Reader, ReaderKind
from lakechime_dagster.lineage.planned.types import paths_of
from lakechime_dagster.lineage.reads import ConsumerKind
from lakechime_dagster.resources.lineage.asked import AskedLineage
from lakechime_dagster.resources.platform import Platform

KINDS = {ConsumerKind.DASHBOARD: ReaderKind.DASHBOARD, ConsumerKind.USER: ReaderKind.PERSON, ConsumerKind.JOB: ReaderKind.JOB}


def hits_of(asked: AskedLineage, refs: Collection[ColumnRef]) -> tuple[Hit, ...]:
    """What these tables and columns reach, they themselves as layer 0."""
    found = asked.hits(refs)
    changed = {ref.table for ref in refs}
    several = [one for one in found.hits if one.table not in changed]
    facts = asked.facts([*changed, *(one.table for one in several)])
    readers = _readers(asked.consumers(refs, found))
    return (
        *(_changed(table, refs, facts[table], readers) for table in sorted(changed)),
        *(_reached(one, facts[one.table], readers) for one in several),
    )


def columns_now(platform: Platform, lake: Lake, table: str) -> frozenset[str] | None:
    """The columns that a table of the lake has, and the fields within them; none of one that is not there, None where nobody knows."""
    declared = next((one for one in lake.tables if one.name == table), None)
    if declared is None:
        return None
    try:
        found = platform.log(table, declared.location).columns()
    except TableUnreadableError:
        return None
    return frozenset(path for name, kind, _ in found for path in paths_of(name, kind))


def _changed(table: str, refs: Iterable[ColumnRef], facts: TableFacts, readers: Mapping[str, set[Reader]]) -> Hit:
    columns = [ref.column for ref in refs if ref.table == table]
    named = None if None in columns else tuple(sorted(column for column in columns if column))
    return Hit(table=table, layer=0, columns=named, owners=facts.owners, readers=tuple(sorted(readers.get(table, ()), key=str)))


def _reached(one: answers.Hit, facts: TableFacts, readers: Mapping[str, set[Reader]]) -> Hit:
    """A table further down; where all that is known is that it may read, its columns are not known."""
    is_sure = one.certainty < Certainty.UNSURE
    columns = tuple(sorted(column.name for column in one.columns)) if one.columns or is_sure else None
    return Hit(
        table=one.table, layer=one.layer, columns=columns, owners=facts.owners, is_sure=is_sure,
        readers=tuple(sorted(readers.get(one.table, ()), key=str)),
    )  # fmt: skip


def _readers(consumers: Iterable[ConsumerHit]) -> dict[str, set[Reader]]:
    """By table those who read it and write nothing; a person is told by the own name where no owner is."""
    found: dict[str, set[Reader]] = {}
    for one in consumers:
        kind = KINDS[one.consumer.kind]
        own = one.consumer.name if kind is ReaderKind.PERSON else ""
        for owner in one.owners or (own,):
            reader = Reader(name=one.consumer.name, kind=kind, owner=owner, link=one.link, read_ms=one.last_ms)
            for table in {ref.table for ref in one.refs}:
                found.setdefault(table, set()).add(reader)
    return found
