"""What a group lets its events change, and what people say of single paths."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from lakechime_dagster.errors import DeclarationError, shown

MODES = ("tables", "columns", "kinds")  # of a contract, each by its own mode


class Mode(StrEnum):
    """What becomes of something new.

    Attributes:
        EVOLVE: It gets a table, a column, or a sibling of one.
        FREEZE: It gets none; its values are kept in `_rescued`, as frozen, and events of a new type wait in bronze.
        RESCUE: The same, as of an unknown path, without a word to anybody.
        DISCARD_VALUE: Its values are left out, and counted.
        DISCARD_ROW: Events with it are left out, and counted.
    """

    EVOLVE = "evolve"
    FREEZE = "freeze"
    RESCUE = "rescue"
    DISCARD_VALUE = "discard_value"
    DISCARD_ROW = "discard_row"


class Pin(StrEnum):
    """The type that a column has from its birth.

    Attributes:
        DOUBLE: Whole numbers are held too, where a double is exactly that number.
        JSON: The text of whatever is there; how objects whose fields are ids are kept.
        IGNORE: No column; its values are left out.
    """

    BOOL = "bool"
    LONG = "long"
    BIGINT = "bigint"
    DOUBLE = "double"
    STRING = "string"
    JSON = "json"
    IGNORE = "ignore"


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What may change: tables of new types, columns of new paths, siblings for new kinds of values.

    Attributes:
        is_double_first: A number's column is a double from its birth, unless it is pinned.
        pins: By path, such as `/items[]/price`.
    """

    tables: str | Mode = Mode.EVOLVE
    columns: str | Mode = Mode.EVOLVE
    kinds: str | Mode = Mode.EVOLVE
    is_double_first: bool = False
    pins: Mapping[str, Pin] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in MODES:
            object.__setattr__(self, name, _mode(name, getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class Hint:
    """What a person says of a type beside what is declared.

    Attributes:
        of: A path, such as `/items[]/price`, of which `says` is a Pin; or `tables`, `columns`, `kinds`, of which it is a Mode.
    """

    type: str
    of: str
    says: str

    def __post_init__(self) -> None:
        if self.of in MODES:
            _mode(self.of, self.says)
            return
        if not self.of.startswith("/"):
            raise DeclarationError("Hint", "of", f"{shown(self.of)} is no path; write such as '/price' or '/items[]/price'")
        if self.says not in tuple(Pin):
            raise DeclarationError("Hint", "says", f"{shown(self.says)} is none of {', '.join(Pin)}")


def with_hint(contract: Contract, hint: Hint) -> Contract:
    """A contract with what a person says beside it, which holds against what was said of the same before."""
    if hint.of in MODES:
        return replace(contract, **{hint.of: hint.says})
    return replace(contract, pins={**contract.pins, hint.of: Pin(hint.says)})


def _mode(name: str, value: object) -> Mode:
    try:
        mode = Mode(str(value))
    except ValueError:
        raise DeclarationError("Contract", name, f"{shown(value)} is none of {', '.join(Mode)}") from None
    if name == "tables" and mode not in (Mode.EVOLVE, Mode.FREEZE):
        raise DeclarationError(
            "Contract", name, f"{shown(value)} is neither {Mode.EVOLVE} nor {Mode.FREEZE}, in which events wait in bronze"
        )
    return mode
