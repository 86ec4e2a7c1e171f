"""The code location of the benchmark of freshness: a table that follows one of a database, as it
comes.
"""

import os

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.tables.cdc import CDCMerge, cdc_table
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import KafkaTopic
from tests.support.impatient import KAFKA

DATABASE = "shop"

orders = cdc_table(
    "shop.orders",
    source=KafkaTopic(
        f"{DATABASE}.{DATABASE}.orders", bootstrap=os.environ.get(KAFKA, "127.0.0.1:9092")
    ),
    envelope=Debezium(),
    merge=CDCMerge(keys=("id",)),
)
lake = Lake("bench", [orders])
defs = build_definitions(lake)
