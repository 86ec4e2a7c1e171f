"""What the demo writes, as planned: flights, weather, the airport's events, reservations."""

import collections
import datetime as dt
import json
from functools import cache
from importlib import metadata
from itertools import chain
from typing import Any

import duckdb
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakechime_dagster.demo.airport import Line, file_of, lines_of
from lakechime_dagster.demo.data import FIRST_DAY, HOURS, rows, rows_of
from lakechime_dagster.demo.flights import silver_flights
from lakechime_dagster.demo.plan import (
    FLIGHTS,
    TABLES,
    Complete,
    Content,
    How,
    Partition,
    Plan,
    Write,
)
from lakechime_dagster.demo.reservations import KEYS, RENAMED, Change, changes, tables_after
from lakechime_dagster.demo.verify import BRONZE_KEYS
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


def tick_of(line: Line) -> int:
    return next(tick for tick in range(24) if line.source.startswith(file_of(tick)))


def events(kind: str, *ticks: int) -> list[dict[str, Any]]:
    return [
        line.event
        for line in day()
        if line.event and line.event["type"] == kind and tick_of(line) in ticks
    ]


def test_each_flight_of_an_hour_is_assigned_a_gate_unless_its_line_is_cut_off() -> None:
    cut = sum(line.event is None for line in day())
    assigned = len(events("gate.assigned", *range(24)))
    flights = sum(rows_of(FLIGHTS, FIRST_DAY, hour).num_rows for hour in range(24))
    assert 0 < cut < 20
    assert flights - cut <= assigned <= flights


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


def kind(change: Change) -> str:
    if change.before is None or change.after is None:
        return "insert" if change.before is None else "delete"
    return "update" if change.before == change.after[KEYS[change.table]] else "key change"


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


@settings(max_examples=8, deadline=None)
@given(short_plans)
def test_bookings_are_made_changed_given_another_key_and_deleted(plan: Plan) -> None:
    kinds = collections.Counter(
        kind(change) for change in all_changes(plan) if change.table == "bookings"
    )
    assert set(kinds) == {"insert", "update", "key change", "delete"}
    assert kinds["insert"] > 500 * plan.days


def test_at_the_end_all_bookings_that_are_left_were_boarded_and_each_plane_that_flew_is_known() -> (
    None
):
    plan = Plan(days=2)
    tables = tables_after(plan, plan.ticks)
    assert set(tables["bookings"]["status"].to_pylist()) == {"boarded"}
    flown = (
        rows(FLIGHTS)
        .filter(pc.field("flight_date") < FIRST_DAY + dt.timedelta(days=2))["tailnum"]
        .unique()
        .to_pylist()
    )
    known = set(tables["planes"]["tailnum"].to_pylist())
    assert known <= set(flown)
    assert len(known) > 0.8 * len(flown)
    names = dict(
        zip(
            tables["airlines"]["carrier"].to_pylist(),
            tables["airlines"]["name"].to_pylist(),
            strict=True,
        )
    )
    assert len(names) == 16
    assert {carrier: names[carrier] for carrier in RENAMED} == {
        carrier: name for carrier, (_, name) in RENAMED.items()
    }


@pytest.mark.parametrize(
    ("table", "keys"),
    [("bronze.flights", silver_flights.keys), *((one, BRONZE_KEYS[one]) for one in TABLES)],
)
def test_keys_are_unique_over_the_whole_year(table: str, keys: tuple[str, ...]) -> None:
    with duckdb.connect() as connection:
        relation = connection.from_arrow(rows(table))
        assert relation.select(*map(duckdb.ColumnExpression, keys)).distinct().count(
            "*"
        ).fetchone() == (rows(table).num_rows,)


def test_without_the_data_the_answer_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "files", lambda _: None)
    rows.cache_clear()
    with pytest.raises(NotFoundError, match=r"install lakechime-dagster\[demo\]"):
        rows("bronze.flights")
