"""Who reads what a change of the code hits, from the store."""

from collections.abc import Sequence

from lakechime_dagster.lineage.planned.gate import Finding
from lakechime_dagster.lineage.planned.gate_readers import readers_of
from lakechime_dagster.lineage.reads import Read
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.lineage.reads import SqlReads


def gate_readers(platform: Platform, findings: Sequence[Finding]) -> tuple[dict[str, tuple[Read, ...]], str]:
    """By finding who reads what it is about, and why it is not known who does, if it is not."""
    reads = SqlReads(platform.store.engine)
    if not reads.ways():
        return {}, "nobody tells who reads in dashboards or elsewhere"
    several = [
        Read(consumer=one.consumer, refs=(one.ref,), at_ms=one.last_ms, owners=one.owners, link=one.link)
        for one in reads.of_tables({one.table for one in findings})
    ]
    return readers_of(findings, several), ""
