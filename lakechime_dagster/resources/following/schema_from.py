"""The columns of a database's table as they are read for a step whose messages bring no schema."""

from collections.abc import Mapping

from lakechime_dagster.cdc.remembering.table_schema import TableSchema
from lakechime_dagster.lake.change_tables import BronzeTable
from lakechime_dagster.resources.following.source_queries import check_source_queries
from lakechime_dagster.settings import Settings
from lakechime_dagster.sources.schema_reading import read_schema


def schema_reading(table: BronzeTable, settings: Settings, environment: Mapping[str, str]) -> TableSchema | None:
    """What the columns are now, which is after all messages that were claimed before; None where no database is declared for it.

    Raises:
        InvalidValueError: The environment has not the URL of the database.
        LakeChimeError: Databases may not be asked.
        SourceUnreadableError: It cannot be asked.
        NotFoundError: It has no such table.
    """
    if table.schema.read_from is None:
        return None
    check_source_queries(settings)
    return read_schema(table.schema.read_from.address(environment), *table.schema.read_from.source_table)
