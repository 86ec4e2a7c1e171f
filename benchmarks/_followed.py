"""The code location of the benchmark of freshness: a table that follows one of a database, as it comes."""

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lake import CDCMerge, Debezium, KafkaTopic, Lake, change_table

KAFKA = "LAKECHIME_TEST_KAFKA"  # the variable that holds the address of the broker
DATABASE = "shop"

orders = change_table(
    "shop.orders", source=KafkaTopic(f"{DATABASE}.{DATABASE}.orders", bootstrap=f"${KAFKA}"), envelope=Debezium(),
    merge=CDCMerge(keys=("id",)),
)  # fmt: skip
lake = Lake("bench", [orders])
defs = build_definitions(lake)
