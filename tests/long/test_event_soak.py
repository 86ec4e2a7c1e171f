"""Many types for minutes, and a run killed meanwhile: nothing is lost, nothing comes twice, and
the lag does not grow.
"""

import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from lakechime_dagster.api.monitoring import PANELS
from lakechime_dagster.silver.metrics import measures
from tests.long.conftest import MINUTES
from tests.support.background import Background
from tests.support.drift import DRIFTS, Drift
from tests.support.event_lake import GROUP, EventLake, event_lake
from tests.support.event_reference import Reference
from tests.support.offering import Writer
from tests.support.processes import await_found
from tests.support.prometheus import running_prometheus

pytestmark = [pytest.mark.tier3, pytest.mark.e2e, pytest.mark.spark, pytest.mark.services]

DRIFT = Drift(types=20, seconds=max(60, int(MINUTES * 60)), rate=1_000, seed=6)
KILLED_AT = 0.2  # of the time: what follows the kill is over before the last third
MAX_BYTES = 6_000_000
SAMPLE = 20
SHOWN = 5  # of what is wrong


class Lag(Background):
    """How many events of those that were offered no completed execution has reported of, by the
    part of the time that has passed.
    """

    def __init__(self, lake: EventLake, writer: Writer) -> None:
        super().__init__(pause=1)
        self._lake = lake
        self._writer = writer
        self.reported: list[tuple[float, int]] = []

    def turn(self) -> None:
        offered = self._writer.events
        types = measures(self._lake.repository).types
        completed = sum(one.written + one.discarded + one.pending for one in types)
        self.reported.append((self._writer.files / DRIFT.seconds, offered - completed))

    def largest(self, begin: float, end: float) -> int:
        """Of a part of the time."""
        return max(lag for part, lag in self.reported if begin <= part < end)

    def close(self) -> None:
        pass


@pytest.fixture
def lake(tmp_path: Path, spark_jars: Path) -> Iterator[EventLake]:
    with event_lake(tmp_path, DRIFT, spark_jars, MAX_BYTES) as running:
        yield running


def test_the_lag_of_many_types_does_not_grow_though_a_run_is_killed(
    lake: EventLake, tmp_path: Path
) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    writer = Writer(lake.prepared)
    writer.turn()  # a file with nearly all types: to make their tables takes longer than to fill them
    lake.await_caught_up(writer.lines, 900)
    with running_prometheus(lake.repository, watched, milliseconds=5_000) as prometheus, writer:
        with Lag(lake, writer) as lag:
            await_found(
                lambda: writer.files > KILLED_AT * DRIFT.seconds,
                f"{KILLED_AT:.0%} of the time",
                3_600,
                writer.expect_health,
            )
            killed = lake.kill_at_work()
            await_found(
                lambda: writer.is_through, "all lines are offered", 3_600, writer.expect_health
            )
        assert [panel.title for panel in PANELS if not prometheus.series(panel.expression)] == []
        lines = writer.lines
    began = time.monotonic()
    lake.await_caught_up(lines, 1_200)
    parts = [lag.largest(begin / 3, (begin + 1) / 3) for begin in range(3)]
    after = time.monotonic() - began
    reported = (
        f"{lines} lines of {len(lake.types())} types in {DRIFT.seconds} s, largest lag by thirds "
        f"{parts}, caught up {after:.0f} s behind"
    )
    sys.stderr.write(f"\n{reported}\n")

    assert lines == DRIFT.rate * DRIFT.seconds
    assert list(islice(Reference(lake, SAMPLE).wrong(), SHOWN)) == []
    assert len([one for one in lake.types() if one in DRIFT.drifting]) == len(DRIFTS)
    assert parts[2] <= max(parts[:2])
    runs = [
        run
        for run in lake.running.instance.get_runs()
        if run.tags.get("lakechime/consumer") == GROUP
    ]
    assert [run.run_id for run in runs if not run.is_success] == [killed]
