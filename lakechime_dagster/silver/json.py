"""JSON as text: parsed and written without loss of digits, order or duplicate keys."""

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

_SPACE = re.compile(r"[ \t\n\r]*")


class Fields(list[tuple[str, Any]]):
    """An object: its fields in their order, also several of one name."""


class Integer(str):
    """A number without a fraction and an exponent, as it is spelled."""


class Fraction(str):
    """A number with one of them, as it is spelled."""


def parsed(text: str) -> Any:
    """The value that a text is: `Fields`, a list, `Integer`, `Fraction`, text, a truth value or
    None.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        return parsed_without_calls(text)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=Fields, parse_int=Integer, parse_float=Fraction, parse_constant=_constant
)


def parsed_without_calls(text: str) -> Any:
    """The same, by a reader that calls no function for what is within."""
    containers: list[list[Any]] = []
    names: list[str | None] = []  # of each container the field whose value is read; None of a list
    at = _after_space(text, 0)
    while True:
        opened = text[at : at + 1]
        if opened in ("{", "["):
            value: Any = Fields() if opened == "{" else []
            at = _after_space(text, at + 1)
            if text[at : at + 1] != _closing(value):
                name, at = _name(text, at) if opened == "{" else (None, at)
                containers.append(value)
                names.append(name)
                continue
            at += 1
        else:
            value, at = _DECODER.raw_decode(text, at)  # of what holds no other value
        at = _after_space(text, at)
        while containers:
            container, name = containers[-1], names[-1]
            container.append(value if name is None else (name, value))
            follows = text[at : at + 1]
            if follows == ",":
                at = _after_space(text, at + 1)
                if name is not None:
                    names[-1], at = _name(text, at)
                break
            if follows != _closing(container):
                raise ValueError(f"a comma or {_closing(container)} is missing at character {at}")
            containers.pop()
            names.pop()
            value, at = container, _after_space(text, at + 1)
        else:
            if at != len(text):
                raise ValueError(f"more than one value: the next begins at character {at}")
            return value


def _closing(container: list[Any]) -> str:
    return "}" if isinstance(container, Fields) else "]"


def _name(text: str, at: int) -> tuple[str, int]:
    """The name of a field, and where its value begins."""
    if text[at : at + 1] != '"':
        raise ValueError(f"the name of a field is missing at character {at}")
    name, at = _DECODER.raw_decode(text, at)
    at = _after_space(text, at)
    if text[at : at + 1] != ":":
        raise ValueError(f"a colon is missing at character {at}")
    return name, _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None  # since it may be empty
    return found.end()


def text_of(value: Any) -> str:
    """The JSON of a value as `json_text` gives it: its numbers as they were spelled, halves of
    surrogate pairs as escapes.
    """
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
                    inner += [_Text(f"{',' if at else ''}{json_string(name)}:"), held]
                waiting += reversed([*inner, _Text("}")])
            case list():
                inner = [_Text("[")]
                for at, held in enumerate(one):
                    inner += [_Text(","), held] if at else [held]
                waiting += reversed([*inner, _Text("]")])
            case str():
                parts.append(json_string(one))
            case _:
                parts.append(json.dumps(one))
    return "".join(parts)


@dataclass(frozen=True)
class _Text:
    text: str


def json_string(text: str) -> str:
    """The JSON of a text, with escapes for halves of surrogate pairs."""
    return json.dumps(text, ensure_ascii=has_half(text))


def has_half(text: str) -> bool:
    """Whether a text has half of a surrogate pair, so that it is none of UTF-8."""
    return not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text)
