"""A digest of the code of a table, equal as long as it says the same: neither comments nor docstrings nor layout count."""

from lakechime_dagster.lake.code_modules import digest
from lakechime_dagster.lake.code_reach import reached_by
from lakechime_dagster.lake.sql import normalized
from lakechime_dagster.lake.tables import LakeTable

DIGITS = 16


def code_digest(table: LakeTable) -> str:
    """The digest of a table's SQL, or of its function and all of the project that this reaches by names, in whatever module."""
    if table.sql is not None:
        return digest(normalized(table.sql))[:DIGITS]
    return "" if table.compute is None else reached_by(table.compute)[:DIGITS]
