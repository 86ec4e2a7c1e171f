"""Who reads what a change of the code hits, from the store, and what is worse for it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.parts import is_unsure
from lakechime_dagster.lineage.planned.findings import Finding
from lakechime_dagster.lineage.planned.gate_readers import raised, readers_of
from lakechime_dagster.lineage.reads import RECIPIENT_MS, Consumer, ConsumerKind, Read
from lakechime_dagster.lineage.record import Statement
from lakechime_dagster.resources.lineage.asked import is_of_flow
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.lineage.reads import SqlReads
from lakechime_dagster.store.lineage.standing import LineageStandings


@dataclass(frozen=True, kw_only=True)
class ReadFindings:
    """Findings and, by the key of each, who reads what it is about; `not_known` is why others may read it too."""

    findings: tuple[Finding, ...]
    readers: Mapping[str, Sequence[Read]] = field(default_factory=dict)
    not_known: str = ""


def gate_readers(platform: Platform, lake: Lake, findings: tuple[Finding, ...]) -> ReadFindings:
    """The findings as they are for those who read: what is gone breaks who read it in the last 35 days.

    A job elsewhere reads what it writes something of, by what its newest run told.
    """
    reads, tables = SqlReads(platform.store.engine), {one.table for one in findings}
    several = [
        Read(consumer=one.consumer, refs=(one.ref,), at_ms=one.last_ms, owners=one.owners, link=one.link) for one in reads.of_tables(tables)
    ]
    several += _jobs_elsewhere(platform, lake, tables)
    found = raised(findings, several, platform.store.now() - RECIPIENT_MS)
    not_known = "" if reads.ways() else "nobody tells who reads in dashboards or elsewhere"
    return ReadFindings(findings=found, readers=readers_of(found, several), not_known=not_known)


def _jobs_elsewhere(platform: Platform, lake: Lake, tables: Collection[str]) -> Iterable[Read]:
    """What programs that are no flow of the lake read of tables to write others, when a run told it last."""
    for one in LineageStandings(platform.store.engine).of_inputs(tables):
        if not is_of_flow(platform, lake, one):
            consumer = Consumer(ConsumerKind.JOB, one.producer.namespace, one.producer.job)
            link = next(iter(one.links.values()), "")
            yield Read(consumer=consumer, refs=_refs(one.statement, tables), at_ms=one.last_ms, owners=one.owners, link=link)


def _refs(statement: Statement, tables: Collection[str]) -> tuple[ColumnRef, ...]:
    """What a statement reads of tables: the columns, and a table itself where it may be others of it too, or none is told."""
    found = {one.ref for one in statement.sources if one.ref.table in tables and one.ref.column is not None}
    told = {one.table for one in found}
    whole = {ColumnRef(table) for table in statement.inputs if table in tables and (is_unsure(statement) or table not in told)}
    return tuple(sorted(found | whole, key=lambda ref: (ref.table, ref.column or "")))
