"""What people decide of columns is kept for good: of each the newest holds."""

from sqlalchemy import Engine

from lakechime_dagster.governance.store import PersonalDecisions
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.triggers.registry import By

EMAIL, PATH = ColumnRef("bronze.people", "email"), ColumnRef("bronze.letters", "payload:$.to")
ANA, BO = By(who="ana", reason="seen"), By(who="bo", reason="they are made up")


def test_of_a_column_the_newest_decision_holds_and_all_are_kept(engine: Engine) -> None:
    decisions = PersonalDecisions(engine)
    assert decisions.holding() == {}
    decisions.decide(EMAIL, "email", ANA)
    decisions.decide(PATH, None, ANA)
    decisions.decide(ColumnRef("bronze.people", "Email"), None, BO)
    held = decisions.holding()
    assert {
        (ref.table, str(ref.column).lower()): (one.category, one.who, one.reason)
        for ref, one in held.items()
    } == {
        ("bronze.people", "email"): (None, "bo", "they are made up"),
        ("bronze.letters", "payload:$.to"): (None, "ana", "seen"),
    }
    assert [one.category for one in decisions.all()] == ["email", None, None]
