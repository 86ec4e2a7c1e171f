"""What a monitor found of a table that follows a database: the rows that differ, and what it could not compare."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from lakechime_dagster.cdc import change
from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.comparing.checksum import ColumnPair, Comparison
from lakechime_dagster.cdc.comparing.compare import Fault, Key, Row
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lake.databases import Database
from lakechime_dagster.lake.feeds import shard_columns
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.lake.names import spelled_as

LAKE_LACKS = "the lake's table does not have it"  # why a column of the database is not compared


@dataclass(frozen=True, kw_only=True)
class Monitored:
    """A comparison at one cut of the database.

    Attributes:
        table: The lake's.
        cut: The place of the database's log at which it was read.
        version: Of the lake's table, the one that was read last.
        source_rows: In the database, of the ranges that were compared.
        lake_rows: In the lake.
        faults: Of each key whose rows differ, how.
        left_out: Keys that differ, and that changes above the cut have touched: the lake is past it with them.
        unchecked: Of each column that is not compared, why.
        unresolved: Ranges that were not compared, as too many queries were needed.
        is_passed: The lake had read messages above the cut, so that nothing below it can be on its way.
        is_truncated: The table was truncated after the cut: nothing can be said of its rows.
        seconds: That it took.
    """

    table: str
    cut: str
    version: int
    source_rows: int
    lake_rows: int
    faults: Mapping[Key, Fault]
    left_out: int = 0
    unchecked: Mapping[str, str]
    unresolved: int = 0
    is_passed: bool = False
    is_truncated: bool = False
    seconds: float = 0.0

    @property
    def is_same(self) -> bool:
        return not self.faults and not self.unresolved and not self.is_truncated

    @property
    def counts(self) -> dict[Fault, int]:
        """How many keys differ in each way."""
        found = Counter(self.faults.values())
        return {fault: found[fault] for fault in Fault}


@dataclass(frozen=True, kw_only=True)
class Part:
    """The rows of a table that follow one table of a database: all, or those of a shard.

    Attributes:
        database: Whose table.
        keys: The columns of the table's key.
        shard: Of the columns that the names of topics tell, which the database's table does not have, the values.
    """

    database: Database
    keys: tuple[str, ...]
    shard: Mapping[str, str]

    @property
    def name(self) -> str:
        """Of the shard; empty where all rows follow one table."""
        return ", ".join(self.shard.values())

    @property
    def told(self) -> str:
        """What stands before an error that concerns this part alone."""
        return f"shard {self.name}: " if self.shard else ""

    @property
    def own_keys(self) -> tuple[str, ...]:
        """The columns of the key that the database's table has."""
        return tuple(name for name in self.keys if name not in self.shard)

    def own(self, key: change.Key) -> change.Key:
        """A key of the table as the database's has it."""
        return tuple(value for name, value in zip(self.keys, key, strict=True) if name not in self.shard)

    def whole(self, key: Key) -> Key:
        """A key of the database's table as that of the lake has it."""
        own = iter(key)
        return tuple(self.shard[name] if name in self.shard else next(own) for name in self.keys)


def parts_of(monitor: Monitor, keys: tuple[str, ...], shards: str) -> list[Part]:
    """What is compared of a table with which database, by its key and the expression by which the names of topics tell shards.

    Raises:
        InvalidValueError: The monitor names no database.
    """
    told = shard_columns(shards)
    return [Part(database=one, keys=keys, shard=dict(zip(told, values, strict=True))) for values, one in monitor.databases.items()]


def together(table: str, shards: Mapping[str, Monitored]) -> Monitored:
    """The comparisons of all parts of a table, by the names of their shards, as one of the table."""
    found = list(shards.values())
    unchecked: dict[str, str] = {}
    for one in found:
        unchecked |= one.unchecked
    cuts = [f"{name}: {one.cut}" if name else one.cut for name, one in shards.items()]
    return Monitored(
        table=table, cut="; ".join(cuts), version=min(one.version for one in found),
        source_rows=sum(one.source_rows for one in found), lake_rows=sum(one.lake_rows for one in found),
        faults={key: fault for one in found for key, fault in one.faults.items()}, left_out=sum(one.left_out for one in found),
        unchecked=unchecked, unresolved=sum(one.unresolved for one in found), is_passed=all(one.is_passed for one in found),
        is_truncated=any(one.is_truncated for one in found), seconds=sum(one.seconds for one in found),
    )  # fmt: skip


def key_shown(key: Key) -> str:
    """A key as commands print it and take it: a JSON array of the canonical texts of its columns."""
    return orjson.dumps(list(key)).decode()


def key_given(text: str, size: int) -> Key:
    """The key that a person gives as a JSON array; its numbers may be numbers.

    Raises:
        InvalidValueError: It is none, or has not so many parts.
    """
    try:
        parts = orjson.loads(text)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or len(parts) != size or not all(type(part) in (str, int) for part in parts):
        raise InvalidValueError(
            "key", text, f"is no JSON array of {size} texts or whole numbers, such as [1]; write it as the monitor does"
        )
    return tuple(map(str, parts))


def comparison_of(
    dialect: Dialect, source: Mapping[str, str], lake: Mapping[str, str], keys: Sequence[str], only: Sequence[str] | None
) -> tuple[Comparison, dict[str, str]]:
    """What of two tables is compared, by their columns and types, and of each other column why it is not.

    Columns are called as the database calls them, also where the lake has or names one in other letters' case.

    Raises:
        InvalidValueError: `only` names a column that one of the tables does not have, or a column of the key cannot be compared.
    """
    lake, keys = spelled_as(source, lake), list(spelled_as(source, dict.fromkeys(keys)))
    only = None if only is None else list(spelled_as(source, dict.fromkeys(only)))
    for name in only or ():
        if name not in source or name not in lake:
            raise InvalidValueError("columns", name, f"is no column of both tables; they are {', '.join(n for n in source if n in lake)}")
    wanted = [name for name in source if name in lake and (only is None or name in only or name in keys)]
    pairs = [ColumnPair(name=name, source_type=source[name], lake_type=lake[name]) for name in wanted]
    comparison = Comparison.of(dialect, pairs, keys)
    unchecked = {**comparison.unchecked}
    unchecked |= {name: LAKE_LACKS for name in source if name not in lake}
    unchecked |= {name: "the database's table does not have it" for name in lake if name not in source}
    return comparison, unchecked


def canonical_key(comparison: Comparison, key: change.Key) -> Key:
    """The key of a change as comparisons have it."""
    return tuple(comparison.columns[name][1].twin(value) for name, value in zip(comparison.keys, key, strict=True))


@dataclass(frozen=True)
class KeptRows:
    """Rows of the source at the cut, kept for when they are compared again."""

    rows: Sequence[Row]

    def at(self, keys: Sequence[Key]) -> list[Row]:
        """All rows of these keys."""
        wanted = set(keys)
        return [row for row in self.rows if row[0] in wanted]


def in_batches(keys: Iterable[Key], size: int) -> list[list[Key]]:
    """The keys, so many at once."""
    every = list(keys)
    return [every[start : start + size] for start in range(0, len(every), size)]


Document = dict[str, Any]


def document(found: Monitored, most: int = 50) -> Document:
    """The finding as JSON; of the keys that differ the first so many."""
    shown = dict(list(found.faults.items())[:most])
    return {
        "table": found.table, "same": found.is_same, "cut": found.cut, "version": found.version, "source_rows": found.source_rows,
        "lake_rows": found.lake_rows, **{fault.value: count for fault, count in found.counts.items()},
        "keys": {key_shown(key): fault.value for key, fault in shown.items()}, "left_out": found.left_out,
        "unchecked": dict(found.unchecked), "not_compared_ranges": found.unresolved, "passed": found.is_passed,
        "truncated": found.is_truncated, "seconds": round(found.seconds, 3),
    }  # fmt: skip
