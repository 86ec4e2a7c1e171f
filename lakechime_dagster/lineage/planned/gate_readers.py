"""Who reads what a finding of a check is about: dashboards, people, jobs elsewhere."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lakechime_dagster.lineage.planned.findings import Class, Finding, sorted_findings
from lakechime_dagster.lineage.reads import Read

Readers = Mapping[str, Sequence[Read]]  # by the key of a finding


def raised(findings: Iterable[Finding], reads: Sequence[Read], since_ms: int) -> tuple[Finding, ...]:
    """The findings, of which one that a column or a table is gone is no mere information if somebody read it since a time.

    It breaks whoever reads the column, and perhaps those of whom it is not told which columns they read.
    """
    recent = [one for one in reads if one.at_ms >= since_ms]
    return sorted_findings(replace(one, kind=_raised(one, recent)) for one in findings)


def _raised(finding: Finding, reads: Iterable[Read]) -> Class:
    mine = [one for one in reads if _reads(one, finding)] if finding.takes_away else []
    if finding.kind is not Class.INFORMS or not mine:
        return finding.kind
    is_sure = finding.column is None or any(finding.ref in one.refs for one in mine)
    return Class.BREAKS if is_sure else Class.UNSURE


def readers_of(findings: Iterable[Finding], reads: Iterable[Read]) -> dict[str, tuple[Read, ...]]:
    """The newest read of each consumer that a finding hits, the last one first.

    A finding about rows or a whole table hits all who read it; one about a column those who read that, and those of whom it is not
    told which columns they read. What only informs hits nobody.
    """
    several = sorted(reads, key=lambda one: (-one.at_ms, one.consumer))
    found: dict[str, tuple[Read, ...]] = {}
    for finding in findings:
        if finding.kind is Class.INFORMS and not finding.takes_away:
            continue
        mine = {one.consumer: one for one in reversed(several) if _reads(one, finding)}
        if mine:
            found[finding.key] = tuple(sorted(mine.values(), key=lambda one: (-one.at_ms, one.consumer)))
    return found


def _reads(read: Read, finding: Finding) -> bool:
    return any(ref.table == finding.table and (None in (ref.column, finding.column) or ref.column == finding.column) for ref in read.refs)
