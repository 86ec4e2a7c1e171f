from lakechime_dagster.lineage.columns import Kind, Value
from lakechime_dagster.lineage.plan_statements import without
from tests.lineage.factories import source


def test_of_a_merges_condition_all_is_kept_but_the_rows_that_it_looks_up() -> None:
    own, given = source("target.id"), source("orders.id", Kind.TRANSFORMATION)
    reasons, code = frozenset({"rows of an RDD"}), frozenset({"Python UDF f"})
    condition = Value(frozenset({own, own.then(Kind.TRANSFORMATION), given}), reasons, udfs=code)
    assert without(Value(frozenset({own})), condition) == Value(
        frozenset({given}), reasons, udfs=code
    )
