"""How long from a registered event to the first line of the asset's body: `python -m
benchmarks.latency [--json] [--events 9]`.

A stock asset with `lakechime_sensor`, Dagster's daemon with the instance that `lakechime dev`
writes, SQLite. Where the time goes is printed beside the sum: until the daemon's loop comes round
(5 s, fixed), until the queue lets the run go (its own loop, 1 s), until the run's interpreter
works.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from benchmarks._lines import Line, at_most, show
from lakechime_dagster.cli.dev import dagster_yaml
from lakechime_dagster.dce.events import DataChangeEvent, SnapshotId
from lakechime_dagster.runtime.platform import Platform, open_platform

ROOT = Path(__file__).resolve().parent.parent
GOAL_SECONDS = 7.0
PATIENCE_SECONDS = 120.0

LOCATION = """
import pathlib, time
import dagster as dg
from lakechime_dagster import LakeChimeResource, SnapshotTrigger, lakechime_sensor

@dg.asset
def features(context: dg.AssetExecutionContext, lakechime: LakeChimeResource):
    first_line = time.time()
    with lakechime.execution(context) as execution:
        for event in execution.events:
            pathlib.Path({folder!r}, event.event.snapshot_id).write_text(str(first_line))

sensor = lakechime_sensor("features", SnapshotTrigger(["bench.events"]), target=features)
defs = dg.Definitions(
    [features],
    sensors=[sensor],
    resources={{"lakechime": LakeChimeResource()}},
    executor=dg.in_process_executor,
)
"""


@dataclass(frozen=True)
class Journey:
    """The moments of one event, in seconds since the epoch."""

    registered: float
    claimed: float
    run_created: float
    run_started: float
    first_line: float


@contextmanager
def daemon(home: Path) -> Iterator[None]:
    """A stock daemon with the code location, ended by its process group."""
    command = [
        str(Path(sys.executable).with_name("dagster-daemon")),
        "run",
        "-f",
        str(home / "location.py"),
    ]
    with (home / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=home, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def measure(events: int) -> list[Journey]:
    # in which the last run still ends
    with tempfile.TemporaryDirectory(
        prefix="lakechime-bench-", ignore_cleanup_errors=True
    ) as folder:
        home = Path(folder)
        (home / "dagster").mkdir()
        (home / "seen").mkdir()
        (home / "dagster" / "dagster.yaml").write_text(dagster_yaml())
        (home / "location.py").write_text(LOCATION.format(folder=str(home / "seen")))
        os.environ |= {
            "LAKECHIME_HOME": str(home),
            "DAGSTER_HOME": str(home / "dagster"),
            "PYTHONPATH": str(ROOT),
        }
        platform = open_platform()
        with daemon(home), dg.DagsterInstance.get() as instance:
            journeys = [one(platform, instance, home, number) for number in range(1, events + 2)]
    return journeys[1:]  # the first one waits for the daemon to start


def one(platform: Platform, instance: dg.DagsterInstance, home: Path, number: int) -> Journey:
    # a prime number of seconds apart, so that events fall everywhere in the daemon's loop
    time.sleep(1.0 + (number * 1.7) % 5)
    event = DataChangeEvent(table="bench.events", snapshot_id=SnapshotId(str(number)))
    [registered] = platform.store.register([event]).registered
    seen = home / "seen" / str(number)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (seen.exists() and seen.read_text()):
        if time.monotonic() > deadline:
            raise SystemExit(
                f"event {number} was not seen within {PATIENCE_SECONDS:.0f} "
                f"s:\n{(home / 'daemon.log').read_text()[-2000:]}"
            )
        time.sleep(0.02)
    [execution] = platform.ledger.executions(subscription="features", limit=1)
    record = instance.get_run_records(filters=dg.RunsFilter(run_ids=[execution.run_id or ""]))[0]
    return Journey(
        registered=registered.event_ts / 1000,
        claimed=execution.claimed_ts / 1000,
        run_created=record.create_timestamp.timestamp(),
        run_started=record.start_time or 0.0,
        first_line=float(seen.read_text()),
    )


def lines(journeys: list[Journey]) -> list[Line]:
    def median(values: list[float]) -> float:
        return statistics.median(values)

    return [
        at_most(
            "event to first line of the body, p50",
            median([j.first_line - j.registered for j in journeys]),
            "s",
            GOAL_SECONDS,
        ),
        at_most(
            "of it: until the sensor's tick claims",
            median([j.claimed - j.registered for j in journeys]),
            "s",
        ),
        at_most(
            "of it: until Dagster has created the run",
            median([j.run_created - j.claimed for j in journeys]),
            "s",
        ),
        at_most(
            "of it: until the queue has started it",
            median([j.run_started - j.run_created for j in journeys]),
            "s",
        ),
        at_most(
            "of it: until the body's first line",
            median([j.first_line - j.run_started for j in journeys]),
            "s",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    show(lines(measure(options.events)), as_json=options.json)


if __name__ == "__main__":
    main()
