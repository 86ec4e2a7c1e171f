"""Law 11: what SQL narrows down to is decided as the whole history would be, after any history of events and ticks."""

import datetime as dt
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from lakechime_dagster.dce.event import OperationType, RegisteredEvent
from lakechime_dagster.dce.partition import PartitionLevels
from lakechime_dagster.dce.store import EventQuery
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.ledger_rows import LaneRow
from lakechime_dagster.store.schema import metadata
from lakechime_dagster.store.sweep import Sweep
from lakechime_dagster.triggers import PartitionCondition, PartitionTrigger, SnapshotTrigger, every, tick
from lakechime_dagster.triggers.conditions import Atom
from lakechime_dagster.triggers.decision import AtomState, KeyEvidence, LaneView, Waiting, decide_partition, decide_snapshot
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.lanes import Execution, Place
from tests.support.world import World, nothing_committed

TABLES = ("a", "b")
DAYS = ("2013-01-01", "2013-01-02")
TAGS = ({}, {"complete": "true"}, {"complete": "true", "source": "x"}, {"source": "x"})
GRID = every(days=1, start="2013-01-02", until="2013-01-03")
LEVELS = PartitionLevels.of({"day": "date"})

events = st.builds(
    dict,
    table=st.sampled_from(TABLES),
    version=st.one_of(st.none(), st.integers(0, 6)),
    partition=st.sampled_from(DAYS).map(lambda day: [day]),
    tags=st.sampled_from(TAGS),
    operation_type=st.sampled_from([OperationType.APPEND, OperationType.APPEND, OperationType.DELETE]),
)
steps = st.lists(
    st.one_of(
        events.map(lambda event: ("register", event)),
        st.just(("tick", {})),
        st.just(("tick", {})),
        st.just(("settle", {})),
        st.just(("lose", {})),
    ),
    max_size=14,
)
snapshot_flows = st.builds(
    lambda tables, tags: Flow(name="flow", trigger=SnapshotTrigger(tables, tags=tags)),
    st.sampled_from([("a",), ("a", "b")]),
    st.sampled_from(TAGS[:3]),
)
partition_flows = st.builds(
    lambda tables, tags, late, cap: Flow(
        name="flow",
        trigger=PartitionTrigger(
            [PartitionCondition.of(table, {"day": tick("-1d")}, LEVELS) for table in tables],
            GRID,
            tags=tags,
            late=late,
            max_in_flight=cap,
        ),
    ),
    st.sampled_from([("a",), ("a", "b")]),
    st.sampled_from(TAGS[:3]),
    st.sampled_from(["ignore", "refire"]),
    st.sampled_from([1, 4]),
)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flow=st.one_of(snapshot_flows, partition_flows), history=steps)
def test_the_evaluation_fires_what_the_whole_history_fires(sqlite_engine: Engine, flow: Flow, history: list[tuple[str, dict]]) -> None:
    check(World(sqlite_engine), flow, history)


@pytest.mark.services
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flow=st.one_of(snapshot_flows, partition_flows), history=steps)
def test_the_evaluation_fires_what_the_whole_history_fires_on_postgresql(
    postgres_engine: Engine, flow: Flow, history: list[tuple[str, dict]]
) -> None:
    check(World(postgres_engine), flow, history)


def test_an_evaluation_that_moves_on_too_early_is_caught(sqlite_engine: Engine) -> None:
    first, late = ({"table": "a", "partition": ["2013-01-01"], "version": version} for version in (0, 1))
    trigger = PartitionTrigger(PartitionCondition.of("a", {"day": tick("-1d")}, LEVELS), GRID, late="refire")
    flow = Flow(name="flow", trigger=trigger)
    history = [("register", first), ("tick", {}), ("register", late), ("tick", {}), ("settle", {})]
    check(World(sqlite_engine), flow, history)
    with pytest.raises(AssertionError):
        check(World(sqlite_engine), flow, history, is_hasty=True)


def check(world: World, flow: Flow, history: list[tuple[str, dict]], *, is_hasty: bool = False) -> None:
    """Go through a history; at each tick both decisions must be the same. The hasty twin forgets what still waits."""
    with writing(world.engine) as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    sweep: Sweep | None = None
    for action, event in (*history, ("tick", {})):
        sweep = sweep or Sweep(world.evaluator, [flow])
        if action == "tick":
            _swept(world, flow, sweep)
        if action == "register":
            world.change(**event)
        elif action == "tick":
            _tick(world, flow, is_hasty)
        elif opened := world.ledger.open_executions(world.evaluator.activate(flow)):
            _end(world, flow, opened[0], lost=action == "lose")


def _tick(world: World, flow: Flow, is_hasty: bool) -> None:
    row = world.evaluator.activate(flow)
    decision = world.evaluator.evaluate(flow, row)
    assert [firing.key for firing in decision.firings] == whole(world, flow), decision
    world.evaluator.fire(flow, row, decision, nothing_committed)
    if is_hasty or (not decision.fires and not decision.waits):
        world.evaluator.looked_through(row, decision.through)


def _swept(world: World, flow: Flow, sweep: Sweep) -> None:
    """One sweep over many flows comes to the decision of each alone, whatever it looked at before."""
    alone = world.evaluator.evaluate(flow, world.evaluator.activate(flow))
    swept = sweep.decisions().get(flow.name)
    assert (swept.firings if swept else ()) == alone.firings, (alone, swept)
    assert swept is not None or not alone.waits


def _end(world: World, flow: Flow, execution: Execution, *, lost: bool) -> None:
    row = world.evaluator.activate(flow)
    if not lost:
        world.ledger.settle(execution, None)
    elif execution.attempt < 3:
        lane = world.ledger.lanes(row)[execution.lane.key]
        world.ledger.lose(execution, "it died", end=world.evaluator.end_of(flow, row, lane), immediately=True)


def whole(world: World, flow: Flow) -> list[str]:
    """The keys that the pure decision fires over every event that there is, counted in plain Python."""
    row = world.evaluator.activate(flow)
    every_event = world.store.fetch(EventQuery())
    lanes = world.ledger.lanes(row)
    opened = {execution.lane.key for execution in world.ledger.open_executions(row)}
    views = {key: LaneView(place=lane.place, open="open" if key in opened else "") for key, lane in lanes.items()}
    now, trigger = world.store.now(), flow.trigger
    if isinstance(trigger, SnapshotTrigger):
        lane = views.get("", LaneView(place=row.start))
        waiting = [_waiting(every_event, table, trigger, lane.place) for table in trigger.tables]
        decision = decide_snapshot(flow.name, trigger, lane, waiting, now_ms=now, through=world.store.head())
    else:
        keys = [
            KeyEvidence(
                key=key,
                lane=views.get(key.text, LaneView(place=row.start)),
                fired=key.text in lanes and lanes[key.text].fired,
                late_events=_late(every_event, key.atoms, lanes.get(key.text)),
                atoms={atom: _state(every_event, atom, trigger) for atom in key.atoms},
            )
            for key in trigger.keys(dt.datetime.fromtimestamp(now / 1000, dt.UTC))
        ]
        decision = decide_partition(
            flow.name, trigger, keys, in_flight=len(opened), activated_ms=row.activated_ts, now_ms=now, through=world.store.head()
        )
    return [firing.key for firing in decision.firings]


def _waiting(every_event: Sequence[RegisteredEvent], table: str, trigger: SnapshotTrigger, place: Place) -> Waiting:
    mine = [event for event in every_event if event.event.table == table and event.position > place.position]
    matching = [event for event in mine if (_carries_first(every_event, event, trigger) if trigger.tags else event.changes_data)]
    times = [event.event_ts for event in matching]
    return Waiting(table=table, count=len(matching), first_ts=min(times, default=None), last_ts=max(times, default=None))


def _carries_first(every_event: Sequence[RegisteredEvent], event: RegisteredEvent, trigger: SnapshotTrigger) -> bool:
    """Whether the event has the tags and no earlier version of it had them."""
    first = event.amends or event.position
    versions = [one for one in every_event if (one.amends or one.position) == first and one.position < event.position]
    return event.event.tags.carries(trigger.tags) and not any(one.event.tags.carries(trigger.tags) for one in versions)


def _state(every_event: Sequence[RegisteredEvent], atom: Atom, trigger: PartitionTrigger) -> AtomState:
    mine = [event for event in every_event if (event.event.table, event.canonical) == (atom.table, atom.canonical)]
    deletes = [event for event in mine if event.event.operation_type is OperationType.DELETE]
    drops = [event for event in deletes if event.amends is None]
    matching = [event for event in mine if event not in deletes and event.event.tags.carries(trigger.tags)]
    return AtomState(available=any(not any(_is_after(drop, one) for drop in drops) for one in matching), seen=bool(mine))


def _is_after(drop: RegisteredEvent, other: RegisteredEvent) -> bool:
    """By versions of the same table, else by registration."""
    if drop.event.snapshot_id is not None and other.event.snapshot_id is not None and drop.event.table_uid == other.event.table_uid:
        return int(drop.event.snapshot_id) > int(other.event.snapshot_id)
    return drop.position > other.position


def _late(every_event: Sequence[RegisteredEvent], atoms: Sequence[Atom], lane: LaneRow | None) -> int:
    if lane is None:
        return 0
    partitions = {(atom.table, atom.canonical) for atom in atoms}
    return sum(
        1
        for event in every_event
        if event.changes_data and event.position > lane.place.position and (event.event.table, event.canonical) in partitions
    )
