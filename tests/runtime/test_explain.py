"""Explanations name what a decision alone cannot know: a sensor that went silent, a transaction
that holds events back.
"""

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import TransactionId, writing
from lakechime_dagster.runtime.explain import NOT_ACTIVE, SILENT_MS, explain
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.triggers.triggers import SnapshotTrigger
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
