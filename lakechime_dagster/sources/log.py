"""The log of a business database: how long it keeps it for those who read it, and whether all changes of a table are in it."""

from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.messages.findings import Finding, Weight
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
        return _kept_of_mysql(connection) if dialect is Dialect.MYSQL else _kept_of_postgres(connection)


def _kept_of_mysql(connection: sa.Connection) -> KeptBinlog:
    limit_statements(connection, SECONDS)
    names = [row[0] for row in connection.execute(sa.text("SHOW BINARY LOGS"))]
    numbers = [binlog_place(f"{name}:4")[0] for name in names]
    settings = {row[0]: row[1] for row in connection.execute(sa.text("SHOW GLOBAL VARIABLES LIKE '%expire_logs_%'"))}
    seconds = int(float(settings.get("binlog_expire_logs_seconds") or 0) or float(settings.get("expire_logs_days") or 0) * _DAY)
    return KeptBinlog(oldest=min(numbers), newest=max(numbers), seconds=seconds or None)


def _kept_of_postgres(connection: sa.Connection) -> tuple[Slot, ...]:
    connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    limit_statements(connection, SECONDS)
    rows = connection.execute(sa.text(_SLOTS)).all()
    return tuple(Slot(name=name, is_active=active, status=status, kept=kept or 0, safe=safe) for name, active, status, kept, safe in rows)


SECONDS = 10  # that a statement may take; what is asked of MySQL are variables
_WANTED = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL"}
_WHY = {
    "log_bin": "no binary log is written, which the connector reads",
    "binlog_format": "its log tells statements, not rows",
    "binlog_row_image": "its log leaves columns out, so that updates and deletions do not tell the whole row",
}
_TABLE = "SELECT 1 FROM information_schema.tables WHERE table_schema = :schema AND table_name = :table"
_IDENTITY = """
    SELECT c.relreplident::text, quote_ident(n.nspname) || '.' || quote_ident(c.relname),
        EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relname = :table AND c.relkind IN ('r', 'p')"""
_PUBLICATIONS = """
    SELECT quote_ident(p.pubname), p.pubtruncate, p.pubinsert AND p.pubupdate AND p.pubdelete
    FROM pg_publication p JOIN pg_publication_tables t ON t.pubname = p.pubname
    WHERE t.schemaname = :schema AND t.tablename = :table ORDER BY p.pubname"""


def check_log(url: str, schema: str, table: str) -> list[Finding]:
    """What of a database's settings hinders that all changes of a table are told, with the statements that change it.

    Nothing is written.

    Raises:
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        SourceUnreadableError: The database cannot be asked.
    """
    with connected(url) as (connection, dialect):
        found = _of_mysql(connection, schema, table) if dialect is Dialect.MYSQL else _of_postgres(connection, schema, table)
        return list(found)


def _of_mysql(connection: sa.Connection, schema: str, table: str) -> Iterator[Finding]:
    query = sa.text("SHOW GLOBAL VARIABLES WHERE Variable_name IN :names").bindparams(sa.bindparam("names", expanding=True))
    values = {row[0]: row[1] for row in connection.execute(query, {"names": list(_WANTED)})}
    for name, wanted in _WANTED.items():
        if (value := values.get(name, "")).upper() != wanted:
            remedy = f"SET GLOBAL {name} = '{wanted}';  -- and in my.cnf; sessions that are open keep what they had"
            if name == "log_bin":
                remedy = "start the server with log_bin, and a server_id"
            yield Finding(Weight.ERROR, name, f"{name} is {value or 'not there'}: {_WHY[name]}", remedy)
    if connection.execute(sa.text(_TABLE), {"schema": schema, "table": table}).first() is None:
        yield _not_there(schema, table)


def _of_postgres(connection: sa.Connection, schema: str, table: str) -> Iterator[Finding]:
    connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    limit_statements(connection, SECONDS)
    level = connection.execute(sa.text("SHOW wal_level")).scalar_one()
    if level != "logical":
        remedy = "ALTER SYSTEM SET wal_level = 'logical';  -- and start the server anew"
        yield Finding(Weight.ERROR, "wal_level", f"wal_level is {level}: its log does not tell rows", remedy)
    where = {"schema": schema, "table": table}
    found = connection.execute(sa.text(_IDENTITY), where).one_or_none()
    if found is None:
        yield _not_there(schema, table)
        return
    identity, name, has_primary = found
    if identity != "f":
        is_lost = identity == "n" or (identity == "d" and not has_primary)
        what = "updates and deletions are refused or not told" if is_lost else "updates and deletions tell the key alone of what was before"
        weight = Weight.ERROR if is_lost else Weight.WARNING
        yield Finding(weight, "replica identity", f"of {name} it is not FULL: {what}", f"ALTER TABLE {name} REPLICA IDENTITY FULL;")
    yield from _of_publications(connection, where, name)


def _of_publications(connection: sa.Connection, where: dict[str, str], name: str) -> Iterator[Finding]:
    publications = connection.execute(sa.text(_PUBLICATIONS), where).all()
    if not publications:
        problem = f"no publication has {name}; connectors that may not make one tell nothing"
        yield Finding(Weight.WARNING, "publication", problem, f"CREATE PUBLICATION dbz_publication FOR TABLE {name};")
    for publication, has_truncate, has_rows in publications:
        if not (has_truncate and has_rows):
            left_out = "truncations" if has_rows else "some changes of rows"
            remedy = f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate');"
            yield Finding(Weight.WARNING, "publication", f"{publication} leaves out {left_out}", remedy)


def _not_there(schema: str, table: str) -> Finding:
    problem = f"there is no table {schema}.{table} that this user may see"
    return Finding(Weight.ERROR, "table", problem, "name it by --source-table, or grant SELECT on it")
