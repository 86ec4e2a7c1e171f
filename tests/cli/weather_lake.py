"""A lake whose tables have owners, for tests of telling them."""

from lakechime_dagster.lake import Lake, SourceTable, sql_table

weather = SourceTable("bronze.weather", owner="team:ops")
flights = SourceTable("bronze.flights", owner="team:ops")
joined = sql_table("silver.flights", sql="SELECT * FROM bronze.flights JOIN bronze.weather", refresh="full", owner="ana@example.com")
daily = sql_table("gold.daily", sql="SELECT * FROM silver.flights", refresh="full", owner="team:bi")
counts = sql_table("gold.counts", sql="SELECT count(*) AS n FROM bronze.flights", refresh="full", owner="team:ops")
wet = sql_table("gold.wet", sql="SELECT * FROM bronze.weather", refresh="full")
apart = sql_table("gold.apart", sql="SELECT * FROM bronze.flights", refresh="full", owner="bo@example.com")
lake = Lake("weather", [weather, flights, joined, daily, counts, wet, apart])
