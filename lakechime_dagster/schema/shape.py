"""An event brought into the layout of its table: each value in the column that takes it, all others told in `_rescued`.

Nothing is left out but what a contract discards: each leaf (a single value, `{}`, `[]`) is in a column or in `_rescued`. A null
needs no place, as a column without a value is null; within an array it keeps its own.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lakechime_dagster.lake.contracts import Contract, Mode, Pin
from lakechime_dagster.schema.event import Flag, JsonEvent
from lakechime_dagster.schema.json_text import Fields, Fraction, Integer
from lakechime_dagster.schema.kinds import Kind, kind_of
from lakechime_dagster.schema.layout import Column, Holds, Layout
from lakechime_dagster.schema.observed import Node, observed_of, tree_of
from lakechime_dagster.schema.variation import ELEMENT, ROOT, Variation, field_path


class Rescue(StrEnum):
    """Why a value is in `_rescued` and in no column.

    Attributes:
        UNKNOWN: There is no column for its path.
        MISMATCH: The columns of its path take no value of its kind.
        INEXACT: The column would hold something else: a double that is not this whole number, text with half of a surrogate pair.
        CASE: A column for another field has this name but for the letters' case.
        DUPLICATE: Its object has a field of this name further behind.
        FROZEN: The contract lets no column be added.
    """

    UNKNOWN = "unknown"
    MISMATCH = "mismatch"
    INEXACT = "inexact"
    CASE = "case"
    DUPLICATE = "duplicate"
    FROZEN = "frozen"


@dataclass(frozen=True)
class Rescued:
    """A value that is in no column: its JSON pointer (RFC 6901) in the event's own spelling, its text, and why."""

    pointer: str
    text: str
    reason: Rescue


@dataclass(frozen=True)
class Shaped:
    """A row: an object of JSON by the columns' names, and what it cannot hold; `is_discarded` where the contract drops it.

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
        parts = (f'{{"p":{json.dumps(one.pointer)},"v":{one.text},"r":"{one.reason}"}}' for one in self.rescued)
        return f"[{','.join(parts)}]"


def shaped(event: JsonEvent, layout: Layout, contract: Contract) -> Shaped:
    """The row of an event."""
    shaper = _Shaper(contract)
    row = shaper.fields(event.fields, layout.columns, ROOT, "")
    return Shaped(row, tuple(shaper.rescued), shaper.discarded, shaper.is_discarded)


def covers(layout: Layout, variation: Variation, flags: Sequence[Flag] = ()) -> bool:
    """Whether each value of each event of a variation is in the column of its field, as any reader of JSON brings it there.

    It is so of no event with a flag: what is there twice, or is no text of UTF-8, such a reader loses.
    """
    return not flags and _covers(layout.columns, tree_of(observed_of(variation, 0)))


def _covers(columns: Sequence[Column], node: Node) -> bool:
    found = {column.field: column for column in columns if not column.is_sibling}
    found |= {column.field: column for column in columns if column.holds is Holds.JSON}  # which holds objects, if it is there
    return all(
        not value.kinds - {Kind.NULL} or ((column := found.get(name)) is not None and _takes_all(column, value))
        for name, value in node.fields.items()
    )


def _takes_all(column: Column, node: Node) -> bool:
    kinds = node.kinds - {Kind.NULL}
    if column.holds in (Holds.JSON, Holds.HUGE) or (column.holds is Holds.DOUBLE and kinds - {Kind.FRACTION}):
        return False  # which need the spelling, or the value
    if not all(column.takes(kind) for kind in kinds):
        return False
    if column.element is not None and node.element is not None:
        return _takes_all(column.element, node.element)
    return column.holds is not Holds.OBJECT or _covers(column.fields, node)


@dataclass
class _Shaper:
    """Goes through an event once."""

    contract: Contract
    rescued: list[Rescued] = field(default_factory=list)
    discarded: int = 0
    is_discarded: bool = False

    def fields(self, fields: Fields, columns: Sequence[Column], path: str, pointer: str) -> str:
        """The text of an object of the columns that take one of these fields."""
        last = {name: at for at, (name, _) in enumerate(fields)}
        parts: list[str] = []
        for at, (name, value) in enumerate(fields):
            here = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            if value is None:
                continue
            if last[name] != at:
                self._rescue(here, value, Rescue.DUPLICATE)
                continue
            found = self._column(name, value, columns, field_path(path, name), here)
            if found is not None:
                parts.append(f"{json.dumps(found[0].name)}:{found[1]}")
        return f"{{{','.join(parts)}}}"

    def _column(self, name: str, value: Any, columns: Sequence[Column], path: str, pointer: str) -> tuple[Column, str] | None:
        """The column that takes a value, and its text there; None where it is told otherwise."""
        own = [column for column in columns if column.field == name]
        kind = kind_of(value)
        column = _taking(own, kind)
        if column is None and self.contract.pins.get(path) is Pin.IGNORE:
            self.discarded += 1
            return None
        if column is None:
            self._lost(pointer, value, self._why(name, own, columns))
            return None
        text = self._text(value, column, path, pointer)
        return None if text is None else (column, text)

    def _why(self, name: str, own: Sequence[Column], columns: Sequence[Column]) -> Rescue:
        if own:
            return Rescue.FROZEN if self.contract.kinds is Mode.FREEZE else Rescue.MISMATCH
        if any(column.field.casefold() == name.casefold() for column in columns):
            return Rescue.CASE
        return Rescue.FROZEN if self.contract.columns is Mode.FREEZE else Rescue.UNKNOWN

    def _lost(self, pointer: str, value: Any, reason: Rescue) -> None:
        """What no column takes, as the contract says."""
        mode = self.contract.kinds if reason in (Rescue.MISMATCH, Rescue.FROZEN) else self.contract.columns
        self.is_discarded |= mode is Mode.DISCARD_ROW
        if mode is Mode.DISCARD_VALUE:
            self.discarded += 1
        else:
            self._rescue(pointer, value, reason)

    def _text(self, value: Any, column: Column, path: str, pointer: str) -> str | None:
        """The text by which a column that takes the kind of a value takes it; None where it would hold something else."""
        match column.holds:
            case Holds.OBJECT:
                return self.fields(value, column.fields, path, pointer)
            case Holds.ARRAY:
                return self._elements(value, column.element, path + ELEMENT, pointer)
            case Holds.JSON:
                return _json_string(text_of(value))
            case Holds.HUGE:
                return _json_string(value)
            case Holds.DOUBLE:
                return self._or_rescued(value, pointer, is_exact=isinstance(value, Fraction) or _is_double(value))
            case Holds.STRING:
                return self._or_rescued(value, pointer, is_exact=value.isascii() or not _has_half(value))
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
        parts = [self._element(value, element, path, f"{pointer}/{at}") for at, value in enumerate(values)]
        return f"[{','.join(parts)}]"

    def _element(self, value: Any, element: Column | None, path: str, pointer: str) -> str:
        if value is None or element is None:
            return "null"
        if not element.takes(kind_of(value)):
            self._lost(pointer, value, self._why("", [element], ()))
            return "null"
        return self._text(value, element, path, pointer) or "null"

    def _rescue(self, pointer: str, value: Any, reason: Rescue) -> None:
        self.rescued.append(Rescued(pointer, text_of(value), reason))


def _taking(columns: Sequence[Column], kind: Kind) -> Column | None:
    """The column of a field that takes a kind: the one of any kind after the others, but of objects before them."""
    found = sorted((column for column in columns if column.takes(kind)), key=lambda one: one.holds is Holds.JSON)
    return found[-1 if kind is Kind.OBJECT else 0] if found else None


def text_of(value: Any) -> str:
    """The JSON of a value as `json_text` gives it: its numbers as they were spelled, halves of surrogate pairs as escapes."""
    parts: list[str] = []
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        match one:
            case _Text():
                parts.append(one.text)
            case Integer() | Fraction():
                parts.append(str(one))
            case Fields():
                inner: list[Any] = [_Text("{")]
                for at, (name, held) in enumerate(one):
                    inner += [_Text(f"{',' if at else ''}{_json_string(name)}:"), held]
                waiting += reversed([*inner, _Text("}")])
            case list():
                inner = [_Text("[")]
                for at, held in enumerate(one):
                    inner += [_Text(","), held] if at else [held]
                waiting += reversed([*inner, _Text("]")])
            case str():
                parts.append(_json_string(one))
            case _:
                parts.append(json.dumps(one))
    return "".join(parts)


@dataclass(frozen=True)
class _Text:
    text: str


def _json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isascii() and _has_half(text))


def _has_half(text: str) -> bool:
    return any("\ud800" <= one <= "\udfff" for one in text)


def _is_double(whole: str) -> bool:
    """Whether a double is exactly this whole number."""
    return int(float(whole)) == int(whole)
