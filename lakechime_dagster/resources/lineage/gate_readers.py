"""Who reads what a change of the code hits, from the store, and what is worse for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakechime_dagster.lineage.planned.findings import Finding
from lakechime_dagster.lineage.planned.gate_readers import raised, readers_of
from lakechime_dagster.lineage.reads import RECIPIENT_MS, Read
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.lineage.reads import SqlReads


@dataclass(frozen=True, kw_only=True)
class ReadFindings:
    """Findings and, by the key of each, who reads what it is about; or why that is not known."""

    findings: tuple[Finding, ...]
    readers: Mapping[str, Sequence[Read]] = field(default_factory=dict)
    not_known: str = ""


def gate_readers(platform: Platform, findings: tuple[Finding, ...]) -> ReadFindings:
    """The findings as they are for those who read: what is gone breaks who read it in the last 35 days."""
    reads = SqlReads(platform.store.engine)
    if not reads.ways():
        return ReadFindings(findings=findings, not_known="nobody tells who reads in dashboards or elsewhere")
    several = [
        Read(consumer=one.consumer, refs=(one.ref,), at_ms=one.last_ms, owners=one.owners, link=one.link)
        for one in reads.of_tables({one.table for one in findings})
    ]
    found = raised(findings, several, platform.store.now() - RECIPIENT_MS)
    return ReadFindings(findings=found, readers=readers_of(found, several))
