"""A real Prometheus finds a series for each panel of the dashboard, and each alarm fires."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.silver.metrics import measures
from lakechime_dagster.silver.results import TypeResult
from lakechime_dagster.silver.shape import Rescue
from lakechime_dagster.silver.store import SqlEventTypes
from lakechime_dagster.silver.store_schema import event_type
from lakechime_dagster.triggers.consumers import ConsumerState
from lakechime_dagster.triggers.schema import lc_consumer, lc_subscription
from tests.support.event_types import complete, learn, prototype, result
from tests.support.processes import await_found
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.world import World, a_subscription

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
