"""Asking the database of a followed table which transactions are open, when a run of the table begins."""

from collections.abc import Mapping

from lakechime_dagster.cdc.remembering.open_transactions import Asked
from lakechime_dagster.errors import LakeChimeError, SourceDeniedError
from lakechime_dagster.lake.change_tables import ChangeTable
from lakechime_dagster.resources.following.source_queries import QUERIES_OFF
from lakechime_dagster.settings import Settings
from lakechime_dagster.sources.open_transactions import open_transactions, tells_open_transactions


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
