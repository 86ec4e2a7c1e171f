"""Which transactions are open in MySQL or MariaDB, whose changes come with the times of their statements.

A transaction is not listed while its first statement waits for a lock of its table, and what is listed may be of a moment
before. So that none is missed the statements that run are asked first; then a transaction of this connection begins, which
the list must hold; and the clock is asked last.
"""

from collections.abc import Sequence

import sqlalchemy as sa

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.remembering.open_transactions import Probe
from lakechime_dagster.errors import SourceDeniedError, SourceUnreadableError
from lakechime_dagster.sources.connection import connected, dialect_of, limit_statements

SECONDS = 10  # that a statement may take
_FRESH_SECONDS, _TRIES = 0.2, 10  # the list is made anew when nobody has read it for a tenth of a second
_DENIED = 1227
_IDLE = ("Sleep", "Daemon", "Binlog Dump", "Binlog Dump GTID")

_threads = sa.table("processlist", sa.column("command"), sa.column("user"), sa.column("time"), schema="information_schema")
_transactions = sa.table(
    "innodb_trx", sa.column("trx_mysql_thread_id"), sa.column("trx_started"), sa.column("trx_rows_modified"), schema="information_schema"
)


def tells_open_transactions(url: str) -> bool:
    """Whether the database of a URL is one whose changes come with the times of their statements.

    Those of PostgreSQL come with the time of their commit, whatever was open.

    Raises:
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
    """
    return dialect_of(url) is Dialect.MYSQL


def open_transactions(url: str, table: str) -> Probe:
    """What is open in the database of a URL, on one connection that writes nothing; each statement has a time limit.

    Args:
        url: Of MySQL or MariaDB.
        table: The one that is followed, as `schema.table`.

    Raises:
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        SourceDeniedError: The user may not ask that.
        SourceUnreadableError: The database cannot be asked, or its changes come with the times of another one.
    """
    with connected(url) as (connection, _):
        user = _prepared(connection)
        try:
            return _asked(connection, table)
        except SourceUnreadableError as error:
            if getattr(error.__cause__, "args", (0,))[0] != _DENIED:
                raise
            name, _, host = user.rpartition("@")
            remedy = f"GRANT PROCESS ON *.* TO `{name}`@`{host}`;"
            raise SourceDeniedError(f"{user} may not see which transactions are open", remedy) from error


def _prepared(connection: sa.Connection) -> str:
    """Limit the session, and say who it is; `trx_started` is in the zone of the server, whatever that of the session."""
    connection.execution_options(isolation_level="AUTOCOMMIT")  # transactions are begun by words of their own
    limit_statements(connection, SECONDS)
    connection.execute(sa.text("SET SESSION time_zone = 'SYSTEM'"))
    return connection.execute(sa.text("SELECT CURRENT_USER()")).scalar_one()


def _asked(connection: sa.Connection, table: str) -> Probe:
    running = _oldest_statement(connection)
    connection.execute(sa.text("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    connection.execute(sa.text("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"))
    own = connection.execute(sa.select(sa.func.connection_id())).scalar_one()
    began = min((row.began for row in _listed(connection, own) if row.changed), default=None)
    now = connection.execute(sa.select(sa.func.unix_timestamp())).scalar_one()
    return Probe(
        table=table,
        asked_ms=(int(now) + 1) * 1000,
        statement_ms=running * 1000,
        transaction_ms=None if began is None else int(began) * 1000,
    )


def _oldest_statement(connection: sa.Connection) -> int:
    """When the oldest statement began that runs, this one among them, or a second before; in seconds."""
    is_foreign = (_threads.c.user == "system user") & (_threads.c.command != "Daemon")
    age = sa.func.coalesce(sa.case((_threads.c.command.not_in(_IDLE), _threads.c.time)), 0)
    began = sa.func.min(sa.func.unix_timestamp() - age) - 1  # whole seconds of two times that were cut
    found, foreign = connection.execute(sa.select(began, sa.func.coalesce(sa.func.sum(sa.case((is_foreign, 1), else_=0)), 0))).one()
    if foreign:
        raise SourceUnreadableError("it applies the changes of another server, whose times they have; ask that one")
    return int(found)


def _listed(connection: sa.Connection, own: int) -> Sequence[sa.Row]:
    """Each transaction: when it began, in seconds, and whether it has changed rows; that of this connection is among them."""
    columns = _transactions.c
    statement = sa.select(
        columns.trx_mysql_thread_id.label("thread"), earliest(columns.trx_started).label("began"),
        (columns.trx_rows_modified > 0).label("changed"),
    )  # fmt: skip
    for _ in range(_TRIES):
        found = connection.execute(statement).all()
        if any(row.thread == own for row in found):
            return found
        connection.execute(sa.text("DO SLEEP(:seconds)"), {"seconds": _FRESH_SECONDS})
    raise SourceUnreadableError("its list of transactions is not made anew, as other programs read it all the time; let them pause")


def earliest(moment: sa.ColumnElement) -> sa.ColumnElement:
    """When a clock of the server's zone showed a moment, in seconds since the epoch; for the first time, where it did twice."""
    seconds = sa.func.unix_timestamp(moment)
    return seconds - sa.case((sa.func.from_unixtime(seconds - 3600) == moment, 3600), else_=0)
