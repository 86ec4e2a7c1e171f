"""A store, its ledger and what evaluates them, as the tests of the ledger use them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.events import DataChangeEvent, Position, RegisteredEvent, SnapshotId
from lakechime_dagster.dce.schema import dce_event
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.sensors.tick import PolledAt, Runs, Tick, run_tick
from lakechime_dagster.settings import load_settings
from lakechime_dagster.triggers.consumers import (
    Checkpoint,
    CommitMetadata,
    Committed,
    ConsumerId,
    Execution,
)
from lakechime_dagster.triggers.decision import Decision
from lakechime_dagster.triggers.evaluation import Accepts, Evaluator, Sweep, any_key
from lakechime_dagster.triggers.interventions import Interventions
from lakechime_dagster.triggers.ledger import Claim, Ledger
from lakechime_dagster.triggers.progress import moment_at
from lakechime_dagster.triggers.registry import SubscriptionRow
from lakechime_dagster.triggers.schema import (
    lc_attempt,
    lc_consumer,
    lc_execution,
    lc_intervention,
    lc_subscription,
)
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger


def nothing_committed(consumer: ConsumerId) -> Committed | None:
    """A target that knows no consumer."""
    return None


@dataclass(frozen=True)
class World:
    """Everything that speaks to one database in the name of one deployment."""

    engine: Engine
    deployment: str = "test"

    @property
    def store(self) -> DCEStore:
        return DCEStore(self.engine)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.engine, self.deployment)

    @property
    def evaluator(self) -> Evaluator:
        return Evaluator(self.engine, self.ledger)

    @property
    def people(self) -> Interventions:
        return Interventions(self.ledger)

    def platform(self, home: Path) -> Platform:
        """The platform of a process whose home folder this is."""
        return Platform(load_settings(home=home), self.store, self.ledger, self.evaluator)

    def change(
        self, table: str = "bronze.orders", version: int | None = None, **fields: Any
    ) -> RegisteredEvent:
        """Register one event; with a version the commit after version - 1."""
        snapshot = (
            {}
            if version is None
            else {
                "snapshot_id": str(version),
                "prev_snapshot_id": str(version - 1) if version else None,
            }
        )
        done = self.store.register([DataChangeEvent(table=table, **snapshot, **fields)])
        return (done.registered or done.duplicates)[0]

    def decide(self, subscription: Subscription, at_ms: int | None = None) -> Decision:
        row = self.evaluator.activate(subscription)
        moment = None if at_ms is None else moment_at(self.engine, row, at_ms)
        return self.evaluator.evaluate(subscription, row, moment)

    def fire(self, subscription: Subscription) -> list[Execution]:
        """Evaluate and claim, as a tick does."""
        row = self.evaluator.activate(subscription)
        return self.evaluator.fire(
            subscription, row, self.evaluator.evaluate(subscription, row), nothing_committed
        )

    def claim(self, row: SubscriptionRow, position: int = 1, key: str = "") -> Execution:
        """Claim the next execution of a consumer up to a position."""
        return self.ledger.claim(
            row, self.ledger.ensure_consumer(row, key), Claim(end=checkpoint(position))
        )

    def tick_of_the_sensor(self, subscription: Subscription) -> Decision:
        """Evaluate, claim and complete at once, and remember what was looked through, as a sensor
        with a fast run does.
        """
        row = self.evaluator.activate(subscription)
        decision = self.evaluator.evaluate(subscription, row)
        for execution in self.evaluator.fire(subscription, row, decision, nothing_committed):
            self.ledger.complete(execution, None)
        if not decision.fires and not decision.waits:
            self.evaluator.looked_through([row], decision.through)
        return decision

    def end_leases(self) -> None:
        """Let a minute pass on every lease."""
        with writing(self.engine) as connection:
            connection.execute(
                sa.update(lc_attempt)
                .where(lc_attempt.c.lease_until.is_not(None))
                .values(lease_until=1)
            )

    def let_pass(self, milliseconds: int) -> None:
        """Make everything that was registered, activated or done that much older."""
        with writing(self.engine) as connection:
            for table, name in _TIMES:
                connection.execute(sa.update(table).values({name: table.c[name] - milliseconds}))


_TIMES = [
    (dce_event, "event_ts"),
    (lc_subscription, "activated_ts"),
    (lc_consumer, "created_ts"),
    (lc_execution, "claimed_ts"),
    (lc_execution, "completed_ts"),
    (lc_attempt, "due_ts"),
    (lc_attempt, "begun_ts"),
    (lc_attempt, "ended_ts"),
    (lc_intervention, "ts"),
]


@pytest.fixture
def world(engine: Engine) -> World:
    """An empty store and ledger, on each database."""
    return World(engine)


@pytest.fixture
def platform(world: World, tmp_path: Path) -> Platform:
    """The platform of a process beside the store and ledger of `world`."""
    return world.platform(tmp_path)


def ticked(
    platform: Platform,
    subscription: Subscription,
    runs: Runs,
    *,
    accepts: Accepts = any_key,
    polled: PolledAt | None = None,
) -> Tick:
    """The first tick of a process that evaluates this subscription alone."""
    subscriptions = {subscription.name: subscription}
    return run_tick(
        platform,
        Sweep(platform.evaluator, [subscription]),
        subscriptions,
        runs,
        {subscription.name: accepts},
        polled,
    )


def one(executions: list[Execution]) -> Execution:
    """The execution, when it is one."""
    (execution,) = executions
    return execution


def a_subscription(name: str = "silver", *tables: str, **fields: Any) -> Subscription:
    """A subscription that any change of its tables fires."""
    values: dict[str, Any] = {"trigger": SnapshotTrigger(tables or ("bronze.orders",)), **fields}
    return Subscription(name=name, **values)


def checkpoint(position: int, **snapshots: str | int) -> Checkpoint:
    """A checkpoint at a position, and at a snapshot per table (`bronze__orders=3`)."""
    sources = {
        name.replace("__", "."): SnapshotCheckpoint(snapshot_id=SnapshotId(str(at)))
        for name, at in snapshots.items()
    }
    return Checkpoint(position=Position(0, position), sources=sources)


def committed(execution: Execution, end: Checkpoint | None = None, version: int = 7) -> Committed:
    """The commit of an execution's execution in its target, up to an end of its own."""
    commit_metadata = CommitMetadata(
        consumer=execution.consumer,
        number=execution.number,
        attempt=execution.attempt,
        end=end or execution.end,
    )
    return Committed(version=SnapshotId(str(version)), commit_metadata=commit_metadata)


def elsewhere(world: World, deployment: str) -> World:
    """The same database in the name of another deployment."""
    return replace(world, deployment=deployment)


def consumer_id(subscription: str, key: str = "", deployment: str = "test") -> ConsumerId:
    return ConsumerId(deployment, subscription, key)
