"""What it costs to bring a database's changes into its table of the lake: `python -m benchmarks.cdc
[--json]`, or `make bench-cdc`.

A table of LAKECHIME_BENCH_ROWS rows changes by 1 % and by 0.1 %, in random and in its newest keys.
Each contender gets a fresh copy of it, and the same Debezium messages, with their schema, in a
bronze table: ours, the recipe of Delta's documentation, a merge of delta-rs and dlt's `upsert`, as
documented and with our table properties. Before a time counts, the table must hold exactly the rows
that it should. Then the reading of the messages alone, beside Spark's `from_json`. Before all that,
ours into a small Delta table and into Iceberg tables of either write mode, in turns.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import _orders as orders
from benchmarks._lines import Line, at_least, at_most, show
from benchmarks._merges import (
    COLUMNS,
    DEFAULT,
    ENVELOPE,
    EQUAL,
    OURS,
    Dlt,
    Merge,
    decoded,
    make_bases,
    merges,
    refresh_once,
)
from benchmarks._orders import Changes
from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.spark_changes import MESSAGE, PARSED_DDL, Reading
from lakechime_dagster.formats.iceberg import IcebergLog
from lakechime_dagster.settings import load_settings
from lakechime_dagster.spark.driver import open_driver
from lakechime_dagster.spark.session import arrow_of, on_batches
from lakechime_dagster.tables.cdc import CDCMerge
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.options import WriteMode

ROWS = int(os.environ.get("LAKECHIME_BENCH_ROWS", "1000000"))
ROUNDS = int(os.environ.get("LAKECHIME_BENCH_ROUNDS", "3" if ROWS < 5_000_000 else "1"))
WARM_UP = 20_000  # rows of the table that each contender warms up with
SMALL, CHANGED = 100_000, 1_000  # rows of the tables of each format, and those that change
MESSAGES = 200_000  # that reading is measured with
READING_GOAL = 100_000


@dataclass(frozen=True)
class Run:
    """What one contender did once; bytes and files of its table and of what it keeps beside it."""

    seconds: float
    megabytes: float
    added: int
    removed: int


Runs = dict[Merge, list[Run]]


@dataclass(frozen=True)
class Measured(Line):
    """The seconds of a contender, and the rest of what it did."""

    megabytes: float = 0
    added: int = 0
    removed: int = 0
    rows_per_second: int = 0


@dataclass
class Bench:
    """Tables of one size, the messages of each change of them, and what their rows are
    afterwards.
    """

    spark: SparkSession
    folder: Path
    rows: int

    def make(self, changes: list[Changes]) -> None:
        table = orders.rows(self.spark, self.rows)
        seed = [orders.message(1, "u", 0, 0, 1_789_000_000_000)]
        for one in changes:
            orders.write_bronze(self.bronze(one), [iter(seed), one.messages()])
        make_bases(self.spark, self.folder, table, self.bronze(changes[0]))
        self.expected = {one.name: self._expected(one, table) for one in changes}

    def bronze(self, changes: Changes) -> str:
        return str(self.folder / changes.name.replace(" ", "_") / "bronze")

    def run(self, merge: Merge, changes: Changes) -> Run:
        """One contender on a fresh copy, whose rows are looked at afterwards."""
        copy = Path(tempfile.mkdtemp(dir=self.folder)) / merge.base
        shutil.copytree(self.folder / merge.base, copy, copy_function=_linked)
        before = {file: file.stat().st_size for file in _files(copy)}
        seconds = merge.run(self.spark, copy / "orders", self.bronze(changes))
        found = self._fingerprint(self.spark.read.format("delta").load(str(copy / "orders")))
        if found != self.expected[changes.name]:
            raise SystemExit(
                f"{merge.name}, {changes.name}: {found} is not {self.expected[changes.name]}, the "
                f"rows that it should be"
            )
        written = sum(file.stat().st_size for file in _files(copy) if file not in before)
        added, removed = _moved(copy)
        shutil.rmtree(copy.parent)
        return Run(seconds, written / 1e6, added, removed)

    def _expected(self, changes: Changes, table: DataFrame) -> tuple[int, int]:
        """The rows as the messages say, computed without a merge."""
        state = {number: (op, version) for op, number, version in changes.events}
        gone = self.spark.createDataFrame([(number,) for number in state], "id bigint")
        raw = [
            tuple(orders.row(number, version).values())
            for number, (op, version) in state.items()
            if op != "d"
        ]
        reported = self.spark.createDataFrame(
            raw,
            "id bigint, customer int, status string, note string, amount string, changed bigint",
        )
        now = reported.select(F.struct("*").alias("row")).select(*decoded())
        return self._fingerprint(
            table.join(gone, "id", "left_anti").select(*COLUMNS).unionByName(now)
        )

    def _fingerprint(self, rows: DataFrame) -> tuple[int, int]:
        """How many rows there are, and the sum of their hashes."""
        text = [F.col(name).cast("string") for name in COLUMNS]
        found = rows.agg(
            F.count(F.lit(1)), F.sum(F.xxhash64(*text).cast("decimal(38,0)"))
        ).collect()[0]
        return int(found[0]), int(found[1] or 0)

    def key_scan(self) -> float:
        """The floor of what merges random keys: the keys of the whole table, read."""
        return _timed(
            lambda: (
                self.spark.read.format("delta")
                .load(str(self.folder / DEFAULT / "orders"))
                .agg(F.sum("id"))
                .collect()
            )
        )


def _linked(source: str, target: str) -> None:
    """Data files never change: they are linked; those of the log are copied."""
    (shutil.copyfile if "_delta_log" in source else os.link)(source, target)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _moved(copy: Path) -> tuple[int, int]:
    """How many data files of all tables in a folder are new since the copy was made, and how many
    went.
    """
    base = {
        str(path.relative_to(copy)) for path in copy.rglob("*.parquet") if path.stat().st_nlink > 1
    }
    now = set(base)
    for log in sorted(copy.rglob("_delta_log/*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for kind in ("remove", "add"):  # a file that gets a deletion vector is reported as both
            paths = {
                f"{log.parent.parent.name}/{action[kind]['path']}"
                for action in actions
                if kind in action
            }
            now = now | paths if kind == "add" else now - paths
    return len(now - base), len(base - now)


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def measure_merges(spark: SparkSession, folder: Path) -> Iterator[Line]:
    contenders = merges()
    try:
        dlt = Dlt()
        dlt.install()
        contenders.append(Merge("dlt upsert", DEFAULT, dlt.run))
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"dlt is not measured, as it cannot be installed: {problem}", file=sys.stderr)
    warm_up = Bench(spark, folder / "warm_up", WARM_UP)
    tail = orders.recent_changes(WARM_UP, 0.01)
    warm_up.make([tail])
    for merge in contenders:
        warm_up.run(merge, tail)
    bench = Bench(spark, folder / "bench", ROWS)
    changes = [
        kind(ROWS, share)
        for kind in (orders.random_changes, orders.recent_changes)
        for share in (0.01, 0.001)
    ]
    bench.make(changes)
    ours: dict[str, float] = {}
    for one in changes:
        runs: Runs = {merge: [] for merge in contenders}
        for _ in range(ROUNDS):
            for merge, found in runs.items():
                found.append(bench.run(merge, one))
        ours[one.name] = best_of(runs, OURS)
        yield from compared(one, runs)
    for kind in ("random", "recent"):
        yield at_most(
            f"{kind} keys: ten times the changes", ours[f"1 % {kind}"] / ours[f"0.1 % {kind}"], "x"
        )
    yield at_most(f"the keys of {ROWS:,} rows, read", bench.key_scan(), "s")


def compared(changes: Changes, runs: Runs) -> Iterator[Line]:
    """What each contender did, and what ours is beside the best of them, as documented and with the
    properties that ours has.
    """
    yield from (_measured(changes, merge, found) for merge, found in runs.items())
    ours = best_of(runs, OURS)
    yield at_least(
        f"{changes.name}: best as documented / ours", best_of(runs, DEFAULT) / ours, "x", 2
    )
    yield at_least(
        f"{changes.name}: best with our properties / ours", best_of(runs, EQUAL) / ours, "x", 1
    )


def best_of(runs: Runs, base: str) -> float:
    """The seconds of the fastest contender that started from a table of this kind."""
    return min(_seconds(found) for merge, found in runs.items() if merge.base == base)


def _seconds(runs: list[Run]) -> float:
    return statistics.median(run.seconds for run in runs)


def _measured(changes: Changes, merge: Merge, runs: list[Run]) -> Line:
    seconds, run = _seconds(runs), runs[-1]
    return Measured(
        f"{changes.name}: {merge.name}",
        round(seconds, 2),
        "s",
        megabytes=round(run.megabytes, 1),
        added=run.added,
        removed=run.removed,
        rows_per_second=round(changes.keys / seconds),
    )


def measure_formats(spark: SparkSession, folder: Path) -> Iterator[Line]:
    """Executions of few changes of random keys into a small table of each format."""
    loaded = (orders.message(10 + number, "c", number, 0, number) for number in range(SMALL))
    dice = random.Random(7)
    changed = [
        [
            orders.message(10 + SMALL + version * CHANGED + at, "u", number, version, SMALL + at)
            for at, number in enumerate(dice.sample(range(SMALL), CHANGED))
        ]
        for version in range(1, ROUNDS + 2)
    ]
    bronze = str(folder / "formats" / "bronze")
    orders.write_bronze(bronze, [loaded, *map(iter, changed)])
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/formats.sqlite",
        "warehouse": str(folder / "formats" / "iceberg"),
    }
    ways: dict[str, dict[str, Any]] = {"Delta": {}}
    for mode in WriteMode:
        log = IcebergLog(catalog, f"shop.{mode.name.lower()}")
        ways[f"Iceberg, {mode}"] = {"log": log, "write_mode": mode}
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(1, len(changed) + 2):
        for name, written in ways.items():
            began = time.perf_counter()
            result = refresh_once(spark, folder / "formats" / name, bronze, number, **written)
            took[name].append(time.perf_counter() - began)
            if result.counts.changed != (SMALL if number == 1 else CHANGED):
                raise SystemExit(f"{name}: {result.counts}")
    # the load and the first changes warm the code up
    seconds = {name: statistics.median(several[2:]) for name, several in took.items()}
    for name, each in seconds.items():
        yield at_most(f"{CHANGED:,} changes into {SMALL:,} rows: {name}", each, "s")
        if name != "Delta":
            yield at_most("the same / into a Delta table", each / seconds["Delta"], "x")


def measure_reading(spark: SparkSession, folder: Path) -> Iterator[Line]:
    """Messages of changes read, by ours and by `from_json`, on all cores of the session."""
    changes = orders.random_changes(MESSAGES, 0.1)
    orders.write_bronze(str(folder / "reading"), [changes.messages()])
    messages = spark.read.format("delta").load(str(folder / "reading"))
    count, cores = messages.count(), spark.sparkContext.defaultParallelism
    copies = max(1, MESSAGES // count)
    again = messages.crossJoin(spark.range(copies)).drop("id").repartition(cores)
    again.write.parquet(str(folder / "messages"))
    frame = spark.read.parquet(str(folder / "messages"))
    reader, takes = (
        MessageFormat(envelope=Debezium(), keys=orders.KEYS).reader,
        CDCMerge(keys=orders.KEYS).takes,
    )
    reading = Reading(out=arrow_of(PARSED_DDL), reader=reader, takes=takes, names={})
    parsed = frame.select(F.from_json("value", ENVELOPE).alias("m")).select("m.payload.*")
    ways = {
        "ours": on_batches(frame.select(*MESSAGE), reading, PARSED_DDL),
        "from_json of the row before, the row after, op and time": parsed,
        "to Python and back": on_batches(frame.select("value"), _as_they_are, "value string"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(4):
        for name, rows in ways.items():
            seconds[name].append(_timed(rows.write.format("noop").mode("overwrite").save))
    yield from (
        rate(name, cores, count * copies, statistics.median(took[1:]))
        for name, took in seconds.items()
    )


def rate(way: str, cores: int, messages: int, seconds: float) -> Line:
    """Messages a second of one way to read them."""
    return at_least(
        f"messages read, {cores} cores: {way}",
        round(messages / seconds),
        "/s",
        READING_GOAL if way == "ours" else None,
    )


def _as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def measure() -> Iterator[Line]:
    settings = load_settings()
    spark_settings = settings.spark.model_copy(update={"driver": "local", "cores": 2})
    with (
        tempfile.TemporaryDirectory(prefix="lakechime-bench-") as folder,
        open_driver(spark_settings, Path(folder), jars=settings.jars) as driver,
    ):
        yield from measure_formats(driver.spark, Path(folder))
        yield from measure_merges(driver.spark, Path(folder))
        yield from measure_reading(driver.spark, Path(folder))


def lines() -> Iterator[Line]:
    """All lines; what contenders print goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        yield from measure()


def shown(line: Line) -> Line:
    """A line for people reports of a contender all that it did."""
    if not isinstance(line, Measured):
        return line
    name = (
        f"{line.name} ({line.rows_per_second:,} rows/s, {line.megabytes:,.1f} MB, files "
        f"+{line.added} -{line.removed})"
    )
    return Line(name, line.value, line.unit)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.json:
        show(list(lines()), as_json=True)
        return
    for line in measure():
        show([shown(line)], as_json=False, width=100)


if __name__ == "__main__":
    main()
