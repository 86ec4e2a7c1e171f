"""A digest of the code of a table, equal as long as it says the same: neither comments nor docstrings nor layout count."""

import sqlglot
from sqlglot.errors import SqlglotError

from lakechime_dagster.lake.code_modules import digest
from lakechime_dagster.lake.code_reach import reached_by
from lakechime_dagster.lake.sql import DIALECT
from lakechime_dagster.lake.tables import LakeTable

DIGITS = 16


def code_digest(table: LakeTable) -> str:
    """The digest of a table's SQL, or of its function and all of the project that this reaches by names, in whatever module."""
    if table.sql is not None:
        return _digest(_said_of_sql(table.sql))
    return "" if table.compute is None else reached_by(table.compute)[:DIGITS]


def _said_of_sql(sql: str) -> str:
    try:
        return ";".join(one.sql(dialect=DIALECT, comments=False) for one in sqlglot.parse(sql, dialect=DIALECT) if one is not None)
    except SqlglotError:
        return sql


def _digest(text: str) -> str:
    return digest(text)[:DIGITS]
