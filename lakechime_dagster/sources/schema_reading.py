"""Readings of a table's columns in a business database, each with the place of the log at which they were so."""

import sqlalchemy as sa

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.comparing.log_place import lsn_of
from lakechime_dagster.cdc.order import Order, Position
from lakechime_dagster.cdc.remembering.table_schema import TableSchema
from lakechime_dagster.errors import SourceUnreadableError
from lakechime_dagster.sources.connection import connected, limit_statements
from lakechime_dagster.sources.cut import LSN, binlog_snapshot
from lakechime_dagster.sources.tables import column_types

SECONDS = 10  # that a statement may take
_ATTEMPTS = 5


def read_schema(url: str, schema: str, table: str) -> TableSchema:
    """The columns of a table now, and a place of the log at which it had them: they were the same before and after that was asked.

    Nothing is written or locked.

    Raises:
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        NotFoundError: There is no such table, or not for this user.
        SourceUnreadableError: The database cannot be asked, or its columns changed with each question.
    """
    with connected(url) as (connection, dialect):
        connection.execution_options(isolation_level="AUTOCOMMIT")
        for _ in range(_ATTEMPTS):
            before = column_types(connection, schema, table)
            position = _position(connection, dialect)
            if column_types(connection, schema, table) == before:
                order = Order(position=position)
                return TableSchema(table=f"{schema}.{table}", order=order, columns=before, dialect=dialect, is_told=False)
    raise SourceUnreadableError(f"the columns of {schema}.{table} changed with each of {_ATTEMPTS} questions; try again")


def _position(connection: sa.Connection, dialect: Dialect) -> Position:
    if dialect is Dialect.MYSQL:
        position = binlog_snapshot(connection, SECONDS).position
        connection.execute(sa.text("COMMIT"))
        return position
    limit_statements(connection, SECONDS)
    return (lsn_of(connection.execute(sa.text(f"SELECT ({LSN})::text")).scalar_one()),)
