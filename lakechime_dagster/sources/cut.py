"""A consistent cut of a business database: its state at one moment, and where its log stood then, without a lock.

All that is asked of a cut is answered from the same state, on one connection that writes nothing; each statement has a time
limit. The cut holds old versions of rows back in the database from being cleaned up, so it is short.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.comparing.log_place import BinlogPlace, LogPlace, TransactionSnapshot, lsn_of
from lakechime_dagster.cdc.position import binlog_place
from lakechime_dagster.errors import InvalidValueError, SourceUnreadableError
from lakechime_dagster.sources.connection import connected, is_mariadb, limit_statements

# up to where PostgreSQL's log is: what was committed with synchronous_commit=off is in it, and written to the disk a little later
LSN = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END"


@dataclass(frozen=True)
class Cut:
    """One state of a database: the connection that reads it, and the place of the log that it is the state of."""

    dialect: Dialect
    connection: sa.Connection
    place: LogPlace


@contextmanager
def taken(url: str, *, seconds: int = 60, table: tuple[str, str] | None = None) -> Iterator[Cut]:
    """A cut, which ends with the context; a statement may take so many seconds.

    A table of PostgreSQL that is written anew after a cut was taken (ALTER TABLE, TRUNCATE) is empty for the cut. Such statements
    wait for the end of a cut that names the table, by its schema and its name, as they do for whoever reads it.

    Raises:
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        SourceUnreadableError: The database cannot be asked, or does not tell where its log stands.
    """
    if seconds < 1:
        raise InvalidValueError("seconds", seconds, "is how long a statement may take; give 1 or more")
    with connected(url) as (connection, dialect):
        if dialect is Dialect.POSTGRES:
            yield Cut(dialect, connection, _of_postgres(connection, seconds, table))
        else:
            connection.execution_options(isolation_level="AUTOCOMMIT")  # its transaction is begun by words of its own
            yield Cut(dialect, connection, binlog_snapshot(connection, seconds))


def binlog_snapshot(connection: sa.Connection, seconds: int) -> BinlogPlace:
    """MariaDB tells the place of its binary log that a consistent snapshot is of, which the connection is in then.

    The connection begins no transaction by itself (`AUTOCOMMIT`).

    Raises:
        SourceUnreadableError: It is MySQL, or writes no binary log.
    """
    connection.execute(sa.text("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    if not is_mariadb(connection):
        raise SourceUnreadableError("MySQL does not tell where its binary log stands without a lock; only MariaDB is cut")
    limit_statements(connection, seconds)
    connection.execute(sa.text("SET SESSION time_zone = '+00:00'"))
    connection.execute(sa.text("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"))
    status = {name.lower(): value for name, value in connection.execute(sa.text("SHOW STATUS LIKE 'binlog_snapshot_%'"))}
    position = binlog_place(f"{status.get('binlog_snapshot_file')}:{status.get('binlog_snapshot_position')}")
    if not position:
        raise SourceUnreadableError("MariaDB writes no binary log; start it with log_bin, as the connector needs it too")
    return BinlogPlace(position)


def _of_postgres(connection: sa.Connection, seconds: int, table: tuple[str, str] | None) -> TransactionSnapshot:
    """PostgreSQL tells which transactions a snapshot sees; the log's place is asked after the snapshot was taken."""
    connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    limit_statements(connection, seconds)
    if table is not None:
        schema, name = table
        quoted = connection.dialect.identifier_preparer.format_table(sa.table(name, schema=schema))
        connection.execute(sa.text(f"LOCK TABLE {quoted} IN ACCESS SHARE MODE"))
    snapshot, lsn = connection.execute(sa.text(f"SELECT pg_current_snapshot()::text, {LSN}::text")).one()
    _, end, running = snapshot.split(":")
    ids = frozenset(int(one) % 2**32 for one in running.split(",") if one)
    return TransactionSnapshot(lsn_of(lsn), int(end) % 2**32, ids)
