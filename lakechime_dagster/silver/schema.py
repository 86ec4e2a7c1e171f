"""The schema of a type's table as it grows: what was observed, and its columns."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.silver.event import ELEMENT, ROOT, Kind, Variation, field_path
from lakechime_dagster.tables.events import (
    VARIANT,
    Contract,
    Mode,
    Pin,
    column_of,
    is_matched,
    overlap,
)
from lakechime_dagster.tables.names import folded

SAYS_NOTHING = frozenset({Kind.NULL, Kind.EMPTY_OBJECT, Kind.EMPTY_ARRAY})
Names = tuple[str | None, ...]  # of the fields that lead to a value; None is an element of an array


@dataclass
class Node:
    """A path as a tree has it: the kinds of what is there, the fields of its objects by their
    names, the elements of its arrays.
    """

    kinds: frozenset[Kind] = frozenset()
    fields: dict[str, "Node"] = field(default_factory=dict)
    element: "Node | None" = None


def says_nothing(node: Node) -> bool:
    """Whether what is there is null, empty, or an object of such fields: it asks for no column, and
    without one nothing is lost.
    """
    return not node.kinds - SAYS_NOTHING - {Kind.OBJECT} and all(
        map(says_nothing, node.fields.values())
    )


def tree_of(observed: Variation) -> Node:
    """The paths as a tree, whose root is the event."""
    root = Node()
    for path, kind in observed.kinds:
        node = root
        for name in names_of(path):
            if name is None:
                node.element = node = node.element or Node()
            else:
                node = node.fields.setdefault(name, Node())
        node.kinds |= {kind}
    return root


def names_of(path: str) -> Names:
    """The fields that lead to a path, None where it leads into an array."""
    names: list[str | None] = []
    for part in path.split("/")[1:]:
        name = part.partition("[")[0]  # one of the name itself is escaped
        names += [_unescaped(name), *([None] * part[len(name) :].count(ELEMENT))]
    return tuple(names)


def _unescaped(name: str) -> str:
    return name.replace("~2", "[").replace("~1", "/").replace("~0", "~")


MAX_LEVELS = 32
MAX_FIELDS = 200  # of one object; with more its fields are ids


class Holds(StrEnum):
    """What a column holds.

    Attributes:
        LONG: Whole numbers of 64 bits.
        BIGINT: Those of up to 38 digits, and the ones of 64 bits.
        FRACTION: Doubles, of numbers that are spelled as fractions.
        DOUBLE: Doubles, also of whole numbers that are exactly one.
        HUGE: The spelling of numbers that nothing else holds.
        JSON: The text of a value of any kind.
    """

    BOOL = "bool"
    LONG = "long"
    BIGINT = "bigint"
    FRACTION = "fraction"
    DOUBLE = "double"
    HUGE = "huge"
    STRING = "string"
    OBJECT = "object"
    ARRAY = "array"
    JSON = "json"


_TAKES: Mapping[Holds, frozenset[Kind]] = {
    Holds.BOOL: frozenset({Kind.BOOL}),
    Holds.LONG: frozenset({Kind.LONG}),
    Holds.BIGINT: frozenset({Kind.BIGINT, Kind.LONG}),
    Holds.FRACTION: frozenset({Kind.FRACTION}),
    Holds.DOUBLE: frozenset({Kind.FRACTION, Kind.LONG, Kind.BIGINT}),
    Holds.HUGE: frozenset({Kind.HUGE}),
    Holds.STRING: frozenset({Kind.STRING}),
    Holds.OBJECT: frozenset({Kind.OBJECT, Kind.EMPTY_OBJECT}),
    Holds.ARRAY: frozenset({Kind.ARRAY, Kind.EMPTY_ARRAY}),
    Holds.JSON: frozenset(Kind) - {Kind.NULL},
}
# the sooner, the barer
_FIRST = (
    Kind.OBJECT,
    Kind.ARRAY,
    Kind.STRING,
    Kind.FRACTION,
    Kind.BIGINT,
    Kind.LONG,
    Kind.BOOL,
    Kind.HUGE,
)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column, a field of a struct, or the element of an array.

    Attributes:
        name: In the table; empty of an element.
        field: Of the event, as spelled; empty of an element too.
        fields: Of an object, in the order in which they came.
        is_variant: It holds what the column of the field cannot.
        is_map: An object whose fields turned out to be ids, so that it gets no more of them.
    """

    name: str
    field: str
    holds: Holds
    fields: tuple["Column", ...] = ()
    element: "Column | None" = None
    is_variant: bool = False
    is_map: bool = False

    def takes(self, kind: Kind) -> bool:
        """Whether values of a kind are held here; by a DOUBLE not every whole number."""
        return kind in _TAKES[self.holds]

    @property
    def leaves(self) -> int:
        """How many columns of single values it has, itself or within."""
        if self.holds is Holds.ARRAY and self.element is not None:
            return self.element.leaves
        return sum(one.leaves for one in self.fields) if self.holds is Holds.OBJECT else 1

    @property
    def variants(self) -> int:
        """How many variant columns it is and has within."""
        within = (*self.fields, *((self.element,) if self.element else ()))
        return int(self.is_variant) + sum(one.variants for one in within)

    def to_json(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"name": self.name, "field": self.field, "holds": self.holds.value}
        wire |= {"fields": [one.to_json() for one in self.fields]} if self.fields else {}
        wire |= {"element": self.element.to_json()} if self.element else {}
        wire |= {"map": True} if self.is_map else {}
        return wire | {"variant": True} if self.is_variant else wire

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> "Column":
        return cls(
            name=wire["name"],
            field=wire["field"],
            holds=Holds(wire["holds"]),
            fields=tuple(map(cls.from_json, wire.get("fields", ()))),
            element=cls.from_json(wire["element"]) if "element" in wire else None,
            is_variant=wire.get("variant", False),
            is_map=wire.get("map", False),
        )


@dataclass(frozen=True)
class TypeSchema:
    """The payload's columns of a table, in their order."""

    columns: tuple[Column, ...] = ()

    @cached_property
    def leaves(self) -> int:
        return sum(column.leaves for column in self.columns)

    def is_full(self, contract: Contract) -> bool:
        """Whether it takes no further column."""
        return self.leaves >= contract.column_cap

    @property
    def variants(self) -> int:
        """How many columns hold what the column of their field cannot, at any depth; as schemas
        only grow, it never falls.
        """
        return sum(column.variants for column in self.columns)

    def to_json(self) -> list[dict[str, Any]]:
        return [column.to_json() for column in self.columns]

    @classmethod
    def from_json(cls, wire: list[dict[str, Any]]) -> "TypeSchema":
        return cls(tuple(map(Column.from_json, wire)))


def next_schema(schema: TypeSchema, observed: Variation, contract: Contract) -> TypeSchema:
    """The schema with columns for all that was observed, so far as the contract and the caps let
    it; it only adds.

    The same schema, observed and contract give the same one, and it gives itself again.
    """
    grower = _Grower(contract, room=contract.column_cap - schema.leaves)
    return TypeSchema(
        grower.fields(schema.columns, tree_of(observed), ROOT, 1, is_new=not schema.columns)
    )


def change_of(own: Collection[Any]) -> str:
    """Which mode of a contract decides of a new kind of values at a path, beside the columns that
    its field has.
    """
    return "kinds" if own else "columns"


def _lacks_numbers(array: Column, node: Node) -> bool:
    """Whether an array's elements are whole numbers and fractions came, or the other way around."""
    element, inner = array.element, node.element
    while element is not None and inner is not None and element.holds is Holds.ARRAY:
        element, inner = element.element, inner.element
    if element is None or inner is None:
        return False
    whole, fraction = {Kind.LONG, Kind.BIGINT} & inner.kinds, {Kind.FRACTION} & inner.kinds
    return bool(
        fraction
        if element.holds in (Holds.LONG, Holds.BIGINT)
        else whole
        if element.holds is Holds.FRACTION
        else ()
    )


def _of_doubles(column: Column) -> Column:
    """An array with doubles in place of its numbers."""
    if column.element is None:
        return replace(column, holds=Holds.DOUBLE)
    return replace(column, element=_of_doubles(column.element))


@dataclass
class _Grower:
    """Adds columns while there is room."""

    contract: Contract
    room: int

    def fields(
        self, columns: tuple[Column, ...], node: Node, path: str, level: int, *, is_new: bool
    ) -> tuple[Column, ...]:
        """The columns of an object's fields, those that are there in their order, new ones behind
        them by name.
        """
        grown = list(columns)
        for name in sorted(node.fields):
            grown = self._field(
                grown, name, node.fields[name], field_path(path, name), level, is_new=is_new
            )
        return tuple(grown)

    def _field(
        self, columns: list[Column], name: str, node: Node, path: str, level: int, *, is_new: bool
    ) -> list[Column]:
        """The columns of an object with those that one of its fields lacks; a new object is born
        with its fields.
        """
        grown = [
            self._grown(one, node, path, level) if one.field == name else one for one in columns
        ]
        kinds = self._kinds(node, path)
        is_pinned = path in self.contract.pins and not any(one.field == name for one in grown)
        first = (*kinds[:1], *kinds) if is_pinned else kinds
        for kind in first:
            held = [one.holds for one in grown if one.field == name]
            holds = self._held_as(kind, node, held, path)
            is_held = (
                holds in held if holds is Holds.JSON else any(kind in _TAKES[one] for one in held)
            )
            if is_held or not self._may_add(held, is_new=is_new):
                continue
            own = column_of(name)
            new = self._new(
                f"{own}{VARIANT}{holds}" if held else own, name, holds, node, path, level
            )
            if new is not None and not any(folded(one.name) == folded(new.name) for one in grown):
                self.room -= new.leaves
                grown.append(replace(new, is_variant=bool(held)))
        arrays = [one for one in grown if one.field == name and one.holds is Holds.ARRAY]
        lacking = [one for one in arrays if _lacks_numbers(one, node)]
        if lacking == arrays != []:
            grown += self._array_of_all_numbers(arrays[0], {folded(one.name) for one in grown})
        return grown

    def _array_of_all_numbers(self, array: Column, taken: Collection[str]) -> list[Column]:
        """The variant column of an array of whole numbers, or of fractions, once it came with the
        others; none if it may not be added.
        """
        name = f"{column_of(array.field)}{VARIANT}{Holds.ARRAY}_{Holds.DOUBLE}"
        if self.contract.kinds != Mode.EVOLVE or self.room <= 0 or folded(name) in taken:
            return []
        new = replace(_of_doubles(array), name=name, is_variant=True)
        self.room -= new.leaves
        return [new]

    def _may_add(self, held: Collection[Holds], *, is_new: bool) -> bool:
        return (is_new and not held) or self.contract.mode(change_of(held)) is Mode.EVOLVE

    def _kinds(self, node: Node, path: str) -> list[Kind]:
        """The kinds of a path that need a column, the one first whose column has the bare name."""
        is_nothing = self.contract.pins.get(path) is Pin.IGNORE or not node.kinds - SAYS_NOTHING
        return [] if is_nothing else [kind for kind in _FIRST if kind in node.kinds]

    def _held_as(self, kind: Kind, node: Node, held: Collection[Holds], path: str) -> Holds:
        """What a column for a kind is to hold, beside those of its field that hold these."""
        pin = self.contract.pins.get(path)
        if pin is not None and not held:
            return Holds(str(pin))
        if kind is Kind.OBJECT and len(node.fields) > MAX_FIELDS:
            return Holds.JSON
        if not held and self.contract.is_double_first and kind in _TAKES[Holds.DOUBLE]:
            return Holds.DOUBLE
        return Holds(kind.value)

    def _grown(self, column: Column, node: Node, path: str, level: int) -> Column:
        """A column with what its fields or elements lack."""
        before = column.leaves
        if column.holds is Holds.OBJECT and len(node.fields) > MAX_FIELDS:
            grown = replace(column, is_map=True)
        elif column.holds is Holds.OBJECT:
            grown = replace(
                column, fields=self.fields(column.fields, node, path, level + 1, is_new=False)
            )
        elif (
            column.holds is Holds.ARRAY and column.element is not None and node.element is not None
        ):
            grown = replace(
                column, element=self._grown(column.element, node.element, path + ELEMENT, level + 1)
            )
        else:
            return column
        assert grown.leaves >= before
        return grown

    def _new(
        self, name: str, field_name: str, holds: Holds, node: Node, path: str, level: int
    ) -> Column | None:
        """A column of that name; None where it would hold nothing, or beyond the caps."""
        if level > MAX_LEVELS:
            return None
        column = Column(name=name, field=field_name, holds=holds)
        if holds is Holds.OBJECT:
            room, fields = self.room, self.fields((), node, path, level + 1, is_new=True)
            self.room = room  # the caller counts them
            return replace(column, fields=fields) if fields else None
        if holds is Holds.ARRAY:
            element = self._element(node, path, level)
            return replace(column, element=element) if element is not None else None
        return column if self.room > 0 else None

    def _element(self, node: Node, path: str, level: int) -> Column | None:
        """The column of an array's elements: of the first kind that gives one, as elements have no
        variant columns.
        """
        if node.element is None:
            return None
        inner, path = node.element, path + ELEMENT
        for kind in self._kinds(inner, path):
            holds = self._held_as(kind, inner, (), path)
            if holds is Holds.FRACTION and inner.kinds & {Kind.LONG, Kind.BIGINT}:
                holds = Holds.DOUBLE
            element = self._new("", "", holds, inner, path, level + 1)
            if element is not None:
                return element
        return None


def taking(columns: Sequence[Column], kind: Kind) -> Column | None:
    """The column of a field that takes a kind: the text of whatever is there after the others, but
    of objects before them.
    """
    texts_last = -1 if kind is Kind.OBJECT else 1
    return min(
        (one for one in columns if one.takes(kind)),
        key=lambda one: texts_last * (one.holds is Holds.JSON),
        default=None,
    )


def is_name_taken(columns: Sequence[Column], field: str) -> bool:
    """Whether a column has the name, but for the letters' case, that the column of a field would
    have.
    """
    name = folded(column_of(field))
    return any(folded(one.name) == name for one in columns)


def is_capped(schema: TypeSchema, contract: Contract, path: str) -> bool:
    """Whether a path gets no column as the schema is full, or it lies too deep; a field of the
    event itself lies at level 1.
    """
    return schema.is_full(contract) or path.count("/") + path.count(ELEMENT) > MAX_LEVELS


TECHNICAL = {
    "_src": "string",
    "_ingested_at": "timestamp",
    "_hash": "string",
    "_schema_version": "int",
    "_rescued": "string",
}
_SQL_TYPES: Mapping[Holds, str] = {
    Holds.BOOL: "boolean",
    Holds.LONG: "bigint",
    Holds.BIGINT: "decimal(38,0)",
    Holds.FRACTION: "double",
    Holds.DOUBLE: "double",
    Holds.HUGE: "string",
    Holds.STRING: "string",
    Holds.JSON: "string",
}


def table_columns(schema: TypeSchema) -> list[tuple[str, str]]:
    """The columns of the table of a schema with their types, the technical ones first."""
    return [*TECHNICAL.items(), *((one.name, column_type(one)) for one in schema.columns)]


def column_type(column: Column) -> str:
    """The type of a column, or of a field or an element within one."""
    if column.holds is Holds.OBJECT:
        return f"struct<{','.join(f'{one.name}:{column_type(one)}' for one in column.fields)}>"
    if column.holds is Holds.ARRAY and column.element is not None:
        return f"array<{column_type(column.element)}>"
    return _SQL_TYPES[column.holds]


NOWHERE = -1  # the checkpoint of a type of which nothing was read


@dataclass(frozen=True, kw_only=True)
class TypeCheckpoint:
    """Up to which version of a stream's table a type's own table holds its rows, and how many
    commits of the group it has.

    The count is tied to the checkpoint: whoever writes what lies behind the checkpoint commits
    under the number that follows, so that of all who do one is let in, however long they lived.

    Attributes:
        uid: Of the stream's table.
    """

    uid: str | None = None
    version: int = NOWHERE
    commits: int = 0


@dataclass(frozen=True, kw_only=True)
class KnownType:
    """A type as its group knows it.

    Attributes:
        table: Its table, in the folder of the group that had it first.
        schema: The columns of its payload, of which `schema_version` is the number; 0 before the
            first.
        observed: The paths and kinds of all its events; two paths that differ in letter case only
            are two.
        failures: How often in a row it could not be written; it is not tried again before `due_ts`.
        due_ts: When events that an execution left are read at the latest: those of a failed type,
            and of one that catches up. 0 where none are.
        materialized_ts: When it was materialized in Dagster last.
        pending: Events that wait for a table, up to where its group has read, and `waits` why;
            empty where none do.
        written: Rows of its table in sum, `rescued` of them with something in `_rescued`; events
            that were `discarded`.
    """

    type: str
    table: str
    checkpoint: TypeCheckpoint = field(default_factory=TypeCheckpoint)
    schema: TypeSchema = field(default_factory=TypeSchema)
    schema_version: int = 0
    observed: Variation = field(default_factory=Variation)
    failures: int = 0
    due_ts: int = 0
    error: str = ""
    materialized_ts: int = 0
    pending: int = 0
    waits: str = ""
    written: int = 0
    rescued: int = 0
    discarded: int = 0

    @property
    def home(self) -> str:
        """The group in whose folder its table lies."""
        return self.table.partition(".")[0]

    def is_put_off(self, now_ms: int) -> bool:
        """Whether it failed, and is not tried again yet."""
        return self.failures > 0 and self.due_ts > now_ms


@dataclass(frozen=True, kw_only=True)
class Prototype:
    """A variation that was not known.

    Attributes:
        is_joined: It is no variation of one event: paths and kinds of several, of which the store
            keeps nothing else.
    """

    typed_hash: str
    variation: Variation
    is_joined: bool = False


def kept_of(found: Iterable[Prototype]) -> dict[str, Variation]:
    """The variations of single events, by hash."""
    return {one.typed_hash: one.variation for one in found if not one.is_joined}


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What an execution found out of one type: the paths and kinds with those that are new, and the
    schema with columns for them.

    Attributes:
        prototypes: Of the variations that are new, those first that enlarge what was observed,
            which are `enlarging` many.
        before: The number of the schema to which it was added.
        is_rebuild: The schema holds only once the table is rebuilt with it.
        decision: What the schema gained, or lost, for people.
    """

    type: str
    prototypes: tuple[Prototype, ...]
    enlarging: int
    observed: Variation
    schema: TypeSchema
    is_new_schema: bool
    before: int
    is_rebuild: bool = False
    decision: str = ""

    def known_after(self, known: KnownType, schema_version: int) -> KnownType:
        """The type with what was learned."""
        return replace(
            known, schema=self.schema, schema_version=schema_version, observed=self.observed
        )

    def columns_added(self, known: KnownType) -> int:
        """How many columns of single values the schema gained."""
        return self.schema.leaves - known.schema.leaves


def learned(
    known: KnownType, found: Sequence[Prototype], contract: Contract, *, is_rebuild: bool = False
) -> Learning | None:
    """What variations that were not known add to a type; None where there is nothing to keep.

    A rebuild makes its schema from all that was observed, which gives the same in whatever order
    and split the events arrived.
    """
    enlarging, others, observed = list[Prototype](), list[Prototype](), known.observed
    for one in found:
        is_larger = not one.variation.kinds <= observed.kinds
        if not one.is_joined:
            (enlarging if is_larger else others).append(one)
        observed = Variation(observed.kinds | one.variation.kinds)
    before = TypeSchema() if is_rebuild else known.schema
    schema = next_schema(before, observed, contract)
    is_new = schema != known.schema or not known.schema_version
    if not is_new and not enlarging and not others and observed == known.observed:
        return None
    columns = [*(f"+ {name} {holds}" for name, holds in gained(known.schema, schema))]
    columns += [f"- {name} {holds}" for name, holds in gained(schema, known.schema)]
    return Learning(
        type=known.type,
        prototypes=(*enlarging, *others),
        enlarging=len(enlarging),
        observed=observed,
        schema=schema,
        is_new_schema=is_new,
        before=known.schema_version,
        is_rebuild=is_rebuild,
        decision="\n".join([*(["rebuild"] if is_rebuild else []), *columns]) or "no column",
    )


def gained(before: TypeSchema, after: TypeSchema) -> list[tuple[str, str]]:
    """The columns of single values that only the later schema has: the name, with those that it
    lies in, and what it holds.

    One that a rebuild made to hold something else is another.
    """
    had = {*columns_of(before.columns)}
    return [one for one in columns_of(after.columns) if one not in had]


def columns_of(columns: Sequence[Column], within: str = "") -> Iterator[tuple[str, str]]:
    """The columns of single values, each with the names of what it lies in before it."""
    for column in columns:
        name = (
            f"{within}.{column.name}" if within and column.name else within + (column.name or "[]")
        )
        if column.holds is Holds.OBJECT:
            yield from columns_of(column.fields, name)
        elif column.holds is Holds.ARRAY and column.element is not None:
            yield from columns_of((column.element,), name)
        else:
            yield name, column.holds.value


_WHOLE = (Holds.JSON, Holds.ARRAY, Holds.OBJECT)


def personal_columns(schema: TypeSchema, patterns: Iterable[str]) -> tuple[str, ...]:
    """The columns, or fields of structs by dotted names, at a path that a pattern matches, and all
    within one; variant columns too.

    A column that holds a value whole, as text or as an array, is personal where a pattern leads
    into it.
    """
    return tuple(name for name, _ in personal_leaves(schema, patterns))


def personal_leaves(schema: TypeSchema, patterns: Iterable[str]) -> list[tuple[str, str]]:
    """The same, each with the first pattern that matches."""
    several = tuple(patterns)
    return [
        (name, found)
        for name, path, is_whole in _columns(schema.columns, ROOT, ())
        if (found := next((one for one in several if _says(one, path, is_whole)), None)) is not None
    ]


def _says(pattern: str, path: str, is_whole: bool) -> bool:
    parts = path.split("/")
    above = ["/".join(parts[:length]) for length in range(2, len(parts) + 1)]
    within = is_whole and (overlap(pattern, f"{path}/*") or overlap(pattern, f"{path}{ELEMENT}*"))
    return within or any(is_matched(pattern, one) for one in above)


def _columns(
    columns: Iterable[Column], path: str, names: tuple[str, ...]
) -> Iterator[tuple[str, str, bool]]:
    """Each leaf: its name, its path, and whether it holds a value of which parts may be
    personal.
    """
    for one in columns:
        here, named = field_path(path, one.field), (*names, one.name)
        if one.fields:
            yield from _columns(one.fields, here, named)
        else:
            yield ".".join(named), here, one.holds in _WHOLE
