"""The columns of a type's table, as they grow: only ever added to, by what was observed, a contract and pins.

Every kind that a path was ever seen with has a place: the column of the field, or a sibling `<column>__v_<kind>`. What has none
(elements of arrays of another kind than the first, fields beyond the caps) is kept in `_rescued`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lakechime_dagster.lake.contracts import Contract, Mode, Pin
from lakechime_dagster.lake.event_names import SIBLING, column_of
from lakechime_dagster.schema.kinds import Kind
from lakechime_dagster.schema.observed import Node, Observed, tree_of
from lakechime_dagster.schema.variation import ELEMENT, ROOT, field_path

MAX_LEAVES = 500
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
_FIRST = (Kind.OBJECT, Kind.ARRAY, Kind.STRING, Kind.FRACTION, Kind.BIGINT, Kind.LONG, Kind.BOOL, Kind.HUGE)  # the sooner, the barer
_TELLS_NOTHING = frozenset({Kind.NULL, Kind.EMPTY_OBJECT, Kind.EMPTY_ARRAY})


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column, a field of a struct, or the element of an array.

    Attributes:
        name: In the table; empty of an element.
        field: Of the event, as spelled; empty of an element too.
        fields: Of an object, in the order in which they came.
        is_sibling: It holds what the column of the field cannot.
    """

    name: str
    field: str
    holds: Holds
    fields: tuple["Column", ...] = ()
    element: "Column | None" = None
    is_sibling: bool = False

    def takes(self, kind: Kind) -> bool:
        """Whether values of a kind have their place here; of a DOUBLE not every whole number."""
        return kind in _TAKES[self.holds]

    @property
    def leaves(self) -> int:
        """How many columns of single values it has, itself or within."""
        if self.holds is Holds.ARRAY and self.element is not None:
            return self.element.leaves
        return sum(one.leaves for one in self.fields) if self.holds is Holds.OBJECT else 1

    @property
    def siblings(self) -> int:
        """How many siblings it is and has within."""
        within = (*self.fields, *((self.element,) if self.element else ()))
        return int(self.is_sibling) + sum(one.siblings for one in within)

    def to_json(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"name": self.name, "field": self.field, "holds": self.holds.value}
        wire |= {"fields": [one.to_json() for one in self.fields]} if self.fields else {}
        wire |= {"element": self.element.to_json()} if self.element else {}
        return wire | {"sibling": True} if self.is_sibling else wire

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> "Column":
        return cls(
            name=wire["name"], field=wire["field"], holds=Holds(wire["holds"]), fields=tuple(map(cls.from_json, wire.get("fields", ()))),
            element=cls.from_json(wire["element"]) if "element" in wire else None, is_sibling=wire.get("sibling", False),
        )  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """The payload's columns of a table, in their order."""

    columns: tuple[Column, ...] = ()

    @property
    def leaves(self) -> int:
        return sum(column.leaves for column in self.columns)

    @property
    def siblings(self) -> int:
        """How many columns hold what the column of their field cannot, at any depth; as layouts only grow, it never falls."""
        return sum(column.siblings for column in self.columns)

    def to_json(self) -> list[dict[str, Any]]:
        return [column.to_json() for column in self.columns]

    @classmethod
    def from_json(cls, wire: list[dict[str, Any]]) -> "Layout":
        return cls(tuple(map(Column.from_json, wire)))


def next_layout(layout: Layout, observed: Observed, contract: Contract) -> Layout:
    """The layout that has a place for all that was observed, so far as the contract and the caps let it; it only adds.

    The same layout, observed and contract give the same one, and it gives itself again.
    """
    grower = _Grower(contract, room=MAX_LEAVES - layout.leaves, is_first=not layout.columns)
    return Layout(grower.fields(layout.columns, tree_of(observed), ROOT, 1))


@dataclass
class _Grower:
    """Adds columns while there is room."""

    contract: Contract
    room: int
    is_first: bool
    _known: dict[str, Pin] = field(default_factory=dict)

    def fields(self, columns: tuple[Column, ...], node: Node, path: str, level: int) -> tuple[Column, ...]:
        """The columns of an object's fields, those that are there in their order, new ones behind them by name."""
        grown = list(columns)
        for name in sorted(node.fields):
            grown = self._field(grown, name, node.fields[name], field_path(path, name), level)
        return tuple(grown)

    def _field(self, columns: list[Column], name: str, node: Node, path: str, level: int) -> list[Column]:
        grown = [self._grown(one, node, path, level) if one.field == name else one for one in columns]
        for holds in self._lacking([one for one in grown if one.field == name], node, path):
            is_sibling = any(one.field == name for one in grown)
            if not self._may_add(is_sibling):
                continue
            own = column_of(name)
            new = self._new(f"{own}{SIBLING}{holds}" if is_sibling else own, name, holds, node, path, level)
            if new is not None and not any(one.name.casefold() == new.name.casefold() for one in grown):
                self.room -= new.leaves
                grown.append(replace(new, is_sibling=is_sibling))
        return grown

    def _may_add(self, is_sibling: bool) -> bool:
        mode = self.contract.kinds if is_sibling else self.contract.columns
        return mode is Mode.EVOLVE or (self.is_first and not is_sibling)

    def _lacking(self, columns: list[Column], node: Node, path: str) -> Iterator[Holds]:
        """What columns of a field must hold beside those that are there, the one first that is to bear its bare name."""
        pin = self.contract.pins.get(path)
        if pin is Pin.IGNORE or not node.kinds - _TELLS_NOTHING:
            return
        held = {one.holds for one in columns}
        if pin is not None and not columns:
            yield Holds(pin.value)
            held.add(Holds(pin.value))
        for kind in _FIRST:
            holds = self._held_as(kind, node, is_bare=not held)
            is_held = holds in held if holds is Holds.JSON else any(kind in _TAKES[one] for one in held)
            if kind in node.kinds and not is_held:
                yield holds
                held.add(holds)

    def _held_as(self, kind: Kind, node: Node, *, is_bare: bool) -> Holds:
        if kind is Kind.OBJECT and len(node.fields) > MAX_FIELDS:
            return Holds.JSON
        if is_bare and self.contract.is_double_first and kind in _TAKES[Holds.DOUBLE]:
            return Holds.DOUBLE
        return Holds(kind.value)

    def _grown(self, column: Column, node: Node, path: str, level: int) -> Column:
        """A column with what its fields or elements lack."""
        before = column.leaves
        if column.holds is Holds.OBJECT and len(node.fields) <= MAX_FIELDS:
            grown = replace(column, fields=self.fields(column.fields, node, path, level + 1))
        elif column.holds is Holds.ARRAY and column.element is not None and node.element is not None:
            grown = replace(column, element=self._grown(column.element, node.element, path + ELEMENT, level + 1))
        else:
            return column
        assert grown.leaves >= before
        return grown

    def _new(self, name: str, field_name: str, holds: Holds, node: Node, path: str, level: int) -> Column | None:
        """A column of that name; None where it would hold nothing, or beyond the caps."""
        if level > MAX_LEVELS:
            return None
        column = Column(name=name, field=field_name, holds=holds)
        if holds is Holds.OBJECT:
            room, fields = self.room, self.fields((), node, path, level + 1)
            self.room = room  # the caller counts them
            return replace(column, fields=fields) if fields else None
        if holds is Holds.ARRAY:
            element = self._element(node, path, level)
            return replace(column, element=element) if element is not None else None
        return column if self.room > 0 else None

    def _element(self, node: Node, path: str, level: int) -> Column | None:
        if node.element is None:
            return None
        holds = next(self._lacking([], node.element, path + ELEMENT), None)
        return None if holds is None else self._new("", "", holds, node.element, path + ELEMENT, level + 1)
