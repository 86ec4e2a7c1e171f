"""What is around a data set: the nearest ones, never more than asked for, and how many are left out
where.
"""

from collections.abc import Collection

from lakechime_dagster.lineage.answers import Neighbourhood, neighbourhood
from lakechime_dagster.lineage.columns import Statement
from lakechime_dagster.lineage.graph import parts_of
from lakechime_dagster.lineage.network import Network, network_of
from tests.lineage.factories import make_statement
from tests.lineage.graph.test_answers import LAKE

SEVERAL = [*LAKE, Statement(target="gold.new", inputs=("silver.flights",))]


def around(table: str, several: list[Statement] = SEVERAL, **options: int) -> Neighbourhood:
    """What is around a data set by what several statements say, of which those without columns are
    declared.
    """

    def beside(tables: Collection[str], is_upstream: bool) -> dict[str, set[str]]:
        pairs = [
            (one.target, name) if is_upstream else (name, one.target)
            for one in several
            for name in parts_of(one)
        ]
        return {table: {other for one, other in pairs if one == table} for table in tables}

    def draw(tables: Collection[str]) -> Network:
        chosen = [one for one in several if one.target in tables]
        return network_of(
            [one for one in chosen if one.columns], [one for one in chosen if not one.columns]
        )

    return neighbourhood(table, beside, draw, **options)


def test_each_data_set_has_its_layer_its_columns_and_what_is_left_out_beyond_it() -> None:
    found = around("silver.flights", up=1, down=1)
    assert [(one.table, one.layer, one.more) for one in found.tables] == [
        ("silver.flights", 0, 0),
        ("gold.daily", 1, 1),
        ("gold.guess", 1, 0),
        ("gold.new", 1, 0),
        ("bronze.flights", -1, 0),
        ("bronze.weather", -1, 0),
    ]
    assert found.tables[0].columns == ("delay", "wind", "carrier")
    assert found.more == 0


def test_edges_are_reported_with_their_kinds_among_what_is_shown_alone() -> None:
    found = around("silver.flights", up=0, down=1)
    assert {(str(one.source), str(one.target), *one.kinds) for one in found.links} == {
        ("silver.flights", "gold.daily", "direct", "indirect"),
        ("silver.flights", "gold.guess", "not known"),
        ("silver.flights", "gold.new", "declared"),
        ("silver.flights.delay", "gold.daily.mean", "aggregation"),
        ("silver.flights.carrier", "gold.daily", "group_by"),
        ("silver.flights", "gold.guess.guess", "not known"),
    }
    assert found.tables[0].more == 2


def test_never_more_than_asked_for_are_shown_and_the_rest_is_counted() -> None:
    many = [make_statement(f"gold.t{number:03}", a="silver.hub.a") for number in range(300)]
    found = around("silver.hub", many, limit=150)
    assert (len(found.tables), found.more, found.tables[0].more) == (150, 151, 151)
