"""The newest id of a business database's table: one look into the index of its key."""

from collections.abc import Collection

import sqlalchemy as sa

from lakechime_dagster.sources.connection import connected, limit_statements

SECONDS = 10  # that a statement may take


def newest_id(url: str, table: tuple[str, str], key: str, earlier: Collection[int]) -> tuple[int | None, frozenset[int]]:
    """The greatest value of a column, by which a table is indexed, and which of some earlier ones rows have still.

    Args:
        url: Of the database, which is only read.
        table: Its schema and its name.
        key: The column.
        earlier: Values that it had before, a few.

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
            return None, frozenset()
        there = sa.select(column).select_from(rows).where(column.in_(earlier))
        return newest, frozenset(connection.scalars(there)) if earlier else frozenset()
