"""A lake with personal data, for tests of where it goes."""

from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset, personal
from lakechime_dagster.tables.tables import SourceTable

people = SourceTable("bronze.people", asset=Asset(columns={"email": personal("email")}))
visits = SourceTable("bronze.visits")
members = sql_table(
    "silver.members",
    sql="SELECT email, sha2(email, 256) AS id, town FROM bronze.people",
    refresh="full",
)
hosts = sql_table(
    "silver.hosts",
    sql="SELECT split(email, '@')[1] AS host, town FROM silver.members",
    refresh="full",
    asset=Asset(columns={"host": personal("host")}),
)
towns = sql_table(
    "gold.towns",
    sql="SELECT town, max(id) AS last, count(email) AS n FROM silver.members GROUP BY 1",
    refresh="full",
    asset=Asset(public=True),
)
pages = sql_table("gold.pages", sql="SELECT page FROM bronze.visits", refresh="full")
lake = Lake("people", [people, visits, members, hosts, towns, pages])
