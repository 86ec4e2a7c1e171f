"""Many types for minutes, and runs killed meanwhile: nothing is lost, and nothing is there twice."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from lakechime_dagster.silver.metrics import measures
from tests.long.conftest import MINUTES
from tests.support.drift import DRIFTS, Drift
from tests.support.event_lake import GROUP, EventLake, event_lake
from tests.support.event_reference import Reference
from tests.support.offering import Writer
from tests.support.processes import await_found
from tests.support.prometheus import running_prometheus

pytestmark = [pytest.mark.tier3, pytest.mark.e2e, pytest.mark.spark, pytest.mark.services]

DRIFT = Drift(types=20, seconds=max(60, int(MINUTES * 60)), rate=1_000, seed=6)
KILLED_AT = (0.2, 0.4, 0.6)  # of the time, each another execution's run
MAX_BYTES = 6_000_000
SAMPLE = 20
SHOWN = 5  # of what is wrong


def completed(lake: EventLake) -> int:
    """How many events completed executions have reported of."""
    types = measures(lake.repository).types
    return sum(one.written + one.discarded + one.pending for one in types)


@pytest.fixture
def lake(tmp_path: Path, spark_jars: Path) -> Iterator[EventLake]:
    with event_lake(tmp_path, DRIFT, spark_jars, MAX_BYTES) as running:
        yield running


def test_all_rows_of_many_types_are_there_once_though_runs_are_killed(
    lake: EventLake, tmp_path: Path
) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    killed = []
    writer = Writer(lake.prepared)
    writer.turn()  # a file with nearly all types: to make their tables takes longer than to fill them
    lake.await_caught_up(writer.lines, 900)
    with running_prometheus(lake.repository, watched, milliseconds=5_000) as prometheus, writer:
        before = 0
        for part in KILLED_AT:
            await_found(
                lambda part=part, before=before: (
                    writer.files > part * DRIFT.seconds and completed(lake) > before
                ),
                f"{part:.0%} of the time, and another execution is completed",
                3_600,
                writer.expect_health,
            )
            killed.append(lake.kill_at_work())
            before = completed(lake)
        await_found(lambda: writer.is_through, "all lines are offered", 3_600, writer.expect_health)
        assert prometheus.empty_panels() == []
        lines = writer.lines
    lake.await_caught_up(lines, 1_200)

    assert lines == DRIFT.rate * DRIFT.seconds
    assert list(islice(Reference(lake, SAMPLE).wrong(), SHOWN)) == []
    assert len([one for one in lake.types() if one in DRIFT.drifting]) == len(DRIFTS)
    runs = [
        run
        for run in lake.running.instance.get_runs()
        if run.tags.get("lakechime/consumer") == GROUP
    ]
    assert sorted(run.run_id for run in runs if not run.is_success) == sorted(killed)
