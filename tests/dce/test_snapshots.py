"""Events of a range are chained by their predecessors, in whatever order they came."""

import random

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.dce.events import Position, RegisteredEvent, SnapshotId, TableUid
from lakechime_dagster.dce.snapshots import Chain, SnapshotRange, Verdict, chain
from tests.factories import make_event


def registered(
    number: int, snapshot: int | None, previous: int | None, uid: str | None = "u"
) -> RegisteredEvent:
    event = make_event(
        snapshot_id=None if snapshot is None else str(snapshot),
        prev_snapshot_id=None if previous is None else str(previous),
        table_uid=uid,
    )
    return RegisteredEvent(event=event, event_ts=0, position=Position(0, number), canonical="")


def a_range(start: int | None, end: int, start_uid: str | None = "u") -> SnapshotRange:
    first = None if start is None else SnapshotId(str(start))
    uid = None if start_uid is None else TableUid(start_uid)
    return SnapshotRange(
        table="bronze.orders",
        table_uid=TableUid("u"),
        start=first,
        end=SnapshotId(str(end)),
        start_uid=uid,
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.one_of(st.none(), st.integers(0, 8))).filter(
            lambda pair: pair[0] != pair[1]
        ),
        max_size=12,
    ),
    st.one_of(st.none(), st.integers(0, 8)),
    st.integers(0, 8),
    st.randoms(use_true_random=False),
)
def test_the_order_of_events_does_not_matter(
    links: list[tuple[int, int | None]], start: int | None, end: int, shuffle: random.Random
) -> None:
    events = [
        registered(number, snapshot, previous) for number, (snapshot, previous) in enumerate(links)
    ]
    shuffled = list(events)
    shuffle.shuffle(shuffled)

    assert chain(a_range(start, end), shuffled) == chain(a_range(start, end), events)


@given(st.integers(0, 20), st.integers(1, 20))
def test_a_range_without_a_hole_is_contiguous(start: int, length: int) -> None:
    events = [
        registered(number, number, number - 1 if number else None)
        for number in range(start + length + 1)
    ]

    result = chain(a_range(start, start + length), events)

    assert result == Chain(verdict=Verdict.CONTIGUOUS, covered=start + 1)


def test_a_gap_between_snapshots_is_named() -> None:
    events = [registered(1, 1, 0), registered(3, 3, 2)]

    assert chain(a_range(0, 3), events) == Chain(
        verdict=Verdict.GAP_FILLED, covered=1, missing_after=(SnapshotId("2"),)
    )


def test_an_event_that_does_not_know_its_predecessor_does_not_hide_one_that_does() -> None:
    events = [registered(1, 1, None), registered(2, 1, 0)]

    assert chain(a_range(0, 1), events).verdict is Verdict.CONTIGUOUS


def test_a_recreated_table_has_no_chain_to_its_old_self() -> None:
    result = chain(a_range(5, 1, start_uid="old"), [registered(1, 1, 0)])

    assert result.verdict is Verdict.RECREATED
    assert not result.verdict.is_incremental


def test_events_of_another_table_uid_are_not_in_the_chain() -> None:
    assert chain(a_range(0, 1), [registered(1, 1, 0, uid="old")]).verdict is Verdict.GAP_FILLED
