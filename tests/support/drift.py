"""Events of many types as programs send them, reported by a seed: most are steady, some drift while
time goes on, and some are none.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from lakechime_dagster.silver.event import MAX_NAME

Fields = dict[str, Any]
Offered = tuple[str | None, bytes]  # the type, None of what is no event, and the line

FROZEN = "play.frozen"  # a type that a contract lets have no table
STRAY = "stray"  # a type that no declared group takes
NEW_TYPES = 4  # that come in the second half
RARE = 0.2  # how often an event is of a drifting type, beside a steady one
GARBAGE = 0.002
NOT_EVENTS = (
    b"{garbage",
    b"[1]",
    b"{}",
    b'{"type":5}',
    b'{"type":""}',
    b'{"type":"play.x"} x',
    b'{"type":"play.x","n":NaN}',
    b'"\xff\xfe"',
    b'{"type":"play.x","' + b"n" * (MAX_NAME + 1) + b'":1}',
    b'{"type":"play.x","d":' + b"[" * 600 + b"]" * 600 + b"}",
)


def _new_fields(random: Random, now: float) -> Fields:
    return ({"extra": random.random()} if now > 0.3 else {}) | (
        {"more": {"a b": [random.randrange(9)]}} if now > 0.6 else {}
    )


def _number_to_text(random: Random, now: float) -> Fields:
    price = random.randrange(100)
    return {"price": f"{price} €" if now > 0.5 and random.random() < 0.5 else price}


def _number_to_fraction(random: Random, now: float) -> Fields:
    return {"price": random.random() if now > 0.5 else random.choice((7, 2**53 + 1))}


def _null_first(random: Random, now: float) -> Fields:
    return {
        "note": {"text": "ü", "at": [random.randrange(9)]} if now > 0.5 else None,
        "empty": [{}] if now > 0.7 else [],
    }


def _case(random: Random, now: float) -> Fields:
    return (
        {"level": 1}
        if now < 0.4
        else {
            random.choice(("level", "Level", "LEVEL")): random.randrange(9),
            "in": {"a": 1, "A": "x"},
        }
    )


def _deep(random: Random, now: float) -> Fields:
    depth = random.choice((3, 40, 200)) if now > 0.3 else 3
    return {"deep": json.loads('{"a":' * depth + "1" + "}" * depth)}


def _odd_names(random: Random, now: float) -> Fields:
    name = random.choice(
        ("w w", "", "_src", "é", "a/b~", "v__v_long", "n" * 300, "N" * 5_000, "`;", "\u0000")
    )
    return {name: random.choice((1, "x"))} if now > 0.2 else {"v": 1}


def _numbers(random: Random, now: float) -> Fields:
    several = (1, 2**53 + 1, 2**70, 10**50, 1.5, -0.0, 1e300)
    return {"amount": random.choice(several[: 1 + int(now * len(several))])}


def _ids(random: Random, now: float) -> Fields:
    return (
        {"by_id": {str(random.randrange(10**9)): 1 for _ in range(5)}}
        if now > 0.3
        else {"by_id": {"7": 1}}
    )


def _kinds(random: Random, now: float) -> Fields:
    odd = (1, True, "x", [1], ["x", 1, None], {"a": 1}, {"a": {"b": [{"c": 1}]}}, [], {}, None)
    return {"v": random.choice(odd[: 1 + int(now * len(odd))])}


def _steady(random: Random, _: float) -> Fields:
    return {
        "level": random.randrange(99),
        "score": random.random(),
        "user": {"id": random.randrange(10**9), "name": "Müller"},
    }


DRIFTS: tuple[Callable[[Random, float], Fields], ...] = (
    _new_fields,
    _number_to_text,
    _number_to_fraction,
    _null_first,
    _case,
    _deep,
    _odd_names,
    _numbers,
    _ids,
    _kinds,
)
# what `json` does not write
TWISTS = (',"v":"again","v":{"b":1e400}}', ',"half":"\\ud800 x"}', ',"type_":1,"type_":2}')
TWISTED = "play.twisted"


@dataclass(frozen=True)
class Drift:
    """What comes in each second.

    Attributes:
        types: That come from the first second on, of which one drifts in each way of `DRIFTS`, and
            one is frozen.
        seconds: How long it goes on, in which all drifts.
        rate: Lines of a second.
    """

    types: int
    seconds: int
    rate: int
    seed: int

    @cached_property
    def drifting(self) -> dict[str, Callable[[Random, float], Fields]]:
        """How each type drifts that does."""
        return {f"play.drift{one.__name__}": one for one in DRIFTS}

    @cached_property
    def steady(self) -> list[str]:
        return [f"play.steady_{number}" for number in range(self.types - len(DRIFTS) - 2)]

    @cached_property
    def new(self) -> list[str]:
        """The types that come late."""
        return [*(f"play.new_{number}" for number in range(NEW_TYPES)), STRAY]

    def lines(self, second: int) -> Iterator[Offered]:
        """The lines of a second, the same ones each time."""
        random, now = Random(f"{self.seed} {second}"), second / self.seconds
        late = self.new[: int((now - 0.5) * 2 * len(self.new)) + 1] if now > 0.5 else []
        rare = [*self.drifting, FROZEN, TWISTED, *late]
        names, weights = [*self.steady, *rare], [1.0] * len(self.steady) + [RARE] * len(rare)
        for number, name in enumerate(random.choices(names, weights, k=self.rate)):
            yield (
                (None, random.choice(NOT_EVENTS))
                if random.random() < GARBAGE
                else (name, self._event(random, name, number, now))
            )

    def _event(self, random: Random, name: str, number: int, now: float) -> bytes:
        fields = self.drifting.get(name, _steady)(random, now)
        text = json.dumps(
            {"type": name, "title": f"title {number % 7}", "n": number, **fields},
            ensure_ascii=False,
        )
        if name == TWISTED and now > 0.2:
            text = text[:-1] + random.choice(TWISTS)
        return text.encode()
