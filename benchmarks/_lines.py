"""Lines of a benchmark: a value, its goal, and the verdict; the same form for every script."""

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Line:
    """One number. `verdict` is ok, short (of the goal), or info (no goal)."""

    name: str
    value: float
    unit: str
    goal: str = ""
    verdict: str = "info"


def at_most(name: str, value: float, unit: str, goal: float | None = None) -> Line:
    """A number that should not be above its goal."""
    return (
        Line(name, round(value, 2), unit)
        if goal is None
        else _judged(name, value, unit, f"<= {goal:g}", value <= goal)
    )


def at_least(name: str, value: float, unit: str, goal: float | None = None) -> Line:
    """A number that should not be below its goal."""
    return (
        Line(name, round(value, 2), unit)
        if goal is None
        else _judged(name, value, unit, f">= {goal:g}", value >= goal)
    )


def show(lines: Iterable[Line], *, as_json: bool, width: int = 72) -> None:
    """Print lines as they come, with room for their names, or all of them as one JSON list."""
    if as_json:
        print(json.dumps([asdict(line) for line in lines]))
        return
    for line in lines:
        print(
            f"{line.name:<{width}} {line.value:>12,.2f} {line.unit:<7} {line.goal:<9} "
            f"{line.verdict}",
            flush=True,
        )


def run_of_messages(
    doc: str | None, measure: Callable[[int], Iterable[Line]], messages: int
) -> None:
    """Print value, goal and verdict per line of a benchmark that is run with so many messages, or
    one JSON document.
    """
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--messages", type=int, default=messages)
    asked = parser.parse_args()
    show(measure(asked.messages), as_json=asked.json)


def _judged(name: str, value: float, unit: str, goal: str, is_met: bool) -> Line:
    return Line(name, round(value, 2), unit, goal, "ok" if is_met else "short")
