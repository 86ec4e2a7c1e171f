"""The replay: what it leaves in the tables and in the store, whenever it is stopped."""

import collections
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakechime_dagster.dce.events import EventQuery
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.demo.airport import file_of, lines_of
from lakechime_dagster.demo.data import FIRST_DAY, rows_of
from lakechime_dagster.demo.plan import FLIGHTS, TABLES, WEATHER
from lakechime_dagster.demo.replay import Progress, Replayer
from lakechime_dagster.errors import LakeChimeError
from tests.support.stores import fresh_memory

pytestmark = pytest.mark.tier2


class World:
    """A home folder and a store to replay into."""

    def __init__(self, home: Path, days: int = 1) -> None:
        self.home, self.days = home, days
        self.warehouse, self.state = home / "warehouse", home / "demo" / "replay.json"
        self.store = DCEStore(fresh_memory())

    def replayer(self) -> Replayer:
        return Replayer(self.warehouse, self.store, self.state, days=self.days)

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(str(self.warehouse.joinpath(*name.split("."))))

    def rows(self, name: str) -> int:
        return self.table(name).to_pyarrow_table().num_rows

    def said(self) -> list[tuple[object, ...]]:
        """What the store was reported, without times and without the uids of tables."""
        events = [registered.event for registered in self.store.fetch(EventQuery())]
        return sorted(
            (
                event.table,
                event.partition or (),
                event.snapshot_id or "",
                event.operation_type,
                event.tags,
            )
            for event in events
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "one")


def test_a_replayed_day_is_there_with_all_its_rows_and_one_that_is_poisoned(world: World) -> None:
    world.replayer().run()
    raw = {
        table: sum(rows_of(table, FIRST_DAY, hour).num_rows for hour in range(24))
        for table in TABLES
    }
    assert raw[FLIGHTS] == 842
    assert world.rows(FLIGHTS) == raw[FLIGHTS] + 1
    assert world.rows(WEATHER) == raw[WEATHER]


def test_each_commit_is_registered_once_and_each_hour_is_complete(world: World) -> None:
    world.replayer().run()
    for table in TABLES:
        events = [registered.event for registered in world.store.fetch(EventQuery(table=table))]
        commits = [event for event in events if not event.is_marker]
        assert sorted(int(event.snapshot_id or -1) for event in commits) == list(
            range(world.table(table).version() + 1)
        )
        marks = collections.Counter(event.partition for event in events if event.is_marker)
        assert marks == {("2013-01-01", hour): 1 for hour in range(24)}
        assert all(event.tags == {"complete": "true"} for event in events if event.is_marker)


def test_a_replay_that_was_stopped_goes_on_where_it_was(world: World, tmp_path: Path) -> None:
    for _ in range(20):
        world.replayer().run(hours=3)
    whole = World(tmp_path / "whole")
    whole.replayer().run()
    assert world.replayer().state == whole.replayer().state
    assert world.said() == whole.said()
    assert [world.rows(table) for table in TABLES] == [whole.rows(table) for table in TABLES]


def test_events_that_an_interrupted_tick_did_not_register_are_caught_up(world: World) -> None:
    world.replayer().run(hours=12)
    world.store = DCEStore(fresh_memory())
    world.replayer().run()
    commits = {
        registered.event.snapshot_id for registered in world.store.fetch(EventQuery(table=FLIGHTS))
    } - {None}
    assert len(commits) == world.table(FLIGHTS).version() + 1


def test_the_airports_events_come_in_whole_files_and_those_of_earlier_hours_first(
    world: World,
) -> None:
    folder = world.home / "airport"
    world.replayer().run(hours=8)
    assert not folder.exists()
    Replayer(world.warehouse, world.store, world.state, days=1, airport=folder).run()
    files = {path.name: path.read_text().splitlines() for path in sorted(folder.iterdir())}
    reported = {file_of(tick): [line.text for line in lines_of(2013, tick)] for tick in range(24)}
    assert files == {name: lines for name, lines in reported.items() if lines}


def test_a_second_replay_is_refused_while_one_runs(world: World) -> None:
    def begin_another(progress: Progress) -> None:
        with pytest.raises(LakeChimeError, match=f"another replay runs in {world.state.parent}"):
            world.replayer().run(hours=1)

    assert world.replayer().run(hours=1, progress=begin_another).ticks == 1
    assert world.replayer().run(hours=1).ticks == 2
