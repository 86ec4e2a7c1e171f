"""The code location of the end-to-end test of change tables: orders that follow a database."""

import datetime as dt

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.tables.cdc import CDCMerge, change_table
from lakechime_dagster.tables.databases import Debezium, Monitor
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import KafkaTopic
from tests.support.impatient import broker

orders = change_table(
    "shop.orders",
    source=KafkaTopic("killed.killed.orders", bootstrap=broker()),
    envelope=Debezium(),
    merge=CDCMerge(keys=("id",)),
    monitor=Monitor(database="$LAKECHIME_TEST_DATABASE", table="killed.orders", within=dt.timedelta(minutes=10)),
)
lake = Lake("shop", [orders])
defs = build_definitions(lake)
