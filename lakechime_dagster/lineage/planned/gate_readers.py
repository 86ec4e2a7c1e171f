"""Who reads what a finding of the gate is about, and writes nothing: dashboards, people, jobs elsewhere."""

from collections.abc import Iterable, Mapping, Sequence

from lakechime_dagster.lineage.planned.gate import Class, Finding
from lakechime_dagster.lineage.reads import Read

Readers = Mapping[str, Sequence[Read]]  # by the key of a finding


def readers_of(findings: Iterable[Finding], reads: Iterable[Read]) -> dict[str, tuple[Read, ...]]:
    """The newest read of each consumer that a finding hits, the last one first.

    A finding about rows or a whole table hits all who read it; one about a column those who read that, and those of whom it is not
    told which columns they read. What only informs hits nobody.
    """
    several = sorted(reads, key=lambda one: (-one.at_ms, one.consumer))
    found: dict[str, tuple[Read, ...]] = {}
    for finding in findings:
        if finding.kind is Class.INFORMS and finding.what != "is gone":
            continue
        mine = {one.consumer: one for one in reversed(several) if _reads(one, finding)}
        if mine:
            found[finding.key] = tuple(sorted(mine.values(), key=lambda one: (-one.at_ms, one.consumer)))
    return found


def _reads(read: Read, finding: Finding) -> bool:
    return any(ref.table == finding.table and (None in (ref.column, finding.column) or ref.column == finding.column) for ref in read.refs)
