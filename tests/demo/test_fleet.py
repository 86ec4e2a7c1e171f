"""The Hive table of the demo: which changes its exports are, and what another engine finds in it."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lakechime_dagster.dce.events import OperationType
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.demo.flights import fleet
from lakechime_dagster.demo.plan import Plan
from lakechime_dagster.demo.replay import Replayer, ReplayState
from lakechime_dagster.demo.verify import Finding, TableCheck, verify, warehouse_location
from lakechime_dagster.formats.hive import HiveLog
from tests.support.iceberg import IcebergWorld
from tests.support.metastore import HiveTable, Metastore, Polls, tags
from tests.support.stores import fresh_memory

pytestmark = pytest.mark.tier2
FIRST, SECOND = "2013-01-01", "2013-01-02"  # the second is exported in part, and again


@dataclass
class World:
    """A home folder to replay into, with the table of the fleet in a metastore."""

    home: Path
    polls: Polls

    def replay(self, hours: int) -> None:
        log = replace(self.polls.log, cluster="")
        Replayer(
            self.home / "warehouse",
            DCEStore(fresh_memory()),
            self.home / "replay.json",
            days=2,
            fleet=log,
        ).run(hours=hours)

    def check(self, log: HiveLog | None = None) -> TableCheck:
        state = ReplayState.load(self.home / "replay.json")
        assert state is not None
        checks = verify(
            warehouse_location(self.home / "warehouse"),
            state.plan.written(state.ticks),
            catalog=IcebergWorld.within(self.home).properties,
            fleet=log or self.polls.log,
        )
        (found,) = (one for one in checks if one.table == fleet.name)
        return found


@pytest.fixture
def world(metastore: Metastore, tmp_path: Path) -> World:
    return World(tmp_path, Polls(HiveTable(metastore, tmp_path), fleet.levels))


def test_each_export_is_a_change_of_its_day_once(world: World) -> None:
    world.replay(24)
    assert world.polls.found() == []
    world.replay(1)
    (event,) = world.polls.events()
    assert (event.partition, event.operation_type) == ((FIRST,), OperationType.APPEND)
    assert tags([event]) == [{"complete": "true", "producer": "replay"}]
    world.replay(24)
    assert world.polls.found() == [(SECOND, OperationType.APPEND)]
    partial = world.check()
    world.replay(6)
    assert world.polls.found() == [(SECOND, OperationType.UPDATE)]
    whole = world.check()
    assert (partial.finding, whole.finding) == (Finding.EQUAL, Finding.EQUAL)
    assert partial.actual_rows < whole.actual_rows
    ReplayState(seed=Plan.seed, days=2, ticks=50).save(world.home / "replay.json")
    world.replay(5)  # as after a kill
    assert world.polls.found(lists_all=True) == []


def test_a_day_that_is_not_what_was_exported_is_found(world: World) -> None:
    world.replay(49)
    log = world.polls.log
    (first,) = (one for one in log.stored().folders["parquet"] if one.values == (FIRST,))
    log.swap({(SECOND,): first.location}, ())
    found = world.check()
    assert (found.finding, str(found.difference and found.difference.key["flight_date"])) == (
        Finding.DIFFERS,
        SECOND,
    )
