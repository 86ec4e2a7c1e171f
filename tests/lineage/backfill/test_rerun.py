"""What a change of columns makes to be computed again: what is affected, inputs first; the rest is
unaffected, and why.
"""

from collections.abc import Mapping, Sequence

from lakechime_dagster.lineage.answers import reached_tables
from lakechime_dagster.lineage.backfill import Rerun, rerun
from lakechime_dagster.lineage.columns import ColumnRef, Kind, Statement
from lakechime_dagster.lineage.network import network_of
from tests.lineage.factories import make_statement, source

GRAPH: Mapping[str, Sequence[str]] = {
    "bronze.weather": (),
    "silver.flights": ("bronze.weather",),
    "gold.daily": ("silver.flights",),
    "gold.routes": ("silver.flights",),
    "gold.top": ("gold.daily",),
}
REPORTED = [
    make_statement("silver.flights", id="bronze.weather.id", wind="bronze.weather.wind"),
    make_statement("gold.daily", wind=source("silver.flights.wind", Kind.AGGREGATION)),
    make_statement(
        "gold.routes",
        id="silver.flights.id",
        flights=source("silver.flights.", Kind.AGGREGATION, masking=True),
    ),
    make_statement(
        "gold.top", id="gold.daily.id", indirect=(source("gold.daily.wind", Kind.SORT),)
    ),
]
WIND = (ColumnRef("bronze.weather", "wind"),)


def of_wind(*statements: Statement, **options: object) -> Rerun:
    return rerun(GRAPH, statements or REPORTED, WIND, **options)  # type: ignore[arg-type]


def test_readers_of_the_column_are_hit_inputs_first_and_a_count_of_rows_is_not() -> None:
    found = of_wind()
    assert list(found.tables) == ["silver.flights", "gold.daily", "gold.top"]
    assert found.tables["gold.daily"].inputs == ("silver.flights",)
    assert found.tables["gold.daily"].why == "wind comes from silver.flights.wind (aggregation)"
    assert found.tables["gold.top"].why == "which rows there are comes from gold.daily.wind (sort)"
    assert "not wind" in found.unaffected["gold.routes"]


def test_it_is_what_the_network_says() -> None:
    said = {one.table for one in reached_tables(network_of(REPORTED), WIND).tables}
    assert set(of_wind().tables) == said


def test_what_nobody_reported_is_hit_and_unsure() -> None:
    found = of_wind(*(one for one in REPORTED if one.target != "gold.routes"))
    assert (found.tables["gold.routes"].is_sure, found.tables["gold.daily"].is_sure) == (
        False,
        True,
    )
    assert found.tables["gold.routes"].why.startswith("unsure: ")
    assert (
        "gold.routes"
        not in of_wind(
            *(one for one in REPORTED if one.target != "gold.routes"), planned=[REPORTED[2]]
        ).tables
    )


def test_a_table_of_which_something_is_not_known_is_hit_and_unsure() -> None:
    unknown = make_statement("gold.routes", inputs=("silver.flights",), unknown=("an RDD",))
    assert not of_wind(*REPORTED[:2], unknown).tables["gold.routes"].is_sure


def test_nothing_is_hit_through_what_is_left_out() -> None:
    found = of_wind(leave_out=("gold.daily",))
    assert list(found.tables) == ["silver.flights"]
    assert found.unaffected["gold.daily"] == "left out, as was asked"


def test_a_column_of_a_computed_table_is_computed_there_first() -> None:
    found = rerun(GRAPH, REPORTED, (ColumnRef("silver.flights", "wind"),))
    assert list(found.tables) == ["silver.flights", "gold.daily", "gold.top"]
    assert (found.tables["silver.flights"].inputs, found.tables["silver.flights"].why) == (
        (),
        "silver.flights.wind is computed here",
    )
    assert set(rerun(GRAPH, REPORTED, (ColumnRef("silver.flights"),)).tables) == {
        "silver.flights",
        "gold.daily",
        "gold.routes",
        "gold.top",
    }
