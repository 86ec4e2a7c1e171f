"""Under which names the tables of a lake are met in plans, SQL and documents of others."""

from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lineage.names import Names
from lakechime_dagster.resources.platform import Platform


def names_of(platform: Platform, lake: Lake) -> Names:
    """The tables of a lake, where they lie, and what others call them."""
    locations = {table.name: platform.location(table.name, table.location) for table in lake.tables}
    return Names(tuple(locations), locations, lake.aliases)
