"""The plan of a replay: what is written when, for any seed."""

import collections

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.demo.data import HOURS
from lakechime_dagster.demo.plan import TABLES, Complete, Content, How, Partition, Plan, Write

plans = st.builds(Plan, seed=st.integers(0, 10_000), days=st.integers(1, 9))


def actions(plan: Plan) -> list[Write | Complete]:
    return [action for tick in range(plan.ticks) for action in plan.actions(tick)]


@given(plans)
def test_each_hour_of_each_day_is_marked_complete_once_in_both_tables(plan: Plan) -> None:
    marks = collections.Counter(action.partition for action in actions(plan) if isinstance(action, Complete))
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
    notes = collections.Counter(action.note.partition(":")[0] for action in actions(plan) if isinstance(action, Write))
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
