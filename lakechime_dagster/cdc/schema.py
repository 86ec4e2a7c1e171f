"""Columns and types of a database's table as tools write them, and schema drift."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.change import Position, position_of, table_of
from lakechime_dagster.cdc.database_types import DECIMAL, PRECISION, connect_type
from lakechime_dagster.cdc.state import TableSchema
from lakechime_dagster.cdc.values import MAX_PRECISION, SOURCE_TYPE, Columns, ConnectSchema
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.tables.cdc import Drift
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.names import folded, refused_characters, why_refused

_SIMPLE = re.compile(r"[a-z]\w*")
_DECIMAL = re.compile(r"decimal(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_NESTED = re.compile(r"(array|map|struct)\s*<(.*)>", re.DOTALL | re.IGNORECASE)
_FIELD = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`:]+?))\s*:(.*)", re.DOTALL)
_PIECE = re.compile(r"`[^`]*`|[^`]")


@dataclass(frozen=True)
class Simple:
    """A type without parts, such as `bigint`."""

    word: str

    def __str__(self) -> str:
        return self.word


@dataclass(frozen=True)
class DecimalType:
    """Decimal numbers, by how many digits stand before the point and behind it."""

    whole: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.whole + self.scale},{self.scale})"


@dataclass(frozen=True)
class Array:
    items: "Type"

    def __str__(self) -> str:
        return f"array<{self.items}>"


@dataclass(frozen=True)
class Map:
    keys: "Type"
    values: "Type"

    def __str__(self) -> str:
        return f"map<{self.keys},{self.values}>"


@dataclass(frozen=True)
class Struct:
    fields: Mapping[str, "Type"]

    def __str__(self) -> str:
        return (
            "struct<"
            + ",".join(
                f"`{name.replace('`', '``')}`:{inner}" for name, inner in self.fields.items()
            )
            + ">"
        )


Type = Simple | DecimalType | Array | Map | Struct


def parsed(ddl: str) -> Type:
    """The type that the words stand for.

    Raises:
        ValueError: They stand for none.
    """
    text = ddl.strip()
    nested = _NESTED.fullmatch(text)
    if nested is not None:
        return _nested(nested[1].lower(), _parts(nested[2]), ddl)
    decimal = _DECIMAL.fullmatch(text.lower())
    if decimal is not None:
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        if precision < scale:
            raise ValueError(f"{ddl!r} is no type: its scale is greater than its precision")
        return DecimalType(precision - scale, scale)
    if _SIMPLE.fullmatch(text.lower()) is None:
        raise ValueError(f"{ddl!r} is no type in Spark's words")
    return Simple(text.lower())


def _nested(word: str, parts: list[str], ddl: str) -> Type:
    match word, parts:
        case "array", [items]:
            return Array(parsed(items))
        case "map", [keys, values]:
            return Map(parsed(keys), parsed(values))
        case "struct", _:
            fields = dict(_field(part, ddl) for part in parts)
            if len(fields) < len(parts):
                raise ValueError(f"{ddl!r} is no type: it has two fields of one name")
            return Struct(fields)
        case _:
            raise ValueError(f"{ddl!r} is no type: {word} has not {len(parts)} parts")


def _field(text: str, ddl: str) -> tuple[str, Type]:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise ValueError(f"{ddl!r} is no type: {text!r} is no field; write `name`:type")
    return found[2] or found[1].replace("``", "`"), parsed(found[3])


def _parts(text: str) -> list[str]:
    """What stands between the commas, but those within brackets."""
    parts, depth = [""], 0
    for piece in _PIECE.findall(text):
        depth += (piece in "<(") - (piece in ">)")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


TEXT = "string"  # of a column whose values no other type holds
_WIDER = {  # of each type all that are wider, the less wide ones first
    "tinyint": ("smallint", "int", "bigint", "double"),
    "smallint": ("int", "bigint", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
# Digits of a decimal that is wider than a whole number: as many as Parquet's 32 or 64 bits may
# have, and Delta asks for
_DIGITS = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}


def widened(known: str, seen: str) -> str | None:
    """The least type that is as wide as both, `known` itself if that is; None if there is none,
    which is a conflict.

    A struct has the fields of both, those that are known first.
    """
    known_type = parsed(known)
    least = _least(known_type, parsed(seen))
    return None if least is None else known if least == known_type else str(least)


def why_not_taken(name: str, ddl: str, table_format: TableFormat) -> str | None:
    """Why a table of this format cannot have a column of this name and type; None where it can."""
    if why := why_refused(name, table_format):
        return why
    found = next(
        (why for field in _fields(parsed(ddl)) if (why := refused_characters(field))), None
    )
    return found and f"of a field in it: {found}"


def _fields(known: Type) -> Iterator[str]:
    """The names of all fields of structs in a type."""
    match known:
        case Struct(fields):
            yield from fields
            for inner in fields.values():
                yield from _fields(inner)
        case Array(items):
            yield from _fields(items)
        case Map(keys, values):
            yield from _fields(keys)
            yield from _fields(values)
        case _:
            return


@dataclass(frozen=True, kw_only=True)
class Evolution:
    """What becomes of a table's columns.

    Attributes:
        columns: What the table has then, and the type of each; as before where something is
            refused.
        added: The columns to be added, in the order in which they are first seen.
        widened: The columns to be widened, and to what.
        left_out: The columns that the table does not take, and why.
        missing: The columns of the table that some of the schemas lack.
        texts: The columns that hold text since no other type holds all their values, and why.
        refused: Why nothing may change; empty where the policy allows it.
    """

    columns: Mapping[str, str]
    added: Mapping[str, str] = field(default_factory=dict)
    widened: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    texts: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()


def spellings(known: Iterable[str], schemas: Iterable[Iterable[str]]) -> dict[str, str]:
    """The names of columns in schemas that the table has in another case, with its own: the first
    one.
    """
    first: dict[str, str] = {}
    names = list(dict.fromkeys(name for columns in (known, *schemas) for name in columns))
    for name in names:
        first.setdefault(folded(name), name)
    return {name: spelled for name in names if (spelled := first[folded(name)]) != name}


def doubled(columns: Iterable[str]) -> tuple[str, ...]:
    """Names of columns of one row that Spark takes for one; none where they all differ."""
    names = list(columns)
    clash = next(iter(spellings((), [names]).items()), ())
    return tuple(reversed(clash))


def evolved(
    known: Mapping[str, str],
    seen: Iterable[Mapping[str, str]],
    policy: Drift,
    keys: Collection[str] = (),
) -> Evolution:
    """What becomes of the columns that a table is known to have when rows of these schemas arrive.

    A value that fits its column in one of the schemas fits it afterwards too, unless something is
    refused. A new table, which has no columns, gets them by any policy. Values of types that no
    other type holds are text. Of the columns of the `keys` this is refused: other keys may have the
    same text.
    """
    found = _lenient(known, list(seen))
    refused = tuple(_refused(known, found, policy, keys))
    return (
        replace(found, columns=dict(known), added={}, widened={}, texts={}, refused=refused)
        if refused
        else found
    )


def _lenient(known: Mapping[str, str], schemas: Collection[Mapping[str, str]]) -> Evolution:
    """What becomes of the columns if all drift is applied."""
    met, spelled = {name: [ddl] for name, ddl in known.items()}, spellings(known, schemas)
    for schema in schemas:
        for name, ddl in schema.items():
            met.setdefault(spelled.get(name, name), []).append(ddl)
    has = [{spelled.get(name, name) for name in schema} for schema in schemas]
    least: dict[str, str] = {}
    texts: dict[str, str] = {}
    for name, ddls in met.items():
        wide_enough = _least_of(ddls)
        if wide_enough is None:
            texts[name] = (
                f"its values are {' and '.join(sorted(set(ddls)))}, which no type but text holds"
            )
        least[name] = wide_enough or TEXT
    return Evolution(
        columns={**known, **least},
        added={name: ddl for name, ddl in least.items() if name not in known},
        widened={name: ddl for name, ddl in least.items() if ddl != known.get(name, ddl)},
        missing=frozenset(name for name in known if any(name not in columns for columns in has)),
        texts=texts,
    )


def _refused(
    known: Mapping[str, str], found: Evolution, policy: Drift, keys: Collection[str]
) -> Iterator[str]:
    """What of an evolution the policy does not allow, and what to do about it."""
    for name, why in found.texts.items():
        if name in keys:
            yield (
                f"column {name} of the key: {why}; declare another table for the messages from the "
                f"change of its type on"
            )
    if policy in (Drift.EXCEPTION, Drift.EVOLVE):
        for name, why in found.texts.items():
            yield (
                f"column {name}: {why}; declare its type, leave it out, or let its values be text "
                f"with on_drift=Drift.LENIENT"
            )
    if policy is Drift.EXCEPTION and known:
        drift = {name: f"is new, of type {ddl}" for name, ddl in found.added.items()}
        drift |= {
            name: f"is {known[name]} and its values are {ddl}"
            for name, ddl in found.widened.items()
        }
        drift |= dict.fromkeys(sorted(found.missing), "is missing in rows that arrived")
        for name, what in drift.items():
            if name in found.texts:
                continue  # it is refused above
            yield (
                f"column {name} {what}: on_drift=Drift.EXCEPTION lets no column change; declare "
                f"Drift.LENIENT to apply it"
            )


def _least_of(ddls: Sequence[str]) -> str | None:
    least = ddls[0]
    for ddl in ddls:  # the first one too, which may be no type that a table can have
        wider = widened(least, ddl)
        if wider is None:
            return None
        least = wider
    return least


def _least(known: Type, seen: Type) -> Type | None:
    """The least type that is as wide as both."""
    match known, seen:
        case Array(), Array():
            items = _least(known.items, seen.items)
            return None if items is None else Array(items)
        case Map(), Map():
            keys, values = _least(known.keys, seen.keys), _least(known.values, seen.values)
            return None if keys is None or values is None else Map(keys, values)
        case Struct(), Struct():
            return _least_struct(known, seen)
        case Simple(), Simple():
            wide_enough = (seen.word, *_WIDER.get(seen.word, ()))
            return next(
                (
                    Simple(word)
                    for word in (known.word, *_WIDER.get(known.word, ()))
                    if word in wide_enough
                ),
                None,
            )
        case ((Simple() | DecimalType()), (Simple() | DecimalType())):
            return _least_decimal(_as_decimal(known), _as_decimal(seen))
        case _:
            return None


def _least_decimal(known: DecimalType | None, seen: DecimalType | None) -> DecimalType | None:
    if known is None or seen is None:
        return None
    least = DecimalType(max(known.whole, seen.whole), max(known.scale, seen.scale))
    return least if least.whole + least.scale <= MAX_PRECISION else None


def _as_decimal(known: Simple | DecimalType) -> DecimalType | None:
    if isinstance(known, DecimalType):
        return known
    return DecimalType(_DIGITS[known.word], 0) if known.word in _DIGITS else None


def _least_struct(known: Struct, seen: Struct) -> Struct | None:
    fields = {**known.fields, **seen.fields}
    if doubled(fields):
        return None
    for name in known.fields.keys() & seen.fields.keys():
        wider = _least(known.fields[name], seen.fields[name])
        if wider is None:
            return None
        fields[name] = wider
    return Struct(fields)


_NOT_KNOWN = ConnectSchema("not known")
_INTEGERS = ("int16", "int32", "int64")  # which are all written as numbers


class ReadColumns(Protocol):
    """How the values of a row's columns are read, and what the lake makes of their types."""

    @property
    def ddl(self) -> Mapping[str, str]: ...

    @property
    def defaults(self) -> Mapping[str, Any]: ...

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]: ...


class Schemas(Protocol):
    """Where the columns of rows are found whose messages do not have them."""

    def columns(self, source: Mapping[str, Any], row: Mapping[str, Any], topic: str) -> ReadColumns:
        """The columns that a row of a topic has, at the position of its `source` block.

        Raises:
            ValueError: Nobody knows; the message names the column, or the table.
        """
        ...


@dataclass(frozen=True)
class AsWritten:
    """Values as they stand in a message: enough to keep it, with its key and its position, until
    their types are known.
    """

    ddl: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return dict(row)

    def columns(self, source: Mapping[str, Any], row: Mapping[str, Any], topic: str) -> ReadColumns:
        return self


@dataclass(frozen=True)
class Doubt:
    """Why it is not known what a column was."""

    reason: str


class SchemaHistory:
    """The columns of tables at each position of a log, by what was read of them in the database.

    Args:
        schemas: In any order.
        envelope: How the connector writes values.
    """

    def __init__(self, schemas: Iterable[TableSchema], envelope: Debezium) -> None:
        self._envelope = envelope
        self._tables: dict[str, list[TableSchema]] = {}
        for one in sorted(schemas, key=lambda schema: schema.order):
            self._tables.setdefault(one.table, []).append(one)
        self._known: dict[tuple[str, int, tuple[str, ...]], Columns] = {}

    def columns(self, source: Mapping[str, Any], row: Mapping[str, Any], topic: str) -> Columns:
        table = self._table(source, topic)
        position = position_of(source) if source.get("connector") else ()
        index = self._index(table, position)
        key = table, index, tuple(row)
        if key not in self._known:
            self._known[key] = self._columns(table, index, key[2])
        return self._known[key]

    def _table(self, source: Mapping[str, Any], topic: str) -> str:
        """The table of a row; of a flattened one that need not name it the only one that it can
        be.
        """
        name = ".".join(table_of(source, topic))
        named = source.get("table")
        if name in self._tables or (named and (source.get("schema") or source.get("db"))):
            return name
        fitting = [one for one in self._tables if not named or one.rpartition(".")[2] == named]
        return fitting[0] if len(fitting) == 1 else name

    def _index(self, table: str, position: Position) -> int:
        """How many readings of a table stand at or below a position; all without one.

        In PostgreSQL that is the position of the change itself: until its transaction ends nobody
        else can alter the table.
        """
        known = self._tables.get(table, [])
        if not position or not known:
            return len(known)
        own = position[-1:] if known[0].dialect is Dialect.POSTGRES else position
        return bisect_right(known, own, key=lambda one: one.order.position)

    def _words(self, table: str, index: int) -> Mapping[str, str | Doubt]:
        known = self._tables.get(table)
        if not known:
            raise ValueError(
                f"schema: the message brings none, and the columns of {table} were not read in the "
                f"database"
            )
        before, after = (
            known[index - 1] if index else None,
            known[index] if index < len(known) else None,
        )
        if before is None or after is None:
            return (before or known[0]).columns
        return {**after.columns, **before.columns, **dict(self._between(before, after))}

    def _between(
        self, before: TableSchema, after: TableSchema
    ) -> Iterator[tuple[str, str | Doubt]]:
        """The columns that differ in two readings; what is written alike by both is no doubt."""
        for name, kind in before.columns.items():
            later = after.columns.get(name, kind)
            if later == kind:
                continue
            types = [self._schema(before.dialect, one) for one in (kind, later)]
            gains_or_loses_sign = ("unsigned" in kind) != ("unsigned" in later)
            is_ambiguous = gains_or_loses_sign and any(
                SOURCE_TYPE in one.parameters for one in types
            )
            wider = None if is_ambiguous else _wider(*types)
            if wider is not None:
                yield name, later if wider is types[1] else kind
            else:
                when = (
                    f"{before.table} was read at {before.order.position}, and {later} at "
                    f"{after.order.position}"
                )
                yield name, Doubt(f"it was {kind} when {when}")

    def _columns(self, table: str, index: int, names: tuple[str, ...]) -> Columns:
        words, dialect = self._words(table, index), self._tables[table][0].dialect
        found: list[tuple[str, ConnectSchema]] = []
        for name in names or words:
            kind = words.get(name)
            if kind is None:
                raise ValueError(
                    f"{name}: no such column of {table} is known at this position of the log"
                )
            if isinstance(kind, Doubt):
                raise ValueError(f"{name}: {kind.reason}")
            found.append((name, self._schema(dialect, kind)))
        return Columns(ConnectSchema("struct", fields=tuple(found)), self._envelope.unavailable)

    def _schema(self, dialect: Dialect, kind: str) -> ConnectSchema:
        """The schema of a column's values; of a type of which it is not known how it is written
        none that `Columns` knows.
        """
        try:
            return connect_type(dialect, kind, self._envelope)
        except ValueError:
            return _NOT_KNOWN


def _wider(one: ConnectSchema, other: ConnectSchema) -> ConnectSchema | None:
    """Of two types whose values are written alike the one that holds those of both; None where they
    are not.
    """
    if one.type in _INTEGERS and other.type in _INTEGERS and one.name == other.name:
        return max(
            one,
            other,
            key=lambda each: (_INTEGERS.index(each.type), SOURCE_TYPE in each.parameters),
        )
    if one.name == other.name == DECIMAL:
        is_same = one.parameters["scale"] == other.parameters["scale"]
        return (
            max(one, other, key=lambda each: int(each.parameters[PRECISION])) if is_same else None
        )
    return other if one == other else None
