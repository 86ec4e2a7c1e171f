"""Which columns rows got with a default, by the schemas that changes come with."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import Order
from lakechime_dagster.cdc.state import Added, Defaults, Schema, StateRow
from lakechime_dagster.cdc.values import Columns, connect_schema

DECIMAL = "org.apache.kafka.connect.data.Decimal"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ({"type": "int32", "default": 5}, 5),
        ({"type": "string", "default": ""}, ""),
        ({"type": "boolean", "default": False}, False),
        (
            {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}, "default": "AN4="},
            Decimal("2.22"),
        ),
        ({"type": "int32"}, None),
        ({"type": "int32", "default": None}, None),
        ({"type": "int32", "default": "five"}, None),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp", "default": 0}, None),
        (
            {
                "type": "string",
                "name": "io.debezium.time.ZonedTimestamp",
                "default": "1970-01-01T00:00:00Z",
            },
            None,
        ),
    ],
)
def test_a_default_is_read_as_values_are_and_a_time_that_rows_get_by_themselves_is_none(
    field: dict[str, Any], value: Any
) -> None:
    schema = connect_schema(
        {"type": "struct", "fields": [{"optional": True, **field, "field": "it"}]}
    )
    assert Columns(schema, "unavailable").defaults == ({} if value is None else {"it": value})


def reported(at: int, *columns: str, source: str = "shop", **defaults: Any) -> StateRow:
    return Schema(dict.fromkeys([*columns, *defaults], "int"), defaults).row(
        source, Order(position=(at,))
    )


def test_a_row_got_what_was_added_while_it_was_there() -> None:
    found = Defaults.of(
        [reported(1, "id"), reported(5, "id", level=7), reported(9, "id", level=8, flag=True)]
    )
    assert found.given("shop", Order(position=(1,))) == {"level": 7, "flag": True}
    assert found.given("shop", Order(position=(5,))) == {"flag": True}
    assert found.given("shop", Order(position=(1,)), Order(position=(8,))) == {"level": 7}
    assert found.given("other", Order(position=(1,))) == {}


def test_a_column_that_got_its_default_later_gave_null_to_the_rows_that_were_there() -> None:
    assert (
        Defaults.of([reported(5, "id", "level"), reported(9, "id", level=7)]).given(
            "shop", Order(position=(1,))
        )
        == {}
    )


def test_other_rows_are_concerned_where_a_source_that_is_known_has_a_new_column_with_a_default() -> (
    None
):
    before = Defaults.of([reported(1, "id")])
    assert Defaults.of([reported(1, "id"), reported(5, "id", level=7)]).concern_others(before)
    assert not Defaults.of([reported(1, "id"), reported(5, "id", "level")]).concern_others(before)
    assert not Defaults.of(
        [reported(1, "id"), reported(5, "id", source="other", level=7)]
    ).concern_others(before)
    assert not before.concern_others(before)


@given(
    st.permutations(
        [
            reported(1, "id"),
            reported(5, "id", level=7),
            reported(9, "id", level=8),
            reported(3, "id", source="other", level=9),
        ]
    )
)
def test_the_order_in_which_schemas_are_met_makes_no_difference(rows: list[StateRow]) -> None:
    assert Defaults.of(rows).columns["shop"]["level"] == Added(Order(position=(5,)), True, 7)
    assert Defaults.of(rows) == Defaults.of(sorted(rows))
