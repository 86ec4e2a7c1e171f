"""Values of real databases, as text, are the same values by the types of the lake that their
columns get.
"""

from collections.abc import Iterator
from typing import Any, cast

import pytest
import sqlalchemy as sa

from lakechime_dagster.cdc.canonical import Canonical, Dialect, canonical
from lakechime_dagster.cdc.database import column_types, taken
from lakechime_dagster.cdc.database_types import lake_type
from lakechime_dagster.cdc.values import natural_type
from lakechime_dagster.tables.databases import BinaryText
from tests.cdc.recording.checksums import Bare
from tests.cdc.recording.column_types import types
from tests.cdc.recording.stage import Stage
from tests.cdc.test_database_snapshot import Database, database

__all__ = ["database"]
pytestmark = pytest.mark.services

MADE = {
    Dialect.MYSQL: ("moment_keys", "moments", "numbers", "texts", "wide_keys", "zero_dates"),
    Dialect.POSTGRES: ("moments", "numbers", "text_keys", "texts"),
}
AS_TEXT = {  # by the lake's type, what tools write
    Dialect.MYSQL: {
        "binary": "HEX({})",
        "boolean": "CONCAT('', {} + 0)",
        "float": "CONCAT('', {} + 0e0)",  # whose own text has six digits
        "": "CONVERT(CONCAT('', {}) USING utf8mb4)",
    },
    Dialect.POSTGRES: {"binary": "encode({}, 'hex')", "": "{}::text"},
}


def test_each_value_is_read_as_the_database_has_it(database: Database) -> None:
    types(cast(Stage, Bare(cast(Any, database), is_postgres=database.dialect is Dialect.POSTGRES)))
    with taken(database.url) as snapshot:
        for table in MADE[database.dialect]:
            for name, kind in column_types(snapshot.connection, database.schema, table).items():
                for text, expected, known, ddl in values(
                    snapshot.connection, database, table, name, kind
                ):
                    decoded = (
                        None if text is None else natural_type(ddl, BinaryText.HEX).decode(text)
                    )
                    assert (None if decoded is None else known.twin(decoded)) == expected, (
                        f"{table}.{name} {kind} as {ddl}: {text!r}"
                    )


def values(
    connection: sa.Connection, database: Database, table: str, name: str, kind: str
) -> Iterator[tuple[str | None, str | None, Canonical, str]]:
    """The texts of a column, and what the database says that they are."""
    ddl = lake_type(database.dialect, kind)
    known = None if ddl is None else canonical(database.dialect, kind, ddl)
    if ddl is None or known is None:
        return
    texts = AS_TEXT[database.dialect]
    column = database.name(name)
    query = (
        f"SELECT {texts.get(ddl, texts['']).format(column)}, {known.source.replace('{}', column)} "
        f"FROM {database.schema}.{table}"
    )
    for text, expected in connection.execute(sa.text(query.replace(":", "\\:"))):
        yield text, expected, known, ddl
