"""Partition values: typed levels, and the one canonical text by which partitions are compared."""

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from typing_extensions import assert_never

from lakechime_dagster.compat import StrEnum, date_of_iso, datetime_of_iso
from lakechime_dagster.errors import InvalidValueError

MAX_NAME = 512  # characters; the widest key that every supported database can index
# control characters, and halves of surrogate pairs
UNSTORABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def checked_text(field: str, value: object, *, limit: int = MAX_NAME, empty: bool = False) -> str:
    """The value itself, if it is text that any store can hold.

    At most `limit` characters, no control characters, no lone surrogates, no surrounding white
    space.

    Raises:
        InvalidValueError: naming field, value and remedy.
    """
    if not isinstance(value, str):
        raise InvalidValueError(field, value, f"is a {type(value).__name__}; give text")
    if not value and not empty:
        raise InvalidValueError(field, value, "is empty; give at least one character")
    if len(value) > limit:
        raise InvalidValueError(field, value, f"has {len(value)} characters; give at most {limit}")
    if found := UNSTORABLE.search(value):
        is_control = ord(found.group()) < 128
        raise InvalidValueError(
            field,
            value,
            "holds a control character; remove it"
            if is_control
            else "holds half of a surrogate pair; encode it as UTF-8",
        )
    if value != value.strip():
        raise InvalidValueError(field, value, "begins or ends with white space; strip it")
    return value


def storable(text: str) -> str:
    """The text with a replacement character for each one that not every store can hold: of messages
    that others wrote.
    """
    return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def printable(text: str) -> str:
    """The text for a person: what would move a cursor, turn the order of reading or hide is written
    as its code after a backslash.
    """
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def shortened(text: str, limit: int) -> str:
    """The text as `checked_text` takes it: storable, without white space around it, and ending in
    `…` where more than `limit` was cut.
    """
    kept = storable(text.strip()).strip()
    return kept if len(kept) <= limit else f"{kept[: limit - 1].rstrip()}…"


YEAR_10000 = 253_402_300_800_000  # in milliseconds since the epoch


def checked_milliseconds(field: str, value: object) -> int:
    """The value itself, if it is a time in milliseconds since the epoch between 1970 and 9999."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValueError(
            field, value, "is not a whole number; give milliseconds since the epoch"
        )
    if not 0 <= value < YEAR_10000:
        raise InvalidValueError(
            field, value, "is not a time between 1970 and 9999; give milliseconds since the epoch"
        )
    return value


type_names = "string, int, date, timestamp, boolean or decimal"
MAX_CANONICAL = 512  # characters; PostgreSQL refuses index rows above 2,704 bytes
MAX_DIGITS = 76  # of a decimal; twice what Spark, Delta and Iceberg hold
UNPARTITIONED = ""  # canonical text of "no partition"; never NULL, which no index orders
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # how folders spell that there is no value
PartitionValue = Any  # a JSON value


class LevelType(StrEnum):
    """How the values of one partition level compare."""

    STRING = "string"
    INT = "int"
    DATE = "date"
    TIMESTAMP = "timestamp"
    BOOLEAN = "boolean"
    DECIMAL = "decimal"

    @classmethod
    def of(cls, field: str, name: object) -> "LevelType":
        """The type of that name, Spark's spellings of integers and text included."""
        aliases = {
            "integer": "int",
            "long": "int",
            "bigint": "int",
            "smallint": "int",
            "short": "int",
            "tinyint": "int",
            "byte": "int",
            "str": "string",
            "bool": "boolean",
            "varchar": "string",
            "char": "string",
            "timestamp_ntz": "timestamp",
        }
        text = str(name).lower()
        text = "decimal" if text.startswith("decimal") else text
        try:
            return cls(aliases.get(text, text))
        except ValueError:
            raise InvalidValueError(field, name, f"is not a level type; use {type_names}") from None


@dataclass(frozen=True)
class PartitionLevels:
    """The partition levels of a table, outermost first: names and types."""

    names: tuple[str, ...] = ()
    types: tuple[LevelType, ...] = ()

    @classmethod
    def of(cls, levels: Mapping[str, str | LevelType] | None) -> "PartitionLevels":
        """Levels as a user writes them: `{"flight_date": "date", "hour": "int"}`."""
        if not levels:
            return cls()
        names = tuple(checked_text("partition level name", name, limit=128) for name in levels)
        return cls(
            names,
            tuple(LevelType.of(f"partition level {name!r}", kind) for name, kind in levels.items()),
        )

    def __len__(self) -> int:
        return len(self.names)

    def as_dict(self) -> dict[str, str]:
        return {name: kind.value for name, kind in zip(self.names, self.types, strict=True)}

    def typed(self, partition: Sequence[PartitionValue]) -> tuple[PartitionValue, ...]:
        """The values in the types of their levels.

        Raises:
            InvalidValueError: for a wrong number of levels or a value that its level's type cannot
                hold.
        """
        if len(partition) != len(self):
            declared = ", ".join(self.names) or "none"
            raise InvalidValueError(
                "partition",
                list(partition),
                f"has {len(partition)} levels; the table declares {len(self)} ({declared})",
            )
        return tuple(
            typed_value(f"partition level {name!r}", value, kind)
            for name, value, kind in zip(self.names, partition, self.types, strict=True)
        )


def typed_value(field: str, value: PartitionValue, kind: LevelType) -> PartitionValue:
    """One value in the form that its type is compared in; null stays null."""
    if value is None:
        return None
    try:
        match kind:
            case LevelType.STRING:
                return value if isinstance(value, str) else canonical_json(value).strip('"')
            case LevelType.INT:
                return _integer(value)
            case LevelType.DATE:
                return _date(value)
            case LevelType.TIMESTAMP:
                return _timestamp(value)
            case LevelType.BOOLEAN:
                return {"true": True, "false": False}[str(value).lower()]
            case LevelType.DECIMAL:
                return _decimal(value)
            case _:
                assert_never(kind)
    except (ValueError, KeyError, TypeError, InvalidOperation):
        raise InvalidValueError(
            field, value, f"is not a {kind.value}; send a value of the level's declared type"
        ) from None


def canonical_partition(
    partition: Sequence[PartitionValue] | None, levels: PartitionLevels | None = None
) -> str:
    """The text by which partitions are compared; `""` for an unpartitioned change.

    Idempotent: canonical text read back as JSON gives itself again.

    Raises:
        InvalidValueError: above 512 characters, or when the values do not fit the declared levels.
    """
    if partition is None:
        return UNPARTITIONED
    text = canonical_json(list(levels.typed(partition) if levels else partition))
    if len(text) > MAX_CANONICAL:
        raise InvalidValueError(
            "partition", text, f"has {len(text)} characters of JSON; give at most {MAX_CANONICAL}"
        )
    return text


def fitting_canonical(partition: Sequence[PartitionValue] | None, levels: PartitionLevels) -> str:
    """The canonical text by the levels if the values fit them, else as they were sent.

    For events that were registered before the levels were declared: what does not fit stays what it
    was.
    """
    try:
        return canonical_partition(partition, levels)
    except InvalidValueError:
        return canonical_partition(partition)


def recanonical(canonical: str, levels: PartitionLevels) -> str:
    """A canonical text by other levels, if its values fit them."""
    return (
        UNPARTITIONED
        if canonical == UNPARTITIONED
        else fitting_canonical(json.loads(canonical), levels)
    )


def checked_partition(value: object) -> tuple[PartitionValue, ...] | None:
    """A partition from outside as an immutable tuple of JSON values, or None."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidValueError(
            "partition",
            value,
            'is not a list with a value per level; give JSON such as ["2013-01-01", 5]',
        )
    if not value:
        raise InvalidValueError(
            "partition", value, "has no level; give null for an unpartitioned table"
        )
    try:
        frozen = tuple(_frozen_level(index, level) for index, level in enumerate(value))
        text = canonical_partition(frozen)
    except InvalidValueError:
        raise
    except (TypeError, ValueError, RecursionError):
        raise InvalidValueError(
            "partition", value, "cannot be written as JSON; send JSON values"
        ) from None
    if UNSTORABLE.search(text):
        raise InvalidValueError(
            "partition",
            value,
            "holds half of a surrogate pair or a control character; encode it as UTF-8",
        )
    return frozen


_ENCODER = json.JSONEncoder(
    separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False
)


def canonical_json(value: object) -> str:
    """JSON in one spelling: no spaces, keys sorted, UTF-8 kept."""
    return _ENCODER.encode(value)


def _frozen_level(index: int, value: object) -> PartitionValue:
    field = f"partition[{index}]"
    if isinstance(value, dt.datetime):
        return _timestamp(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, str):
        return (
            checked_text(field, value, limit=MAX_CANONICAL, empty=True)
            if value.strip() == value
            else _padded(field, value)
        )
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise InvalidValueError(
                field, value, "is not a JSON number; send a finite number or text"
            )
        return value
    if isinstance(value, Mapping):
        return FrozenLevel(canonical_json(value))
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return tuple(_frozen_level(index, item) for item in value)
    raise InvalidValueError(field, value, f"is a {type(value).__name__}; send a JSON value")


def _padded(field: str, value: str) -> str:
    checked_text(field, value.strip(), limit=MAX_CANONICAL, empty=True)
    return value


class FrozenLevel(dict[str, PartitionValue]):
    """A complex partition value (a JSON object) that hashes by its canonical text."""

    def __init__(self, canonical: str) -> None:
        super().__init__(json.loads(canonical))
        self.canonical = canonical

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.canonical)


def _decimal(value: object) -> str:
    number = Decimal(str(value).strip())
    if (
        isinstance(value, bool)
        or not number.is_finite()
        or abs(number.adjusted()) > MAX_DIGITS
        or len(number.as_tuple().digits) > MAX_DIGITS
    ):
        raise ValueError
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _integer(value: object) -> int:
    if isinstance(value, bool):
        raise ValueError
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError
        return int(value)
    text = str(value).strip()
    if not text.lstrip("+-").isascii() or not text.lstrip("+-").isdigit():
        raise ValueError
    return int(text)


def _date(value: object) -> str:
    if isinstance(value, dt.datetime):
        value = value.date()
    if isinstance(value, dt.date):
        return value.isoformat()
    if not isinstance(value, str):
        raise ValueError
    return date_of_iso(value.strip()).isoformat()


def _timestamp(value: object) -> str:
    moment = value if isinstance(value, dt.datetime) else datetime_of_iso(str(value).strip())
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.timezone.utc).replace(tzinfo=None)
    text = moment.isoformat(sep=" ", timespec="microseconds")
    return text.rstrip("0").rstrip(".") if "." in text else text
