"""What an execution reads together, and what apart from it."""

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.silver.results import Part, planned


def test_types_that_are_not_far_behind_their_group_share_one_part_that_ends_with_the_execution():
    plan = planned({"a": 90, "b": 100, "new": 100}, group=100, end=103, max_catchup=10)
    assert plan.shared == Part(starts={"a": 90, "b": 100, "new": 100}, end=103)
    assert plan.behind is None


def test_a_type_that_is_far_behind_is_read_apart_by_a_part_that_is_bounded_and_longer_than_the_execution():
    plan = planned({"a": 89, "b": 100}, group=100, end=103, max_catchup=10)
    assert plan.shared.starts == {"b": 100}
    assert plan.behind == Part(starts={"a": 89}, end=102)


def test_types_whose_checkpoints_lie_within_a_part_read_it_together_and_others_wait():
    starts = {"a": 0, "b": 4, "c": 11, "d": 50}
    plan = planned(starts, group=100, end=101, max_catchup=10)
    assert plan.behind == Part(starts={"a": 0, "b": 4}, end=11)


@given(
    st.dictionaries(st.integers(0, 50), st.integers(-1, 60)),
    st.integers(0, 60),
    st.integers(0, 5),
    st.integers(1, 20),
)
def test_every_type_arrives_however_many_are_behind_and_whatever_comes(
    checkpoints: dict[int, int], group: int, more: int, max_catchup: int
):
    starts = {str(name): min(checkpoint, group) for name, checkpoint in checkpoints.items()}
    end = group
    for _ in range(5_000):
        group, end = end, end + more
        plan = planned(starts, group=group, end=end, max_catchup=max_catchup)
        parts = [plan.shared, *([plan.behind] if plan.behind is not None else [])]
        named = [name for part in parts for name in part.starts]
        assert len(named) == len({*named})
        for part in parts:
            assert all(starts[name] == start for name, start in part.starts.items())
            assert part.end <= end
            assert part is plan.shared or max(part.starts.values()) < part.end
            assert part is plan.shared or part.end - min(part.starts.values()) <= max_catchup + more
            starts |= {name: max(start, part.end) for name, start in part.starts.items()}
        if all(start == end for start in starts.values()):
            return
    raise AssertionError(f"{starts} never arrive at {end}")
