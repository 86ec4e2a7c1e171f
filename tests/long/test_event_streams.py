"""Half a million events of drifting types in a minute, and a run killed in mid-step: each is in its table once, with all it says."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.support.drift import DRIFTS, FROZEN, Drift
from tests.support.event_lake import GROUP, EventLake, event_lake
from tests.support.event_reference import Reference
from tests.support.offering import Writer
from tests.support.processes import await_found

pytestmark = [pytest.mark.tier3, pytest.mark.e2e, pytest.mark.spark]

DRIFT = Drift(types=30, seconds=60, rate=8_000, seed=5)
MAX_BYTES = 6_000_000  # a twelfth of what comes, so that there are several steps however fast the machine is
SAMPLE = 20
STEPS = 4
SHOWN = 5  # of what is wrong


@pytest.fixture
def lake(tmp_path: Path, spark_jars: Path) -> Iterator[EventLake]:
    with event_lake(tmp_path, DRIFT, spark_jars, MAX_BYTES) as running:
        yield running


def test_each_event_is_in_its_table_once_though_types_drift_and_a_run_is_killed(lake: EventLake) -> None:
    with Writer(lake.prepared) as writer:
        await_found(lambda: lake.repository.types(GROUP), "the first types", 400, writer.expect_health)
        killed = lake.kill_in_mid_step()
        await_found(lambda: writer.is_through, "all lines are offered", 400, writer.expect_health)
        lines = writer.lines
    lake.await_caught_up(lines, 1200)

    assert lines == DRIFT.rate * DRIFT.seconds
    reference = Reference(lake, SAMPLE)
    assert list(islice(reference.wrong(), SHOWN)) == []
    assert reference.counts[FROZEN] > 0
    assert reference.counts[None] > 0
    assert len([one for one in lake.types() if one in DRIFT.drifting]) == len(DRIFTS)

    runs = [run for run in lake.running.instance.get_runs() if run.tags.get("lakechime/consumer") == GROUP]
    assert len([run for run in runs if run.is_success]) >= STEPS
    assert [run.run_id for run in lake.running.instance.get_runs() if not run.is_success] == [killed]
