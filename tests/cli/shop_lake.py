"""A lake of tables whose files are kept, for tests of the command line."""

from lakechime_dagster.lake import CDCMerge, Debezium, JsonLines, Lake, Maintenance, SourceTable, Storage, change_table, sql_table

TOTALS = sql_table(
    "gold.totals",
    sql="SELECT day, count(*) AS n FROM bronze.orders GROUP BY day",
    refresh="full",
    storage=Storage(partitioned_by={"day": "date"}, maintenance=Maintenance(min_files=2, budget=2_000)),
)
FOLLOWS = change_table("shop.orders", source=JsonLines("in"), envelope=Debezium(), merge=CDCMerge(keys=("id",)))
lake = Lake("shop", [SourceTable("bronze.orders"), TOTALS, FOLLOWS])
