"""A backfill of columns on a real lake: exactly their readers run, inputs first, each once, and
what comes out equal wakes nobody.
"""

import pytest
from deltalake import DeltaTable

from lakechime_dagster.cli.backfill import document
from lakechime_dagster.lineage.backfill import Asked, plan, run
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.runtime.resource import declared_subscriptions
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.triggers.backfills import Backfills
from lakechime_dagster.triggers.consumers import RequestState
from lakechime_dagster.triggers.registry import By
from tests.assets.test_table import (
    MAY,
    Location,
    location,
    orders,
    orders_of_day,
    silver_orders,
    totals,
)

pytestmark = pytest.mark.spark
__all__ = ["location"]
ME = By(who="me", reason="amounts were wrong")
LAKE = Lake("shop", [orders, silver_orders, orders_of_day, totals])


def ordered(location: Location) -> str:
    asked = Asked(columns=(ColumnRef("silver.orders", "amount"),))
    planned = plan(location.platform, LAKE, declared_subscriptions(), asked)
    assert [order["table"] for order in document(planned)["requests"]] == [
        "silver.orders",
        "gold.totals",
    ]
    return run(location.platform, planned, ME, max_in_flight=2)


def state(location: Location, backfill: str) -> list[RequestState]:
    return [order.state for order in Backfills(location.platform.ledger).requests(backfill)]


def test_the_readers_of_a_column_run_again_after_their_input_and_an_equal_outcome_commits_nothing(
    location: Location,
) -> None:
    location.commit((1, MAY[0], 10), (2, MAY[0], 20))
    location.run_of("silver_orders")
    location.run_of("gold_totals")
    versions = {
        name: location.platform.log(name).version for name in ("silver.orders", "gold.totals")
    }
    # what the backfill mends
    DeltaTable(location.platform.location("silver.orders")).delete("id = 2")
    location.platform.store.register(
        location.platform.log("silver.orders").events_of_commit(
            location.platform.log("silver.orders").version
        )
    )

    backfill = ordered(location)
    assert "after silver.orders" in location.tick("gold_totals").skip_message
    (request,) = location.tick("silver_orders").run_requests
    assert request.tags["lakechime/backfill"] == backfill
    location.run("shop__tables", tags=dict(request.tags), asset_selection=request.asset_selection)
    assert state(location, backfill) == [RequestState.DONE, RequestState.WAITING]
    assert [row[0] for row in location.rows("silver.orders")] == [1, 2]
    assert location.run_of("gold_totals").success
    assert state(location, backfill) == [RequestState.DONE, RequestState.DONE]
    # equal, so that nobody downstream wakes
    assert location.platform.log("gold.totals").version == versions["gold.totals"]
    assert (
        location.tick("silver_orders").run_requests
        == location.tick("gold_totals").run_requests
        == []
    )
