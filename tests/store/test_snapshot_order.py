"""Which of two snapshots of a table is the later one: Delta counts them, Iceberg gives them random numbers."""

from typing import Any

import pytest

from lakechime_dagster.dce.events import RegisteredEvent
from tests.support.world import World, a_subscription

pytestmark = pytest.mark.dialect

ICE = "ice.orders"


def iceberg(world: World, snapshot_id: str, **fields: Any) -> RegisteredEvent:
    return world.change(ICE, snapshot_id=snapshot_id, table_format="ICEBERG", **fields)


@pytest.mark.parametrize("second", ["3000000000000000001", "9500000000000000001"])
def test_the_id_of_an_iceberg_snapshot_says_nothing_of_its_order(world: World, second: str) -> None:
    subscription = a_subscription("silver", ICE)
    iceberg(world, "9000000000000000001", snapshot_ts=1)
    (first,) = world.fire(subscription)
    world.ledger.complete(first, None)
    iceberg(world, second, snapshot_ts=2, prev_snapshot_id="9000000000000000001")
    (following,) = world.fire(subscription)
    assert (following.ranges()[ICE].start, following.ranges()[ICE].end) == ("9000000000000000001", second)
