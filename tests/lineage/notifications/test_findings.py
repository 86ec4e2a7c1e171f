"""What a draft of a check says, and by which source it is recognized."""

from lakechime_dagster.governance.notifications import finding_change, finding_source
from lakechime_dagster.lineage.check import Class, Finding


def make_finding(column: str = "twice", mark: str = "0f", **fields: str) -> Finding:
    return Finding(kind=Class.VALUES, table="silver.paid", column=column, what="is computed otherwise", marks=(mark,), **fields)  # type: ignore[arg-type]


def test_an_accepted_finding_is_not_announced() -> None:
    change = finding_change([make_finding("id"), make_finding("twice", accepted="agreed")])
    assert (change.what, [str(ref) for ref in change.refs]) == ("id is computed otherwise", ["silver.paid.id"])


def test_other_findings_have_another_source_and_another_order_or_acceptance_has_not() -> None:
    one, other = make_finding("id"), make_finding("twice")
    assert finding_source("silver.paid", [one, other]) == finding_source("silver.paid", [make_finding("twice", accepted="agreed"), one])
    sources = {finding_source("silver.paid", each) for each in ([one], [other], [one, other], [one, make_finding("twice", "1f")])}
    assert len(sources) == 4
