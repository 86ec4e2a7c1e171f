"""Positions order events, and survive being written."""

import pytest
from hypothesis import given

from lakechime_dagster.dce.events import Position
from lakechime_dagster.errors import InvalidValueError
from tests.dce.strategies import positions


@given(positions)
def test_a_position_survives_its_text(position: Position) -> None:
    assert Position.parse(str(position)) == position


@given(positions, positions)
def test_positions_are_ordered_by_transaction_then_sequence(one: Position, other: Position) -> None:
    assert (one < other) == ((one.tx_id, one.seq) < (other.tx_id, other.seq))
    assert one >= Position.ORIGIN


@pytest.mark.parametrize("text", ["", "5", "-5", "5-", "a-b", "1-2-3", "1--2", "1 - 2", "٥-٥", f"1-{2**63}", f"{2**63}-1", None])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="position"):
        Position.parse(text)
