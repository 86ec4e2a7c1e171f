"""Business databases as declared, and the envelopes of the tools that capture their changes."""

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

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


PLACEHOLDER = "__debezium_unavailable_value"
DECIMALS, TIMES, UNSIGNED = "decimal.handling.mode", "time.precision.mode", "bigint.unsigned.handling.mode"
BINARY, INTERVALS = "binary.handling.mode", "interval.handling.mode"
VALUE_SETTINGS = {  # of Debezium's connectors that decide how values are written; the first is what each of them does by default
    DECIMALS: ("precise", "string", "double"),
    TIMES: ("", "adaptive", "adaptive_time_microseconds", "connect", "isostring"),  # MySQL's default is not PostgreSQL's
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
        NOTHING: The table did not have it then: what is known of the column stays, and without that it is null.
        NULL: It is null.
        UNCHANGED: It has a value, which the update did not change: until a message carries it, the row is incomplete.
    """

    NOTHING = "nothing"
    NULL = "null"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, kw_only=True)
class Debezium:
    """The envelope of Debezium's connectors: full, without its schema, or flattened to the row.

    Attributes:
        unavailable: What the connector sends for a value that it does not have (`unavailable.value.placeholder`).
        tombstones_delete: A key without a value is a deletion. For rows flattened without `__op` and `__deleted`, the
            default of `ExtractNewRecordState`, in which nothing else reports deletions.
        settings: Settings of the connector that decide how values are written, by name (`decimal.handling.mode`,
            `time.precision.mode`, `bigint.unsigned.handling.mode`, `binary.handling.mode`, `interval.handling.mode`),
            for messages without a schema. Others have the connector's defaults.
    """

    unavailable: str = PLACEHOLDER
    tombstones_delete: bool = False
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name, value in self.settings.items():
            known = [one for one in VALUE_SETTINGS.get(name, ()) if one]
            if not known:
                remedy = f"{shown(name)} says nothing of how values are written; name some of {', '.join(VALUE_SETTINGS)}"
                raise DeclarationError("Debezium", "settings", remedy)
            if value not in known:
                raise DeclarationError("Debezium", "settings", f"{name}={shown(value)} is none of {', '.join(known)}")

    def setting(self, name: str, default: str = "") -> str:
        """A setting of the connector, or what it is by default, which may be the database's own."""
        return self.settings.get(name) or VALUE_SETTINGS[name][0] or default


@dataclass(frozen=True, kw_only=True)
class Canal:
    """The envelope of Canal's flat messages (`canal.mq.flatMessage`).

    These messages have no position, so the order of their topic is the only one. If keys change or tables are
    truncated, all messages of the table must be in one partition of the topic. MySQL's TIMESTAMP is written in the zone
    of Canal's own process; run it in UTC.

    Attributes:
        binary: How bytes are written.
        omits_unchanged: Updates lack columns that they did not change (`binlog_row_image` is not `FULL`).
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

    With `output_binlog_position` a message has a position. Otherwise the order of the topic is the only one, and all
    messages of a table whose keys change must be in one partition. A row of a bootstrap without a position is older
    than all rows that have one. Maxwell does not report truncations.

    Attributes:
        binary: How bytes are written.
        omits_nulls: Columns that are null are left out (`output_nulls=false`).
        omits_unchanged: Updates lack columns that they did not change (`binlog_row_image` is not `FULL`).
    """

    binary: BinaryText = BinaryText.BASE64
    omits_nulls: bool = False
    omits_unchanged: bool = False

    def __post_init__(self) -> None:
        _check_absent("Maxwell", self, "declare omits_nulls=False and run Maxwell with `output_nulls=true`")

    @property
    def absent(self) -> Absent:
        """What it means where an update lacks a column."""
        return _absent(self)


@dataclass(frozen=True, kw_only=True)
class Dms:
    """The envelope of AWS DMS's JSON messages.

    With `IncludeTransactionDetails` a change has a position, which orders changes of MySQL and MariaDB. Otherwise the
    order of the topic is the only one, and all messages of a table whose keys change must be in one partition. A row of
    a full load has no position and is older than all rows that have one.

    A change of the key is found by a before image: an object next to `data` (`BeforeImageSettings`), or columns with a
    prefix. Without one the old row stays.

    Attributes:
        binary: How bytes are written.
        omits_nulls: Columns that are null are left out, and empty ones, which become null (`IncludeNullAndEmpty` is off, its
            default).
        omits_unchanged: Updates lack columns that they did not change, such as LOB columns of PostgreSQL and Oracle.
        before_prefix: The prefix of columns with the value before an update (`add-before-image-columns`).
    """

    binary: BinaryText = BinaryText.HEX
    omits_nulls: bool = True
    omits_unchanged: bool = False
    before_prefix: str = "BI_"

    def __post_init__(self) -> None:
        _check_absent("Dms", self, "declare omits_nulls=False and set `IncludeNullAndEmpty` to true in the endpoint")
        if not self.before_prefix:
            raise ValueError("before_prefix: every name begins with nothing; name what columns of a before image begin with")

    @property
    def absent(self) -> Absent:
        """What it means where an update lacks a column."""
        return _absent(self)


Envelope = Debezium | Canal | Maxwell | Dms


def tells_position(envelope: Envelope) -> bool:
    """Whether messages tell where their change stands in the database's log, as far as the declaration says it.

    Maxwell and DMS tell it only where they are set up to.
    """
    return isinstance(envelope, Debezium)


def _absent(envelope: Maxwell | Dms) -> Absent:
    if envelope.omits_nulls:
        return Absent.NULL
    return Absent.UNCHANGED if envelope.omits_unchanged else Absent.NOTHING


def _check_absent(name: str, envelope: Maxwell | Dms, remedy: str) -> None:
    """Refuse two meanings of one thing."""
    if envelope.omits_nulls and envelope.omits_unchanged:
        problem = "a column that an update lacks would be null by omits_nulls and unchanged by omits_unchanged"
        raise DeclarationError(name, "omits_unchanged", f"{problem}; {remedy}")


PARQUET, JSON_LINES = (".parquet",), (".jsonl", ".ndjson", ".json")
_OTHERS = {".csv", ".tsv", ".txt", ".sql", ".dump", ".xml", ".avro", ".orc", ".gz", ".bz2", ".xz", ".zst", ".zip"}  # that a dump may be
_BINLOG = re.compile(r"[^:/'\s]+\.[0-9]{1,18}:[0-9]{1,18}")
_STATEMENT = re.compile(r"\b(?:MASTER|SOURCE)_LOG_FILE\s*=\s*'([^']+)'\s*,\s*(?:MASTER|SOURCE)_LOG_POS\s*=\s*([0-9]+)", re.IGNORECASE)
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


@dataclass(frozen=True)
class Snapshot:
    """A dump of a database's table at one position of its log.

    Files are Parquet (`*.parquet`), or JSON lines (`*.jsonl`, `*.ndjson`, `*.json`) with an object a line: a row with the
    columns' names in the database. All rows of a dump have the same columns.

    Attributes:
        path: A file, or a folder with the files side by side; in the project's folder where it is relative.
        as_of: The position, such as `mysql-bin.000003:1234`, or the statement `CHANGE MASTER TO …` that `mariadb-dump
            --master-data` writes; for PostgreSQL the consistent point of the slot whose snapshot was dumped, such as
            `0/16B3748`.
    """

    path: str
    as_of: str = field(kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path.strip() or "://" in self.path:
            raise DeclarationError("Snapshot", "path", f"{shown(self.path)} is no file or folder of this machine, or mounted there")
        if PurePath(self.path).suffix.lower() in _OTHERS:
            problem = f"{shown(self.path)} is no dump that is read; write it as Parquet, or as JSON lines (*.jsonl)"
            raise DeclarationError("Snapshot", "path", problem)
        stated = str(self.as_of).strip() if isinstance(self.as_of, str) else ""
        if found := _STATEMENT.search(stated):
            stated = f"{found[1]}:{found[2]}"
        if not _BINLOG.fullmatch(stated) and not _LSN.fullmatch(stated):
            problem = f"{shown(self.as_of)} is no place of a database's log, such as mysql-bin.000003:1234, or 0/16B3748 of PostgreSQL"
            raise DeclarationError("Snapshot", "as_of", f"{problem}; write it as the tool did that made the dump")
        object.__setattr__(self, "as_of", stated)

    def __str__(self) -> str:
        return f"{self.path} as of {self.as_of}"


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
            if not (optional and value is None) and (not isinstance(value, dt.timedelta) or value <= dt.timedelta(0)):
                raise DeclarationError("Limits", name, f"{shown(value)} is no positive time; write timedelta(minutes=15)")
        for name, optional in (("waiting", False), ("quarantined", True)):
            value = getattr(self, name)
            if not (optional and value is None) and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise DeclarationError("Limits", name, f"{shown(value)} is no whole number of 0 or more")


@dataclass(frozen=True, kw_only=True)
class Monitor:
    """How a table is monitored and compared with its database.

    Attributes:
        database: A URL such as `mysql+pymysql://reader:…@host/shop` or `postgresql+psycopg://…`, or `$NAME`, a variable of
            the environment that holds it. The user needs to read only. None is no comparison.
        table: The table there, as `schema.table`; a schema is a database in MariaDB.
        shards: For a source with `shards=`, the database's table of each shard, by the shard's value or a tuple of
            values. Other shards are not compared.
        every: How often it is compared; None is by command only.
        columns: The columns that are compared, besides the key; None is all.
        within: How far the lake may be behind the database; a row that differs may be on its way for this long.
        limits: The limits of the check `keeps_up`.
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
        raise DeclarationError(table, "readers", f"{shown(readers)} is not a list of readers; write [{shown(readers)}]")
    several = tuple(readers)
    for one in several:
        if one not in READS_DELETION_VECTORS:
            known = ", ".join(READS_DELETION_VECTORS)
            raise DeclarationError(table, "readers", f"{shown(one)} is none of {known}; leave it out if it reads through one of these")
    return several


def all_read_deletion_vectors(readers: Iterable[str]) -> bool:
    """Whether rows may be marked as deleted in files that stay, which makes small changes of large tables many times cheaper."""
    return all(READS_DELETION_VECTORS[one] for one in readers)
