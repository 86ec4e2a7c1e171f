"""What a draft of the gate says of a table, and by which source it is known again."""

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.notices.changes import MAX_REFS
from lakechime_dagster.lineage.planned.findings import Class, Finding
from lakechime_dagster.resources.lineage.gate_drafts import change_of, source_of


def make_finding(column: str = "twice", mark: str = "0f", **fields: str) -> Finding:
    return Finding(kind=Class.VALUES, table="silver.paid", column=column, what="is computed otherwise", marks=(mark,), **fields)  # type: ignore[arg-type]


def test_more_columns_than_a_notice_takes_are_told_as_their_table() -> None:
    several = [make_finding(f"c{number}") for number in range(MAX_REFS + 1)]
    assert change_of("silver.paid", several).refs == (ColumnRef("silver.paid"),)
    assert len(change_of("silver.paid", several[1:]).refs) == MAX_REFS


def test_a_source_is_another_one_with_the_findings_and_not_with_their_order_or_what_is_accepted() -> None:
    one, other = make_finding("id"), make_finding("twice")
    assert source_of("silver.paid", [one, other]) == source_of("silver.paid", [make_finding("twice", accepted="agreed"), one])
    sources = {source_of("silver.paid", each) for each in ([one], [other], [one, other], [one, make_finding("twice", "1f")])}
    assert len(sources) == 4
