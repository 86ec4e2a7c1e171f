"""What is around a data set: the nearest ones, never more than asked for, and how many are left out where."""

from lakechime_dagster.lineage.answers import neighbourhood
from lakechime_dagster.lineage.columns import Statement
from lakechime_dagster.lineage.network import network_of
from tests.lineage.factories import make_statement
from tests.lineage.graph.test_answers import LAKE

NETWORK = network_of(LAKE, [Statement(target="gold.new", inputs=("silver.flights",))])


def test_each_data_set_has_its_layer_its_columns_and_what_is_left_out_beyond_it() -> None:
    around = neighbourhood(NETWORK, "silver.flights", up=1, down=1)
    assert [(one.table, one.layer, one.more) for one in around.tables] == [
        ("silver.flights", 0, 0),
        ("gold.daily", 1, 1),
        ("gold.guess", 1, 0),
        ("gold.new", 1, 0),
        ("bronze.flights", -1, 0),
        ("bronze.weather", -1, 0),
    ]
    assert around.tables[0].columns == ("delay", "wind", "carrier")
    assert around.more == 0


def test_edges_are_told_with_their_kinds_among_what_is_shown_alone() -> None:
    around = neighbourhood(NETWORK, "silver.flights", up=0, down=1)
    assert {(str(one.source), str(one.target), *one.kinds) for one in around.links} == {
        ("silver.flights", "gold.daily", "direct", "indirect"),
        ("silver.flights", "gold.guess", "not known"),
        ("silver.flights", "gold.new", "declared"),
        ("silver.flights.delay", "gold.daily.mean", "aggregation"),
        ("silver.flights.carrier", "gold.daily", "group_by"),
        ("silver.flights", "gold.guess.guess", "not known"),
    }
    assert around.tables[0].more == 2


def test_never_more_than_asked_for_are_shown_and_the_rest_is_counted() -> None:
    many = network_of([make_statement(f"gold.t{number:03}", a="silver.hub.a") for number in range(300)])
    around = neighbourhood(many, "silver.hub", limit=150)
    assert (len(around.tables), around.more, around.tables[0].more) == (150, 151, 151)
