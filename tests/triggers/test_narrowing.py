"""Law 11: what SQL narrows down to is decided as the whole history would be, after any history of
events and ticks.
"""

import datetime as dt
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import reading, writing
from lakechime_dagster.dce.events import (
    EventQuery,
    OperationType,
    Position,
    RegisteredEvent,
    TagConditions,
)
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.schema import metadata
from lakechime_dagster.triggers.consumers import Checkpoint, Execution
from lakechime_dagster.triggers.decision import (
    AtomState,
    ConsumerView,
    Firing,
    KeyEvidence,
    Waiting,
    decide_partition,
    decide_snapshot,
)
from lakechime_dagster.triggers.evaluation import Sweep
from lakechime_dagster.triggers.evidence import Question, waiting_events
from lakechime_dagster.triggers.progress import expire, needed_after
from lakechime_dagster.triggers.registry import ConsumerRow
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import (
    Atom,
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
    TableName,
    TagsFrom,
)
from tests.dce.strategies import texts
from tests.support.stores import fresh_memory
from tests.support.world import World, nothing_committed

pytestmark = pytest.mark.dialect

TABLES = ("a", "b")
DAYS = ("2013-01-01", "2013-01-02")
TAGS = ({}, {"complete": "true"}, {"complete": "true", "source": "x"}, {"source": "x"})
OF_EVENTS = (*TAGS, {"rows": "9"}, {"rows": "10", "source": "x"}, {"cause": "backfill"})
NO_BACKFILL = {"cause": {"!=": "backfill"}}
GRID = every(days=1, start="2013-01-02", until="2013-01-03")
LEVELS = PartitionLevels.of({"day": "date"})

events = st.builds(
    dict,
    table=st.sampled_from(TABLES),
    version=st.one_of(st.none(), st.integers(0, 6)),
    partition=st.sampled_from(DAYS).map(lambda day: [day]),
    tags=st.sampled_from(OF_EVENTS),
    operation_type=st.sampled_from(
        [OperationType.APPEND, OperationType.APPEND, OperationType.DELETE]
    ),
)
steps = st.lists(
    st.one_of(
        events.map(lambda event: ("register", event)),
        st.sampled_from(["tick", "tick", "complete", "lose", "compact"]).map(
            lambda action: (action, {})
        ),
    ),
    min_size=8,
    max_size=16,
)


def on(table: str) -> PartitionCondition:
    return PartitionCondition.of(table, {"day": tick("-1d")}, LEVELS)


def partitioned(*tables: str, **fields: Any) -> PartitionTrigger:
    return PartitionTrigger([on(table) for table in tables], GRID, **fields)


TRIGGERS = [
    *(SnapshotTrigger(TABLES, tags=tags) for tags in TAGS),
    *(
        partitioned("a", tags=tags, late=late)
        for tags, late in zip(TAGS, ("refire", "ignore", "refire", "refire"), strict=True)
    ),
    partitioned("a", "b", tags=TAGS[1], late="refire", max_in_flight=1),
    SnapshotTrigger(TABLES, tags=NO_BACKFILL),
    SnapshotTrigger([TableName("a", tags={"rows": {">=": 10}}), "b"], tags={"rows": {"<": 10}}),
    partitioned("a", tags={"rows": {"exists": True}, "source": {"not in": ["y"]}}),
    PartitionTrigger(
        [on("a"), on("b").with_tags({"rows": {">": "9"}})], GRID, tags=NO_BACKFILL, late="refire"
    ),
    *(
        partitioned("a", tags=tags, tags_from=tags_from)
        for tags in ({"complete": "true", "rows": "9"}, NO_BACKFILL)
        for tags_from in ("union", "latest")
    ),
]
SUBSCRIPTIONS = [
    Subscription(name=f"subscription {number}", trigger=trigger)
    for number, trigger in enumerate(TRIGGERS)
]


@settings(max_examples=8, deadline=None, derandomize=True)
@given(history=steps)
def test_the_evaluation_fires_what_the_whole_history_fires(history: list[tuple[str, dict]]) -> None:
    check(in_memory(), SUBSCRIPTIONS, history)


@pytest.mark.services
@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(history=steps)
def test_the_evaluation_fires_what_the_whole_history_fires_on_postgresql(
    postgres_engine: Engine, history: list[tuple[str, dict]]
) -> None:
    check(World(postgres_engine), SUBSCRIPTIONS, history)


VALUES = st.one_of(
    st.integers(-3, 12).map(str),
    st.decimals(-3, 12, places=1).map(str),
    st.sampled_from(["007", "1e3", "10 kB", "", "Ä", "a", "B", "true", "1" * 20, "9" * 19]),
    texts,
)
KEYS = st.sampled_from(["rows", "rows", "rows", 'c"a%se'])
OF_TWO_KEYS = st.dictionaries(KEYS, VALUES, min_size=1)
CONDITIONS = st.dictionaries(
    KEYS,
    st.one_of(
        VALUES,
        st.dictionaries(
            st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), VALUES, min_size=1, max_size=2
        ),
        st.dictionaries(
            st.sampled_from(["in", "not in"]), st.lists(VALUES, min_size=1, max_size=3), min_size=1
        ),
        st.builds(lambda exists: {"exists": exists}, st.booleans()),
    ),
)


@settings(
    max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    of_events=st.lists(OF_TWO_KEYS, min_size=4, max_size=12),
    wanted=st.lists(CONDITIONS, min_size=4, max_size=12),
)
def test_a_store_finds_the_events_whose_tags_meet_conditions(
    engine: Engine, of_events: list[dict[str, str]], wanted: list[dict[str, Any]]
) -> None:
    world = World(engine)
    emptied(world)
    for version, tags in enumerate(of_events):
        world.change("a", version, tags=tags)
    several = [TagConditions(one) for one in wanted]
    head = world.store.head()
    with reading(world.engine) as connection:
        questions = [Question(("", "a"), Position.ORIGIN, one) for one in several]
        waiting = waiting_events(connection, questions, head)
    for conditions, counted in zip(several, waiting, strict=True):
        fitting = [tags for tags in of_events if conditions.fit(tags)]
        found = world.store.fetch(EventQuery(table="a", tags=conditions))
        assert [dict(one.event.tags) for one in found] == fitting, conditions
        assert (counted.count, counted.unmatched) == (
            len(fitting),
            len(of_events) - len(fitting),
        ), conditions


def test_tags_that_one_subscription_asks_for_do_not_count_for_another(engine: Engine) -> None:
    first: dict[str, Any] = {"table": "a", "partition": ["2013-01-01"], "version": 2}
    history = [("register", first), ("tick", {}), ("register", {**first, "tags": TAGS[2]})]
    check(World(engine), SUBSCRIPTIONS, history)


@cache
def in_memory() -> World:
    engine = fresh_memory()
    return World(engine)


def test_an_evaluation_that_moves_on_too_early_is_caught() -> None:
    first, late = (
        {"table": "a", "partition": ["2013-01-01"], "version": version} for version in (0, 1)
    )
    subscriptions = [Subscription(name="subscription", trigger=partitioned("a", late="refire"))]
    history = [
        ("register", first),
        ("tick", {}),
        ("register", late),
        ("tick", {}),
        ("complete", {}),
    ]
    check(in_memory(), subscriptions, history)
    with pytest.raises(AssertionError):
        check(in_memory(), subscriptions, history, is_hasty=True)


def emptied(world: World) -> None:
    with writing(world.engine) as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())


def check(
    world: World,
    subscriptions: Sequence[Subscription],
    history: list[tuple[str, dict]],
    *,
    is_hasty: bool = False,
) -> None:
    """Go through a history; at each tick all decisions must be the same. The hasty twin forgets
    what still waits.
    """
    emptied(world)
    sweep = Sweep(world.evaluator, subscriptions)
    every_event: list[RegisteredEvent] = []  # also those that were compacted
    for action, event in (*history, ("tick", {})):
        if action == "tick":
            _tick(world, subscriptions, sweep, every_event, is_hasty)
        elif action == "register":
            registered = world.change(**event)
            every_event += (
                [] if registered.position in {one.position for one in every_event} else [registered]
            )
        elif action == "compact":
            expire(world.engine, world.store.now() + 1, needed=needed_after)
        else:
            for subscription in subscriptions:
                if opened := world.ledger.open_executions(world.evaluator.activate(subscription)):
                    _end(world, subscription, opened[0], lost=action == "lose")


def _tick(
    world: World,
    subscriptions: Sequence[Subscription],
    sweep: Sweep,
    every_event: Sequence[RegisteredEvent],
    is_hasty: bool,
) -> None:
    """Each subscription decides as the whole history says, and a sweep over all of them comes to
    that too, whatever it looked at before.
    """
    swept = sweep.decisions()
    for subscription in subscriptions:
        row = world.evaluator.activate(subscription)
        decision = world.evaluator.evaluate(subscription, row)
        assert decision.firings == whole(world, subscription, every_event), decision
        assert (
            swept[subscription.name].firings if subscription.name in swept else ()
        ) == decision.firings, (decision, swept.get(subscription.name))
        assert subscription.name in swept or not decision.waits
        world.evaluator.fire(subscription, row, decision, nothing_committed)
        if is_hasty or (not decision.fires and not decision.waits):
            world.evaluator.looked_through([row], decision.through)


def _end(world: World, subscription: Subscription, execution: Execution, *, lost: bool) -> None:
    row = world.evaluator.activate(subscription)
    if not lost:
        world.ledger.complete(execution, None)
    elif execution.attempt < 3:
        consumer = world.ledger.consumers(row)[execution.consumer.key]
        world.ledger.lose(
            execution,
            "it died",
            end=world.evaluator.end_of(subscription, row, consumer),
            immediately=True,
        )


def whole(
    world: World, subscription: Subscription, every_event: Sequence[RegisteredEvent]
) -> tuple[Firing, ...]:
    """What the pure decision fires over every event that there was, counted in plain Python."""
    row = world.evaluator.activate(subscription)
    consumers = world.ledger.consumers(row)
    opened = {execution.consumer.key for execution in world.ledger.open_executions(row)}
    views = {
        key: ConsumerView(
            checkpoint=consumer.checkpoint,
            completed=consumer.completed,
            open="open" if key in opened else "",
        )
        for key, consumer in consumers.items()
    }
    now, trigger = world.store.now(), subscription.trigger
    if isinstance(trigger, SnapshotTrigger):
        consumer = views.get("", ConsumerView(checkpoint=row.start))
        waiting = [
            _waiting(every_event, table, tags, consumer.checkpoint)
            for (_, table), tags in subscription.wanted
        ]
        decision = decide_snapshot(
            subscription.name, trigger, consumer, waiting, now_ms=now, through=world.store.head()
        )
    else:
        keys = [
            KeyEvidence(
                key=key,
                consumer=views.get(key.text, ConsumerView(checkpoint=row.start)),
                fired=key.text in consumers and consumers[key.text].fired,
                late_events=_late(every_event, key.atoms, consumers.get(key.text)),
                atoms={atom: _state(every_event, atom, trigger.tags_from) for atom in key.atoms},
            )
            for key in trigger.keys(dt.datetime.fromtimestamp(now / 1000, dt.timezone.utc))
        ]
        decision = decide_partition(
            subscription.name,
            trigger,
            keys,
            in_flight=len(opened),
            activated_ms=row.activated_ts,
            now_ms=now,
            through=world.store.head(),
        )
    return decision.firings


def _waiting(
    every_event: Sequence[RegisteredEvent], table: str, tags: TagConditions, checkpoint: Checkpoint
) -> Waiting:
    mine = [
        event
        for event in every_event
        if event.event.table == table and event.position > checkpoint.position
    ]
    matching = [
        event
        for event in mine
        if (event.changes_data if tags.fit({}) else _is_first(every_event, event, tags))
        and tags.fit(event.event.tags)
    ]
    times = [event.event_ts for event in matching]
    return Waiting(
        table=table,
        count=len(matching),
        first_ts=min(times, default=None),
        last_ts=max(times, default=None),
    )


def _is_first(
    every_event: Sequence[RegisteredEvent], event: RegisteredEvent, tags: TagConditions
) -> bool:
    """Whether no earlier version of the event met the conditions."""
    first = event.amends or event.position
    versions = [
        one
        for one in every_event
        if (one.amends or one.position) == first and one.position < event.position
    ]
    return not any(tags.fit(one.event.tags) for one in versions)


def _state(every_event: Sequence[RegisteredEvent], atom: Atom, tags_from: TagsFrom) -> AtomState:
    mine = [
        event
        for event in every_event
        if (event.event.table, event.canonical) == (atom.table, atom.canonical)
    ]
    deletes = [event for event in mine if event.event.operation_type is OperationType.DELETE]
    drops = [event for event in deletes if event.amends is None]
    there = [
        event
        for event in mine
        if event not in deletes and not any(_is_after(drop, event) for drop in drops)
    ]
    if tags_from is TagsFrom.EVENT:
        available = any(atom.tags.fit(event.event.tags) for event in there)
    else:
        available = bool(there) and atom.tags.fit(_tags(there, tags_from))
    return AtomState(available=available, seen=bool(mine))


def _tags(there: Sequence[RegisteredEvent], tags_from: TagsFrom) -> dict[str, str]:
    """The tags of a partition: of a key the value that came last, with an event or amendment that
    did not repeat it.
    """
    came: dict[str, tuple[Position, str]] = {}
    newest: dict[Position, RegisteredEvent] = {}
    for event in there:
        first = event.amends or event.position
        before = newest.get(first)
        newest[first] = event
        for key, value in event.event.tags.items():
            if before is None or before.event.tags.get(key) != value:
                came[key] = (event.position, value)
    if tags_from is TagsFrom.LATEST:
        return dict(newest[max(newest)].event.tags)
    return {key: value for key, (_, value) in came.items()}


def _is_after(drop: RegisteredEvent, other: RegisteredEvent) -> bool:
    """By versions of the same table, else by registration."""
    if (
        drop.event.snapshot_id is not None
        and other.event.snapshot_id is not None
        and drop.event.table_uid == other.event.table_uid
    ):
        return int(drop.event.snapshot_id) > int(other.event.snapshot_id)
    return drop.position > other.position


def _late(
    every_event: Sequence[RegisteredEvent], atoms: Sequence[Atom], consumer: ConsumerRow | None
) -> int:
    if consumer is None:
        return 0
    partitions = {(atom.table, atom.canonical) for atom in atoms}
    return sum(
        1
        for event in every_event
        if event.changes_data
        and event.position > consumer.checkpoint.position
        and (event.event.table, event.canonical) in partitions
    )
