"""What a business database keeps of its log for those who read it: until when, and how much."""

from dataclasses import dataclass

import sqlalchemy as sa

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.position import binlog_place
from lakechime_dagster.sources.connection import connected, limit_statements

SECONDS = 10  # that a statement may take
_DAY = 86_400
_SLOTS = """
    SELECT slot_name, active, coalesce(wal_status, ''), (pg_current_wal_lsn() - restart_lsn)::bigint, safe_wal_size
    FROM pg_replication_slots WHERE slot_type = 'logical' AND NOT temporary AND database = current_database() ORDER BY slot_name"""


@dataclass(frozen=True, kw_only=True)
class KeptBinlog:
    """Which files of its binary log MariaDB or MySQL has, by their numbers, and after how many seconds it drops them; None is never."""

    oldest: int
    newest: int
    seconds: int | None


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A place of PostgreSQL's log that it keeps for a connector.

    Attributes:
        status: PostgreSQL's word; what a slot that is `lost` needs is gone.
        kept: Bytes of the log from there on.
        safe: Bytes that may be written before the slot is lost; None where there is no such bound.
    """

    name: str
    is_active: bool
    status: str
    kept: int
    safe: int | None


def log_kept(url: str) -> KeptBinlog | tuple[Slot, ...]:
    """What the database of a URL keeps; nothing is written, and each statement has a time limit.

    Raises:
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        SourceUnreadableError: The database cannot be asked, or not by this user.
    """
    with connected(url) as (connection, dialect):
        return _of_mysql(connection) if dialect is Dialect.MYSQL else _of_postgres(connection)


def _of_mysql(connection: sa.Connection) -> KeptBinlog:
    limit_statements(connection, SECONDS)
    names = [row[0] for row in connection.execute(sa.text("SHOW BINARY LOGS"))]
    numbers = [binlog_place(f"{name}:4")[0] for name in names]
    settings = {row[0]: row[1] for row in connection.execute(sa.text("SHOW GLOBAL VARIABLES LIKE '%expire_logs_%'"))}
    seconds = int(float(settings.get("binlog_expire_logs_seconds") or 0) or float(settings.get("expire_logs_days") or 0) * _DAY)
    return KeptBinlog(oldest=min(numbers), newest=max(numbers), seconds=seconds or None)


def _of_postgres(connection: sa.Connection) -> tuple[Slot, ...]:
    connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    limit_statements(connection, SECONDS)
    rows = connection.execute(sa.text(_SLOTS)).all()
    return tuple(Slot(name=name, is_active=active, status=status, kept=kept or 0, safe=safe) for name, active, status, kept, safe in rows)
