"""Explanations name what a decision alone cannot know: a sensor that went silent, a transaction
that holds events back.
"""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import TransactionId, writing
from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.runtime.explain import MOST_KEYS, NOT_ACTIVE, SILENT_MS, explain, explained
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.triggers.decision import LackingKey
from lakechime_dagster.triggers.progress import overview
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
)
from tests.support.world import World, a_subscription


@pytest.fixture
def world(sqlite_engine: Engine) -> World:
    return World(sqlite_engine)


def test_a_sensor_that_went_silent_is_named_with_the_time_of_its_last_tick(
    platform: Platform,
) -> None:
    subscription = a_subscription("silver")
    row = platform.evaluator.activate(subscription)
    platform.ledger.note_tick([row], platform.store.now() - SILENT_MS - 60_000)
    assert "its sensor has not ticked since" in explain(platform, subscription).sentence


def test_a_subscription_that_is_to_start_now_is_not_said_to_fire_for_what_was_there(
    world: World, platform: Platform
) -> None:
    world.change(version=0)
    decision = explain(
        platform, a_subscription(trigger=SnapshotTrigger("bronze.orders", start_from="now"))
    )
    assert (decision.fires, decision.events, decision.reasons) == (
        False,
        (),
        ("nothing new in bronze.orders", NOT_ACTIVE),
    )


def test_all_keys_that_expired_or_wait_are_shown_page_by_page(
    world: World, platform: Platform
) -> None:
    def keys_of(name: str, **fields: Any) -> list[LackingKey]:
        trigger = PartitionTrigger(
            PartitionCondition.of("bronze.orders", {"day": tick("-1d")}),
            every(days=1, start="2013-01-02", until="2013-09-01"),
            **fields,
        )
        subscription = a_subscription(name, trigger=trigger)
        row = platform.evaluator.activate(subscription)
        while platform.store.now() <= row.activated_ts:
            pass
        known = next(one for one in overview(platform.ledger) if one.row.name == name)
        found, after = list[LackingKey](), None
        while True:
            page = explained(platform, name, subscription, known, after_key=after)
            assert len(page.keys) <= MOST_KEYS
            found += page.keys
            if page.next_key is None:
                return found
            after = page.next_key

    world.change("bronze.orders", 0, partition=["2013-01-03"])
    days = [f"day={dt.date(2013, 1, 1) + dt.timedelta(n)}" for n in range(243) if n != 2]
    expired, pending = keys_of("short", deadline=dt.timedelta()), keys_of("long")
    assert [one.key for one in expired] == [one.key for one in pending] == days
    assert {one.state for one in expired} == {"expired"}
    assert {one.state for one in pending} == {"pending"}
    assert "bronze.orders" in expired[0].reason


def test_a_page_of_keys_after_one_that_lacks_nothing_is_refused(platform: Platform) -> None:
    subscription = a_subscription("silver")
    with pytest.raises(NotFoundError, match="2013-01-03"):
        explained(platform, "silver", subscription, None, after_key="day=2013-01-03")


@pytest.mark.services
def test_events_behind_an_open_transaction_are_said_to_be_held_back_and_come_afterwards(
    postgres_engine: Engine, tmp_path: Path
) -> None:
    world = World(postgres_engine)
    platform, subscription = world.platform(tmp_path), a_subscription("silver", "bronze.orders")
    platform.evaluator.activate(subscription)
    with writing(postgres_engine) as other:
        other.execute(sa.select(TransactionId()))  # takes a transaction number, as any write does
        world.change("bronze.orders", 1)
        held = explain(platform, subscription)
    assert not held.fires
    assert "1 event held back by a database transaction open since" in held.sentence
    assert explain(platform, subscription).fires
