"""Envelopes: how the tools that follow a database's log write its changes as messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import DeclarationError, shown

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
        tombstones_delete: A key without a value is a deletion, as no other message tells it: of rows flattened without
            `__op` and `__deleted`, which is `ExtractNewRecordState`'s default.
        settings: The connector's settings that say how it writes values, by their names there (`decimal.handling.mode`,
            `time.precision.mode`, `bigint.unsigned.handling.mode`, `binary.handling.mode`, `interval.handling.mode`), for messages that
            bring no schema; those that are not named are as they are by default.
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

    They tell no position: their topic's order is the only one. Where keys change, or a table is truncated, all messages of
    the table are in one partition of it; among several nobody can say what came first. MySQL's TIMESTAMP is written in the
    zone of Canal's own process, which is UTC.

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

    With `output_binlog_position` a message tells its position; without, its topic's order is the only one, and all messages
    of a table whose keys change are in one partition. A row of a bootstrap may have none where others have one: it comes
    before them all, as what the log tells is newer. Maxwell never tells that a table was truncated.

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

    With `IncludeTransactionDetails` a change tells a position, which has an order where the database is MySQL or MariaDB; of
    others, and without it, the topic's order is the only one, and all messages of a table whose keys change are in one
    partition. A row of a full load has no position: it comes before all that have one.

    A change of the key is known from a before image: the object beside `data`, of whatever name (`BeforeImageSettings`), or
    columns beside the row's own. Without one the old row stays.

    Attributes:
        binary: How bytes are written.
        omits_nulls: Columns that are null are left out, and empty ones, which become null (`IncludeNullAndEmpty` is off, its
            default).
        omits_unchanged: Updates lack columns that they did not change, such as LOB columns of PostgreSQL and Oracle.
        before_prefix: What the names of columns begin with that tell a value before an update (`add-before-image-columns`).
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
