"""The lake as a whole: order, graph, look-ups."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake, find_cycle, topological
from lakechime_dagster.tables.tables import SourceTable
from tests.lake.tables import REJOIN, flights, joined, make_table, weather

SILVER = make_table(compute=joined, keys=["flight"], reads={"flights": REJOIN, "weather": weather.snapshot()})
GOLD = sql_table("gold.routes", sql="SELECT * FROM silver.flights JOIN bronze.weather USING (origin)")


def test_tables_come_in_an_order_in_which_inputs_are_first() -> None:
    lake = Lake("flights", [GOLD, SILVER, weather, flights])
    names = [table.name for table in lake.tables]
    assert names.index("silver.flights") < names.index("gold.routes")
    assert names.index("bronze.weather") < names.index("silver.flights")
    assert lake.targets == (SILVER, GOLD)
    assert set(lake.sources) == {flights, weather}


GRAPHS = st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefgh"), max_size=4), max_size=8)


@given(GRAPHS)
def test_a_graph_has_either_a_cycle_or_an_order(inputs: dict[str, list[str]]) -> None:
    cycle = find_cycle(inputs)
    if cycle is None:
        order = topological(inputs)
        assert sorted(order) == sorted(inputs)
        assert all(order.index(name) < order.index(table) for table in order for name in inputs[table] if name in inputs)
    else:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1
        assert all(following in inputs[table] for table, following in itertools.pairwise(cycle))


def test_alarms_are_urls_or_variables_and_are_not_shown() -> None:
    lake = Lake("shop", [SourceTable("bronze.orders")], alarms=["$OPS", "mailto://ada:secret@mail"])
    assert (lake.alarms, "secret" in repr(lake)) == (("$OPS", "mailto://ada:secret@mail"), False)
    with pytest.raises(DeclarationError, match=r"Lake shop, alarms\[1\]: is neither a URL of apprise") as refused:
        Lake("shop", [], alarms=["$OPS", "my secret"])
    assert "secret" not in str(refused.value)
