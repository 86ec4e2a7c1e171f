"""The decisions as tables: evidence in, sentence out; the sentences stand in
golden/decisions.txt.
"""

import datetime as dt
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.dce.events import Position
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.triggers.decision import (
    Arrived,
    AtomState,
    ConsumerView,
    Decision,
    Firing,
    KeyEvidence,
    Waiting,
    decide_partition,
    decide_snapshot,
    end_within,
)
from lakechime_dagster.triggers.schedule import every, tick, to_milliseconds
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
    TableName,
)

GOLDEN = Path(__file__).parent / "golden" / "decisions.txt"
NOON = to_milliseconds(dt.datetime(2013, 1, 3, 12, tzinfo=dt.timezone.utc))
MINUTE = 60_000
TAGS = {"complete": "true"}
HOUR = PartitionLevels.of({"day": "date", "hour": "int"})
THERE, SEEN = AtomState(available=True, seen=True), AtomState(available=False, seen=True)
BLOCKED = "daily is BLOCKED: disk full; `lakechime execution retry` goes on"
DROPPED = AtomState(available=False, seen=True, dropped=True)


def snapshot(
    trigger: SnapshotTrigger,
    *waiting: Waiting,
    opened: str = "",
    blocked: str = "",
    claimed: float | None = None,
    now: float = 0,
) -> Decision:
    """The decision `now`, and the last execution `claimed`, in minutes after noon."""
    last = None if claimed is None else int(NOON + claimed * MINUTE)
    return decide_snapshot(
        "silver",
        trigger,
        ConsumerView(open=opened, blocked=blocked, claimed_ms=last),
        waiting,
        now_ms=int(NOON + now * MINUTE),
        through=Position(0, 9),
    )


def came(
    count: int,
    table: str = "a",
    *,
    minutes_ago: float = 1,
    last: float | None = None,
    unmatched: int = 0,
) -> Waiting:
    last = minutes_ago if last is None else last
    first_ts, last_ts = (
        int(NOON - minutes * MINUTE) if count else None for minutes in (minutes_ago, last)
    )
    return Waiting(
        table=table, count=count, unmatched=unmatched, first_ts=first_ts, last_ts=last_ts
    )


def trigger_of(*tables: str, **fields: object) -> PartitionTrigger:
    grid = every(days=1, start="2013-01-02", until="2013-01-03")
    conditions = [
        PartitionCondition.of(table, {"day": tick("-1d"), "hour": range(2)}, HOUR)
        for table in tables
    ]
    return PartitionTrigger(conditions, grid, **fields)  # type: ignore[arg-type]


def partition(
    trigger: PartitionTrigger,
    *states: AtomState | None,
    first: dict | None = None,
    last: dict | None = None,
    in_flight: int = 0,
    blocked: str = "",
    activated_ms: int = NOON,
    accepts: Callable[[Firing], bool] = lambda firing: True,
) -> Decision:
    """The decision when the partitions of every key are in these states; `first` and `last` report
    what is special of the two keys.
    """
    keys = []
    for special, key in zip(
        (first, last),
        trigger.keys(dt.datetime.fromtimestamp(NOON / 1000, dt.timezone.utc)),
        strict=True,
    ):
        atoms = {
            atom: state for atom, state in zip(key.atoms, states, strict=True) if state is not None
        }
        keys.append(KeyEvidence(key=key, atoms=atoms, **(special or {})))
    return decide_partition(
        "daily",
        trigger,
        keys,
        in_flight=in_flight,
        activated_ms=activated_ms,
        now_ms=NOON,
        through=Position(0, 9),
        blocked=blocked,
        accepts=accepts,
    )


def table_of_decisions() -> dict[str, Decision]:
    """Every way a decision can go, by what was there."""
    plain, tagged = SnapshotTrigger("a"), SnapshotTrigger(["a", "b"], tags=TAGS)
    hourly = SnapshotTrigger("a", every(hours=1))
    patient = SnapshotTrigger(
        "a", wait_after_last=dt.timedelta(minutes=5), max_wait=dt.timedelta(hours=1)
    )
    seldom = SnapshotTrigger(
        "a",
        wait_after_last=dt.timedelta(minutes=5),
        max_wait=dt.timedelta(hours=1),
        min_time_between=dt.timedelta(minutes=10),
    )
    both = SnapshotTrigger(["a", "b"], changed="all", max_wait=dt.timedelta(hours=1))
    two, refire = trigger_of("a"), trigger_of("a", late="refire")
    fired = {"fired": True}
    return {
        "nothing came": snapshot(plain, came(0)),
        "one event": snapshot(plain, came(1)),
        "events of two tables": snapshot(tagged, came(2), came(3, "b")),
        "events without the tags": snapshot(
            tagged, came(0, unmatched=2), came(0, "b", unmatched=1)
        ),
        "an event before its grid point": snapshot(hourly, came(1, minutes_ago=-1)),
        "an event after its grid point": snapshot(hourly, came(1, minutes_ago=30)),
        "events that still come": snapshot(patient, came(4, minutes_ago=20, last=2)),
        "events that stopped coming": snapshot(patient, came(4, minutes_ago=20, last=6)),
        "events that never stop": snapshot(patient, came(90, minutes_ago=61, last=0)),
        "events too soon after an execution": snapshot(
            seldom, came(4, minutes_ago=61, last=6), claimed=-9
        ),
        "events after the least time between executions": snapshot(
            seldom, came(4, minutes_ago=9, last=6), claimed=-10
        ),
        "one of two tables that must change": snapshot(both, came(2), came(0, "b")),
        "both of two tables that must change": snapshot(both, came(2), came(1, "b")),
        "one of two tables for too long": snapshot(both, came(2, minutes_ago=60), came(0, "b")),
        "a consumer that is open": snapshot(
            plain, came(1), opened="execution 3 is running in run 12ab (attempt 1)"
        ),
        "a consumer that is held": snapshot(
            plain,
            came(14),
            blocked="silver is BLOCKED: disk full; `lakechime execution retry` goes on",
        ),
        "a subscription that is paused": snapshot(plain, came(0), blocked="paused: month end"),
        "all partitions there": partition(two, THERE, THERE),
        "one partition missing": partition(two, THERE, None),
        "a partition without the tag": partition(trigger_of("a", tags=TAGS), THERE, SEEN),
        "a partition that was dropped": partition(two, DROPPED, THERE),
        "a partition whose table has others": partition(
            two, THERE, AtomState(available=False, newest='["2013-01-01","1"]')
        ),
        "two tables, one missing": partition(trigger_of("a", "b"), THERE, THERE, THERE, None),
        "a key that fired": partition(two, THERE, THERE, first=fired),
        "a key that is open": partition(
            two, THERE, THERE, first=fired | {"consumer": ConsumerView(open="open")}
        ),
        "a key that is held": partition(
            two,
            THERE,
            THERE,
            first=fired | {"consumer": ConsumerView(open="open", blocked=BLOCKED)},
        ),
        "a key that is held behind others that wait": partition(
            trigger_of("a", late="refire"),
            THERE,
            None,
            last=fired | {"consumer": ConsumerView(open="open", blocked=BLOCKED)},
        ),
        "late events, ignored": partition(two, THERE, None, first=fired | {"late_events": 2}),
        "late events, fired again": partition(
            refire, THERE, None, first=fired | {"late_events": 2}
        ),
        "late events of a consumer that is blocked": partition(
            refire,
            THERE,
            None,
            first=fired
            | {"late_events": 2, "consumer": ConsumerView(blocked="daily is BLOCKED: disk full")},
        ),
        "more keys than may run": partition(trigger_of("a", max_in_flight=1), THERE, THERE),
        "no room at all": partition(two, THERE, THERE, in_flight=4),
        "keys that expired": partition(
            trigger_of("a", deadline=dt.timedelta(hours=1)), THERE, None, activated_ms=0
        ),
        "a deadline that counts from the activation": partition(
            trigger_of("a", deadline=dt.timedelta(hours=1)), THERE, None
        ),
        "a complete key past its deadline": partition(
            trigger_of("a", deadline=dt.timedelta(hours=1)), THERE, THERE, activated_ms=0
        ),
        "complete keys of a paused subscription": partition(
            two, THERE, THERE, blocked="paused: month end"
        ),
    }


def test_every_decision_is_what_the_table_says() -> None:
    lines = [
        f"{case}\n  {'fires' if decision.fires else 'waits' if decision.waits else 'rests'}: "
        f"{decision.sentence}\n"
        for case, decision in table_of_decisions().items()
    ]
    text = "\n".join(lines)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "look at the difference; UPDATE_GOLDEN=1 takes it over"


def test_what_fires_names_the_consumers_that_the_decision_saw() -> None:
    decision = partition(
        trigger_of("a"), THERE, THERE, first={"consumer": ConsumerView(completed=3)}
    )
    assert [(firing.key, firing.completed) for firing in decision.firings] == [
        ("day=2013-01-01", 3),
        ("day=2013-01-02", 0),
    ]


def test_keys_that_cannot_be_launched_take_no_room_of_those_behind_them() -> None:
    decision = partition(
        trigger_of("a", max_in_flight=1),
        THERE,
        THERE,
        accepts=lambda firing: firing.key != "day=2013-01-01",
    )
    assert [firing.key for firing in decision.firings] == ["day=2013-01-02"]
    assert [firing.key for firing in decision.refused] == ["day=2013-01-01"]
    assert decision.reasons == ("all 2 partitions of day=2013-01-02 are there", "0 of 2 keys fired")


@given(
    arrivals=st.sets(st.integers(0, 60), max_size=12),
    evaluations=st.lists(st.integers(0, 90), min_size=1, max_size=40, unique=True).map(sorted),
    gap=st.integers(0, 30),
)
def test_a_trigger_never_fires_twice_within_its_least_time_and_no_later_than_it_must(
    arrivals: set[int], evaluations: list[int], gap: int
) -> None:
    trigger = SnapshotTrigger("a", min_time_between=dt.timedelta(minutes=gap))
    fired: list[int] = []
    for now in evaluations:
        last = fired[-1] if fired else None
        new = [one for one in arrivals if one <= now and (last is None or one > last)]
        waiting = came(len(new), minutes_ago=-min(new, default=0), last=-max(new, default=0))
        may_fire = bool(new) and (last is None or now - last >= gap)
        decision = snapshot(trigger, waiting, claimed=last, now=now)
        assert decision.fires == may_fire
        assert decision.waits == bool(new)  # or else it would not be evaluated again
        fired += [now] if decision.fires else []
    assert all(later - sooner >= gap for sooner, later in itertools.pairwise(fired))


def test_after_the_longest_wait_a_trigger_leaves_out_optional_tables_only() -> None:
    hour = dt.timedelta(hours=1)
    tables = ["a", TableName("b", is_optional=True)]
    trigger = SnapshotTrigger(tables, changed="all", max_wait=hour)

    assert not snapshot(trigger, came(1, minutes_ago=59), came(0, "b")).fires
    assert snapshot(trigger, came(1, minutes_ago=60), came(0, "b")).fires
    late = snapshot(trigger, came(0), came(1, "b", minutes_ago=60))
    assert (late.fires, late.sentence) == (False, "1 event waits (1 of b); a did not change yet")
    assert snapshot(trigger, came(1), came(1, "b", minutes_ago=60)).fires
    several: list[dict[str, Any]] = [{"changed": 1}, {"max_wait": None}]
    for wrong in several:
        with pytest.raises(DeclarationError, match="b is optional"):
            SnapshotTrigger(tables, **({"changed": "all", "max_wait": hour} | wrong))


# How much an execution takes
commits = st.lists(  # of each commit the partitions, with the bytes that were added to them
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=3), max_size=8
)
a_bound = st.one_of(st.none(), st.integers(1, 8))


@given(commits, a_bound, a_bound, a_bound)
def test_an_execution_takes_as_many_whole_commits_as_its_bounds_admit_and_at_least_one(
    changes: list[list[tuple[int, int]]],
    max_commits: int | None,
    max_partitions: int | None,
    max_bytes: int | None,
) -> None:
    trigger = SnapshotTrigger(
        "bronze.orders", max_commits=max_commits, max_partitions=max_partitions, max_bytes=max_bytes
    )
    flat = [(version, *each) for version, several in enumerate(changes) for each in several]
    arrived = [
        Arrived(Position(0, seq), (1, str(version)), (1, str(day)), size)
        for seq, (version, day, size) in enumerate(flat, 1)
    ]
    through = Position(0, len(flat) + 5)  # behind events of other tables

    def is_within(first: int) -> bool:
        taken = [each for several in changes[:first] for each in several]
        amounts = (first, len({day for day, _ in taken}), sum(size for _, size in taken))
        bounds = (max_commits, max_partitions, max_bytes)
        return all(most is None or one <= most for one, most in zip(amounts, bounds, strict=True))

    admitted = max((n for n in range(len(changes) + 1) if is_within(n)), default=0)
    whole = max(admitted, 1)
    end = end_within(trigger.bounds, arrived, Position(0, 0), through)
    if whole >= len(changes):
        assert end == through
    else:
        assert end == Position(0, sum(map(len, changes[:whole])))
