"""An event as a row of its table, and what of it is rescued."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.silver.event import (
    ELEMENT,
    ROOT,
    Flag,
    JsonEvent,
    Kind,
    Variation,
    field_path,
    kind_of,
)
from lakechime_dagster.silver.json import Fields, Fraction, has_half, json_string, text_of
from lakechime_dagster.silver.schema import (
    Column,
    Holds,
    Node,
    TypeSchema,
    change_of,
    is_capped,
    is_name_taken,
    says_nothing,
    taking,
    tree_of,
)
from lakechime_dagster.tables.events import Contract, Mode, Pin


class Rescue(StrEnum):
    """Why a value is in `_rescued` and in no column.

    Attributes:
        UNKNOWN: There is no column for its path.
        MISMATCH: The columns of its path take no value of its kind.
        INEXACT: The column would hold something else: a double that is not this whole number, text
            with half of a surrogate pair.
        OVERFLOW: It is a number larger than the column of its path takes.
        CASE: A column for another field has this name but for the letters' case.
        DUPLICATE: Its object has a field of this name further behind.
        CAP: It would have a column, had the table not as many as it may, or as deep ones.
        MAP: Its object's fields are ids, and got no further columns.
        FROZEN: The contract lets no column be added.
    """

    UNKNOWN = "unknown"
    MISMATCH = "mismatch"
    INEXACT = "inexact"
    OVERFLOW = "overflow"
    CASE = "case"
    DUPLICATE = "duplicate"
    CAP = "cap"
    MAP = "map"
    FROZEN = "frozen"


@dataclass(frozen=True)
class Rescued:
    """A value that is in no column: its JSON pointer (RFC 6901) in the event's own spelling, its
    text, and why.
    """

    pointer: str
    text: str
    reason: Rescue


def pointer_below(pointer: str, name: str) -> str:
    """The pointer of a field of an object."""
    return f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"


@dataclass(frozen=True)
class Shaped:
    """A row: an object of JSON by the columns' names, and what it cannot hold; `is_discarded` where
    the contract drops it.

    Attributes:
        discarded: How many values the contract left out.
    """

    row: str
    rescued: tuple[Rescued, ...] = ()
    discarded: int = 0
    is_discarded: bool = False

    @property
    def rescued_json(self) -> str | None:
        """The text of `_rescued`; None where every value is in a column."""
        if not self.rescued:
            return None
        parts = (
            f'{{"p":{json.dumps(one.pointer)},"v":{one.text},"r":"{one.reason}"}}'
            for one in self.rescued
        )
        return f"[{','.join(parts)}]"


def shaped(event: JsonEvent, schema: TypeSchema, contract: Contract) -> Shaped:
    """The row of an event."""
    shaper = _Shaper(schema, contract)
    row = shaper.fields(event.fields, schema.columns, ROOT, "")
    return Shaped(row, tuple(shaper.rescued), shaper.discarded, shaper.is_discarded)


def covers(schema: TypeSchema, variation: Variation, flags: Sequence[Flag] = ()) -> bool:
    """Whether each value of each event of a variation is in the column of its field, as any reader
    of JSON brings it there.

    It is so of no event with a flag: what is there twice, or is no text of UTF-8, such a reader
    loses.
    """
    return not flags and _covers(schema.columns, tree_of(variation))


def _covers(columns: Sequence[Column], node: Node) -> bool:
    found = {column.field: column for column in columns if not column.is_variant}
    # which holds objects, if it is there
    found |= {column.field: column for column in columns if column.holds is Holds.JSON}
    fields = {column.field for column in columns}
    return all(
        (says_nothing(value) and name not in fields)
        or not value.kinds - {Kind.NULL}
        or ((column := found.get(name)) is not None and _takes_all(column, value))
        for name, value in node.fields.items()
    )


def _takes_all(column: Column, node: Node) -> bool:
    kinds = node.kinds - {Kind.NULL}
    if column.holds in (Holds.JSON, Holds.HUGE) or (
        column.holds is Holds.DOUBLE and kinds - {Kind.FRACTION}
    ):
        return False  # which need the spelling, or the value
    if not all(column.takes(kind) for kind in kinds):
        return False
    if column.element is not None and node.element is not None:
        return _takes_all(column.element, node.element)
    return column.holds is not Holds.OBJECT or _covers(column.fields, node)


@dataclass
class _Shaper:
    """Goes through an event once."""

    schema: TypeSchema
    contract: Contract
    rescued: list[Rescued] = field(default_factory=list)
    discarded: int = 0
    is_discarded: bool = False

    def fields(
        self,
        fields: Fields,
        columns: Sequence[Column],
        path: str,
        pointer: str,
        *,
        is_map: bool = False,
    ) -> str:
        """The text of an object of the columns that take one of these fields."""
        last = {name: at for at, (name, _) in enumerate(fields)}
        parts: list[str] = []
        for at, (name, value) in enumerate(fields):
            here = pointer_below(pointer, name)
            if value is None:
                continue
            if last[name] != at:
                self._rescue(here, value, Rescue.DUPLICATE)
                continue
            found = self._column(name, value, columns, field_path(path, name), here, is_map=is_map)
            if found is not None:
                parts.append(f"{json.dumps(found[0].name)}:{found[1]}")
        return f"{{{','.join(parts)}}}"

    def _column(
        self,
        name: str,
        value: Any,
        columns: Sequence[Column],
        path: str,
        pointer: str,
        *,
        is_map: bool,
    ) -> tuple[Column, str] | None:
        """The column that takes a value, and its text there; None where none does."""
        own = [column for column in columns if column.field == name]
        column = _column_of(own, value)
        if column is not None:
            text = self._text(value, column, path, pointer)
            return None if text is None else (column, text)
        if self.contract.pins.get(path) is Pin.IGNORE:
            self.discarded += 1
        elif own:
            self._lost(pointer, value, own, path, Rescue.MISMATCH)
        elif _says_nothing(value):
            pass  # as if the field were null
        elif has_half(name):
            self._rescue(pointer, value, Rescue.INEXACT)  # no column is called so
        elif is_name_taken(columns, name):
            self._lost(pointer, value, (), path, Rescue.CASE)
        else:
            self._lost(pointer, value, (), path, Rescue.MAP if is_map else Rescue.UNKNOWN)
        return None

    def _lost(
        self,
        pointer: str,
        value: Any,
        own: Sequence[Column],
        path: str,
        reason: Rescue,
        *,
        is_element: bool = False,
    ) -> None:
        """What no column takes, beside those of its field, as the contract rules."""
        mode = self.contract.mode(change_of(own))
        self.is_discarded |= mode is Mode.DISCARD_ROW
        if mode is Mode.DISCARD_VALUE:
            self.discarded += 1
            return
        may_grow = mode is Mode.EVOLVE and not is_element
        is_new = reason in (Rescue.MISMATCH, Rescue.UNKNOWN) and may_grow
        if is_new and is_capped(self.schema, self.contract, path):
            reason = Rescue.CAP
        elif reason is Rescue.MISMATCH and not may_grow and _is_larger(value, own):
            reason = Rescue.OVERFLOW
        elif reason is not Rescue.CASE and mode is Mode.FREEZE:
            reason = Rescue.FROZEN
        self._rescue(pointer, value, reason)

    def _text(self, value: Any, column: Column, path: str, pointer: str) -> str | None:
        """The text by which a column that takes the kind of a value takes it; None where it would
        hold something else.
        """
        match column.holds:
            case Holds.OBJECT:
                return self.fields(value, column.fields, path, pointer, is_map=column.is_map)
            case Holds.ARRAY:
                return self._elements(value, column.element, path + ELEMENT, pointer)
            case Holds.JSON:
                return json_string(text_of(value))
            case Holds.HUGE:
                return json_string(value)
            case Holds.DOUBLE:
                return self._or_rescued(
                    value, pointer, is_exact=isinstance(value, Fraction) or _is_double(value)
                )
            case Holds.STRING:
                return self._or_rescued(value, pointer, is_exact=not has_half(value))
            case _:
                return text_of(value)

    def _or_rescued(self, value: Any, pointer: str, *, is_exact: bool) -> str | None:
        if is_exact:
            return text_of(value)
        self._rescue(pointer, value, Rescue.INEXACT)
        return None

    def _elements(self, values: list[Any], element: Column | None, path: str, pointer: str) -> str:
        """The text of an array, in which null stands for what its column cannot hold."""
        assert element is not None or not values
        parts = [
            self._element(value, element, path, f"{pointer}/{at}")
            for at, value in enumerate(values)
        ]
        return f"[{','.join(parts)}]"

    def _element(self, value: Any, element: Column | None, path: str, pointer: str) -> str:
        if value is None or element is None:
            return "null"
        if not element.takes(kind_of(value)):
            self._lost(pointer, value, [element], path, Rescue.MISMATCH, is_element=True)
            return "null"
        return self._text(value, element, path, pointer) or "null"

    def _rescue(self, pointer: str, value: Any, reason: Rescue) -> None:
        self.rescued.append(Rescued(pointer, text_of(value), reason))


def _says_nothing(value: Any) -> bool:
    """As of what is observed: null, an empty array, or an object of such fields."""
    return (
        value is None
        or (isinstance(value, Fields) and all(_says_nothing(one) for _, one in value))
        or value == []
    )


def _column_of(columns: Sequence[Column], value: Any) -> Column | None:
    """The column of a field that takes a value: of several that take arrays the first that takes
    all elements, if one does.
    """
    column = taking(columns, kind_of(value))
    if column is None or column.holds is not Holds.ARRAY or _takes_elements(column, value):
        return column
    others = (one for one in columns if one.holds is Holds.ARRAY and _takes_elements(one, value))
    return next(others, column)


def _takes_elements(column: Column, value: Any) -> bool:
    if value is None or not column.takes(kind_of(value)):
        return value is None
    return (
        column.holds is not Holds.ARRAY
        or column.element is None
        or all(_takes_elements(column.element, one) for one in value)
    )


def _is_larger(value: Any, columns: Sequence[Column]) -> bool:
    """Whether a value is a number that is larger than a column of numbers takes."""
    kind, held = kind_of(value), {one.holds for one in columns}
    if kind is Kind.HUGE and held & {Holds.FRACTION, Holds.DOUBLE}:
        return math.isinf(float(value))
    return (kind is Kind.HUGE and Holds.BIGINT in held) or (
        kind in (Kind.BIGINT, Kind.HUGE) and Holds.LONG in held
    )


def _is_double(whole: str) -> bool:
    """Whether a double is exactly this whole number."""
    return int(float(whole)) == int(whole)
