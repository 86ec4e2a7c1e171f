"""What is watched of a table that follows a database: how far it may be behind, and the database's own table, with which it is compared."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakechime_dagster.errors import DeclarationError, InvalidValueError, shown, without_password
from lakechime_dagster.lake.databases import Database, check_database, check_table, url_in
from lakechime_dagster.lake.names import checked_columns
from lakechime_dagster.triggers.grid import Schedule, every


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Beyond what a table does not keep up.

    Attributes:
        behind: How long what came may stay unread, in the feed or in the table of messages.
        quiet: How long a source may tell nothing, not even a heartbeat; None is as long as it likes.
        left: How long before the feed or the database's log drops what was not read a warning comes.
        wal: Bytes of PostgreSQL's log that its slot may keep from being removed, as they fill the database's disk.
        waiting: Rows that may wait for a column that nobody sent.
        quarantined: Rows that the quarantine may hold; None is any number, as each run tells of its own.
    """

    behind: dt.timedelta = dt.timedelta(minutes=15)
    quiet: dt.timedelta | None = None
    left: dt.timedelta = dt.timedelta(days=1)
    wal: int = 10 * 1024**3
    waiting: int = 0
    quarantined: int | None = None

    def __post_init__(self) -> None:
        for name, optional in (("behind", False), ("quiet", True), ("left", False)):
            value = getattr(self, name)
            if not (optional and value is None) and (not isinstance(value, dt.timedelta) or value <= dt.timedelta(0)):
                raise DeclarationError("Limits", name, f"{shown(value)} is no positive time; write timedelta(minutes=15)")
        for name, optional in (("wal", False), ("waiting", False), ("quarantined", True)):
            value = getattr(self, name)
            if not (optional and value is None) and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise DeclarationError("Limits", name, f"{shown(value)} is no whole number of 0 or more")


@dataclass(frozen=True, kw_only=True)
class Monitor:
    """How a table is watched, and compared with the one of the database that it follows.

    Attributes:
        database: A URL such as `mysql+pymysql://reader:…@host/shop` or `postgresql+psycopg://…`, or `$NAME`, a variable of
            the environment that holds it. The user needs to read only. None is no comparison.
        table: The table there, as `schema.table`; a schema is a database in MariaDB.
        shards: Instead of both, of a table whose source has `shards=`, the database's table of each: by the value that the names
            of its topics tell, or a tuple of such values. A shard that is not named is not compared.
        every: How often they are compared and the probes asked; None is by hand alone.
        columns: Those that are compared, beside the key; None is all.
        within: How far the lake may be behind: a row that differs may be on its way for so long.
        limits: Beyond what the table does not keep up.
    """

    database: str | None = field(default=None, repr=False)
    table: str | None = None
    shards: Mapping[str, Database] | Mapping[tuple[str, ...], Database] = field(default_factory=dict, hash=False)
    every: Schedule | None = None
    columns: tuple[str, ...] | None = None
    within: dt.timedelta = dt.timedelta(minutes=2)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.database is not None or self.table is not None:
            self._check_database()
        self._check_shards()
        if self.every is not None and not isinstance(self.every, Schedule):
            raise DeclarationError("Monitor", "every", f"{shown(self.every)} is no schedule; write every(hours=1)")
        if not isinstance(self.within, dt.timedelta) or self.within < dt.timedelta(0):
            raise DeclarationError("Monitor", "within", f"{shown(self.within)} is no time; write timedelta(minutes=2)")
        if not isinstance(self.limits, Limits):
            raise DeclarationError("Monitor", "limits", f"{shown(self.limits)} is no Limits(…)")
        if self.columns is not None:
            object.__setattr__(self, "columns", checked_columns("Monitor", "columns", self.columns))

    def _check_database(self) -> None:
        check_database("Monitor", "database", self.database)
        check_table("Monitor", "table", self.table)

    def _check_shards(self) -> None:
        if not isinstance(self.shards, Mapping):
            raise DeclarationError("Monitor", "shards", f"{shown(self.shards)} is no mapping; write {{'eu': Database(url, 'shop.orders')}}")
        if self.shards and self.database is not None:
            raise DeclarationError("Monitor", "shards", "is declared beside database=; a table follows one database, or shards")
        for name, database in self.shards.items():
            values = name if isinstance(name, tuple) else (name,)
            if not values or not all(isinstance(value, str) for value in values):
                raise DeclarationError("Monitor", "shards", f"{shown(name)} is no name of a shard; write what its topics tell")
            if not isinstance(database, Database):
                told = shown(without_password(database) if isinstance(database, str) else database)
                raise DeclarationError("Monitor", "shards", f"{shown(name)}: {told} is no Database(url, table)")

    @property
    def is_comparing(self) -> bool:
        """Whether it names what the table is compared with."""
        return self.database is not None or bool(self.shards)

    @property
    def databases(self) -> dict[tuple[str, ...], Database]:
        """What the table is compared with, by the values that name a shard; by none where the table follows one database.

        Raises:
            InvalidValueError: nothing is declared.
        """
        if self.shards:
            return {name if isinstance(name, tuple) else (name,): database for name, database in self.shards.items()}
        if self.database is None or self.table is None:
            raise InvalidValueError("database", None, "is not declared; write Monitor(database=…, table=…)")
        return {(): Database(self.database, self.table)}

    def url(self, environment: Mapping[str, str]) -> str:
        """The URL of the database.

        Raises:
            InvalidValueError: none is declared, or the environment does not have it.
        """
        if self.database is None:
            raise InvalidValueError("database", None, "is not declared; write Monitor(database=…, table=…)")
        return url_in(environment, self.database, "database")

    @property
    def source_table(self) -> tuple[str, str]:
        """The schema and the name of the table in the database.

        Raises:
            InvalidValueError: none is declared.
        """
        if self.table is None:
            raise InvalidValueError("table", None, "is not declared; write Monitor(database=…, table=…)")
        schema, _, name = self.table.partition(".")
        return schema, name


UNDECLARED = Monitor(every=every(minutes=15))  # of a table that declares none
