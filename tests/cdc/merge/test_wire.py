"""Values, keys and orders come back from their text as they were."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import (
    Order,
    decoded,
    encoded,
    key_of,
    key_text,
    order_of,
    order_text,
    row_of,
    row_text,
)
from lakechime_dagster.cdc.merge import BEFORE_ALL, Ended, RowState
from lakechime_dagster.cdc.state import has_ended, row_state_of, row_state_text

WALL = st.datetimes()
INSTANTS = st.datetimes(
    min_value=dt.datetime(1, 1, 2),
    max_value=dt.datetime(9999, 12, 30),
    timezones=st.just(dt.timezone.utc),
)
SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.text(),
    st.binary(),
    st.dates(),
    WALL,
    INSTANTS,
)
VALUES = st.recursive(
    SIMPLE, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
ORDERS = st.builds(
    Order,
    st.integers(0, 3),
    st.lists(st.integers(0, 2**64 - 1)).map(tuple),
    st.integers(-1, 2),
    st.text(),
    st.integers(0, 9),
    st.integers(0, 2**40),
    st.integers(0, 9),
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return type(one) is type(other) and (
        str(one) == str(other) if isinstance(one, Decimal) else one == other
    )


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(value, decoded(encoded(value)))


@given(st.dictionaries(st.text(), VALUES))
def test_a_row_comes_back_as_it_was(row: dict[str, Any]) -> None:
    assert same(row, row_of(row_text(row)))


@given(ORDERS)
def test_an_order_comes_back_as_it_was(order: Order) -> None:
    assert order_of(order_text(order)) == order


@given(
    st.lists(SIMPLE.filter(lambda value: value is not None and not isinstance(value, float))).map(
        tuple
    )
)
def test_a_key_comes_back_equal(key: tuple[Any, ...]) -> None:
    assert key_of(key_text(key)) == key
    assert key_text(key_of(key_text(key))) == key_text(key)


def test_keys_that_are_equal_have_one_text() -> None:
    assert (
        key_text((Decimal("1.20"),)) == key_text((Decimal("1.2"),)) != key_text((Decimal("1.21"),))
    )


def test_keys_of_many_digits_are_not_rounded() -> None:
    keys = [(Decimal(f"60121572794313329.23647543208{last}"),) for last in range(10)]
    assert len({key_text(key) for key in keys}) == 10


@given(
    at=ORDERS | st.none(),
    deleted=ORDERS | st.just(BEFORE_ALL),
    carried=st.dictionaries(st.text(), st.tuples(ORDERS | st.none(), st.integers() | st.none())),
    ended=st.none() | st.builds(Ended, ORDERS, st.integers(0, 2**48) | st.none()),
)
def test_an_image_comes_back_as_it_was(
    at: Order | None,
    deleted: Order,
    carried: dict[str, tuple[Order | None, int | None]],
    ended: Ended | None,
) -> None:
    """A table has a column more, which is null as nobody carried it."""
    columns = {name: (order or at or deleted, value) for name, (order, value) in carried.items()}
    row_state = RowState(upserted=at, deleted=deleted, columns=columns, ended=ended)
    row = {"more": None} | {name: value for name, (_, value) in columns.items()}
    assert row_state_of(row_state_text(row_state, '"ended"'), row) == ('"ended"', row_state)
    assert has_ended(row_state_text(row_state, '"ended"')) is (ended is not None)
