"""The code location of the end-to-end test of change tables: orders that follow a database, with leases of seconds, not of a minute."""

import datetime as dt
import os

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lake import CDCMerge, Debezium, KafkaTopic, Lake, Monitor, change_table
from lakechime_dagster.resources import running
from lakechime_dagster.store import ledger
from tests.support.processes import PATIENCE

KAFKA = "LAKECHIME_TEST_KAFKA"  # the address of the broker

ledger.LEASE_MS = int(12_000 * PATIENCE)
running.RENEW_SECONDS = 2.0

orders = change_table(
    "shop.orders",
    source=KafkaTopic("killed.killed.orders", bootstrap=os.environ[KAFKA]),
    envelope=Debezium(),
    merge=CDCMerge(keys=("id",)),
    monitor=Monitor(database="$LAKECHIME_TEST_DATABASE", table="killed.orders", within=dt.timedelta(minutes=10)),
)
lake = Lake("shop", [orders])
defs = build_definitions(lake)
