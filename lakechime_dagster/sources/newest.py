"""The newest id of a business database's table: one look into the index of its key."""

import sqlalchemy as sa

from lakechime_dagster.sources.connection import connected, limit_statements

SECONDS = 10  # that a statement may take


def newest_id(url: str, table: tuple[str, str], key: str, earlier: int | None) -> tuple[int | None, bool]:
    """The greatest value of a column, by which a table is indexed, and whether a row has an earlier one still.

    Args:
        url: Of the database, which is only read.
        table: Its schema and its name.
        key: The column.
        earlier: A value that it had before.

    Returns:
        None for the value where there is no row, or the column holds no whole numbers.

    Raises:
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        SourceUnreadableError: The database cannot be asked, or has no such table or column for this user.
    """
    schema, name = table
    column = sa.column(key)
    rows = sa.table(name, column, schema=schema)
    with connected(url) as (connection, _):
        limit_statements(connection, SECONDS)
        newest = connection.scalar(sa.select(sa.func.max(column)).select_from(rows))
        if not isinstance(newest, int):
            return None, False
        is_there = sa.exists().select_from(rows).where(column == earlier)
        return newest, earlier is not None and bool(connection.scalar(sa.select(is_there)))
