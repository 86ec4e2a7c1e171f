"""The code location of the long test: one table of each of two databases, as it is and with its
history.
"""

import datetime as dt

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.tables.cdc import CDCMerge, CDCTable, cdc_table
from lakechime_dagster.tables.databases import Database, Debezium, Monitor
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import KafkaTopic
from lakechime_dagster.triggers.schedule import every
from tests.long.databases import TRACKED
from tests.support.impatient import broker

BROKER = broker()


def replica(database: str, scd_type: int) -> CDCTable:
    """What a connector of the database's name brings of its table `shop.orders`."""
    tracked = TRACKED if scd_type == 2 else None
    return cdc_table(
        f"{database}.{'histories' if scd_type == 2 else 'orders'}",
        source=KafkaTopic(f"{database}.shop.orders", bootstrap=BROKER, every=every(minutes=1)),
        envelope=Debezium(),
        merge=CDCMerge(
            keys=("id",), stored_as_scd_type=scd_type, track_history_column_list=tracked
        ),
        monitor=Monitor(
            database=Database(f"$LAKECHIME_TEST_{database.upper()}", "shop.orders"),
            within=dt.timedelta(minutes=5),
        ),
    )


lake = Lake(
    "long",
    [replica(database, scd_type) for database in ("mariadb", "postgres") for scd_type in (1, 2)],
)
defs = build_definitions(lake)
