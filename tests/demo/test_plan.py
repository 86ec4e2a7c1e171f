"""What the demo writes, as planned: flights, weather, the airport's events, reservations; and what its
switches do.
"""

import collections
import json
from functools import cache
from importlib import metadata
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakechime_dagster.demo.airport import Line, file_of, lines_of
from lakechime_dagster.demo.data import FIRST_DAY, HOURS, SCHEMAS, rows, rows_of
from lakechime_dagster.demo.flights import (
    CDC_SWITCH,
    FAIL_DAY,
    FAIL_SWITCH,
    FAILING_ATTEMPTS,
    KAFKA,
    kafka_address,
    silver_flights,
)
from lakechime_dagster.demo.plan import (
    FLIGHTS,
    TABLES,
    WEATHER,
    Complete,
    Content,
    How,
    Partition,
    Plan,
    Write,
)
from lakechime_dagster.demo.reservations import KEYS, Change, changes
from lakechime_dagster.errors import NotFoundError

plans = st.builds(Plan, seed=st.integers(0, 10_000), days=st.integers(1, 9))


def actions(plan: Plan) -> list[Write | Complete]:
    return [action for tick in range(plan.ticks) for action in plan.actions(tick)]


@given(plans)
def test_each_hour_of_each_day_is_marked_complete_once_in_both_tables(plan: Plan) -> None:
    marks = collections.Counter(
        action.partition for action in actions(plan) if isinstance(action, Complete)
    )
    assert len(marks) == plan.days * HOURS * len(TABLES)
    assert set(marks.values()) == {1}


@given(plans)
def test_at_the_end_every_partition_holds_all_its_rows(plan: Plan) -> None:
    written = plan.written(plan.ticks)
    assert set(written.contents.values()) <= {Content.WHOLE, Content.POISONED}
    assert len(written.contents) == plan.days * HOURS * len(TABLES)
    assert len(written.complete_days) == plan.days


@given(plans)
def test_each_day_has_its_mishaps(plan: Plan) -> None:
    notes = collections.Counter(
        action.note.partition(":")[0] for action in actions(plan) if isinstance(action, Write)
    )
    assert notes["restated"] == plan.days
    assert notes["late"] == 2 * plan.days
    assert notes["poisoned"] == (plan.days + 6) // 7


@given(plans)
def test_a_held_back_partition_is_completed_after_it_was_declared_complete(plan: Plan) -> None:
    held: set[Partition] = set()
    complete: set[Partition] = set()
    for action in actions(plan):
        if isinstance(action, Complete):
            complete.add(action.partition)
        elif action.content is Content.HELD_BACK:
            held.add(action.partition)
        elif action.how is How.COMPLETE:
            assert action.partition in held & complete
            held.remove(action.partition)
    assert not held


@cache
def day() -> tuple[Line, ...]:
    return tuple(chain.from_iterable(lines_of(2013, tick) for tick in range(24)))


def test_each_line_is_named_by_where_it_begins_and_is_its_event_or_no_json() -> None:
    at = 0
    for line in lines_of(2013, 9):
        assert line.source == f"{file_of(9)}@{at}"
        at += len(line.text) + 1
    for line in day():
        try:
            assert json.loads(line.text) == line.event
        except json.JSONDecodeError:
            assert line.event is None


short_plans = st.builds(Plan, seed=st.integers(0, 10_000), days=st.integers(1, 2))


def all_changes(plan: Plan) -> list[Change]:
    return [change for tick in range(plan.ticks) for change in changes(plan, tick)]


@settings(max_examples=8, deadline=None)
@given(short_plans)
def test_every_change_is_of_a_row_that_is_there_and_no_key_is_there_twice(plan: Plan) -> None:
    there = set[tuple[str, Any]]()
    for change in all_changes(plan):
        if change.before is not None:
            there.remove((change.table, change.before))
        if change.after is not None:
            key = (change.table, change.after[KEYS[change.table]])
            assert key not in there
            there.add(key)


def test_without_the_data_the_answer_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "files", lambda _: None)
    rows.cache_clear()
    with pytest.raises(NotFoundError, match=r"install lakechime-dagster\[demo\]"):
        rows("bronze.flights")


@pytest.mark.parametrize(
    ("value", "address"),
    [(None, None), ("", None), ("0", None), ("1", KAFKA), ("127.0.0.1:29093", "127.0.0.1:29093")],
)
def test_the_switch_is_on_off_or_the_address_of_the_broker(
    value: str | None, address: str | None
) -> None:
    assert kafka_address({} if value is None else {CDC_SWITCH: value}) == address


@pytest.mark.spark
def test_the_switch_makes_the_first_attempts_at_one_day_fail(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = {str(FIRST_DAY): FIRST_DAY, FAIL_DAY: FIRST_DAY.fromisoformat(FAIL_DAY)}
    flights = {name: spark.createDataFrame(rows_of(FLIGHTS, day, 9)) for name, day in days.items()}
    weather = spark.createDataFrame(SCHEMAS[WEATHER].empty_table())
    # which reports a run its attempt
    assert "context" in {one.name for one in silver_flights.injected}
    monkeypatch.setenv(FAIL_SWITCH, "1")
    assert silver_flights(flights[str(FIRST_DAY)], weather).count() > 0
    with pytest.raises(
        RuntimeError, match=f"{FAIL_DAY} fails on purpose, attempt 1 of {FAILING_ATTEMPTS}"
    ):
        silver_flights(flights[FAIL_DAY], weather)
    later = SimpleNamespace(
        run=SimpleNamespace(tags={"lakechime/attempt": str(FAILING_ATTEMPTS + 1)})
    )
    assert silver_flights(flights[FAIL_DAY], weather, later).count() > 0
    monkeypatch.delenv(FAIL_SWITCH)
    assert silver_flights(flights[FAIL_DAY], weather).count() > 0
