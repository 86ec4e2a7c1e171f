"""Records what databases say of the canonical texts of their values: `python -m
tests.cdc.recording.checksums`.

The tables of the scenarios `types` and `edges` are made as for their captures, and asked by the
queries of a comparison. What each table answers comes into checksums.json: its types, text and hash
of each row, the order of its keys, and the checksums of all rows and of the ranges between its
keys.
"""

import json
import tempfile
import uuid
from dataclasses import astuple
from pathlib import Path
from typing import Any, cast

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine.url import make_url

from lakechime_dagster.cdc.database import column_types, run_on, taken
from tests.cdc.checksums import FILE, TABLES, UNREAD, comparison, texts_of
from tests.cdc.recording.column_types import types
from tests.cdc.recording.edges import edges
from tests.cdc.recording.stage import Session, Stage
from tests.support.logical_postgres import PostgresSession
from tests.support.mariadb import CAPTURE_USER, MariaDB, mariadb_server
from tests.support.postgres import find_binaries, fresh_database, server

SCENARIOS = {"types": types, "edges": edges}


class Bare:
    """A stage without a connector: the database alone."""

    def __init__(self, session: Session, *, is_postgres: bool) -> None:
        self.run, self.is_postgres = session.run, is_postgres

    def connect(self) -> None:
        """No connector follows what is done."""

    def read_columns(self) -> None:
        """No message lacks them."""


def main() -> None:
    """Plays the scenarios on both databases, and writes what they say."""
    with tempfile.TemporaryDirectory(prefix="lakechime-checksums-") as folder:
        Path(folder).chmod(0o755)
        with mariadb_server(Path(folder) / "mariadb") as mariadb:
            found = of_mariadb(mariadb)
    with server(find_binaries(), durable=False) as postgres:
        found |= of_postgres(postgres.url)
    FILE.write_text(json.dumps(found, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def of_mariadb(mariadb: MariaDB) -> dict[str, Any]:
    """What a server says, of databases that are dropped again."""
    found = dict[str, Any]()
    for name, play in SCENARIOS.items():
        schema = f"checksums_{uuid.uuid4().hex[:8]}"
        session = mariadb.session()
        session.run(f"CREATE DATABASE {schema}", f"USE {schema}")
        play(cast(Stage, Bare(session, is_postgres=False)))
        found |= tables_of(
            f"mariadb-{name}",
            f"mysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{mariadb.port}/{schema}",
            schema,
        )
        session.run(f"DROP DATABASE {schema}")
        session.close()
    return found


def of_postgres(server_url: str) -> dict[str, Any]:
    """What a server says, of databases that are dropped again."""
    found = dict[str, Any]()
    for name, play in SCENARIOS.items():
        with fresh_database(server_url) as url:
            plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
            with psycopg.connect(plain, autocommit=True) as connection:
                play(cast(Stage, Bare(PostgresSession(connection), is_postgres=True)))
                connection.execute(UNREAD.get(f"postgres-{name}", "").encode())
            found |= tables_of(f"postgres-{name}", url, "public")
    return found


def tables_of(name: str, url: str, schema: str) -> dict[str, Any]:
    with taken(url) as snapshot:
        return {
            f"{name}.{table}": table_of(snapshot.connection, name, schema, table)
            for capture, table in TABLES
            if capture == name
        }


def table_of(connection: sa.Connection, name: str, schema: str, table: str) -> dict[str, Any]:
    """What the table answers."""
    types = column_types(connection, schema, table)
    side = comparison(name, table, types).source(run_on(connection), schema, table)
    rows = [list(row) for row in connection.execute(sa.text(texts_of(side).sql))]
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
