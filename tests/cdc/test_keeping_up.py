"""What of the measures of a table is beyond the limits."""

import datetime as dt
from typing import Any

import pytest

from lakechime_dagster.cdc.monitor import Consumer, KeepingUp, SourceTimes, beyond
from lakechime_dagster.tables.databases import Limits

NOW = 1_700_000_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE


def measured(**declared: Any) -> KeepingUp:
    return KeepingUp(table="shop.orders", now_ms=NOW, **declared)


def consumer(**declared: Any) -> KeepingUp:
    return measured(
        consumers=(
            Consumer(
                **{"name": "shop.orders", "waits": True, "ticked_ms": NOW - MINUTE, **declared}
            ),
        )
    )


@pytest.mark.parametrize(
    "found",
    [
        measured(),
        consumer(),
        consumer(open_ms=NOW - 10 * MINUTE),
        consumer(waits=False, ticked_ms=None),
        consumer(waits=False, open_ms=NOW - HOUR),
        measured(parsed={"shop.a": SourceTimes(in_messages=NOW - 100 * HOUR)}),
        measured(quarantined=1_000),
    ],
)
def test_what_is_within_the_limits_is_not_reported(found: KeepingUp) -> None:
    assert beyond(found, Limits()) == []


@pytest.mark.parametrize(
    ("found", "reported"),
    [
        (measured(problems=("the folder is gone",)), "the folder is gone"),
        (
            consumer(blocked="shop.orders is BLOCKED: a snapshot", waits=False),
            "shop.orders is BLOCKED: a snapshot",
        ),
        (
            consumer(open_ms=NOW - HOUR),
            "shop.orders has been at one execution for 1:00:00, and more waits",
        ),
        (
            consumer(ticked_ms=None),
            (
                "shop.orders has something to read, and its sensor has never ticked: it is stopped, or "
                "no daemon runs"
            ),
        ),
        (
            consumer(ticked_ms=NOW - HOUR),
            "shop.orders has something to read, and its sensor has not ticked for 1:00:00",
        ),
        (measured(waiting=2), "2 rows wait outside of shop.orders for a column that nobody sent"),
        (
            measured(waiting=None),
            "too many rows to be counted wait outside of shop.orders for a column that nobody sent",
        ),
    ],
)
def test_what_is_beyond_the_limits_is_reported_in_words(found: KeepingUp, reported: str) -> None:
    assert beyond(found, Limits()) == [reported]


def test_of_several_shards_the_one_that_reports_nothing_is_named() -> None:
    found = measured(
        parsed={
            "east.shop.orders": SourceTimes(in_messages=NOW - MINUTE),
            "west.shop.orders": SourceTimes(in_messages=NOW - HOUR),
            "north.shop.orders": SourceTimes(in_messages=NOW - HOUR, heartbeat=NOW - MINUTE),
        }
    )
    limits = Limits(quiet=dt.timedelta(minutes=30))
    assert beyond(found, limits) == [
        (
            "west.shop.orders has sent nothing for 1:00:00, not even a heartbeat: is its connector "
            "stuck?"
        )
    ]


def test_rows_of_the_quarantine_are_reported_where_they_are_limited() -> None:
    assert beyond(measured(quarantined=3), Limits(quarantined=2)) == [
        "3 rows are in shop.orders__quarantine, more than 2"
    ]
    assert beyond(measured(quarantined=3), Limits(quarantined=3)) == []


def test_lags_are_of_the_source_that_is_furthest_behind() -> None:
    found = measured(
        parsed={
            "a": SourceTimes(in_messages=NOW - MINUTE, in_table=NOW - HOUR),
            "b": SourceTimes(in_messages=NOW - HOUR),
        }
    )
    assert found.lags == {"messages": 3600.0, "table": 3600.0}
    assert measured().lags == {}
