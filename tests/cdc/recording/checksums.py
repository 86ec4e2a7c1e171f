"""Records what databases say of the canonical texts of their values: `python -m tests.cdc.recording.checksums`.

The tables of the scenarios `types` and `edges` are made as for their captures, and asked by the queries of a comparison. What each
table answers comes into checksums.json: its types, text and hash of each row, the order of its keys, and the checksums of all rows
and of the ranges between its keys.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any, cast

import psycopg
import sqlalchemy as sa

from lakechime_dagster.sources.cut import taken
from lakechime_dagster.sources.tables import TableSide, column_types
from tests.cdc.checksums import FILE, TABLES, UNREAD, comparison
from tests.cdc.recording.column_types import types
from tests.cdc.recording.edges import edges
from tests.cdc.recording.stack import PostgresSession
from tests.cdc.recording.stage import SCHEMA, Session, Stage
from tests.support.mariadb import CAPTURE_USER, mariadb_server
from tests.support.postgres import find_binaries, fresh_database, server

SCENARIOS = {"types": types, "edges": edges}


class Bare:
    """A stage without a connector: the database alone."""

    def __init__(self, session: Session, *, is_postgres: bool) -> None:
        self.run, self.is_postgres = session.run, is_postgres

    def connect(self) -> None:
        """No connector follows what is done."""


def main() -> None:
    """Plays the scenarios on both databases, and writes what they say."""
    found = dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="lakechime-checksums-") as folder:
        Path(folder).chmod(0o755)
        with mariadb_server(Path(folder) / "mariadb") as mariadb:
            for name, play in SCENARIOS.items():
                admin = mariadb.session()
                admin.run(f"DROP DATABASE IF EXISTS {SCHEMA}", f"CREATE DATABASE {SCHEMA}")
                admin.close()
                session = mariadb.session(SCHEMA)
                play(cast(Stage, Bare(session, is_postgres=False)))
                session.close()
                found |= tables_of(f"mariadb-{name}", f"mysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{mariadb.port}/{SCHEMA}")
    with server(find_binaries(), durable=False) as postgres:
        for name, play in SCENARIOS.items():
            with fresh_database(postgres.url) as url:
                play_on_postgres(play, url, UNREAD.get(f"postgres-{name}", ""))
                found |= tables_of(f"postgres-{name}", url)
    FILE.write_text(json.dumps(found, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def play_on_postgres(play: Callable[[Stage], None], url: str, afterwards: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        connection.execute(f"SET search_path = {SCHEMA}, public".encode())
        play(cast(Stage, Bare(PostgresSession(connection), is_postgres=True)))
        connection.execute(afterwards.encode())


def tables_of(name: str, url: str) -> dict[str, Any]:
    with taken(url) as cut:
        return {f"{name}.{table}": table_of(cut.connection, name, table) for capture, table in TABLES if capture == name}


def table_of(connection: sa.Connection, name: str, table: str) -> dict[str, Any]:
    """What the table answers."""
    types = column_types(connection, SCHEMA, table)
    queries = comparison(name, table, types).source(SCHEMA, table)
    side = TableSide(connection, queries)
    rows = [list(row) for row in connection.execute(sa.text(queries.texts().sql))]
    keys = [side.middle(None, None, offset) for offset in range(len(rows))]
    assert side.middle(None, None, len(rows)) is None
    ranges = [(None, None), *zip([None, *keys], [*keys, None], strict=True)]
    return {
        "types": types,
        "rows": rows,
        "order": keys,
        "ranges": [(low, high, astuple(side.summary(low, high))) for low, high in ranges],
    }


if __name__ == "__main__":
    main()
