"""What the database of a CDC table is asked for its runs."""

from collections.abc import Mapping

from lakechime_dagster.cdc.database import read_schema
from lakechime_dagster.cdc.state import TableSchema
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.settings import Settings
from lakechime_dagster.tables.cdc import BronzeTable

QUERIES_OFF = "LAKECHIME_SOURCE_QUERIES is off, so that no database is asked"


def check_source_queries(settings: Settings) -> None:
    """Refuse to go on where databases may not be asked.

    Raises:
        LakeChimeError: they may not.
    """
    if not settings.may_ask_sources:
        raise LakeChimeError(f"{QUERIES_OFF}; set it to on")


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
