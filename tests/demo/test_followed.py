"""The branch of the flights lake that follows a database: there where it is asked for."""

import pytest

from lakechime_dagster.demo.flights import flights_lake
from lakechime_dagster.demo.followed import CDC_SWITCH, KAFKA, kafka_address
from lakechime_dagster.demo.reservations import KEYS
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lake import KafkaTopic
from lakechime_dagster.lake.change_tables import BronzeTable, ChangeTable


def test_the_lake_follows_three_tables_where_a_broker_is_named_and_none_otherwise() -> None:
    followed = [table for table in flights_lake(KAFKA).tables if isinstance(table, ChangeTable)]
    assert {table.name: table.keys for table in followed} == {f"cdc.{name}": (key,) for name, key in KEYS.items()}
    feeds = [table.feed for table in flights_lake(KAFKA).tables if isinstance(table, BronzeTable)]
    assert {feed.topic for feed in feeds if isinstance(feed, KafkaTopic)} == {f"airline.reservations.{name}" for name in KEYS}
    assert not [table for table in flights_lake(None).tables if isinstance(table, ChangeTable)]


def test_what_the_database_says_is_joined_with_what_the_airports_say() -> None:
    inputs = flights_lake(KAFKA).graph()["gold.late_passengers"]
    assert set(inputs) == {"cdc.bookings", "cdc.airlines", "cdc.planes", "silver.flights"}


@pytest.mark.parametrize(
    ("value", "address"), [(None, None), ("", None), ("0", None), ("1", KAFKA), ("127.0.0.1:29093", "127.0.0.1:29093")]
)
def test_the_switch_is_on_off_or_the_address_of_the_broker(value: str | None, address: str | None) -> None:
    assert kafka_address({} if value is None else {CDC_SWITCH: value}) == address


def test_another_value_of_the_switch_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"LAKECHIME_DEMO_CDC 'yes': is neither 1 nor an address such as 127\.0\.0\.1:29092"):
        kafka_address({CDC_SWITCH: "yes"})
