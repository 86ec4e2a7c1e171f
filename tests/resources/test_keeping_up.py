"""For how long the log of a database stays of which a table has not heard."""

import pytest

from lakechime_dagster.cdc.database import KeptBinlog
from lakechime_dagster.cdc.monitor import Left, Parsed
from lakechime_dagster.cdc.monitor_service import left_in_binlog
from lakechime_dagster.cdc.spark_remembered import place_row

NOW = 1_700_000_000_000
HOUR = 3_600_000
SOURCE = "m.shop.orders"


def left(parsed: Parsed, *, file: int = 4, seconds: int | None = 10 * 3600) -> list[Left]:
    """Of files 3 to 7, after a change of this one was told."""
    place = place_row(SOURCE, ("t", 0), (0, (file, 120, 0)), 9, parsed.in_table)
    return left_in_binlog(KeptBinlog(oldest=3, newest=7, seconds=seconds), [place], {SOURCE: parsed}, NOW)


@pytest.mark.parametrize(("age", "seconds"), [(1, 9 * 3600.0), (9, 3600.0), (10, 0.0), (12, 0.0)])
def test_the_log_stays_as_long_as_the_last_heartbeat_is_newer_than_what_is_kept(age: int, seconds: float) -> None:
    (found,) = left(Parsed(in_table=NOW - 20 * HOUR, heartbeat=NOW - age * HOUR))
    assert (found.seconds, found.told) == (seconds, "its files are 3 to 7, and m.shop.orders told of 4")


def test_a_table_that_is_quiet_tells_nothing_of_how_far_its_connector_is() -> None:
    assert left(Parsed(in_messages=NOW - 20 * HOUR, in_table=NOW - 20 * HOUR)) == []


def test_the_newest_file_and_one_of_a_log_that_is_kept_for_ever_are_not_dropped() -> None:
    beaten = Parsed(in_table=NOW, heartbeat=NOW - 20 * HOUR)
    assert left(beaten, file=7) == []
    assert [one.seconds for one in left(beaten, seconds=None)] == [None]
