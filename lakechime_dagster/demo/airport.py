"""The airports' JSON events of each flight, as a function of a seed."""

import datetime as dt
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lakechime_dagster.demo.data import FIRST_DAY, HOURS, rows_of

FLIGHTS = "bronze.flights"
TERMINAL_FROM = 12  # the tick from which a gate's event names its terminal
DESK_TEXT_FROM = 16  # from which a crew's desk is D7, no longer 7
OWN_SPELLING_FROM = 18  # from which one airline writes Gate
OWN_SPELLING = "B6"
SWAPS_FROM = 20  # from which crews are swapped, which is a type of its own
CUT_SHARE = 1 / 150  # of the lines


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a file; `event` is None where it was cut off, and `source` names its row for
    ever.
    """

    source: str
    text: str
    event: dict[str, Any] | None


def file_of(tick: int) -> str:
    """The name of the file of a tick; names are in the order of the ticks."""
    return f"{FIRST_DAY + dt.timedelta(days=tick // HOURS)}T{tick % HOURS:02}.jsonl"


@lru_cache(maxsize=HOURS * 4)
def lines_of(seed: int, tick: int) -> tuple[Line, ...]:
    """The lines that a tick writes, in order."""
    dice = random.Random(f"airport/{seed}/{tick}")
    name, at, lines = file_of(tick), 0, list[Line]()
    for event in _events(dice, tick):
        text = json.dumps(event)
        is_cut = dice.random() < CUT_SHARE
        text = text[: len(text) // 2] if is_cut else text
        lines.append(Line(source=f"{name}@{at}", text=text, event=None if is_cut else event))
        at += len(text.encode()) + 1
    return tuple(lines)


def _events(dice: random.Random, tick: int) -> Iterator[dict[str, Any]]:
    day, hour = FIRST_DAY + dt.timedelta(days=tick // HOURS), tick % HOURS
    for flight in rows_of(FLIGHTS, day, hour).to_pylist():
        who = {
            "airline": flight["carrier"],
            "flight": flight["flight"],
            "origin": flight["origin"],
            "day": str(day),
        }
        is_own = flight["carrier"] == OWN_SPELLING and tick >= OWN_SPELLING_FROM
        gate = _gate(dice)
        terminal = {"terminal": dice.randint(1, 8)} if tick >= TERMINAL_FROM else {}
        yield {"type": "gate.assigned", **who, "Gate" if is_own else "gate": gate, **terminal}
        if dice.random() < 0.1:
            yield {
                "type": "gate.changed",
                **who,
                "gate": _gate(dice),
                "was": gate,
                "notice": dice.randint(5, 90),
            }
        if dice.random() < 0.3:
            desk = dice.randint(1, 9)
            crew = {"pilots": 2, "cabin": dice.randint(2, 8)}
            yield {
                "type": "crew.checked_in",
                **who,
                "desk": f"D{desk}" if tick >= DESK_TEXT_FROM else desk,
                "crew": crew,
            }
        if tick >= SWAPS_FROM and dice.random() < 0.05:
            yield {"type": "crew.swapped", **who, "reason": dice.choice(["ill", "hours", "late"])}
        if flight["dep_time"] is None:
            yield {
                "type": "passenger.rebooked",
                **who,
                "passengers": dice.randint(20, 180),
                "paid_back": None,
            }
        elif dice.random() < 0.3:
            yield {
                "type": "passenger.boarded",
                **who,
                "passengers": dice.randint(20, 180),
                "load": round(dice.random(), 3),
            }


def _gate(dice: random.Random) -> str:
    return f"{dice.choice('ABCD')}{dice.randint(1, 40)}"
