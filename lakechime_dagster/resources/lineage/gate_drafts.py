"""Drafts of notices for what a change of the code does: one for each table that itself changes, and for each thing that is found of it."""

from collections.abc import Iterable, Iterator, Sequence

from lakechime_dagster.lineage.notices.changes import Change, ChangeKind
from lakechime_dagster.lineage.notices.drafts import change_of_itself
from lakechime_dagster.lineage.planned.findings import Class, Finding, mark_of
from lakechime_dagster.resources.notices.drafting import draft_by_itself
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.notices.changes import Drafted

WHO = "lineage check"


def draft_findings(platform: Platform, findings: Iterable[Finding]) -> Iterator[tuple[str, Drafted]]:
    """By table what became of the draft that tells of what is found of it and is not accepted.

    What is found again is the same change, whatever became of that; as soon as anything of the table is another finding, it is a
    change of its own.
    """
    own = [one for one in findings if not one.because and one.kind is not Class.INFORMS]
    for table in dict.fromkeys(one.table for one in own if not one.accepted):
        mine = [one for one in own if one.table == table]
        change = change_of(table, [one for one in mine if not one.accepted])
        yield table, draft_by_itself(platform, change, WHO, source_of(table, mine))


def source_of(table: str, findings: Iterable[Finding]) -> str:
    """By which a draft is known again: the same for the same findings, whether they are accepted or not."""
    return f"gate/{table}/{mark_of(sorted(one.key for one in findings))}"


def change_of(table: str, findings: Sequence[Finding]) -> Change:
    """What is told of a table; of very many columns the table as a whole."""
    what = "; ".join(f"{one.column or table} {one.what}" for one in findings)
    return change_of_itself(ChangeKind.SCHEMA_CHANGE, what, (one.ref for one in findings))
