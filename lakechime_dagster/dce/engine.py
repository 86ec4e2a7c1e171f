"""Connections to the store on SQLite and PostgreSQL: reading and writing transactions, what the two
dialects spell differently, and the version of the store's tables.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from sqlalchemy import (
    ARRAY,
    JSON,
    URL,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Enum,
    Integer,
    MetaData,
    Table,
    any_,
    bindparam,
    create_engine,
    event,
    func,
    inspect,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.engine.url import make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, NoSuchModuleError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine
from typing_extensions import Self

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import fit_texts
from lakechime_dagster.errors import (
    InvalidValueError,
    StoreUnreachableError,
    StoreVersionError,
    needs,
    without_password,
)

BUSY_SECONDS = 30  # how long a SQLite writer waits for another; its tail under eight writers is 2 s
IDLE_SECONDS = 1.0  # a pooled connection that rested longer is asked whether it still lives
POOL = {"pool_size": 2, "max_overflow": 8, "pool_recycle": 1800}
_MODE = "lakechime_mode"  # execution option: how SQLite begins this transaction


def open_engine(url: str) -> Engine:
    """The engine of a store's URL; connects at the first transaction, which makes a SQLite file and
    its folder.

    PostgreSQL is spoken through psycopg whatever driver the URL names.

    Raises:
        InvalidValueError: for a URL that names neither PostgreSQL nor a SQLite file.
    """
    address = _address(url)
    if address.get_backend_name() == "sqlite":
        engine = _sqlite(create_engine(address, connect_args={"timeout": BUSY_SECONDS}, **POOL))
        event.listen(engine, "do_connect", lambda *_: _make_folder(address))
    else:
        connect_args = {"connect_timeout": 10, "application_name": "lakechime"}
        with needs("a DCE store in PostgreSQL"):
            engine = create_engine(
                address,
                connect_args={k: v for k, v in connect_args.items() if k not in address.query},
                **POOL,
            )
    _check_rested_connections(engine)
    event.listen(engine, "handle_error", _translate)
    return engine


def memory_engine() -> Engine:
    """The engine of a new SQLite database in memory, for one thread: it lies nowhere and ends with
    the process.
    """
    return _sqlite(create_engine("sqlite://", poolclass=StaticPool))


def is_file_missing(engine: Engine) -> bool:
    """Whether the engine is of a SQLite file that is not there: to connect would make it."""
    database = engine.url.database
    if engine.dialect.name != "sqlite" or not database:
        return False
    file = Path(url2pathname(urlsplit(database).path) if database.startswith("file:") else database)
    with suppress(PermissionError):  # connecting reports what is wrong there
        return not file.exists()
    return False


@contextmanager
def writing(engine: Engine, *, keep: bool = True) -> Iterator[Connection]:
    """A transaction that writes: committed at the end, rolled back by an error, and always where
    nothing is to be kept.

    SQLite takes its one write lock at the start; PostgreSQL is in READ COMMITTED.
    """
    with engine.connect() as connection:
        connection.execution_options(**{_MODE: "write"})
        with connection.begin() as transaction:
            yield connection
            if not keep:
                transaction.rollback()


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction whose statements all see the store at one moment; never waits for writers."""
    with engine.connect() as connection:
        connection.execution_options(**{_MODE: "read"})
        if engine.dialect.name == "postgresql":
            connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        with connection.begin():
            yield connection


@contextmanager
def at_once(engine: Engine) -> Iterator[Connection]:
    """A connection on which every statement is a transaction of its own: the cheapest way to run
    exactly one.
    """
    with engine.connect() as connection:
        connection.execution_options(**{_MODE: "statement"})
        if engine.dialect.name == "postgresql":
            connection.execution_options(isolation_level="AUTOCOMMIT")
        with connection.begin():
            yield connection


def shown_url(url: URL) -> str:
    """The URL as messages may show it: no password, wherever it stands, and no driver."""
    return without_password(
        url.set(drivername=url.get_backend_name()).render_as_string(hide_password=False)
    )


def _address(url: str) -> URL:
    try:
        address = make_url(url)
        backend = address.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise InvalidValueError(
            "store URL",
            without_password(url).partition("://")[0],
            "is not a database URL; write postgresql:// or sqlite:///",
        ) from None
    if url.partition("://")[2].partition("/")[0].count("@") > 1:
        raise InvalidValueError(
            "store URL", without_password(url), 'its password holds "@"; write it as %40'
        )
    if backend in ("postgresql", "postgres"):
        return address.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise InvalidValueError(
            "store URL", backend, "is not supported; use postgresql:// or sqlite:///"
        )
    if not address.database or ":memory:" in address.database:
        raise InvalidValueError(
            "store URL",
            shown_url(address),
            "keeps nothing; name a file, such as sqlite:////var/lib/lakechime/dce.sqlite",
        )
    return address.set(drivername="sqlite")


def _sqlite(engine: Engine) -> Engine:
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _make_folder(address: URL) -> None:
    database = str(address.database)
    if database.startswith("file:"):
        return
    try:
        Path(database).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnreachableError(
            f"The folder of {shown_url(address)} cannot be made: {error.strerror}."
        ) from error


def _prepare_sqlite(connection: Any, record: ConnectionPoolEntry) -> None:
    """Settings of a SQLite connection; waiting for the lock is set first, since already opening may
    find it taken.
    """
    connection.isolation_level = None  # transactions begin by `_begin_sqlite`, not behind our back
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.create_function("lakechime_fit", 2, fit_texts, deterministic=True)


def _begin_sqlite(connection: Connection) -> None:
    mode = connection.get_execution_options().get(_MODE, "write")
    if mode != "statement":
        connection.exec_driver_sql("BEGIN" if mode == "read" else "BEGIN IMMEDIATE")


def _check_rested_connections(engine: Engine) -> None:
    """Never hand out a connection that died while resting, nor one that a forked parent still uses.

    Like the pool's own pre-ping, but connections in use every second are not asked: asking costs as
    much as the work.
    """

    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: ConnectionPoolEntry) -> None:
        record.info["process"] = os.getpid()

    @event.listens_for(engine, "checkin")
    def returned(connection: Any, record: ConnectionPoolEntry) -> None:
        record.info["returned"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def taken(connection: Any, record: ConnectionPoolEntry, proxy: Any) -> None:
        if record.info.get("process") != os.getpid():
            record.dbapi_connection = proxy.dbapi_connection = None
            raise DisconnectionError("the connection belongs to the parent process")
        if time.monotonic() - record.info.get(
            "returned", time.monotonic()
        ) > IDLE_SECONDS and not _lives(engine, connection):
            raise DisconnectionError("the connection was closed while it rested")


def _lives(engine: Engine, connection: Any) -> bool:
    try:
        return engine.dialect.do_ping(connection)
    except Exception as error:
        if isinstance(error, engine.dialect.loaded_dbapi.Error):
            return False
        raise


def _translate(context: ExceptionContext) -> None:
    """Say in the product's words what a driver reports about a store that is not there, locked,
    full or not upgraded.
    """
    error, engine = context.original_exception, context.engine
    if not isinstance(error, Exception):
        return  # Ctrl-C, which SQLAlchemy reports as a disconnect
    where = shown_url(engine.url) if engine is not None else "the store"
    if context.connection is None or context.is_disconnect:
        raise StoreUnreachableError(
            f"The DCE store {where} cannot be reached: {_reason(error)}."
        ) from error
    if isinstance(error, sqlite3.Error) and (problem := _sqlite_problem(str(error))):
        raise StoreUnreachableError(f"The DCE store {where} {problem}.") from error
    missing = (
        getattr(error, "sqlstate", None) in ("42P01", "42703")
        or "no such table" in str(error)
        or "no such column" in str(error)
    )
    if missing:
        raise StoreVersionError(
            f"The DCE store {where} lacks tables of this version; run `lakechime store upgrade`."
        ) from error


_SQLITE_PROBLEMS = {
    "database is locked": f"stayed locked by another process for {BUSY_SECONDS} s; end that process or use PostgreSQL",
    "readonly": "is read-only; make the file and its folder writable",
    "disk is full": "has no space left on its disk; free some and try again",
    "disk I/O error": "cannot be read or written by its disk; check the file system",
    "not a database": "is not a SQLite database; name another file",
    "malformed": "is damaged; restore it from a backup",
    "unable to open": "cannot be opened; check that its folder exists and is writable",
}


def _sqlite_problem(message: str) -> str | None:
    return next((problem for part, problem in _SQLITE_PROBLEMS.items() if part in message), None)


def _reason(error: BaseException) -> str:
    """Why a connection failed, in a few plain words; never the driver's text, which may hold host
    details and secrets.
    """
    message = str(error).lower()
    reasons = {
        "password authentication failed": "the user or the password is wrong",
        "no password supplied": "the server asks for a password",
        "does not exist": "the database or the user does not exist there",
        "connection refused": "nothing listens at that address",
        "timeout": "the server did not answer in time",
        "name or service not known": "the host name is unknown",
        "could not translate host name": "the host name is unknown",
        "failed to resolve host": "the host name is unknown",
        "too many clients": "the server has no connection left",
        "remaining connection slots": "the server has no connection left",
        "starting up": "the server is starting up",
        "shutting down": "the server is shutting down",
    }
    if sqlite := _sqlite_problem(str(error)):
        return f"the file {sqlite}"
    return next(
        (reason for part, reason in reasons.items() if part in message),
        "the connection was closed or refused",
    )


# SQLite counts rows in plain INTEGER columns only
BIG = BigInteger().with_variant(Integer(), "sqlite")


class HasJson(Protocol):
    """What can be written as JSON, and read from it."""

    def to_json(self) -> dict[str, Any]: ...
    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Self: ...


class AsJson(TypeDecorator[Any]):
    """A column of values of a class as JSON."""

    impl = JSON
    cache_ok = True

    def __init__(self, kind: type[HasJson]) -> None:
        super().__init__(none_as_null=True)
        self.kind = kind

    def process_bind_param(self, value: HasJson | None, dialect: Dialect) -> Any:
        return None if value is None else value.to_json()

    def process_result_value(self, value: Any, dialect: Dialect) -> HasJson | None:
        return None if value is None else self.kind.from_json(value)


def one_of(kind: type[StrEnum], length: int) -> Enum:
    """A column of texts, each of which is one of these."""
    return Enum(
        kind,
        native_enum=False,
        length=length,
        values_callable=lambda kind: [one.value for one in kind],
    )


EVERYTHING = 2**63 - 1  # the bound of a database in which commit order is number order


class _BigIntegerFunction(FunctionElement[int]):
    inherit_cache = True
    type: TypeEngine[int] = BigInteger()


class StoreNow(_BigIntegerFunction):
    """The store's clock, in milliseconds since the epoch."""

    name = "store_now"
    inherit_cache = True


class TransactionId(_BigIntegerFunction):
    """The number of the running transaction; 0 where there is one writer at a time."""

    name = "transaction_id"
    inherit_cache = True


class _PositionComparison(FunctionElement[bool]):
    """Compares one position, as `tx_id` and `seq`, with another.

    SQLite uses no index for a comparison of pairs. All its events are of transaction 0, so that the
    sequence alone decides, by a range of an index or of the table itself.
    """

    inherit_cache = True
    type: TypeEngine[bool] = Boolean()
    operator: ClassVar[str]

    def self_group(self, against: Any = None) -> "_PositionComparison":
        return self  # has its own parentheses; SQLAlchemy would write `= 1` on SQLite


class IsAfter(_PositionComparison):
    """Whether a position is after another."""

    inherit_cache = True
    operator = ">"


class IsThrough(_PositionComparison):
    """Whether a position is at another or before it."""

    inherit_cache = True
    operator = "<="


class VisibleBelow(_BigIntegerFunction):
    """The transaction number below which every transaction has ended: what is there can be read for
    good.
    """

    name = "visible_below"
    inherit_cache = True


@compiles(StoreNow, "postgresql")
def _now_postgresql(element: Any, compiler: Any, **kw: Any) -> str:
    return "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


@compiles(StoreNow, "sqlite")
def _now_sqlite(element: Any, compiler: Any, **kw: Any) -> str:
    return "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER))"


@compiles(TransactionId, "postgresql")
def _transaction_postgresql(element: Any, compiler: Any, **kw: Any) -> str:
    return "(pg_current_xact_id()::text::bigint)"


@compiles(TransactionId, "sqlite")
def _transaction_sqlite(element: Any, compiler: Any, **kw: Any) -> str:
    return "0"


@compiles(_PositionComparison, "postgresql")
def _compare_postgresql(element: _PositionComparison, compiler: Any, **kw: Any) -> str:
    tx, seq, other_tx, other_seq = (compiler.process(one, **kw) for one in element.clauses)
    return f"(({tx}, {seq}) {element.operator} ({other_tx}, {other_seq}))"


@compiles(_PositionComparison, "sqlite")
def _compare_sqlite(element: _PositionComparison, compiler: Any, **kw: Any) -> str:
    tx, seq, _, other_seq = element.clauses
    compared = (
        f"{compiler.process(seq, **kw)} {element.operator} {compiler.process(other_seq, **kw)}"
    )
    return f"({compiler.process(tx, **kw)} = 0 AND {compared})"


@compiles(VisibleBelow, "postgresql")
def _visible_postgresql(element: Any, compiler: Any, **kw: Any) -> str:
    return "(pg_snapshot_xmin(pg_current_snapshot())::text::bigint)"


@compiles(VisibleBelow, "sqlite")
def _visible_sqlite(element: Any, compiler: Any, **kw: Any) -> str:
    return str(EVERYTHING)


def insert_if_absent(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that leaves out rows whose key is there."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def among(
    connection: Connection, column: Column[Any], values: Sequence[Any]
) -> ColumnElement[bool]:
    """Whether the column holds one of many values: one array on PostgreSQL, so that the statement's
    text stays the same.
    """
    if connection.dialect.name == "postgresql":
        return column == any_(bindparam(None, list(values), type_=ARRAY(column.type)))
    return column.in_(values)


def now_ms(connection: Connection) -> int:
    """The store's clock in milliseconds since the epoch; a clock of the host on SQLite, the
    server's on PostgreSQL.
    """
    return connection.execute(select(StoreNow())).scalar_one()


def high_water(connection: Connection) -> int:
    """The bound of visibility of this moment: only rows with `tx_id` below it may be read as a
    feed.

    In the transactions of `reading` it holds for all statements; in those of `writing` use
    `VisibleBelow()` in the statement that reads.
    """
    return connection.execute(select(VisibleBelow())).scalar_one()


Item = TypeVar("Item")

PARAMETERS = 5_000  # of one statement


def slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The items in their order, so many at a time; the last ones may be fewer."""
    return (items[start : start + size] for start in range(0, len(items), size))


VERSION_TABLE = "lakechime_alembic_version"  # Dagster owns `alembic_version` in its database
_LOCK = 0x1A6E_C41E  # PostgreSQL's advisory lock of those who upgrade; any number that is ours


def upgrade(engine: Engine) -> str:
    """Bring the store to this version; its number. Any number of processes may do so at once: one
    does it, all return.

    Raises:
        StoreVersionError: for a store that a newer version wrote.
    """
    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        current = _version_of(connection)
        _refuse_newer(engine, current)
        if current != newest_version():
            _migrate(connection)
    return newest_version()


def check_version(engine: Engine) -> str:
    """The version of a store that this version can use.

    Raises:
        StoreVersionError: for a store of a newer version, or one that needs an upgrade.
        StoreUnreachableError: for one that cannot be opened.
    """
    current = current_version(engine)
    _refuse_newer(engine, current)
    if current != newest_version():
        found = f"has version {current}" if current else "has no tables yet"
        raise StoreVersionError(
            f"The DCE store {shown_url(engine.url)} {found}, this program needs "
            f"{newest_version()}; run `lakechime store upgrade`."
        )
    return newest_version()


def current_version(engine: Engine) -> str | None:
    """The version of a store as it is; None before its first upgrade, also where not even its file
    is there, which stays so.
    """
    if is_file_missing(engine):
        return None
    with reading(engine) as connection:
        return _version_of(connection)


def _version_of(connection: Connection) -> str | None:
    """The version of the store's tables; None before the first upgrade."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    table = Table(VERSION_TABLE, MetaData(), autoload_with=connection)
    return connection.execute(select(table.c.version_num)).scalar()


def newest_version() -> str:
    """The newest version that this program knows."""
    return max(_known_versions())


def _migrate(connection: Connection) -> None:
    # a fifth of a second that no process should pay whose store is up to date
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", _folder().as_posix().replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _known_versions() -> list[str]:
    return [path.name.split("_")[0] for path in (_folder() / "versions").glob("[0-9]*.py")]


def _folder() -> Path:
    return Path(__file__).parent.parent / "migrations"


def _refuse_newer(engine: Engine, current: str | None) -> None:
    if current is not None and current not in _known_versions():
        raise StoreVersionError(
            f"The DCE store {shown_url(engine.url)} has version {current}, written by a newer "
            f"program than this one, which "
            f"knows {newest_version()}; update lakechime-dagster."
        )
