"""Business databases: connections, consistent snapshots, tables and their rows."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.engine.url import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.change import (
    BinlogPosition,
    LogPosition,
    Order,
    Position,
    StatedPosition,
    TransactionSnapshot,
    WalPosition,
    binlog_position,
    lsn_of,
)
from lakechime_dagster.cdc.compare import Run
from lakechime_dagster.cdc.state import TableSchema
from lakechime_dagster.errors import (
    InvalidValueError,
    LakeChimeError,
    NotFoundError,
    SourceUnreadableError,
    needs,
    without_password,
)
from lakechime_dagster.settings import Settings
from lakechime_dagster.tables.cdc import BronzeTable

_DRIVERS = {
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "postgresql": "postgresql+psycopg",
}


@contextmanager
def connected(url: str) -> Iterator[tuple[sa.Connection, Dialect]]:
    """A connection of its own, and the kind of the database.

    Raises:
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        SourceUnreadableError: The driver is not installed, or the database cannot be queried;
            statements raise it too.
    """
    address = _address(url)
    try:
        connection = _engine(address).connect()
    except (
        TypeError,
        ValueError,
        AttributeError,
    ) as error:  # for an option that the driver does not know or take
        raise SourceUnreadableError(
            f"{_shown(address)} cannot be read: {error}; check the options of its URL"
        ) from error
    with connection:
        yield connection, Dialect(address.get_backend_name())


def limit_statements(connection: sa.Connection, seconds: int) -> None:
    """No statement of a connection takes longer from here on. PostgreSQL takes no snapshot for
    that.
    """
    if connection.dialect.name == Dialect.POSTGRES:
        connection.execute(sa.text(f"SET statement_timeout = '{seconds:d}s'"))
    elif is_mariadb(connection):
        connection.execute(
            sa.text("SET SESSION max_statement_time = :seconds"), {"seconds": seconds}
        )
    else:
        connection.execute(
            sa.text("SET SESSION max_execution_time = :milliseconds"),
            {"milliseconds": 1000 * seconds},
        )


def is_mariadb(connection: sa.Connection) -> bool:
    """Whether a connection of MySQL's dialect is one to MariaDB."""
    return connection.dialect.is_mariadb  # pyright: ignore[reportAttributeAccessIssue]


def dialect_of(url: str) -> Dialect:
    """The kind of the database that a URL names; nothing is connected.

    Raises:
        InvalidValueError: It names neither MySQL, MariaDB nor PostgreSQL.
    """
    return Dialect(_address(url).get_backend_name())


def _address(url: str) -> sa.URL:
    try:
        address = make_url(url)
        driver = _DRIVERS[address.get_backend_name()]
    except (KeyError, ValueError, SQLAlchemyError):
        remedy = (
            "give postgresql://user@host/database, or mysql://user@host/database for MySQL and "
            "MariaDB"
        )
        raise InvalidValueError("url", without_password(url), remedy) from None
    return address.set(drivername=driver)


def _engine(address: sa.URL) -> sa.Engine:
    options = (
        {"connect_timeout": 10}
        if address.get_backend_name() == Dialect.POSTGRES
        else {"connect_timeout": 10, "charset": "utf8mb4"}
    )
    connect_args = {name: value for name, value in options.items() if name not in address.query}
    with needs(_shown(address), raised=SourceUnreadableError):
        engine = sa.create_engine(address, poolclass=NullPool, connect_args=connect_args)
    event.listen(engine, "handle_error", _translate)
    return engine


def _translate(context: ExceptionContext) -> None:
    where = _shown(context.engine.url) if context.engine else "the database"
    raise SourceUnreadableError(
        f"{where} cannot be read: {context.original_exception}"
    ) from context.original_exception


def _shown(address: sa.URL) -> str:
    return without_password(address.render_as_string())


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
    """The columns of a table in their order, with their types in the database's words, of which an
    enum is `enum` in PostgreSQL.

    Raises:
        NotFoundError: There is no such table, or not for this user.
    """
    statement = sa.text(_COLUMNS[Dialect(connection.dialect.name)])
    found = {
        row[0]: row[1] for row in connection.execute(statement, {"schema": schema, "table": table})
    }
    if not found:
        raise NotFoundError(f"the database has no table {schema}.{table} that this user may read")
    return found


def run_on(connection: sa.Connection) -> Run:
    """Runs the queries of a comparison on a connection whose state does not change."""
    return lambda sql, parameters: connection.execute(sa.text(sql), dict(parameters)).all()


# up to where PostgreSQL's log is: what was committed with synchronous_commit=off is in it, and
# written to the disk a little later
LSN = (
    "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() "
    "END"
)


@dataclass(frozen=True)
class ConsistentSnapshot:
    """One state of a database: the connection that reads it, and its position in the log."""

    dialect: Dialect
    connection: sa.Connection
    position: LogPosition


@contextmanager
def taken(
    url: str, *, seconds: int = 60, table: tuple[str, str] | None = None
) -> Iterator[ConsistentSnapshot]:
    """A consistent snapshot, which ends with the context; a statement may take so many seconds.

    A table of PostgreSQL that is rewritten after the snapshot was taken (ALTER TABLE, TRUNCATE) is
    empty for the snapshot. Such statements wait for the end of a snapshot that names the table, by
    its schema and its name, as they do for whoever reads it.

    Raises:
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        SourceUnreadableError: The database cannot be queried, or does not report the position of
            its log.
    """
    with connected(url) as (connection, dialect):
        if dialect is Dialect.POSTGRES:
            yield ConsistentSnapshot(dialect, connection, _of_postgres(connection, seconds, table))
        else:
            # its transaction is begun by a statement of its own
            connection.execution_options(isolation_level="AUTOCOMMIT")
            yield ConsistentSnapshot(dialect, connection, binlog_snapshot(connection, seconds))


def binlog_snapshot(connection: sa.Connection, seconds: int) -> BinlogPosition:
    """Begin a consistent snapshot of MariaDB; returns its position in the binary log.

    The connection begins no transaction by itself (`AUTOCOMMIT`).

    Raises:
        SourceUnreadableError: It is MySQL, or writes no binary log.
    """
    connection.execute(sa.text("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    if not is_mariadb(connection):
        raise SourceUnreadableError(
            "MySQL does not report the position of its binary log without a lock; only MariaDB has "
            "consistent snapshots"
        )
    limit_statements(connection, seconds)
    connection.execute(sa.text("SET SESSION time_zone = '+00:00'"))
    connection.execute(sa.text("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"))
    status = {
        name.lower(): value
        for name, value in connection.execute(sa.text("SHOW STATUS LIKE 'binlog_snapshot_%'"))
    }
    position = binlog_position(
        f"{status.get('binlog_snapshot_file')}:{status.get('binlog_snapshot_position')}"
    )
    if not position:
        raise SourceUnreadableError(
            "MariaDB writes no binary log; start it with log_bin, as the connector needs it too"
        )
    return BinlogPosition(position)


def _of_postgres(
    connection: sa.Connection, seconds: int, table: tuple[str, str] | None
) -> TransactionSnapshot:
    """Which transactions a snapshot of PostgreSQL sees; the position of the log is read after the
    snapshot was taken.
    """
    connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    limit_statements(connection, seconds)
    if table is not None:
        schema, name = table
        quoted = connection.dialect.identifier_preparer.format_table(sa.table(name, schema=schema))
        connection.execute(sa.text(f"LOCK TABLE {quoted} IN ACCESS SHARE MODE"))
    snapshot, lsn = connection.execute(
        sa.text(f"SELECT pg_current_snapshot()::text, {LSN}::text")
    ).one()
    _, end, running = snapshot.split(":")
    ids = frozenset(int(one) % 2**32 for one in running.split(",") if one)
    return TransactionSnapshot(lsn_of(lsn), int(end) % 2**32, ids)


POLLS = 60  # of who is still writing
POLL_SECONDS = 1.0  # between two of them

# Whoever changes rows holds a lock of its table, also of the partition, until other sessions see
# that it has ended; so does a
# prepared transaction, by the name that it had before.
_WRITERS = """
    WITH RECURSIVE parts AS (
        SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = :schema AND c.relname = :table
        UNION
        SELECT i.inhrelid FROM pg_inherits i JOIN parts p ON p.oid = i.inhparent
    )
    SELECT l.virtualtransaction AS name, max(l.pid) AS pid, bool_or(l.mode = 'AccessExclusiveLock') AS locks_out
    FROM pg_locks l JOIN parts p ON p.oid = l.relation
    WHERE l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.granted AND l.mode IN ('RowExclusiveLock', 'AccessExclusiveLock')
    GROUP BY l.virtualtransaction"""


@dataclass(frozen=True)
class CompletedSnapshot:
    """A consistent snapshot, and a position of the log.

    All changes of the table that the snapshot does not see lie at the position or above, and so do
    the ends of their transactions. Of PostgreSQL it may see some above it too, which the log
    reports again.
    """

    snapshot: ConsistentSnapshot
    position: StatedPosition


class TableBusyError(LakeChimeError):
    """Transactions that write to a table have not ended in time.

    Attributes:
        table: The one of the database.
        writers: Processes of the database; None is a prepared transaction.
    """

    def __init__(self, table: str, writers: tuple[int | None, ...]) -> None:
        self.table, self.writers = table, writers
        pids = ", ".join(map(str, sorted(pid for pid in writers if pid is not None)))
        who = [f"of the processes {pids} (pg_stat_activity)"] if pids else []
        who += ["that are prepared (pg_prepared_xacts)"] if None in writers else []
        super().__init__(
            f"{table}: transactions {' and '.join(who)} have written to it and do not end, so that "
            f"no position of the log lies between "
            "what is seen and what follows; wait for them, or end them, and try again"
        )


@contextmanager
def completed_snapshot(
    url: str,
    schema: str,
    table: str,
    *,
    seconds: int = 60,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[CompletedSnapshot]:
    """A snapshot while others write to a table, which ends with the context; a statement may take
    so many seconds.

    Raises:
        TableBusyError: A transaction of PostgreSQL has written to the table, and did not end for a
            minute.
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        NotFoundError: PostgreSQL has no such table.
        SourceUnreadableError: The database cannot be queried, does not report the position of its
            log, or is a standby.
    """
    below = (
        _position_below(url, schema, table, seconds, pause)
        if dialect_of(url) is Dialect.POSTGRES
        else None
    )
    with taken(url, seconds=seconds, table=(schema, table)) as snapshot:
        if below is None:
            assert isinstance(snapshot.position, BinlogPosition)
            below = snapshot.position
        yield CompletedSnapshot(snapshot, below)


def _position_below(
    url: str, schema: str, table: str, seconds: int, pause: Callable[[float], None]
) -> WalPosition:
    """Where the log stood before it was asked who was writing to a table; all these have ended."""
    with connected(url) as (connection, _):
        connection.execution_options(isolation_level="AUTOCOMMIT")
        limit_statements(connection, seconds)
        is_standby, lsn = connection.execute(
            sa.text(f"SELECT pg_is_in_recovery(), {LSN}::text")
        ).one()
        if is_standby:
            raise SourceUnreadableError(
                f"it is a standby, which does not show who is writing to {schema}.{table}; let "
                f"Monitor(database=…) name its primary server"
            )
        column_types(connection, schema, table)
        begun: frozenset[str] | None = None
        waited: list[int | None] = []
        for _ in range(POLLS):
            writers = connection.execute(
                sa.text(_WRITERS), {"schema": schema, "table": table}
            ).all()
            begun = frozenset(one.name for one in writers) if begun is None else begun
            # the latter let nobody read it
            waited = [one.pid for one in writers if one.name in begun or one.locks_out]
            if not waited:
                return WalPosition(lsn_of(lsn))
            pause(POLL_SECONDS)
    raise TableBusyError(f"{schema}.{table}", tuple(waited))


SCHEMA_SECONDS = 10  # that a statement may take that reads columns
_ATTEMPTS = 5


def read_schema(url: str, schema: str, table: str) -> TableSchema:
    """The columns of a table now, and a position of the log at which it had them: they were the
    same before and after that was read.

    Nothing is written or locked.

    Raises:
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        NotFoundError: There is no such table, or not for this user.
        SourceUnreadableError: The database cannot be queried, or its columns changed with each
            question.
    """
    with connected(url) as (connection, dialect):
        connection.execution_options(isolation_level="AUTOCOMMIT")
        for _ in range(_ATTEMPTS):
            before = column_types(connection, schema, table)
            position = _position(connection, dialect)
            if column_types(connection, schema, table) == before:
                order = Order(position=position)
                return TableSchema(
                    table=f"{schema}.{table}", order=order, columns=before, dialect=dialect
                )
    raise SourceUnreadableError(
        f"the columns of {schema}.{table} changed with each of {_ATTEMPTS} readings; try again"
    )


def _position(connection: sa.Connection, dialect: Dialect) -> Position:
    if dialect is Dialect.MYSQL:
        position = binlog_snapshot(connection, SCHEMA_SECONDS).position
        connection.execute(sa.text("COMMIT"))
        return position
    limit_statements(connection, SCHEMA_SECONDS)
    return (lsn_of(connection.execute(sa.text(f"SELECT ({LSN})::text")).scalar_one()),)


QUERIES_OFF = "LAKECHIME_SOURCE_QUERIES is off, so that no database is asked"


def check_source_queries(settings: Settings) -> None:
    """Refuse to continue where databases may not be queried.

    Raises:
        LakeChimeError: they may not.
    """
    if not settings.may_ask_sources:
        raise LakeChimeError(f"{QUERIES_OFF}; set it to on")


def schema_reading(
    table: BronzeTable, settings: Settings, environment: Mapping[str, str]
) -> TableSchema | None:
    """What the columns are now, which is after all messages that were claimed before; None where no
    database is declared for it.

    Raises:
        InvalidValueError: The environment has not the URL of the database.
        LakeChimeError: Databases may not be queried.
        SourceUnreadableError: It cannot be queried.
        NotFoundError: It has no such table.
    """
    if table.schema.read_from is None:
        return None
    check_source_queries(settings)
    return read_schema(
        table.schema.read_from.address(environment), *table.schema.read_from.source_table
    )
