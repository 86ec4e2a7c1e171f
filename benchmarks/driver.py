"""How soon a run has its first row: from a session of its own, and from the warm driver.

Each client is a Python process of its own, timed from its start to the first row of a Delta table,
imports included.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._lines import Line, at_least, at_most, show
from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.jvm import ensure_jars, find_java
from lakechime_dagster.spark.warm import start_warm_driver

REPOSITORY = Path(__file__).parents[1]
GOAL_SECONDS = 2.0

CLIENT = """
import os
from pathlib import Path
from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.driver import open_driver
settings = SparkSettings.model_validate_json(os.environ["BENCH_SETTINGS"])
with open_driver(settings, Path(os.environ["BENCH_HOME"]), jars=Path(os.environ["BENCH_JARS"])) as driver:
    if os.environ["BENCH_WRITE"]:
        driver.spark.range(1000).write.format("delta").save(os.environ["BENCH_TABLE"])
    row = driver.spark.read.format("delta").load(os.environ["BENCH_TABLE"]).first()
    assert row is not None
    print(driver.kind, flush=True)
    input()
"""


def first_row_seconds(
    settings: SparkSettings, home: Path, jars: Path, *, write: bool = False
) -> float:
    """From the start of a process to its first row."""
    wishes = {
        "BENCH_SETTINGS": settings.model_dump_json(),
        "BENCH_HOME": str(home),
        "BENCH_JARS": str(jars),
        "BENCH_TABLE": str(home / "table"),
        "BENCH_WRITE": "yes" if write else "",
        "PYTHONPATH": str(REPOSITORY),
    }
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | wishes,
    ) as process:
        if process.stdout is None:
            raise RuntimeError("a pipe was asked for")
        kind = process.stdout.readline().strip()
        took = time.perf_counter() - began
        process.communicate("\n")
    if kind != settings.driver:
        raise RuntimeError(f"asked for {settings.driver}, got {kind or 'nothing'}")
    return took


def measure(jars: Path, cold_runs: int, warm_runs: int) -> list[Line]:
    """The lines of the result, each with value, goal and verdict."""
    cold = SparkSettings(driver="local", memory="1g", cores=2)
    warm = cold.model_copy(update={"driver": "warm"})
    with tempfile.TemporaryDirectory(prefix="lakechime-bench-") as temporary:
        home = Path(temporary)
        # makes the table, and fills the disk's cache
        first_row_seconds(cold, home, jars, write=True)
        cold_seconds = [first_row_seconds(cold, home, jars) for _ in range(cold_runs)]
        began = time.perf_counter()
        host = start_warm_driver(warm, home, jars)
        try:
            if not host.wait_warmed(300):
                raise RuntimeError(host.log_file.read_text())
            warmed = time.perf_counter() - began
            warm_seconds = [first_row_seconds(warm, home, jars) for _ in range(warm_runs)]
        finally:
            host.stop()
    cold_median, warm_median = statistics.median(cold_seconds), statistics.median(warm_seconds)
    return [
        at_most("cold session to first row", cold_median, "s"),
        at_most("warm driver started and exercised", warmed, "s"),
        at_most("warm session to first row", warm_median, "s", GOAL_SECONDS),
        at_least("cold / warm", cold_median / warm_median, "x"),
    ]


def main() -> None:
    """Prints value, goal and verdict per line, or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--jars",
        type=Path,
        default=Path(os.environ.get("LAKECHIME_SPARK_JARS") or REPOSITORY / ".lakechime" / "jars"),
    )
    parser.add_argument("--cold", type=int, default=3, help="cold sessions to time")
    parser.add_argument("--warm", type=int, default=7, help="warm sessions to time")
    asked = parser.parse_args()
    jars = asked.jars.absolute()
    ensure_jars(jars, find_java, lambda text: print(text, file=sys.stderr))
    show(measure(jars, asked.cold, asked.warm), as_json=asked.json)


if __name__ == "__main__":
    main()
