"""What a VARIANT of Spark holds of a value just as it is, told by the text from which Spark makes it, and what it cannot hold."""

from dataclasses import dataclass, field
from typing import Any

from lakechime_dagster.schema.json_text import Fields, has_half, json_string, text_of
from lakechime_dagster.schema.kinds import Kind, kind_of
from lakechime_dagster.schema.rescue import Rescue, Rescued, pointer_below

MAX_VARIANT_LEVELS = 100  # objects and arrays within each other
MAX_VARIANT = 1_000_000  # characters of its text, which is less than any engine's bound of its bytes


@dataclass
class _Holder:
    """Goes through a value once."""

    rescued: list[Rescued] = field(default_factory=list)

    def text(self, value: Any, pointer: str, level: int = 1) -> str | None:
        """The text of what is held of a value; None where that is nothing."""
        match kind_of(value):
            case Kind.HUGE:
                return self._lost(value, pointer, Rescue.OVERFLOW)
            case Kind.STRING if has_half(value):
                return self._lost(value, pointer, Rescue.INEXACT)
            case Kind.OBJECT | Kind.ARRAY if level > MAX_VARIANT_LEVELS:
                return self._lost(value, pointer, Rescue.CAP)
            case Kind.OBJECT:
                return self._object(value, pointer, level)
            case Kind.ARRAY:
                parts = [self.text(one, f"{pointer}/{at}", level + 1) or "null" for at, one in enumerate(value)]
                return f"[{','.join(parts)}]"
            case _:
                return text_of(value)

    def _object(self, fields: Fields, pointer: str, level: int) -> str:
        last = {name: at for at, (name, _) in enumerate(fields)}
        parts: list[str] = []
        for at, (name, value) in enumerate(fields):
            here = pointer_below(pointer, name)
            if value is None:
                continue
            if last[name] != at or has_half(name):
                self._lost(value, here, Rescue.DUPLICATE if last[name] != at else Rescue.INEXACT)
                continue
            text = self.text(value, here, level + 1)
            parts += [] if text is None else [f"{json_string(name)}:{text}"]
        return f"{{{','.join(parts)}}}"

    def _lost(self, value: Any, pointer: str, reason: Rescue) -> None:
        self.rescued.append(Rescued(pointer, text_of(value), reason))


def held_by_variant(value: Any, pointer: str) -> tuple[str | None, list[Rescued]]:
    """The text of what a VARIANT holds of a value, None where that is nothing, and what it cannot hold.

    A number is held exactly up to 38 digits, else as the nearest double; null in a field is as if the field were missing.
    """
    holder = _Holder()
    text = holder.text(value, pointer)
    if text is not None and len(text) > MAX_VARIANT:
        return None, [Rescued(pointer, text_of(value), Rescue.CAP)]
    return text, holder.rescued
