"""Metrics for Prometheus are what completed executions left in the store, whoever completed them,
and are bounded.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from lakechime_dagster.api import metrics
from lakechime_dagster.api.metrics import StoreCollector
from lakechime_dagster.dce.engine import writing
from lakechime_dagster.silver.metrics import measures
from lakechime_dagster.silver.results import TypeResult
from lakechime_dagster.silver.shape import Rescue
from lakechime_dagster.silver.store import SqlEventTypes
from lakechime_dagster.silver.store_schema import event_type
from lakechime_dagster.triggers.consumers import ConsumerState
from lakechime_dagster.triggers.ledger import Claim
from lakechime_dagster.triggers.schema import lc_consumer, lc_subscription
from tests.support.event_types import complete, learn, prototype, result
from tests.support.processes import await_found
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.world import World, a_subscription, checkpoint

Value = Callable[..., float | None]
TWO = (prototype(a=1), prototype(b="x"))


@pytest.fixture
def types(engine: Engine) -> SqlEventTypes:
    return SqlEventTypes(engine, "test")


@pytest.fixture
def value(types: SqlEventTypes) -> Value:
    """A metric's value now; None where there is none."""
    registry = CollectorRegistry()
    registry.register(StoreCollector(lambda: measures(types)))

    def of(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"lakechime_{name}", labels)

    return of


def test_counters_are_the_sums_of_all_completed_executions(
    types: SqlEventTypes, value: Value
) -> None:
    learn(types, *TWO)
    complete(
        types,
        "e1",
        replace(result(5, number=1, rows=3), columns_added=2),
        refused={"not_json": 2},
        seconds={"write": 1.5},
    )
    second = replace(result(6, number=2, rows=4), written=3, discarded=1, rescued=2)
    complete(types, "e2", second, refused={"not_json": 1}, seconds={"write": 1.0})
    buy = {"group": "shop", "type": "buy"}
    reported = {name: value(f"type_{name}_total", **buy) for name in metrics.COUNTERS}
    assert reported == {
        "events": 7,
        "rows_written": 6,
        "rows_rescued": 2,
        "rows_discarded": 1,
        "columns_added": 2,
        "conflicts": 0,
        "failures": 0,
    }
    assert (value("type_variations", **buy), value("type_schema_version", **buy)) == (2, 1)
    assert value("group_events_refused_total", group="shop", reason="not_json") == 3
    assert value("group_phase_seconds_total", group="shop", phase="write") == 2.5


def test_rows_behind_a_checkpoint_are_those_that_wait_or_that_a_failure_left(
    types: SqlEventTypes, value: Value
) -> None:
    def behind() -> float | None:
        return value("type_lag_rows", group="shop", type="buy")

    learn(types, *TWO)
    complete(
        types,
        "e1",
        TypeResult(type="buy", table="shop.buy", start=0, end=0, rows=5, pending=5, waits="frozen"),
    )
    assert behind() == 5
    failed = TypeResult(type="buy", table="shop.buy", start=0, end=0, error="no room", left=7)
    complete(types, "e2", failed)
    assert behind() == 7
    complete(
        types, "e3", TypeResult(type="buy", table="shop.buy", start=0, end=0, put_off="no room")
    )
    complete(types, "e4", replace(failed, left=None))
    assert behind() == 7
    complete(types, "e5", result(5, number=1, rows=7))
    assert behind() == 0


def test_a_group_that_can_write_no_type_has_failed_and_lags_until_one_is_written(
    types: SqlEventTypes, value: Value
) -> None:
    def reported() -> tuple[list[str], bool]:
        states = [name for name in metrics.STATES if value("group_state", group="shop", state=name)]
        return states, measures(types).groups[0].stuck_ts is not None

    learn(types, *TWO)
    learn(types, *TWO, name="sell")
    complete(types, "e1", result(5, number=1), result(5, number=1, name="sell"))
    assert reported() == (["idle"], False)
    complete(types, "e2", result(6, error="no room", rows=0))
    assert reported() == (["failed"], True)
    complete(
        types, "e3", TypeResult(type="buy", table="shop.buy", start=5, end=5, put_off="no room")
    )
    assert reported() == (["failed"], True)
    assert [one.due_ts > 1 for one in types.left("shop")] == [True]
    complete(types, "e4", result(6, number=2))
    assert (reported(), types.left("shop")) == ((["idle"], False), [])


def test_a_group_is_live_while_there_is_work_and_failed_when_it_is_blocked(
    types: SqlEventTypes, value: Value
) -> None:
    world = World(types.engine)
    learn(types, *TWO)
    row = world.ledger.ensure_subscription(replace(a_subscription(), name="shop"))
    world.ledger.complete(world.claim(row), None)

    def state() -> list[str]:
        return [name for name in metrics.STATES if value("group_state", group="shop", state=name)]

    assert state() == ["idle"]
    world.ledger.claim(row, world.ledger.consumers(row)[""], Claim(end=checkpoint(2)))
    assert state() == ["live"]
    with writing(types.engine) as connection:
        connection.execute(sa.update(lc_consumer).values(state=ConsumerState.BLOCKED))
    assert state() == ["failed"]


HOUR_MS = 3_600_000


@pytest.mark.several_connections
@pytest.mark.services
def test_every_panel_has_a_series_and_every_alarm_fires_and_recovers(
    sqlite_engine: Engine, prometheus: Prometheus
) -> None:
    types, world = SqlEventTypes(sqlite_engine, "test"), World(sqlite_engine)
    for name in ("buy", "sell"):
        learn(types, prototype(a=1), prototype(b="x"), name=name)
    waits = TypeResult(
        type="sell", table="shop.sell", start=0, end=0, rows=5, pending=5, waits="frozen"
    )
    bought = replace(result(5, number=1), rescued=1, reasons={Rescue.CASE: 1})
    complete(types, "e1", bought, waits, refused={"not_json": 1}, seconds={"write": 1.0})
    row = world.ledger.ensure_subscription(replace(a_subscription(), name="shop"))
    world.ledger.complete(world.claim(row), None)
    for version in (0, 1):
        world.change(version=version)
    with writing(sqlite_engine) as connection:
        connection.execute(
            sa.update(lc_subscription).values(ticked_ts=lc_subscription.c.activated_ts)
        )
    await_found(lambda: not prometheus.empty_panels(), "each panel has a series", 60)

    learn(types, prototype(a="x"))
    await_found(
        lambda: "LakechimeTypeConflict" in prometheus.firing(), "a conflict is reported", 30
    )
    await_found(
        lambda: "LakechimeTypeConflict" not in prometheus.firing(), "it is reported for a while", 30
    )

    world.let_pass(HOUR_MS)
    with writing(sqlite_engine) as connection:
        connection.execute(
            sa.update(lc_subscription).values(ticked_ts=lc_subscription.c.activated_ts)
        )
        connection.execute(sa.update(lc_consumer).values(state=ConsumerState.BLOCKED))
    late = {
        "LakechimeGroupFailed",
        "LakechimeGroupLate",
        "LakechimeTypeWaits",
        "LakechimeConsumerBlocked",
        "LakechimeNoTick",
    }
    await_found(lambda: prometheus.firing() == late, "what is late is reported", 30)

    now = measures(types).now
    with writing(sqlite_engine) as connection:
        connection.execute(sa.update(lc_subscription).values(ticked_ts=now))
        connection.execute(sa.update(lc_consumer).values(state=ConsumerState.ACTIVE))
        connection.execute(
            sa.update(event_type)
            .where(event_type.c.behind_ts.is_not(None))
            .values(behind_ts=now - HOUR_MS)
        )
    claimed = world.claim(row, 1_000)
    world.ledger.complete(claimed, None)
    complete(types, "e2", replace(waits, rows=0, pending=0, error="no room"))
    with writing(sqlite_engine) as connection:
        connection.execute(
            sa.update(event_type).where(event_type.c.type == "sell").values(pending=0)
        )
    await_found(lambda: prometheus.firing() == {"LakechimeTypeLate"}, "the type alone is late", 30)
    complete(types, "e3", result(6, number=1, name="sell"))
    await_found(lambda: prometheus.firing() == set(), "all is well", 30)
    assert prometheus.empty_panels() == []


@pytest.fixture
def prometheus(sqlite_engine: Engine, tmp_path: Path) -> Iterator[Prometheus]:
    with running_prometheus(SqlEventTypes(sqlite_engine, "test"), tmp_path) as running:
        yield running
