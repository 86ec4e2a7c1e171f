"""Connections to business databases: an engine by its URL, whose errors are told in words."""

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.engine.url import make_url
from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.errors import InvalidValueError, SourceUnreadableError, without_password

_DRIVERS = {"mysql": "mysql+pymysql", "mariadb": "mysql+pymysql", "postgresql": "postgresql+psycopg"}


def database_engine(url: str) -> tuple[sa.Engine, Dialect]:
    """An engine whose connections live as long as they are used, and the kind of the database.

    Raises:
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        SourceUnreadableError: The driver is not installed; its connections raise it where the database cannot be asked.
    """
    address = _address(url)
    dialect = Dialect(address.get_backend_name())
    return _engine(address, dialect), dialect


def _address(url: str) -> sa.URL:
    try:
        address = make_url(url)
        driver = _DRIVERS[address.get_backend_name()]
    except (KeyError, SQLAlchemyError):
        remedy = "give postgresql://user@host/database, or mysql://user@host/database for MySQL and MariaDB"
        raise InvalidValueError("url", without_password(url), remedy) from None
    return address.set(drivername=driver)


def _engine(address: sa.URL, dialect: Dialect) -> sa.Engine:
    options = {"charset": "utf8mb4", "connect_timeout": 10} if dialect is Dialect.MYSQL else {"connect_timeout": 10}
    connect_args = {name: value for name, value in options.items() if name not in address.query}
    try:
        engine = sa.create_engine(address, poolclass=NullPool, connect_args=connect_args)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        remedy = f"the driver of {address.drivername} is not installed: pip install 'lakechime-dagster[mysql]'"
        raise SourceUnreadableError(remedy) from error
    event.listen(engine, "handle_error", _translate)
    return engine


def _translate(context: ExceptionContext) -> None:
    url = without_password(context.engine.url.render_as_string()) if context.engine else "the database"
    raise SourceUnreadableError(f"{url} cannot be read: {context.original_exception}") from context.original_exception
