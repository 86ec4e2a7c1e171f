"""A lake of tables whose files are kept, for tests of the command line."""

from lakechime_dagster.tables.cdc import CDCMerge, cdc_table
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.maintenance import Maintenance
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.tables.tables import SourceTable

TOTALS = sql_table(
    "gold.totals",
    sql="SELECT day, count(*) AS n FROM bronze.orders GROUP BY day",
    refresh="full",
    storage=Storage(
        partitioned_by={"day": "date"}, maintenance=Maintenance(min_files=2, budget=2_000)
    ),
)
FOLLOWS = cdc_table(
    "shop.orders", source=JsonLines("in"), envelope=Debezium(), merge=CDCMerge(keys=("id",))
)
lake = Lake("shop", [SourceTable("bronze.orders"), TOTALS, FOLLOWS])
