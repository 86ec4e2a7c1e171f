"""Business databases as declared, and the envelopes of the tools that capture their changes."""

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import DeclarationError, InvalidValueError, shown, without_password
from lakechime_dagster.tables.names import checked_columns, is_variable, resolved
from lakechime_dagster.triggers.schedule import Schedule, every

_SCHEMES = ("mysql", "mariadb", "postgresql")
_TABLE = re.compile(r"[^.]+\.[^.]+", re.DOTALL)


@dataclass(frozen=True)
class Database:
    """A table of a business database, which is only read.

    Attributes:
        url: Such as `mysql+pymysql://reader:…@host/shop` or `postgresql+psycopg://…`, or `$NAME`, a
            variable of the environment that holds it.
        table: The table there, as `schema.table`; a schema is a database in MariaDB.
    """

    url: str = field(repr=False)
    table: str

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not (
            is_variable(self.url) or _scheme(self.url) in _SCHEMES
        ):
            remedy = (
                "is neither mysql+pymysql://user@host/database, "
                "postgresql+psycopg://user@host/database, nor $NAME of a variable"
            )
            raise DeclarationError("Database", "url", f"{_shown(self.url)} {remedy}")
        if not isinstance(self.table, str) or not _TABLE.fullmatch(self.table):
            raise DeclarationError(
                "Database",
                "table",
                f"{shown(self.table)} is no schema.table of the database, such as shop.orders",
            )

    def address(self, environment: Mapping[str, str]) -> str:
        """The URL.

        Raises:
            InvalidValueError: The environment does not have it.
        """
        return resolved(self.url, environment, "url", "set it to the URL of the database")

    @property
    def is_postgres(self) -> bool:
        """Whether it is known to be PostgreSQL; a variable of the environment may be anything."""
        return _scheme(self.url) == "postgresql"

    @property
    def source_table(self) -> tuple[str, str]:
        """The schema and the name of the table."""
        schema, _, name = self.table.partition(".")
        return schema, name


def _scheme(url: str) -> str:
    return url.partition("://")[0].partition("+")[0] if "://" in url else ""


PLACEHOLDER = "__debezium_unavailable_value"
DECIMALS, TIMES, UNSIGNED = (
    "decimal.handling.mode",
    "time.precision.mode",
    "bigint.unsigned.handling.mode",
)
BINARY, INTERVALS = "binary.handling.mode", "interval.handling.mode"
# of Debezium's connectors that decide how values are written; the first is what each of them does
# by default
VALUE_SETTINGS = {
    DECIMALS: ("precise", "string", "double"),
    TIMES: (
        "",
        "adaptive",
        "adaptive_time_microseconds",
        "connect",
        "isostring",
    ),  # MySQL's default is not PostgreSQL's
    UNSIGNED: ("long", "precise"),
    BINARY: ("bytes", "base64", "base64-url-safe", "hex"),
    INTERVALS: ("numeric", "string"),
}


class BinaryText(StrEnum):
    """How a tool writes bytes as text."""

    BASE64 = "base64"
    HEX = "hex"  # with or without a leading 0x
    LATIN_1 = "latin-1"  # a character for each byte


class Absent(StrEnum):
    """What it means where an update lacks a column that its table is known to have.

    Attributes:
        NOTHING: The table did not have it then: what is known of the column stays, and without that
            it is null.
        NULL: It is null.
        UNCHANGED: It has a value, which the update did not change: until a message carries it, the
            row is incomplete.
    """

    NOTHING = "nothing"
    NULL = "null"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, kw_only=True)
class Debezium:
    """The envelope of Debezium's connectors: full, without its schema, or flattened to the row.

    Attributes:
        unavailable: What the connector sends for a value that it does not have
            (`unavailable.value.placeholder`).
        tombstones_delete: A key without a value is a deletion. For rows flattened without `__op`
            and `__deleted`, the default of `ExtractNewRecordState`, in which nothing else reports
            deletions.
        settings: Settings of the connector that decide how values are written, by name
            (`decimal.handling.mode`, `time.precision.mode`, `bigint.unsigned.handling.mode`,
            `binary.handling.mode`, `interval.handling.mode`), for messages without a schema. Others
            have the connector's defaults.
    """

    unavailable: str = PLACEHOLDER
    tombstones_delete: bool = False
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name, value in self.settings.items():
            known = [one for one in VALUE_SETTINGS.get(name, ()) if one]
            if not known:
                remedy = (
                    f"{shown(name)} says nothing of how values are written; name some of "
                    f"{', '.join(VALUE_SETTINGS)}"
                )
                raise DeclarationError("Debezium", "settings", remedy)
            if value not in known:
                raise DeclarationError(
                    "Debezium", "settings", f"{name}={shown(value)} is none of {', '.join(known)}"
                )

    def setting(self, name: str, default: str = "") -> str:
        """A setting of the connector, or what it is by default, which may be the database's own."""
        return self.settings.get(name) or VALUE_SETTINGS[name][0] or default


@dataclass(frozen=True, kw_only=True)
class Canal:
    """The envelope of Canal's flat messages (`canal.mq.flatMessage`).

    These messages have no position, so the order of their topic is the only one. If keys change or
    tables are truncated, all messages of the table must be in one partition of the topic. MySQL's
    TIMESTAMP is written in the zone of Canal's own process; run it in UTC.

    Attributes:
        binary: How bytes are written.
        omits_unchanged: Updates lack columns that they did not change (`binlog_row_image` is not
            `FULL`).
    """

    binary: BinaryText = BinaryText.LATIN_1
    omits_unchanged: bool = False

    @property
    def absent(self) -> Absent:
        """What it means where an update lacks a column."""
        return Absent.UNCHANGED if self.omits_unchanged else Absent.NOTHING


@dataclass(frozen=True, kw_only=True)
class Maxwell:
    """The envelope of Maxwell's messages.

    With `output_binlog_position` a message has a position. Otherwise the order of the topic is the
    only one, and all messages of a table whose keys change must be in one partition. A row of a
    bootstrap without a position is older than all rows that have one. Maxwell does not report
    truncations.

    Attributes:
        binary: How bytes are written.
        omits_nulls: Columns that are null are left out (`output_nulls=false`).
        omits_unchanged: Updates lack columns that they did not change (`binlog_row_image` is not
            `FULL`).
    """

    binary: BinaryText = BinaryText.BASE64
    omits_nulls: bool = False
    omits_unchanged: bool = False

    def __post_init__(self) -> None:
        _check_absent(
            "Maxwell", self, "declare omits_nulls=False and run Maxwell with `output_nulls=true`"
        )

    @property
    def absent(self) -> Absent:
        """What it means where an update lacks a column."""
        return _absent(self)


@dataclass(frozen=True, kw_only=True)
class Dms:
    """The envelope of AWS DMS's JSON messages.

    With `IncludeTransactionDetails` a change has a position, which orders changes of MySQL and
    MariaDB. Otherwise the order of the topic is the only one, and all messages of a table whose
    keys change must be in one partition. A row of a full load has no position and is older than all
    rows that have one.

    A change of the key is found by a before image: an object next to `data`
    (`BeforeImageSettings`), or columns with a prefix. Without one the old row stays.

    Attributes:
        binary: How bytes are written.
        omits_nulls: Columns that are null are left out, and empty ones, which become null
            (`IncludeNullAndEmpty` is off, its default).
        omits_unchanged: Updates lack columns that they did not change, such as LOB columns of
            PostgreSQL and Oracle.
        before_prefix: The prefix of columns with the value before an update
            (`add-before-image-columns`).
    """

    binary: BinaryText = BinaryText.HEX
    omits_nulls: bool = True
    omits_unchanged: bool = False
    before_prefix: str = "BI_"

    def __post_init__(self) -> None:
        _check_absent(
            "Dms",
            self,
            "declare omits_nulls=False and set `IncludeNullAndEmpty` to true in the endpoint",
        )
        if not self.before_prefix:
            raise ValueError(
                "before_prefix: every name begins with nothing; name what columns of a before "
                "image begin with"
            )

    @property
    def absent(self) -> Absent:
        """What it means where an update lacks a column."""
        return _absent(self)


Envelope = Debezium | Canal | Maxwell | Dms


def has_positions(envelope: Envelope) -> bool:
    """Whether messages have a position in the database's log by declaration; Maxwell's and DMS's
    have one only if they are set up to.
    """
    return isinstance(envelope, Debezium)


def _absent(envelope: Maxwell | Dms) -> Absent:
    if envelope.omits_nulls:
        return Absent.NULL
    return Absent.UNCHANGED if envelope.omits_unchanged else Absent.NOTHING


def _check_absent(name: str, envelope: Maxwell | Dms, remedy: str) -> None:
    """Refuse two meanings of one thing."""
    if envelope.omits_nulls and envelope.omits_unchanged:
        problem = (
            "a column that an update lacks would be null by omits_nulls and unchanged by "
            "omits_unchanged"
        )
        raise DeclarationError(name, "omits_unchanged", f"{problem}; {remedy}")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits beyond which the check `keeps_up` warns.

    Attributes:
        behind: The age of unread messages in the source or the bronze table.
        quiet: The time without a change or heartbeat of a source; None is no limit.
        waiting: The number of incomplete rows, of which a column was never sent.
        quarantined: The number of rows in the quarantine; None is no limit.
    """

    behind: dt.timedelta = dt.timedelta(minutes=15)
    quiet: dt.timedelta | None = None
    waiting: int = 0
    quarantined: int | None = None

    def __post_init__(self) -> None:
        for name, optional in (("behind", False), ("quiet", True)):
            value = getattr(self, name)
            if not (optional and value is None) and (
                not isinstance(value, dt.timedelta) or value <= dt.timedelta(0)
            ):
                raise DeclarationError(
                    "Limits",
                    name,
                    f"{shown(value)} is no positive time; write timedelta(minutes=15)",
                )
        for name, optional in (("waiting", False), ("quarantined", True)):
            value = getattr(self, name)
            if not (optional and value is None) and (
                isinstance(value, bool) or not isinstance(value, int) or value < 0
            ):
                raise DeclarationError(
                    "Limits", name, f"{shown(value)} is no whole number of 0 or more"
                )


@dataclass(frozen=True, kw_only=True)
class Monitor:
    """How a table is monitored and compared with its database.

    Attributes:
        database: The database's table that it is compared with. None is no comparison.
        shards: For a source with `shards=`, the database's table of each shard, by the shard's
            value or a tuple of values. Other shards are not compared.
        every: How often it is compared; None is by command only.
        columns: The columns that are compared, besides the key; None is all.
        within: How far the lake may be behind the database; a row that differs may be on its way
            for this long.
        limits: The limits of the check `keeps_up`.
    """

    database: Database | None = None
    shards: Mapping[str, Database] | Mapping[tuple[str, ...], Database] = field(
        default_factory=dict, hash=False
    )
    every: Schedule | None = None
    columns: tuple[str, ...] | None = None
    within: dt.timedelta = dt.timedelta(minutes=2)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.database is not None and not isinstance(self.database, Database):
            raise DeclarationError(
                "Monitor", "database", f"{_shown(self.database)} is no Database(url, table)"
            )
        self._check_shards()
        if self.every is not None and not isinstance(self.every, Schedule):
            raise DeclarationError(
                "Monitor", "every", f"{shown(self.every)} is no schedule; write every(hours=1)"
            )
        if not isinstance(self.within, dt.timedelta) or self.within < dt.timedelta(0):
            raise DeclarationError(
                "Monitor", "within", f"{shown(self.within)} is no time; write timedelta(minutes=2)"
            )
        if not isinstance(self.limits, Limits):
            raise DeclarationError("Monitor", "limits", f"{shown(self.limits)} is no Limits(…)")
        if self.columns is not None:
            object.__setattr__(self, "columns", checked_columns("Monitor", "columns", self.columns))

    def _check_shards(self) -> None:
        if not isinstance(self.shards, Mapping):
            raise DeclarationError(
                "Monitor",
                "shards",
                f"{shown(self.shards)} is no mapping; write {{'eu': Database(url, 'shop.orders')}}",
            )
        if self.shards and self.database is not None:
            raise DeclarationError(
                "Monitor",
                "shards",
                "is declared with database=; a table replicates one database's table, or shards",
            )
        for name, database in self.shards.items():
            values = name if isinstance(name, tuple) else (name,)
            if not values or not all(isinstance(value, str) for value in values):
                raise DeclarationError(
                    "Monitor",
                    "shards",
                    f"{shown(name)} is no name of a shard; write the values in the names of its "
                    f"topics",
                )
            if not isinstance(database, Database):
                raise DeclarationError(
                    "Monitor",
                    "shards",
                    f"{shown(name)}: {_shown(database)} is no Database(url, table)",
                )

    @property
    def is_comparing(self) -> bool:
        """Whether it names what the table is compared with."""
        return self.database is not None or bool(self.shards)

    @property
    def databases(self) -> dict[tuple[str, ...], Database]:
        """What the table is compared with, by the values that name a shard; by none where the table
        replicates one database.

        Raises:
            InvalidValueError: nothing is declared.
        """
        if self.shards:
            return {
                name if isinstance(name, tuple) else (name,): database
                for name, database in self.shards.items()
            }
        if self.database is None:
            raise InvalidValueError(
                "database", None, "is not declared; write Monitor(database=Database(url, table))"
            )
        return {(): self.database}


def _shown(value: object) -> str:
    return shown(without_password(value) if isinstance(value, str) else value)


UNDECLARED = Monitor(every=every(minutes=15))  # of a table that declares none


READS_DELETION_VECTORS = {  # measured with the versions of the lock file
    "datafusion": True,
    "duckdb": True,
    "pandas": False,
    "polars": False,
    "pyarrow": False,
    "spark": True,
    "trino": True,
}


def checked_readers(table: str, readers: object) -> tuple[str, ...]:
    """The names of known readers."""
    if isinstance(readers, str) or not isinstance(readers, Iterable):
        raise DeclarationError(
            table, "readers", f"{shown(readers)} is not a list of readers; write [{shown(readers)}]"
        )
    several = tuple(readers)
    for one in several:
        if one not in READS_DELETION_VECTORS:
            known = ", ".join(READS_DELETION_VECTORS)
            raise DeclarationError(
                table,
                "readers",
                f"{shown(one)} is none of {known}; leave it out if it reads through one of these",
            )
    return several


def all_read_deletion_vectors(readers: Iterable[str]) -> bool:
    """Whether rows may be marked as deleted in files that stay, which makes small changes of large
    tables many times cheaper.
    """
    return all(READS_DELETION_VECTORS[one] for one in readers)
