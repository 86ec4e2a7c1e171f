"""What the database of a CDC table is asked for its runs."""

from collections.abc import Mapping

from lakechime_dagster.cdc.database import open_transactions, read_schema, tells_open_transactions
from lakechime_dagster.cdc.state import Asked, TableSchema
from lakechime_dagster.errors import LakeChimeError, SourceDeniedError
from lakechime_dagster.settings import Settings
from lakechime_dagster.tables.cdc import BronzeTable, ChangeTable

QUERIES_OFF = "LAKECHIME_SOURCE_QUERIES is off, so that no database is asked"


def check_source_queries(settings: Settings) -> None:
    """Refuse to go on where databases may not be asked.

    Raises:
        LakeChimeError: they may not.
    """
    if not settings.may_ask_sources:
        raise LakeChimeError(f"{QUERIES_OFF}; set it to on")


def asked(table: ChangeTable, settings: Settings, environment: Mapping[str, str]) -> Asked:
    """What a table's database says, or why it does not.

    It is asked where the table tells complete hours and its monitor names a database of which that depends.
    """
    monitor = table.monitor
    if table.merge.max_transaction is None or monitor is None or monitor.database is None:
        return Asked()
    if not settings.may_ask_sources:
        return Asked(problem=QUERIES_OFF)
    try:
        url = monitor.url(environment)
        return Asked(open_transactions(url, ".".join(monitor.source_table))) if tells_open_transactions(url) else Asked()
    except SourceDeniedError as error:
        return Asked(problem=f"{error}: {error.remedy}")
    except LakeChimeError as error:
        return Asked(problem=str(error))


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
