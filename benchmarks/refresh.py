"""What an execution of 1,000 changed rows costs in a small and in a large table: `python -m
benchmarks.refresh [--json]`.

The same change goes into a target of 100,000 and of 5,000,000 rows, by key, through the range of
its source; beside it what a user would run instead, the whole table recomputed and overwritten.
Then as many new rows come, beside a MERGE of just these in a table of the same rows. One warm
session, in turns, medians; the large target's first load, once, beside a MERGE into an empty table.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from benchmarks._lines import Line, at_least, at_most, show
from lakechime_dagster.dce.events import Position, SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, SnapshotRange
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.formats.iceberg import IcebergLog
from lakechime_dagster.settings import load_settings
from lakechime_dagster.spark.driver import open_driver
from lakechime_dagster.spark.job import InputJob, TableJob
from lakechime_dagster.spark.refresh import refresh
from lakechime_dagster.tables.options import ReadMode
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId

SIZES = (100_000, 5_000_000)
CHANGED = 1_000
ROUNDS = 3
CONSUMER = ConsumerId("bench", "refresh")


@dataclass
class Bench:
    """A source of some rows and the target that follows it."""

    spark: SparkSession
    folder: Path
    rows: int
    executions: int = 0
    read: int | None = None
    added: int = 0
    iceberg: IcebergLog | None = None  # the log of its target, of an Iceberg table

    @property
    def source(self) -> str:
        return str(self.folder / f"source_{self.rows}")

    @property
    def target(self) -> str:
        return str(self.folder / f"target_{self.rows}")

    @property
    def other(self) -> str:
        return str(self.folder / f"merged_{self.rows}")

    def make(self) -> tuple[float, float]:
        """The first load, and by a MERGE of all rows into an empty table."""
        frame(self.spark, 0, self.rows).write.format("delta").option(
            "delta.enableChangeDataFeed", "true"
        ).save(self.source)
        took = self.follow()
        frame(self.spark, 0, 0).write.format("delta").option(
            "delta.enableChangeDataFeed", "true"
        ).save(self.other)
        return took, self.merge(frame(self.spark, 0, self.rows))

    def merge(self, rows: DataFrame) -> float:
        """What one would run instead for rows of which some may be there."""
        began = time.perf_counter()
        table = DeltaTable.forPath(self.spark, self.other).alias("t")
        table.merge(
            rows.alias("s"), "t.id = s.id"
        ).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        return time.perf_counter() - began

    def add(self) -> DataFrame:
        """Add rows of new keys to the source."""
        first = self.rows + self.added
        self.added += CHANGED
        rows = frame(self.spark, first, first + CHANGED)
        rows.write.format("delta").mode("append").save(self.source)
        return rows

    def change(self, round_: int) -> None:
        """Update a block of the newest keys, as late corrections do."""
        first = self.rows - (round_ + 1) * CHANGED
        self.spark.sql(
            f"UPDATE delta.`{self.source}` SET amount = amount + 1 WHERE id >= {first} AND id < "
            f"{first + CHANGED}"
        )

    def follow(self) -> float:
        """One execution: the range since the last one, merged by key."""
        log = DeltaLog(self.source, "source")
        end = SnapshotId(str(log.version))
        start = None if self.read is None else SnapshotId(str(self.read))
        range_ = SnapshotRange(
            table="source",
            table_uid=log.uid,
            start=start,
            end=end,
            start_uid=log.uid if start else None,
        )
        job = TableJob(
            name="target",
            location=self.target,
            keys=("id",),
            compute=lambda source: source,
            log=self.iceberg,
            inputs=(
                InputJob(
                    alias="source",
                    table="source",
                    location=self.source,
                    mode=ReadMode.CHANGES,
                    range=range_,
                    keys=("id",),
                ),
            ),
        )
        self.executions += 1
        checkpoint = Checkpoint(
            position=Position(0, self.executions),
            sources={"source": SnapshotCheckpoint(table_uid=log.uid, snapshot_id=end)},
        )
        commit_metadata = CommitMetadata(
            consumer=CONSUMER,
            number=self.executions,
            attempt=1,
            end=checkpoint,
            execution_id=str(self.executions),
        )
        began = time.perf_counter()
        result = refresh(self.spark, job, commit_metadata, DeltaLog)
        took = time.perf_counter() - began
        if start is not None and result.counts.changed != CHANGED:
            raise SystemExit(f"expected {CHANGED} changed rows, got {result.counts}")
        self.read = int(end)
        return took

    def recompute(self) -> float:
        """What one would run instead: the whole table read, computed and overwritten."""
        began = time.perf_counter()
        frame_ = self.spark.read.format("delta").load(self.source)
        frame_.write.format("delta").mode("overwrite").save(
            str(self.folder / f"recomputed_{self.rows}")
        )
        return time.perf_counter() - began


def frame(spark: SparkSession, first: int, end: int) -> DataFrame:
    return spark.range(first, end, 1, 8).selectExpr(
        "id", "id % 1000 AS customer", "id * 0.5 AS amount", "concat('note ', id) AS note"
    )


def measure() -> list[Line]:
    settings = load_settings()
    spark_settings = settings.spark.model_copy(update={"driver": "local", "cores": 2})
    with (
        tempfile.TemporaryDirectory(prefix="lakechime-bench-") as folder,
        open_driver(spark_settings, Path(folder), jars=settings.jars) as driver,
    ):
        benches = [Bench(driver.spark, Path(folder), rows) for rows in SIZES]
        beside = Path(folder) / "iceberg"
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/iceberg.sqlite",
            "warehouse": str(beside),
        }
        iceberg = Bench(driver.spark, beside, SIZES[0], iceberg=IcebergLog(catalog, "bench.target"))
        iceberg.make()
        copied: list[float] = []
        loads = [bench.make() for bench in benches]
        follows: dict[int, list[float]] = {rows: [] for rows in SIZES}
        wholes: dict[int, list[float]] = {rows: [] for rows in SIZES}
        for round_ in range(ROUNDS + 1):
            for bench in benches:
                bench.change(round_)
                follows[bench.rows].append(bench.follow())
                wholes[bench.rows].append(bench.recompute())
            iceberg.change(round_)
            copied.append(iceberg.follow())
        news = [
            (benches[1].merge(benches[1].add()), benches[1].follow()) for _ in range(ROUNDS + 1)
        ]
    # the first round warms the code up
    small, large = (statistics.median(follows[rows][1:]) for rows in SIZES)
    into_iceberg = statistics.median(copied[1:])
    whole = statistics.median(wholes[SIZES[1]][1:])
    merged, added = (statistics.median(times) for times in zip(*news[1:], strict=True))
    load, load_merged = loads[1]
    return [
        at_most(f"{CHANGED} rows into {SIZES[0]:,}", small, "s"),
        at_most(f"{CHANGED} rows into {SIZES[0]:,} of an Iceberg table", into_iceberg, "s"),
        at_most("the same / into a Delta table", into_iceberg / small, "x"),
        at_most(f"{CHANGED} rows into {SIZES[1]:,}", large, "s"),
        at_most("cost for a table 50 times as large", large / small, "x", 5),
        at_most(f"recomputing {SIZES[1]:,} rows whole", whole, "s"),
        at_least("recomputing whole / execution", whole / large, "x", 1),
        at_most(f"{CHANGED} new rows into {SIZES[1]:,}", added, "s"),
        at_least("a MERGE of just these / execution", merged / added, "x"),
        at_most(f"the first {SIZES[1]:,} rows", load, "s"),
        at_least("a MERGE of them into an empty table / execution", load_merged / load, "x"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    show(measure(), as_json=options.json)


if __name__ == "__main__":
    main()
