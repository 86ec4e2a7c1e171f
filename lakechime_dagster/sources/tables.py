"""Tables of a business database: their columns, and their rows as one side of a comparison."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.compare import Key, Queries, Query, Row, Summary
from lakechime_dagster.errors import NotFoundError

_COLUMNS = {
    Dialect.MYSQL: """
        SELECT column_name, column_type FROM information_schema.columns
        WHERE table_schema = :schema AND table_name = :table ORDER BY ordinal_position""",
    Dialect.POSTGRES: """
        SELECT a.attname, CASE t.typtype WHEN 'e' THEN 'enum' WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod)
            ELSE format_type(a.atttypid, a.atttypmod) END
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = :schema AND c.relname = :table AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum""",
}


def column_types(connection: sa.Connection, schema: str, table: str) -> dict[str, str]:
    """The columns of a table in their order, with their types in the database's words, of which an enum is `enum` in PostgreSQL.

    Raises:
        NotFoundError: There is no such table, or not for this user.
    """
    statement = sa.text(_COLUMNS[Dialect(connection.dialect.name)])
    found = {row[0]: row[1] for row in connection.execute(statement, {"schema": schema, "table": table})}
    if not found:
        raise NotFoundError(f"the database has no table {schema}.{table} that this user may read")
    return found


@dataclass(frozen=True)
class TableSide:
    """A table of a database as one side of a comparison, on a connection whose state does not change."""

    connection: sa.Connection
    queries: Queries

    def summary(self, low: Key | None, high: Key | None) -> Summary:
        """The checksum of a range."""
        count, distinct, total = self._ask(self.queries.summary(low, high))[0]
        return Summary(int(count), int(distinct), int(total))

    def rows(self, low: Key | None, high: Key | None) -> list[Row]:
        """All rows of a range."""
        return self._rows(self.queries.rows(low, high))

    def middle(self, low: Key | None, high: Key | None, offset: int) -> Key | None:
        """The key of the row before which so many rows of the range come."""
        found = self._ask(self.queries.middle(low, high, offset))
        return tuple(found[0]) if found else None

    def at(self, keys: Sequence[Key]) -> list[Row]:
        """All rows of these keys."""
        return self._rows(self.queries.at(keys))

    def values_at(self, keys: Sequence[Key]) -> dict[Key, tuple[str | None, ...]]:
        """Of each of these keys that there is, the canonical texts of the columns that are compared."""
        size = len(self.queries.keys)
        return {tuple(row[:size]): tuple(row[size:-1]) for row in self._ask(self.queries.values_at(keys))}

    def values_above(self, low: Key | None, most: int) -> dict[Key, tuple[str | None, ...]]:
        """As `values_at`, of the first so many rows above a key, in the order of keys."""
        size = len(self.queries.keys)
        return {tuple(row[:size]): tuple(row[size:]) for row in self._ask(self.queries.values_above(low, most))}

    def _rows(self, query: Query) -> list[Row]:
        return [(tuple(key), value) for *key, value in self._ask(query)]

    def _ask(self, query: Query) -> Sequence[sa.Row]:
        return self.connection.execute(sa.text(query.sql), dict(query.parameters)).all()
