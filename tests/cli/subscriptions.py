"""Triggers on jobs, as a code location without a lake declares them."""

import dagster as dg

from lakechime_dagster.sensors.trigger import lakechime_sensor
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
)

ORDERS = "cli.orders"
DAYS = "cli.days"


@dg.op
def look() -> None:
    """Does nothing."""


@dg.job
def looking() -> None:
    """A job to launch."""
    look()


orders_sensor = lakechime_sensor(
    ORDERS, SnapshotTrigger(["bronze.orders"], tags={"complete": "true"}), job=looking
)
days_sensor = lakechime_sensor(
    DAYS,
    PartitionTrigger(
        PartitionCondition.of("bronze.days", {"day": tick("-1d", "%Y-%m-%d")}),
        every(days=1, start="2013-01-02", until="2013-01-04"),
    ),
    job=looking,
)
print("a module may print while it is imported")  # noqa: T201 - which must not mix with a command's JSON
