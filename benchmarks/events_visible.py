"""How long from an event to its row: `python -m benchmarks.events_visible [--json] [--seconds 180]
[--rate 8000]`.

30 types, of which a third drifts, in a file each second, under Dagster's daemon with the instance
that `lakechime dev` writes. An event comes as its file does; its row is there by the time of the
commit that brings it. Those of the first minute are not counted: their tables are made, and Spark
is started.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks._lines import Line, at_least, at_most, show
from lakechime_dagster.settings import load_settings
from tests.support.drift import Drift
from tests.support.event_lake import BRONZE, event_lake
from tests.support.offering import Writer
from tests.support.processes import await_found

TYPES = 30
WARM_SECONDS = 60
MAX_BYTES = 1_000_000_000  # of an execution: as much as there is

Arrivals = Counter[float]  # how many events took so many seconds


def measure(seconds: int, rate: int) -> Iterator[Line]:
    drift = Drift(types=TYPES, seconds=seconds, rate=rate, seed=7)
    with (
        TemporaryDirectory(prefix="lakechime-bench-") as home,
        event_lake(Path(home), drift, load_settings().jars, MAX_BYTES) as lake,
    ):
        began = time.time()
        with Writer(lake.prepared) as writer:
            await_found(
                lambda: writer.is_through,
                "all lines are offered",
                2 * seconds + 60,
                writer.expect_health,
                pause=1,
            )
            offered = seconds / (max(writer.moments.values()) - began)
            lake.await_caught_up(writer.lines, 1_200)
        counted = {name: at for name, at in writer.moments.items() if at >= began + WARM_SECONDS}
        tables = [lake.table_of(group, known) for group, known in lake.types().values()]
        rows = _sum(
            _arrivals(table, counted) for table in tables if DeltaTable.is_deltatable(table)
        )
        raw = _arrivals(lake.location(BRONZE), counted)
        executions = DeltaTable(lake.location(BRONZE)).version() + 1
    yield at_least("events a second that were offered", offered * rate, "/s", 0.95 * rate)
    yield from _lines("an event to its row", rows)
    yield from _lines("of it: until the stream's table has it", raw)
    yield at_most("executions of the stream's table, seconds of each", seconds / executions, "s")


def _arrivals(location: str, moments: Mapping[str, float]) -> Arrivals:
    """From the moment of each file to the commits that brought its events into a table."""
    found: Arrivals = Counter()
    before: set[str] = set()
    for commit in sorted(DeltaTable(location).history(), key=lambda one: one["version"]):
        files = {*DeltaTable(location, version=commit["version"]).file_uris()}
        for file in files - before:
            for source in pq.read_table(file, columns=["_src"])["_src"].to_pylist():
                at = moments.get(source.partition("@")[0])
                if at is not None:
                    found[round(commit["timestamp"] / 1000 - at, 1)] += 1
        before = files
    return found


def _sum(several: Iterable[Arrivals]) -> Arrivals:
    found: Arrivals = Counter()
    for one in several:
        found.update(one)
    return found


def _lines(name: str, arrivals: Arrivals) -> Iterator[Line]:
    for part in (50, 95):
        yield at_most(f"{name}, p{part}", _percentile(arrivals, part / 100), "s")


def _percentile(arrivals: Arrivals, part: float) -> float:
    """The seconds within which this part of the events came."""
    left = part * arrivals.total()
    for seconds, events in sorted(arrivals.items()):
        left -= events
        if left <= 0:
            return seconds
    raise SystemExit("no event was counted; let it go on for longer, by --seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--rate", type=int, default=8_000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    show(measure(asked.seconds, asked.rate), as_json=asked.json)


if __name__ == "__main__":
    main()
