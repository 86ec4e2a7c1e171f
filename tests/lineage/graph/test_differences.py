from lakechime_dagster.lineage.graph.differences import differences
from tests.lineage.factories import make_statement


def test_what_came_and_went_is_told_with_what_is_not_known() -> None:
    before = make_statement(delay="flights.delay", opaque={"risk": "rows of an RDD"}, unknown=("events were dropped",))
    after = make_statement(delay="flights.delay", risk="flights.wind", through={"risk": "Python UDF f"}, foreign=("mapInPandas",))
    (found,) = differences([before], [after])
    assert [(str(one.target), one.kind) for one in found.came] == [
        ("gold.daily", "mapInPandas"), ("gold.daily.risk", "identity"), ("gold.daily.risk", "Python UDF f"),
    ]  # fmt: skip
    assert [(str(one.target), one.kind) for one in found.went] == [
        ("gold.daily", "events were dropped"), ("gold.daily.risk", "rows of an RDD"),
    ]  # fmt: skip
