"""Types of the lake, and Spark's names for them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

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
        return "struct<" + ",".join(f"`{name.replace('`', '``')}`:{inner}" for name, inner in self.fields.items()) + ">"


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
