"""What a materialisation shows of where its columns come from."""

from lakechime_dagster.assets.lineage import lineage_metadata
from lakechime_dagster.resources.lineage.runs import Recorded
from tests.lineage.factories import make_statement, source


def test_what_is_not_known_stands_beside_the_sources_and_is_no_constant() -> None:
    statement = make_statement(
        delay="flights.delay", score=source("flights.delay"), opaque={"risk": "rows of an RDD"}, one=(), made=(),
        through={"score": "Python UDF f", "made": "Python UDF g"}, unknown=("events were dropped",), foreign=("mapInPandas",),
    )  # fmt: skip
    lines = lineage_metadata(Recorded(statement=statement, is_new=True))["columns come from"].value.splitlines()
    assert lines[2:] == [
        "| delay | flights.delay (identity) |  |  |",
        "| score | flights.delay (identity) |  | Python UDF f |",
        "| one | constant |  |  |",
        "| made |  |  | Python UDF g |",
        "| risk |  |  | rows of an RDD |",
        "",
        "rows are decided by: nothing but what there is",
        "- not known: events were dropped",
        "- not known: mapInPandas",
    ]
