"""Connections to business databases by their URLs, whose errors are told in words."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.engine.url import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.errors import InvalidValueError, SourceUnreadableError, needs, without_password

_DRIVERS = {"mysql": "mysql+pymysql", "mariadb": "mysql+pymysql", "postgresql": "postgresql+psycopg"}


@contextmanager
def connected(url: str) -> Iterator[tuple[sa.Connection, Dialect]]:
    """A connection of its own, and the kind of the database.

    Raises:
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        SourceUnreadableError: The driver is not installed, or the database cannot be asked; statements raise it too.
    """
    address = _address(url)
    try:
        connection = _engine(address).connect()
    except (TypeError, ValueError, AttributeError) as error:  # for an option that the driver does not know or take
        raise SourceUnreadableError(f"{_shown(address)} cannot be read: {error}; check the options of its URL") from error
    with connection:
        yield connection, Dialect(address.get_backend_name())


def limit_statements(connection: sa.Connection, seconds: int) -> None:
    """No statement of a connection takes longer from here on. PostgreSQL takes no snapshot for that."""
    if connection.dialect.name == Dialect.POSTGRES:
        connection.execute(sa.text(f"SET statement_timeout = '{seconds:d}s'"))
    elif is_mariadb(connection):
        connection.execute(sa.text("SET SESSION max_statement_time = :seconds"), {"seconds": seconds})
    else:
        connection.execute(sa.text("SET SESSION max_execution_time = :milliseconds"), {"milliseconds": 1000 * seconds})


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
        remedy = "give postgresql://user@host/database, or mysql://user@host/database for MySQL and MariaDB"
        raise InvalidValueError("url", without_password(url), remedy) from None
    return address.set(drivername=driver)


def _engine(address: sa.URL) -> sa.Engine:
    options = {"connect_timeout": 10} if address.get_backend_name() == Dialect.POSTGRES else {"connect_timeout": 10, "charset": "utf8mb4"}
    connect_args = {name: value for name, value in options.items() if name not in address.query}
    with needs(_shown(address), raised=SourceUnreadableError):
        engine = sa.create_engine(address, poolclass=NullPool, connect_args=connect_args)
    event.listen(engine, "handle_error", _translate)
    return engine


def _translate(context: ExceptionContext) -> None:
    where = _shown(context.engine.url) if context.engine else "the database"
    raise SourceUnreadableError(f"{where} cannot be read: {context.original_exception}") from context.original_exception


def _shown(address: sa.URL) -> str:
    return without_password(address.render_as_string())
