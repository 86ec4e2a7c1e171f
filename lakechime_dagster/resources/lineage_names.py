"""Under which names the tables of a lake are met in plans: by where they are, and by what a catalog would call them."""

from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lineage.names import Names
from lakechime_dagster.resources.platform import Platform


def names_of(lake: Lake, platform: Platform) -> Names:
    """The lake's tables with their locations."""
    locations = {table.name: platform.location(table.name, table.location) for table in lake.tables}
    return Names(tables=tuple(locations), locations=locations)
