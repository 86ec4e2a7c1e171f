"""The reservations: what changes in the demo's database when, for any seed."""

import collections
import datetime as dt
from typing import Any

import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from lakechime_dagster.demo.data import FIRST_DAY, rows
from lakechime_dagster.demo.plan import FLIGHTS, Plan
from lakechime_dagster.demo.reservations import KEYS, RENAMED, Change, changes, folded

plans = st.builds(Plan, seed=st.integers(0, 10_000), days=st.integers(1, 2))


def all_changes(plan: Plan) -> list[Change]:
    return [change for tick in range(plan.ticks) for change in changes(plan, tick)]


def kind(change: Change) -> str:
    if change.before is None or change.after is None:
        return "insert" if change.before is None else "delete"
    return "update" if change.before == change.after[KEYS[change.table]] else "key change"


@settings(max_examples=8, deadline=None)
@given(plans)
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
@given(plans)
def test_bookings_are_made_changed_given_another_key_and_deleted(plan: Plan) -> None:
    kinds = collections.Counter(kind(change) for change in all_changes(plan) if change.table == "bookings")
    assert set(kinds) == {"insert", "update", "key change", "delete"}
    assert kinds["insert"] > 500 * plan.days


def test_at_the_end_all_bookings_that_are_left_were_boarded_and_each_plane_that_flew_is_known() -> None:
    plan = Plan(days=2)
    tables = folded(plan, plan.ticks)
    assert set(tables["bookings"]["status"].to_pylist()) == {"boarded"}
    flown = rows(FLIGHTS).filter(pc.field("flight_date") < FIRST_DAY + dt.timedelta(days=2))["tailnum"].unique().to_pylist()
    known = set(tables["planes"]["tailnum"].to_pylist())
    assert known <= set(flown)
    assert len(known) > 0.8 * len(flown)
    names = dict(zip(tables["airlines"]["carrier"].to_pylist(), tables["airlines"]["name"].to_pylist(), strict=True))
    assert len(names) == 16
    assert {carrier: names[carrier] for carrier in RENAMED} == {carrier: name for carrier, (_, name) in RENAMED.items()}
