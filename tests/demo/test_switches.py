"""The switch of the branch of the flights lake that replicates a database."""

import pytest

from lakechime_dagster.demo.flights import CDC_SWITCH, KAFKA, kafka_address


@pytest.mark.parametrize(
    ("value", "address"),
    [(None, None), ("", None), ("0", None), ("1", KAFKA), ("127.0.0.1:29093", "127.0.0.1:29093")],
)
def test_the_switch_is_on_off_or_the_address_of_the_broker(
    value: str | None, address: str | None
) -> None:
    assert kafka_address({} if value is None else {CDC_SWITCH: value}) == address
