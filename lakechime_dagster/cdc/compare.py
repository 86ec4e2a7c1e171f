"""Compares a CDC table with its database by checksums of key ranges, down to the rows that
differ.
"""

import datetime
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Protocol

import orjson

from lakechime_dagster.cdc import change
from lakechime_dagster.cdc.canonical import Canonical, Dialect, ValueKind, canonical
from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.tables.databases import Database, Monitor
from lakechime_dagster.tables.names import folded, spelled_as
from lakechime_dagster.tables.sources import shard_columns

Key = tuple[str, ...]
Row = tuple[Key, int]  # its key and its hash
Range = tuple[Key | None, Key | None]


@dataclass(frozen=True)
class Summary:
    """The checksum of a range of keys."""

    count: int
    distinct: int
    sum: int


class Side(Protocol):
    """One of the two tables. A range is from a key, exclusive, to another, inclusive; None is an
    open end.

    Keys are equal on both sides exactly where their rows correspond, and both sides order them
    alike.
    """

    def summary(self, low: Key | None, high: Key | None) -> Summary: ...

    def rows(self, low: Key | None, high: Key | None) -> Sequence[Row]:
        """All rows of a range."""
        ...

    def middle(self, low: Key | None, high: Key | None, offset: int) -> Key | None:
        """The key at this offset of the range; None beyond its end."""
        ...

    def at(self, keys: Sequence[Key]) -> Sequence[Row]:
        """All rows of these keys."""
        ...


def chunks(side: Side, size: int) -> Iterator[Range]:
    """All keys in ranges of so many rows of one side, so that no query takes the database long,
    given an index of the key.
    """
    low: Key | None = None
    while (high := side.middle(low, None, size - 1)) is not None:
        yield low, high
        low = high
    yield low, None


class Fault(StrEnum):
    """How the rows of a key differ."""

    MISSING = "missing"  # the source has it, the lake has not
    EXTRA = "extra"  # the lake has it, the source has not
    DIFFERENT = "different"
    DUPLICATE = "duplicate"  # one side has it more often


@dataclass(frozen=True)
class Differences:
    """What a comparison found.

    Attributes:
        faults: Of each key whose rows differ, how.
        unresolved: Ranges that were not compared, because the queries were used up.
        source_rows: The rows of the source in the ranges that were compared.
        lake_rows: Those of the lake.
    """

    faults: Mapping[Key, Fault]
    unresolved: tuple[Range, ...] = ()
    source_rows: int = field(default=0, compare=False)
    lake_rows: int = field(default=0, compare=False)


def compare(
    source: Side,
    lake: Side,
    *,
    ranges: Sequence[Range] = ((None, None),),
    leaf: int = 1_000,
    max_queries: int = 1_000,
) -> Differences:
    """The rows in which two tables differ.

    A range whose summaries differ is halved until it has at most `leaf` rows on either side; those
    are read. Ranges are resolved in order, so that a comparison that its `max_queries` end has rows
    to show; the two summaries of each given range are not among these.
    """
    faults, queries, source_rows, lake_rows = dict[Key, Fault](), -2 * len(ranges), 0, 0
    ahead = list(reversed(ranges))
    while ahead and queries + _OF_A_RANGE <= max_queries:
        low, high = ahead.pop()
        ours, theirs = source.summary(low, high), lake.summary(low, high)
        queries += 2
        middle = None
        if ours != theirs and max(ours.count, theirs.count) > leaf:
            larger, count = (
                (source, ours.count) if ours.count >= theirs.count else (lake, theirs.count)
            )
            middle = larger.middle(low, high, count // 2 - 1)
            queries += 1
        if middle is not None and middle != high:
            ahead += [(middle, high), (low, middle)]
            continue
        source_rows, lake_rows = source_rows + ours.count, lake_rows + theirs.count
        if ours != theirs:
            faults |= _faults(source.rows(low, high), lake.rows(low, high))
            queries += 2
    return Differences(faults, tuple(reversed(ahead)), source_rows, lake_rows)


_OF_A_RANGE = 5  # queries at most: two summaries, a middle, the rows of both sides


def confirmed(
    found: Differences, source: Iterable[Row], lake: Side, *, at_once: int = 500
) -> Differences:
    """The differences that remain when the lake's rows of their keys are read again; a row on its
    way may have arrived.

    Args:
        found: The differences.
        source: The source's rows of these keys at its snapshot.
        lake: The lake now.
        at_once: Keys of a query.
    """
    rows = [row for keys in in_batches(found.faults, at_once) for row in lake.at(keys)]
    return replace(found, faults=_faults([row for row in source if row[0] in found.faults], rows))


def _faults(source: Iterable[Row], lake: Iterable[Row]) -> dict[Key, Fault]:
    ours, theirs = _by_key(source), _by_key(lake)
    return {
        key: _fault(ours.get(key), theirs.get(key))
        for key in ours | theirs
        if ours.get(key) != theirs.get(key)
    }


def _by_key(rows: Iterable[Row]) -> dict[Key, Counter[int]]:
    found: dict[Key, Counter[int]] = {}
    for key, value in rows:
        found.setdefault(key, Counter())[value] += 1
    return found


def _fault(ours: Counter[int] | None, theirs: Counter[int] | None) -> Fault:
    if theirs is None:
        return Fault.MISSING
    if ours is None:
        return Fault.EXTRA
    return Fault.DIFFERENT if ours.total() == theirs.total() else Fault.DUPLICATE


# Checksums, as queries of both sides

NULL = "n"
_HASHES = {
    Dialect.MYSQL: "CAST(CONV(LEFT(MD5({}), 16), 16, -10) AS SIGNED)",
    Dialect.POSTGRES: "('x' || left(md5(convert_to({}, 'UTF8')), 16))::bit(64)::bigint",
    Dialect.SPARK: "CAST(conv(left(md5({}), 16), 16, -10) AS BIGINT)",
}
_BINARY_ORDER = {
    Dialect.MYSQL: "CAST({} AS BINARY)",
    Dialect.POSTGRES: '({}) COLLATE "C"',
    Dialect.SPARK: "{}",
}
_DISTINCT = {
    Dialect.MYSQL: "COUNT(DISTINCT {})",
    Dialect.POSTGRES: "COUNT(DISTINCT ({}))",
    Dialect.SPARK: "COUNT(DISTINCT {})",
}


# Runs a statement with parameters by name (`:p0`), as SQLAlchemy's `text` and Spark's `sql` take
# them. Spark 4.1 beside Delta 4.4 binds them only where
# `spark.sql.legacy.parameterSubstitution.constantsOnly` is true.
Run = Callable[[str, Mapping[str, Any]], Sequence[Sequence[Any]]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What of a table is compared.

    Attributes:
        dialect: The database's.
        keys: The columns that name a row, as the database names them.
        columns: All columns that have canonical texts, by their names in the database.
        unchecked: Of each other column of one of the tables, why it is not compared.
    """

    dialect: Dialect
    keys: tuple[str, ...]
    columns: Mapping[str, Canonical]
    unchecked: Mapping[str, str]

    def source(self, run: Run, *table: str) -> "Queries":
        """The database's table as one side, by the parts of its name."""
        return self._queries(
            run,
            self.dialect,
            table,
            {name: found.source for name, found in self.columns.items()},
            {},
        )

    def lake(self, run: Run, *table: str, only: Mapping[str, str | int] | None = None) -> "Queries":
        """The lake's table as one side; of its rows those alone whose columns have these values, as
        those of one shard.
        """
        return self._queries(
            run,
            Dialect.SPARK,
            table,
            {name: found.lake for name, found in self.columns.items()},
            only or {},
        )

    def _queries(
        self,
        run: Run,
        dialect: Dialect,
        table: Sequence[str],
        templates: Mapping[str, str],
        only: Mapping[str, Any],
    ) -> "Queries":
        texts = {
            name: template.replace("{}", _column(dialect, name))
            for name, template in templates.items()
        }
        return Queries(
            run=run,
            dialect=dialect,
            table=".".join(quoted(dialect, part) for part in table),
            keys=tuple(
                _key(dialect, self.columns[key], _column(dialect, key), texts[key])
                for key in self.keys
            ),
            row=_row(dialect, texts.values()),
            values=tuple(texts.values()),
            only={_column(dialect, name): value for name, value in only.items()},
        )


@dataclass(frozen=True, kw_only=True)
class KeyColumn:
    """A column of a key: its canonical text, the expression by which rows are ordered alike
    everywhere, and a text as parameter.
    """

    text: str
    order: str
    parameter: Callable[[str], Any]


@dataclass(frozen=True, kw_only=True)
class Queries:
    """A table as one side of a comparison, by queries of it."""

    run: Run
    dialect: Dialect
    table: str
    keys: tuple[KeyColumn, ...]
    row: str
    values: tuple[str, ...]
    only: Mapping[str, Any]

    @property
    def hash(self) -> str:
        return _HASHES[self.dialect].format(self.row)

    def summary(self, low: Key | None, high: Key | None) -> Summary:
        """The count of rows of a range, that of distinct keys, and the sum of hashes."""
        names = [f"k{i}" for i in range(len(self.keys))]
        inner, parameters = self._from(
            [f"{key.order} AS {name}" for key, name in zip(self.keys, names, strict=True)],
            low,
            high,
        )
        distinct = _DISTINCT[self.dialect].format(", ".join(names))
        ((count, keys, total),) = self.run(
            f"SELECT COUNT(*), {distinct}, COALESCE(SUM(CAST(h AS DECIMAL(38, 0))), 0) FROM "
            f"({inner}) r",
            parameters,
        )
        return Summary(int(count), int(keys), int(total))

    def rows(self, low: Key | None, high: Key | None) -> list[Row]:
        """All rows of a range: the texts of the key of each, and its hash."""
        return self._rows(*self._from([key.text for key in self.keys], low, high))

    def middle(self, low: Key | None, high: Key | None, offset: int) -> Key | None:
        """The key before which so many rows of the range come; None beyond its end."""
        where, parameters = self._range(low, high)
        texts, order = (
            ", ".join(key.text for key in self.keys),
            ", ".join(key.order for key in self.keys),
        )
        found = self.run(
            f"SELECT {texts} FROM {self.table} t WHERE {where} ORDER BY {order} LIMIT 1 OFFSET "
            f"{int(offset)}",
            parameters,
        )
        return next((tuple(row) for row in found), None)

    def at(self, keys: Sequence[Key]) -> list[Row]:
        """As `rows`, of these keys; at least one."""
        return self._rows(*self._at(keys, [key.text for key in self.keys]))

    def values_at(self, keys: Sequence[Key]) -> dict[Key, tuple[str | None, ...]]:
        """Of each of these keys that exists, the canonical texts of the columns that are
        compared.
        """
        size = len(self.keys)
        found = self.run(*self._at(keys, [*(key.text for key in self.keys), *self.values]))
        return {tuple(row[:size]): tuple(row[size:-1]) for row in found}

    def _rows(self, sql: str, parameters: Mapping[str, Any]) -> list[Row]:
        return [(tuple(key), value) for *key, value in self.run(sql, parameters)]

    def _at(self, keys: Sequence[Key], columns: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
        bound = _Bound()
        only = self._only(bound)
        conditions = [
            " AND ".join(
                f"{one.order} = {bound(one, text)}"
                for one, text in zip(self.keys, key, strict=True)
            )
            for key in keys
        ]
        return self._select(columns, [*only, f"({' OR '.join(conditions)})"]), bound.parameters

    def _from(
        self, columns: Sequence[str], low: Key | None, high: Key | None
    ) -> tuple[str, Mapping[str, Any]]:
        where, parameters = self._range(low, high)
        return self._select(columns, [where]), parameters

    def _select(self, columns: Sequence[str], conditions: Sequence[str]) -> str:
        return (
            f"SELECT {', '.join(columns)}, {self.hash} AS h FROM {self.table} t WHERE "
            f"{' AND '.join(conditions)}"
        )

    def _range(self, low: Key | None, high: Key | None) -> tuple[str, Mapping[str, Any]]:
        bound = _Bound()
        conditions = self._only(bound)
        if low is not None:
            conditions += self._beyond(
                ">", [bound(*each) for each in zip(self.keys, low, strict=True)], is_inclusive=False
            )
        if high is not None:
            conditions += self._beyond(
                "<", [bound(*each) for each in zip(self.keys, high, strict=True)], is_inclusive=True
            )
        return " AND ".join(conditions) or "1 = 1", bound.parameters

    def _only(self, bound: "_Bound") -> list[str]:
        return [f"{name} = {bound.value(value)}" for name, value in self.only.items()]

    def _beyond(self, sign: str, bounds: Sequence[str], *, is_inclusive: bool) -> list[str]:
        """Conditions for keys on one side of another, column by column; the first one serves an
        index of several columns.
        """
        orders = [key.order for key in self.keys]
        cases = [
            " AND ".join(
                [
                    *(
                        f"{order} = {bound}"
                        for order, bound in zip(orders[:i], bounds[:i], strict=True)
                    ),
                    (
                        f"{orders[i]} {sign}{'=' if is_inclusive and i == len(orders) - 1 else ''} "
                        f"{bounds[i]}"
                    ),
                ]
            )
            for i in range(len(orders))
        ]
        return (
            cases
            if len(cases) == 1
            else [f"{orders[0]} {sign}= {bounds[0]}", f"(({') OR ('.join(cases)}))"]
        )


class _Bound:
    """The parameters of a statement as they are bound."""

    def __init__(self) -> None:
        self.parameters: dict[str, Any] = {}

    def __call__(self, key: KeyColumn, text: str) -> str:
        return self.value(key.parameter(text))

    def value(self, value: Any) -> str:
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f":{name}"


def quoted(dialect: Dialect, name: str) -> str:
    """A name in SQL; a colon is kept from SQLAlchemy, which would take what follows for a
    parameter.
    """
    mark = '"' if dialect is Dialect.POSTGRES else "`"
    exact = mark + name.replace(mark, mark * 2) + mark
    return exact if dialect is Dialect.SPARK else exact.replace(":", "\\:")


def _column(dialect: Dialect, name: str) -> str:
    """A column of the table, which no column of a result can be taken for."""
    return f"t.{quoted(dialect, name)}"


def _row(dialect: Dialect, texts: Iterable[str]) -> str:
    """The text of a row: of each column its length in characters, a colon and itself, or the sign
    of null.
    """
    match dialect:
        case Dialect.MYSQL:
            return (
                "CONCAT("
                + ", ".join(
                    f"COALESCE(CONCAT(CHAR_LENGTH({text}), ':', {text}), '{NULL}')"
                    for text in texts
                )
                + ")"
            )
        case Dialect.POSTGRES:
            return " || ".join(
                f"COALESCE(length({text}) || ':' || ({text}), '{NULL}')" for text in texts
            )
        case Dialect.SPARK:
            return (
                "concat("
                + ", ".join(
                    f"coalesce(char_length({text}) || ':' || {text}, '{NULL}')" for text in texts
                )
                + ")"
            )


def _key(dialect: Dialect, found: Canonical, column: str, text: str) -> KeyColumn:
    """A column of the key, ordered by itself where every engine orders its type alike, and else by
    its text's bytes.
    """
    kind, is_spark = found.kind, dialect is Dialect.SPARK
    if kind is ValueKind.NUMBER and found.is_ordered_as_number:
        return KeyColumn(text=text, order=column, parameter=_number)
    if kind is ValueKind.DATE:
        return KeyColumn(text=text, order=column, parameter=_date)
    if kind is ValueKind.BINARY and not is_spark:
        return KeyColumn(text=text, order=column, parameter=bytes.fromhex)
    if kind is ValueKind.UUID and dialect is Dialect.POSTGRES:
        return KeyColumn(text=text, order=column, parameter=uuid.UUID)
    as_parameter = str.encode if dialect is Dialect.MYSQL else str
    return KeyColumn(text=text, order=_BINARY_ORDER[dialect].format(text), parameter=as_parameter)


def _number(text: str) -> int | Decimal:
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() and abs(number) < 2**63 else number


def _date(days: str) -> datetime.date:
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=int(days))


# What a comparison at a consistent snapshot found

LAKE_LACKS = "the lake's table does not have it"  # why a column of the database is not compared


@dataclass(frozen=True, kw_only=True)
class Monitored:
    """A comparison at one consistent snapshot of the database.

    Attributes:
        table: The lake's.
        snapshot: The position of the database's log at which it was read.
        version: Of the lake's table, the one that was read last.
        source_rows: In the database, of the ranges that were compared.
        lake_rows: In the lake.
        faults: Of each key whose rows differ, how.
        left_out: Keys that differ, and that changes above the snapshot have touched.
        unchecked: Of each column that is not compared, why.
        unresolved: Ranges that were not compared, as too many queries were needed.
        is_passed: The lake had read messages above the snapshot, so that nothing below it can be on
            its way.
        is_truncated: The table was truncated after the snapshot: its rows cannot be compared.
        seconds: That it took.
    """

    table: str
    snapshot: str
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
class DatabasePart:
    """The rows of a table that replicate one table of a database: all, or those of a shard.

    Attributes:
        database: Whose table.
        keys: The columns of the table's key.
        shard: The values of the columns that topics' names give, which the database's table does
            not have.
    """

    database: Database
    keys: tuple[str, ...]
    shard: Mapping[str, str]

    @property
    def name(self) -> str:
        """Of the shard; empty where all rows replicate one table."""
        return ", ".join(self.shard.values())

    @property
    def label(self) -> str:
        """What precedes an error that concerns this part alone."""
        return f"shard {self.name}: " if self.shard else ""

    @property
    def own_keys(self) -> tuple[str, ...]:
        """The columns of the key that the database's table has."""
        return tuple(name for name in self.keys if name not in self.shard)

    def own(self, key: change.Key) -> change.Key:
        """A key of the table as the database's has it."""
        return tuple(
            value for name, value in zip(self.keys, key, strict=True) if name not in self.shard
        )

    def whole(self, key: Key) -> Key:
        """A key of the database's table as that of the lake has it."""
        own = iter(key)
        return tuple(self.shard[name] if name in self.shard else next(own) for name in self.keys)


def parts_of(monitor: Monitor, keys: tuple[str, ...], shards: str) -> list[DatabasePart]:
    """What is compared of a table with which database, by its key and the expression of shards in
    the names of topics.

    Raises:
        InvalidValueError: The monitor names no database.
    """
    names = shard_columns(shards)
    return [
        DatabasePart(database=one, keys=keys, shard=dict(zip(names, values, strict=True)))
        for values, one in monitor.databases.items()
    ]


def together(table: str, shards: Mapping[str, Monitored]) -> Monitored:
    """The comparisons of all parts of a table, by the names of their shards, as one of the
    table.
    """
    found = list(shards.values())
    unchecked: dict[str, str] = {}
    for one in found:
        unchecked |= one.unchecked
    snapshots = [
        f"{name}: {one.snapshot}" if name else one.snapshot for name, one in shards.items()
    ]
    return Monitored(
        table=table,
        snapshot="; ".join(snapshots),
        version=min(one.version for one in found),
        source_rows=sum(one.source_rows for one in found),
        lake_rows=sum(one.lake_rows for one in found),
        faults={key: fault for one in found for key, fault in one.faults.items()},
        left_out=sum(one.left_out for one in found),
        unchecked=unchecked,
        unresolved=sum(one.unresolved for one in found),
        is_passed=all(one.is_passed for one in found),
        is_truncated=any(one.is_truncated for one in found),
        seconds=sum(one.seconds for one in found),
    )


def key_shown(key: Key) -> str:
    """A key as commands print it and take it: a JSON array of the canonical texts of its
    columns.
    """
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
    if (
        not isinstance(parts, list)
        or len(parts) != size
        or not all(type(part) in (str, int) for part in parts)
    ):
        raise InvalidValueError(
            "key",
            text,
            f"is no JSON array of {size} texts or whole numbers, such as [1]; write it as the "
            f"monitor does",
        )
    return tuple(map(str, parts))


def comparison_of(
    dialect: Dialect,
    source: Mapping[str, str],
    lake: Mapping[str, str],
    keys: Sequence[str],
    only: Sequence[str] | None = None,
) -> Comparison:
    """What of two tables is compared, by their columns and types.

    Columns are named as the database names them, also where the lake has or names one in another
    case.

    Raises:
        InvalidValueError: `only` names a column that one of the tables does not have, or a column
            of the key cannot be compared.
    """
    lake, keys = spelled_as(source, lake), tuple(spelled_as(source, dict.fromkeys(keys)))
    only = None if only is None else list(spelled_as(source, dict.fromkeys(only)))
    for name in only or ():
        if name not in source or name not in lake:
            raise InvalidValueError(
                "columns",
                name,
                f"is no column of both tables; they are {', '.join(n for n in source if n in lake)}",
            )
    columns, unchecked = dict[str, Canonical](), dict[str, str]()
    for name, source_type in source.items():
        if name not in lake:
            unchecked[name] = LAKE_LACKS
        elif only is None or name in only or name in keys:
            if found := canonical(dialect, source_type, lake[name]):
                columns[name] = found
            else:
                unchecked[name] = (
                    f"{source_type} as {lake[name]} has no text that is equal for equal values"
                )
    unchecked |= {
        name: "the database's table does not have it" for name in lake if name not in source
    }
    for key in keys:
        if key not in columns:
            raise InvalidValueError(
                "keys",
                key,
                unchecked.get(key, "no such column is compared; name columns of the table"),
            )
    return Comparison(dialect=dialect, keys=keys, columns=columns, unchecked=unchecked)


def named_there(names: Mapping[str, str], lake: Iterable[str]) -> dict[str, str]:
    """The lake's columns by the names that the database has for them.

    A column of the lake that has the database's name of another one is left out.

    Args:
        names: The lake's names of columns that have others in the database, by those.
        lake: The lake's columns.
    """
    renamed, there = set(map(folded, names)), {folded(here): name for name, here in names.items()}
    return {
        there.get(folded(here), here): here
        for here in lake
        if folded(here) in there or folded(here) not in renamed
    }


def canonical_key(comparison: Comparison, key: change.Key) -> Key:
    """The key of a change as comparisons have it."""
    return tuple(
        comparison.columns[name].twin(value)
        for name, value in zip(comparison.keys, key, strict=True)
    )


def in_batches(keys: Iterable[Key], size: int) -> list[list[Key]]:
    """The keys, so many at once."""
    every = list(keys)
    return [every[start : start + size] for start in range(0, len(every), size)]


Document = dict[str, Any]


def document(found: Monitored, most: int = 50) -> Document:
    """The finding as JSON; of the keys that differ the first so many."""
    shown = dict(list(found.faults.items())[:most])
    return {
        "table": found.table,
        "same": found.is_same,
        "snapshot": found.snapshot,
        "version": found.version,
        "source_rows": found.source_rows,
        "lake_rows": found.lake_rows,
        **{fault.value: count for fault, count in found.counts.items()},
        "keys": {key_shown(key): fault.value for key, fault in shown.items()},
        "left_out": found.left_out,
        "unchecked": dict(found.unchecked),
        "not_compared_ranges": found.unresolved,
        "passed": found.is_passed,
        "truncated": found.is_truncated,
        "seconds": round(found.seconds, 3),
    }
