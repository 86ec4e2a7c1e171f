"""The airports' events: the same for a seed."""

import json
from functools import cache
from itertools import chain
from typing import Any

from lakechime_dagster.demo.airport import Line, file_of, lines_of
from lakechime_dagster.demo.data import FIRST_DAY, rows_of
from lakechime_dagster.demo.plan import FLIGHTS


@cache
def day() -> tuple[Line, ...]:
    return tuple(chain.from_iterable(lines_of(2013, tick) for tick in range(24)))


def tick_of(line: Line) -> int:
    return next(tick for tick in range(24) if line.source.startswith(file_of(tick)))


def events(kind: str, *ticks: int) -> list[dict[str, Any]]:
    return [line.event for line in day() if line.event and line.event["type"] == kind and tick_of(line) in ticks]


def test_each_flight_of_an_hour_is_assigned_a_gate_unless_its_line_is_cut_off() -> None:
    cut = sum(line.event is None for line in day())
    assigned = len(events("gate.assigned", *range(24)))
    flights = sum(rows_of(FLIGHTS, FIRST_DAY, hour).num_rows for hour in range(24))
    assert 0 < cut < 20
    assert flights - cut <= assigned <= flights


def test_each_line_is_named_by_where_it_begins_and_is_its_event_or_no_json() -> None:
    at = 0
    for line in lines_of(2013, 9):
        assert line.source == f"{file_of(9)}@{at}"
        at += len(line.text) + 1
    for line in day():
        try:
            assert json.loads(line.text) == line.event
        except json.JSONDecodeError:
            assert line.event is None
