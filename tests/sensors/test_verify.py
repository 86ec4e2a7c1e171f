"""The sensor that launches the checks whether each event is in its table: one run for all groups that are due."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakechime_dagster.sensors.schedules import verify_sensor
from lakechime_dagster.tables.events import GroupOptions, event_group, event_stream
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.schedule import every
from tests.support.scheduled import Ticking, ticking_in

GAME = event_stream("game", source=JsonLines("in"))
GROUPS = [
    event_group("shop", GAME, match="shop.*", options=GroupOptions(verify=every(days=1))),
    event_group("jump", GAME, match="jump.*", options=GroupOptions(verify=every(hours=6))),
    event_group("by_hand", GAME),
]


@pytest.fixture
def ticking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path) -> Iterator[Ticking]:
    with ticking_in(tmp_path, upgraded_sqlite, verify_sensor("game__verify", GROUPS), monkeypatch) as ticking:
        yield ticking


def launched(ticking: Ticking, moment: str) -> list[list[str]]:
    requests = ticking.at(moment).run_requests
    return [[f"{key.asset_key.to_user_string()} {key.name}" for key in request.asset_check_keys] for request in requests]


def test_a_run_looks_at_the_groups_that_are_due_and_at_none_that_says_no_time(ticking: Ticking) -> None:
    assert ticking.at("2013-01-02T00:31").skip_message == "the next one is due at 2013-01-02 06:00 UTC"
    assert launched(ticking, "2013-01-02T06:01") == [["jump each_event_once"]]
    assert launched(ticking, "2013-01-02T06:02") == []
    assert launched(ticking, "2013-01-03T00:00") == [["shop each_event_once", "jump each_event_once"]]
