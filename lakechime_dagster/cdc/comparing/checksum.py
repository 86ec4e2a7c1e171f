"""Checksums by which a table of a business database and its table in the lake are compared, as queries of both.

The hash of a row is the first 64 bits of MD5 over the canonical texts of its columns, each after its length, so that rows
that differ in any value have different texts; null is none of them. The checksum of a range of keys is the count of rows, the
count of distinct keys and the exact sum of the hashes. A key travels as the canonical texts of its columns.
"""

import datetime
import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from lakechime_dagster.cdc.canonical import Canonical, Dialect, Kind, canonical
from lakechime_dagster.cdc.comparing.compare import Key
from lakechime_dagster.errors import InvalidValueError

NULL = "n"
_IN_ORDER_AS_TEXT = {"string", "boolean", "bit"}  # types that hold numbers and are not ordered as such
_HASHES = {
    Dialect.MYSQL: "CAST(CONV(LEFT(MD5({}), 16), 16, -10) AS SIGNED)",
    Dialect.POSTGRES: "('x' || left(md5(convert_to({}, 'UTF8')), 16))::bit(64)::bigint",
    Dialect.SPARK: "CAST(conv(left(md5({}), 16), 16, -10) AS BIGINT)",
}
_BINARY_ORDER = {Dialect.MYSQL: "CAST({} AS BINARY)", Dialect.POSTGRES: '({}) COLLATE "C"', Dialect.SPARK: "{}"}
_DISTINCT = {Dialect.MYSQL: "COUNT(DISTINCT {})", Dialect.POSTGRES: "COUNT(DISTINCT ({}))", Dialect.SPARK: "COUNT(DISTINCT {})"}


@dataclass(frozen=True, kw_only=True)
class ColumnPair:
    """A column of the database and the one of the lake that follows it."""

    name: str
    source_type: str
    lake_type: str
    lake_name: str = ""

    @property
    def in_lake(self) -> str:
        return self.lake_name or self.name


@dataclass(frozen=True)
class Query:
    """A statement with parameters by name (`:p0`), as SQLAlchemy's `text` and Spark's `sql` take them.

    Spark 4.1 beside Delta 4.4 binds them only where `spark.sql.legacy.parameterSubstitution.constantsOnly` is true.
    """

    sql: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What of a table is compared.

    Attributes:
        dialect: The database's.
        keys: The columns that name a row, in the database's words.
        columns: All columns that have canonical texts, by their names in the database.
        unchecked: Of each other column why it is not compared.
    """

    dialect: Dialect
    keys: tuple[str, ...]
    columns: Mapping[str, tuple[ColumnPair, Canonical]]
    unchecked: Mapping[str, str]

    @staticmethod
    def of(dialect: Dialect, pairs: Iterable[ColumnPair], keys: Sequence[str]) -> "Comparison":
        """The comparison of these columns.

        Raises:
            InvalidValueError: A column of the key is not there or cannot be compared.
        """
        columns, unchecked = dict[str, tuple[ColumnPair, Canonical]](), dict[str, str]()
        for pair in pairs:
            if found := canonical(dialect, pair.source_type, pair.lake_type):
                columns[pair.name] = (pair, found)
            else:
                unchecked[pair.name] = f"{pair.source_type} as {pair.lake_type} has no text that is equal for equal values"
        for key in keys:
            if key not in columns:
                raise InvalidValueError("keys", key, unchecked.get(key, "no such column is compared; name columns of the table"))
        return Comparison(dialect=dialect, keys=tuple(keys), columns=columns, unchecked=unchecked)

    def source(self, *table: str) -> "Queries":
        """The queries of the database's table, by the parts of its name."""
        texts = {name: _filled(found.source, _column(self.dialect, name)) for name, (_, found) in self.columns.items()}
        return self._queries(self.dialect, table, texts, {name: name for name in self.columns}, {})

    def lake(self, *table: str, only: Mapping[str, str | int] | None = None) -> "Queries":
        """The queries of the lake's table; of its rows those alone whose columns have these values, as those of one shard."""
        names = {name: pair.in_lake for name, (pair, _) in self.columns.items()}
        texts = {name: _filled(found.lake, _column(Dialect.SPARK, names[name])) for name, (_, found) in self.columns.items()}
        return self._queries(Dialect.SPARK, table, texts, names, only or {})

    def _queries(
        self, dialect: Dialect, table: Sequence[str], texts: Mapping[str, str], names: Mapping[str, str], only: Mapping[str, Any]
    ) -> "Queries":
        keys = [_key(dialect, *self.columns[key], _column(dialect, names[key]), texts[key]) for key in self.keys]
        return Queries(
            dialect=dialect, table=".".join(quoted(dialect, part) for part in table), keys=tuple(keys),
            row=_row(dialect, texts.values()), values=tuple(texts.values()),
            only={_column(dialect, name): value for name, value in only.items()},
        )  # fmt: skip

    def row_text(self, row: Mapping[str, Any]) -> str:
        """The text that is hashed of a row of the lake, by its columns there."""
        values = [(found, row[pair.in_lake]) for pair, found in self.columns.values()]
        return "".join(NULL if value is None else _with_length(found.twin(value)) for found, value in values)

    def row_hash(self, row: Mapping[str, Any]) -> int:
        """The hash of a row of the lake."""
        return int.from_bytes(hashlib.md5(self.row_text(row).encode(), usedforsecurity=False).digest()[:8], signed=True)


@dataclass(frozen=True, kw_only=True)
class KeyColumn:
    """A column of a key: its canonical text, the expression by which rows are ordered alike everywhere, and a text as parameter."""

    text: str
    order: str
    parameter: Callable[[str], Any]


@dataclass(frozen=True, kw_only=True)
class Queries:
    """The queries of one side. A range is from a key, exclusive, to another, inclusive; None is an open end."""

    dialect: Dialect
    table: str
    keys: tuple[KeyColumn, ...]
    row: str
    values: tuple[str, ...]
    only: Mapping[str, Any]

    @property
    def hash(self) -> str:
        return _HASHES[self.dialect].format(self.row)

    def summary(self, low: Key | None = None, high: Key | None = None) -> Query:
        """One row: the count of rows, that of distinct keys, the sum of hashes."""
        names = [f"k{i}" for i in range(len(self.keys))]
        inner, parameters = self._from([f"{key.order} AS {name}" for key, name in zip(self.keys, names, strict=True)], low, high)
        distinct = _DISTINCT[self.dialect].format(", ".join(names))
        return Query(f"SELECT COUNT(*), {distinct}, COALESCE(SUM(CAST(h AS DECIMAL(38, 0))), 0) FROM ({inner}) r", parameters)  # noqa: S608

    def rows(self, low: Key | None = None, high: Key | None = None) -> Query:
        """A row for each row: the texts of its key, and its hash."""
        return Query(*self._from([key.text for key in self.keys], low, high))

    def middle(self, low: Key | None, high: Key | None, offset: int) -> Query:
        """At most one row: the texts of the key before which so many rows of the range come."""
        where, parameters = self._range(low, high)
        texts, order = ", ".join(key.text for key in self.keys), ", ".join(key.order for key in self.keys)
        return Query(f"SELECT {texts} FROM {self.table} t WHERE {where} ORDER BY {order} LIMIT 1 OFFSET {int(offset)}", parameters)  # noqa: S608

    def at(self, keys: Sequence[Key]) -> Query:
        """As `rows`, of these keys; at least one."""
        return self._at(keys, [key.text for key in self.keys])

    def values_at(self, keys: Sequence[Key]) -> Query:
        """As `at`, with the text of each column that is compared between key and hash."""
        return self._at(keys, [*(key.text for key in self.keys), *self.values])

    def values_above(self, low: Key | None, most: int) -> Query:
        """As `values_at` but without hashes: of the first so many rows above a key, in the order of keys."""
        where, parameters = self._range(low, None)
        columns, order = ", ".join([*(key.text for key in self.keys), *self.values]), ", ".join(key.order for key in self.keys)
        return Query(f"SELECT {columns} FROM {self.table} t WHERE {where} ORDER BY {order} LIMIT {int(most)}", parameters)  # noqa: S608

    def _at(self, keys: Sequence[Key], columns: Sequence[str]) -> Query:
        bound = _Bound()
        only = self._only(bound)
        conditions = [" AND ".join(f"{one.order} = {bound(one, text)}" for one, text in zip(self.keys, key, strict=True)) for key in keys]
        return Query(self._select(columns, [*only, f"({' OR '.join(conditions)})"]), bound.parameters)

    def texts(self, low: Key | None = None, high: Key | None = None) -> Query:
        """As `rows`, with the text that is hashed before the hash: what a person looks at who asks why two rows differ."""
        return Query(*self._from([*(key.text for key in self.keys), self.row], low, high))

    def _from(self, columns: Sequence[str], low: Key | None, high: Key | None) -> tuple[str, Mapping[str, Any]]:
        where, parameters = self._range(low, high)
        return self._select(columns, [where]), parameters

    def _select(self, columns: Sequence[str], conditions: Sequence[str]) -> str:
        return f"SELECT {', '.join(columns)}, {self.hash} AS h FROM {self.table} t WHERE {' AND '.join(conditions)}"  # noqa: S608

    def _range(self, low: Key | None, high: Key | None) -> tuple[str, Mapping[str, Any]]:
        bound = _Bound()
        conditions = self._only(bound)
        if low is not None:
            conditions += self._beyond(">", [bound(*each) for each in zip(self.keys, low, strict=True)], is_inclusive=False)
        if high is not None:
            conditions += self._beyond("<", [bound(*each) for each in zip(self.keys, high, strict=True)], is_inclusive=True)
        return " AND ".join(conditions) or "1 = 1", bound.parameters

    def _only(self, bound: "_Bound") -> list[str]:
        return [f"{name} = {bound.value(value)}" for name, value in self.only.items()]

    def _beyond(self, sign: str, places: Sequence[str], *, is_inclusive: bool) -> list[str]:
        """Conditions for keys on one side of another, column by column; the first one serves an index of several columns."""
        orders = [key.order for key in self.keys]
        cases = [
            " AND ".join([
                *(f"{order} = {place}" for order, place in zip(orders[:i], places[:i], strict=True)),
                f"{orders[i]} {sign}{'=' if is_inclusive and i == len(orders) - 1 else ''} {places[i]}",
            ])
            for i in range(len(orders))
        ]  # fmt: skip
        return cases if len(cases) == 1 else [f"{orders[0]} {sign}= {places[0]}", f"(({') OR ('.join(cases)}))"]


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
    """A name in SQL; a colon is kept from SQLAlchemy, which would take what follows for a parameter."""
    mark = '"' if dialect is Dialect.POSTGRES else "`"
    exact = mark + name.replace(mark, mark * 2) + mark
    return exact if dialect is Dialect.SPARK else exact.replace(":", "\\:")


def _column(dialect: Dialect, name: str) -> str:
    """A column of the table, which no column of a result can be taken for."""
    return f"t.{quoted(dialect, name)}"


def _filled(template: str, column: str) -> str:
    return template.replace("{}", column)


def _with_length(text: str) -> str:
    return f"{len(text)}:{text}"


def _row(dialect: Dialect, texts: Iterable[str]) -> str:
    """The text of a row: of each column its length in characters, a colon and itself, or the sign of null."""
    match dialect:
        case Dialect.MYSQL:
            return "CONCAT(" + ", ".join(f"COALESCE(CONCAT(CHAR_LENGTH({text}), ':', {text}), '{NULL}')" for text in texts) + ")"
        case Dialect.POSTGRES:
            return " || ".join(f"COALESCE(length({text}) || ':' || ({text}), '{NULL}')" for text in texts)
        case Dialect.SPARK:
            return "concat(" + ", ".join(f"coalesce(char_length({text}) || ':' || {text}, '{NULL}')" for text in texts) + ")"


def _key(dialect: Dialect, pair: ColumnPair, found: Canonical, column: str, text: str) -> KeyColumn:
    """A column of the key, ordered by itself where every engine orders its type alike, and else by its text's bytes."""
    kind, is_spark = found.kind, dialect is Dialect.SPARK
    if kind is Kind.NUMBER and not _IN_ORDER_AS_TEXT & {pair.source_type.lower().partition("(")[0], pair.lake_type.lower()}:
        return KeyColumn(text=text, order=column, parameter=_number)
    if kind is Kind.DATE:
        return KeyColumn(text=text, order=column, parameter=_date)
    if kind is Kind.BINARY and not is_spark:
        return KeyColumn(text=text, order=column, parameter=bytes.fromhex)
    if kind is Kind.UUID and dialect is Dialect.POSTGRES:
        return KeyColumn(text=text, order=column, parameter=uuid.UUID)
    as_parameter = str.encode if dialect is Dialect.MYSQL else str
    return KeyColumn(text=text, order=_BINARY_ORDER[dialect].format(text), parameter=as_parameter)


def _number(text: str) -> int | Decimal:
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() and abs(number) < 2**63 else number


def _date(days: str) -> datetime.date:
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=int(days))
