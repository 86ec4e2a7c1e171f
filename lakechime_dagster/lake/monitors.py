"""What is watched of a table that follows a database: the database's own table, and how often the two are compared."""

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakechime_dagster.errors import DeclarationError, InvalidValueError, shown, without_password
from lakechime_dagster.lake.names import checked_columns
from lakechime_dagster.triggers.grid import Schedule

_SCHEMES = ("mysql", "mariadb", "postgresql")
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_TABLE = re.compile(r"[^.]+\.[^.]+", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Monitor:
    """How a table is compared with the one of the database that it follows.

    Attributes:
        database: A URL such as `mysql+pymysql://reader:…@host/shop` or `postgresql+psycopg://…`, or `$NAME`, a variable of
            the environment that holds it. The user needs to read only.
        table: The table there, as `schema.table`; a schema is a database in MariaDB.
        every: How often they are compared and the probes asked; None is by hand alone.
        columns: Those that are compared, beside the key; None is all.
        within: How far the lake may be behind: a row that differs may be on its way for so long.
    """

    database: str = field(repr=False)
    table: str
    every: Schedule | None = None
    columns: tuple[str, ...] | None = None
    within: dt.timedelta = dt.timedelta(minutes=2)

    def __post_init__(self) -> None:
        database = self.database
        if not isinstance(database, str) or not (_VARIABLE.fullmatch(database) or _scheme(database) in _SCHEMES):
            told = shown(without_password(database)) if isinstance(database, str) else shown(database)
            remedy = "is neither mysql+pymysql://user@host/database, postgresql+psycopg://user@host/database, nor $NAME of a variable"
            raise DeclarationError("Monitor", "database", f"{told} {remedy}")
        if not isinstance(self.table, str) or not _TABLE.fullmatch(self.table):
            raise DeclarationError("Monitor", "table", f"{shown(self.table)} is no schema.table of the database, such as shop.orders")
        if self.every is not None and not isinstance(self.every, Schedule):
            raise DeclarationError("Monitor", "every", f"{shown(self.every)} is no schedule; write every(hours=1)")
        if not isinstance(self.within, dt.timedelta) or self.within < dt.timedelta(0):
            raise DeclarationError("Monitor", "within", f"{shown(self.within)} is no time; write timedelta(minutes=2)")
        if self.columns is not None:
            object.__setattr__(self, "columns", checked_columns("Monitor", "columns", self.columns))

    def url(self, environment: Mapping[str, str]) -> str:
        """The URL of the database.

        Raises:
            InvalidValueError: the environment does not have it.
        """
        if not self.database.startswith("$"):
            return self.database
        found = environment.get(self.database[1:])
        if not found:
            raise InvalidValueError("database", self.database, "is not in the environment; set it to the URL of the database")
        return found

    @property
    def shown_database(self) -> str:
        """The database as people may see it."""
        return without_password(self.database)


def _scheme(url: str) -> str:
    return url.partition("://")[0].partition("+")[0] if "://" in url else ""
