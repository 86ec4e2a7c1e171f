"""The lake of the end-to-end tests: orders come in, amounts are added up."""

from typing import TYPE_CHECKING

from lakechime_dagster.tables.declare import spark_table, sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset, Storage
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.triggers import PartitionTrigger, SnapshotTrigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

orders = SourceTable(
    "bronze.orders",
    storage=Storage(partitioned_by={"day": "date"}),
    asset=Asset(owner="team:shop", description="Orders as they come in."),
)


@spark_table(
    "silver.orders",
    keys=["id"],
    reads={"orders": orders.changes()},
    trigger=SnapshotTrigger(),
    asset=Asset(expect={"amount is positive": "amount > 0"}),
)
def silver_orders(orders: "DataFrame") -> "DataFrame":
    """Orders, one row each."""
    return orders.select("id", "day", "amount")


orders_of_day = sql_table(
    "gold.orders_of_day",
    sql="SELECT day, count(*) AS orders, sum(amount) AS amount FROM bronze.orders GROUP BY day",
    keys=["day"],
    refresh="partitions",
    trigger=PartitionTrigger(
        [orders.partitions(day=tick("-1d"))],
        every(days=1, start="2024-05-02", until="2024-05-04"),
        tags={"complete": "true"},
    ),
    storage=Storage(partitioned_by={"day": "date"}),
)

lake = Lake("shop", [orders, silver_orders, orders_of_day])
