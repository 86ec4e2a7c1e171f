"""What a consumer does not read does not wake it: its checkpoint stays, so that the next range has it, within a day."""

import datetime as dt
from dataclasses import replace

import pytest

from lakechime_dagster.dce.events import CHANGED_TAG
from lakechime_dagster.triggers.schedule import every
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.sweep import Sweep
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.support.world import World, a_subscription, one

ORDERS = "bronze.orders"
DAY = int(dt.timedelta(days=1).total_seconds() * 1000)
UNREAD = {ORDERS: frozenset({"note", "city, town"})}


def reader(name: str = "paid", **fields: object) -> Subscription:
    return a_subscription(name, unread=UNREAD, **fields)


def change(world: World, version: int, *columns: str, **tags: str) -> None:
    """A commit that changed nothing but these columns of rows that were there."""
    names = ",".join(f'"{column}"' for column in columns)
    world.change(version=version, tags={CHANGED_TAG: f"[{names}]", **tags})


@pytest.fixture
def begun(world: World) -> World:
    """A consumer that has read the first commit."""
    world.change(version=0)
    world.tick_of_the_sensor(reader())
    return world


def test_an_event_of_columns_that_are_not_read_wakes_nobody_and_is_in_the_next_range(begun: World) -> None:
    change(begun, 1, "Note")
    change(begun, 2, "note", "city, town")
    decision = begun.tick_of_the_sensor(reader())
    assert (decision.fires, decision.waits) == (False, True)
    said = "2 events changed only what paid does not read (bronze.orders.city, town, bronze.orders.note); they are read with the next"
    assert decision.sentence.startswith(said)
    change(begun, 3, "note", "amount")
    change(begun, 4, "note")
    execution = one(begun.fire(reader()))
    assert execution.reason == "1 event came (1 of bronze.orders)"
    found = execution.ranges()[ORDERS]
    assert (found.start, found.end) == ("0", "4")


def test_it_is_read_within_a_day_though_nothing_else_comes(begun: World) -> None:
    change(begun, 1, "note")
    begun.let_pass(DAY - 60_000)
    assert not begun.decide(reader()).fires
    begun.let_pass(60_000)
    found = one(begun.fire(reader())).ranges()[ORDERS]
    assert (found.start, found.end) == ("0", "1")


@pytest.mark.parametrize("tag", ['["amount"]', '["note","amount"]', "[]", "note", '{"note":1}', "[1]", None])
def test_what_is_read_or_not_told_wakes_as_ever(begun: World, tag: str | None) -> None:
    begun.change(version=1, tags={} if tag is None else {CHANGED_TAG: tag})
    assert begun.decide(reader()).fires


def test_who_reads_all_or_is_not_known_is_woken(begun: World) -> None:
    change(begun, 1, "note")
    assert begun.decide(replace(reader(), unread={})).fires
    assert begun.decide(replace(reader(), unread={"bronze.items": frozenset({"note"})})).fires


def test_tags_that_are_asked_for_wake_whatever_changed(begun: World) -> None:
    trigger = SnapshotTrigger(ORDERS, tags={"complete": "true"})
    asking = reader("asking", trigger=trigger)
    begun.decide(asking)
    change(begun, 1, "note", complete="true")
    assert begun.decide(asking).fires
    assert not begun.decide(reader()).fires


def test_a_sweep_over_many_subscriptions_decides_the_same_at_each_look(begun: World) -> None:
    subscriptions = [reader(), reader("hourly", trigger=SnapshotTrigger(ORDERS, every(hours=1))), a_subscription("all")]
    for subscription in subscriptions:
        begun.tick_of_the_sensor(subscription)
    sweep = Sweep(begun.evaluator, subscriptions)
    sweep.decisions()
    for version, column, fires in [(1, "note", {"all"}), (2, "note", {"all"}), (3, "amount", {"all", "paid"})]:
        change(begun, version, column)
        for _ in range(2):
            found = sweep.decisions()
            assert {name for name, decision in found.items() if decision.fires} - {"hourly"} == fires
            assert {name: decision.sentence for name, decision in found.items()} == {
                subscription.name: begun.decide(subscription).sentence for subscription in subscriptions
            }
            sweep.move_on(set())
