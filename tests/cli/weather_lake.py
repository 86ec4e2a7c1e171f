"""A lake whose tables have owners, for tests of telling them."""

from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset
from lakechime_dagster.tables.tables import SourceTable

weather = SourceTable("bronze.weather", asset=Asset(owner="team:ops"))
flights = SourceTable("bronze.flights", asset=Asset(owner="team:ops"))
joined = sql_table(
    "silver.flights",
    sql="SELECT * FROM bronze.flights JOIN bronze.weather",
    refresh="full",
    asset=Asset(owner="ana@example.com"),
)
daily = sql_table(
    "gold.daily", sql="SELECT * FROM silver.flights", refresh="full", asset=Asset(owner="team:bi")
)
counts = sql_table(
    "gold.counts",
    sql="SELECT count(*) AS n FROM bronze.flights",
    refresh="full",
    asset=Asset(owner="team:ops"),
)
wet = sql_table("gold.wet", sql="SELECT * FROM bronze.weather", refresh="full")
apart = sql_table(
    "gold.apart",
    sql="SELECT * FROM bronze.flights",
    refresh="full",
    asset=Asset(owner="bo@example.com"),
)
lake = Lake("weather", [weather, flights, joined, daily, counts, wet, apart])
