"""Business databases as they are declared: where one is, and which table of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakechime_dagster.errors import DeclarationError, shown, without_password
from lakechime_dagster.lake.variables import is_variable, resolved

_SCHEMES = ("mysql", "mariadb", "postgresql")
_TABLE = re.compile(r"[^.]+\.[^.]+", re.DOTALL)


@dataclass(frozen=True)
class Database:
    """A table of a business database, which is only read.

    Attributes:
        url: Such as `mysql+pymysql://reader:…@host/shop` or `postgresql+psycopg://…`, or `$NAME`, a variable of the environment that
            holds it.
        table: The table there, as `schema.table`; a schema is a database in MariaDB.
    """

    url: str = field(repr=False)
    table: str

    def __post_init__(self) -> None:
        check_database("Database", "url", self.url)
        check_table("Database", "table", self.table)

    def address(self, environment: Mapping[str, str]) -> str:
        """The URL.

        Raises:
            InvalidValueError: The environment does not have it.
        """
        return url_in(environment, self.url, "url")

    @property
    def is_postgres(self) -> bool:
        """Whether it is known to be PostgreSQL; a variable of the environment may be anything."""
        return _scheme(self.url) == "postgresql"

    @property
    def source_table(self) -> tuple[str, str]:
        """The schema and the name of the table."""
        schema, _, name = self.table.partition(".")
        return schema, name


def check_database(of: str, name: str, url: object) -> None:
    """Refuse what is no URL of a database that can be asked.

    Raises:
        DeclarationError: naming what is declared and its field.
    """
    if not isinstance(url, str) or not (is_variable(url) or _scheme(url) in _SCHEMES):
        told = shown(without_password(url)) if isinstance(url, str) else shown(url)
        remedy = "is neither mysql+pymysql://user@host/database, postgresql+psycopg://user@host/database, nor $NAME of a variable"
        raise DeclarationError(of, name, f"{told} {remedy}")


def check_table(of: str, name: str, table: object) -> None:
    """Refuse what is no name of a table with its schema.

    Raises:
        DeclarationError: naming what is declared and its field.
    """
    if not isinstance(table, str) or not _TABLE.fullmatch(table):
        raise DeclarationError(of, name, f"{shown(table)} is no schema.table of the database, such as shop.orders")


def url_in(environment: Mapping[str, str], url: str, name: str) -> str:
    """A URL, which may be that of a variable.

    Raises:
        InvalidValueError: The environment does not have it; it names the field.
    """
    return resolved(url, environment, name, "set it to the URL of the database")


def _scheme(url: str) -> str:
    return url.partition("://")[0].partition("+")[0] if "://" in url else ""
