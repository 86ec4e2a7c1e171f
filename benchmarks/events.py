"""What it costs to bring a batch of events into a table for each type: `python -m benchmarks.events [--json]`.

Messages per second of the clock, of two steps after one another: the stream's table, and the tables of all types. Beside it what
the same rows cost in one table, read by Spark with a schema that somebody knew before. A step of each comes before, unmeasured.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks._lines import Line, at_least, at_most, show
from benchmarks.json_hash import TYPES, messages
from lakechime_dagster.capture.delta import DeltaLog
from lakechime_dagster.dce.event import SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.feeds.files import FilesFeed
from lakechime_dagster.lake import EventGroup, JsonLines, event_group, event_stream
from lakechime_dagster.schema.layout import Layout, next_layout
from lakechime_dagster.schema.observed import Observed
from lakechime_dagster.schema.repository import TypePlace
from lakechime_dagster.schema.results import GroupResult
from lakechime_dagster.settings import load_settings
from lakechime_dagster.spark.drivers.driver import open_driver
from lakechime_dagster.spark.events.bronze import ingest_events
from lakechime_dagster.spark.events.columns import from_payload
from lakechime_dagster.spark.events.group import GroupStep
from lakechime_dagster.spark.events.job import EventJob, GroupJob
from lakechime_dagster.spark.events.slices import Slices
from lakechime_dagster.store.engine import memory_engine, writing
from lakechime_dagster.store.event_types import SqlEventTypes
from lakechime_dagster.store.upgrade import upgrade
from lakechime_dagster.triggers.feeds import FeedPlace
from lakechime_dagster.triggers.lanes import CommitStamp, LaneId, Place

MESSAGES = 1_000_000
WARM = 20_000  # of the batch before


@dataclass
class Play:
    """A stream of a folder and its one group, whose steps go on by hand."""

    spark: SparkSession
    folder: Path
    group: EventGroup
    types: SqlEventTypes
    place: FeedPlace | None = None
    start: TypePlace = field(default_factory=TypePlace)
    steps: int = 0

    @property
    def bronze(self) -> str:
        return str(self.folder / "game" / "events")

    def drop(self, count: int) -> None:
        (self.folder / "in").mkdir(exist_ok=True)
        with (self.folder / "in" / f"{self.steps}.jsonl").open("wb") as file:
            file.writelines(one + b"\n" for one in messages(count, seed=self.steps + 1))

    def ingest(self) -> None:
        self.steps += 1
        end = FilesFeed(self.folder / "in", "*.jsonl").look(self.place).end
        table = self.group.stream.table
        job = EventJob(
            name=table.name, location=self.bronze, feed=table.feed, folder=str(self.folder / "in"), start=Place(feed=self.place),
            type_field=table.type_field, classes=str(self.folder / "classes"),
        )  # fmt: skip
        stamp = CommitStamp(lane=LaneId("bench", table.name), step=self.steps, attempt=1, execution_id=str(self.steps), end=Place(feed=end))
        ingest_events(self.spark, job, stamp, DeltaLog)
        self.place = end

    def write(self) -> GroupResult:
        log = DeltaLog(self.bronze, "game.events")
        end = SnapshotPlace(table_uid=log.uid, snapshot_id=SnapshotId(str(log.version)))
        job = GroupJob(
            group=self.group, groups=(self.group,), bronze=self.bronze, end=end, folder=str(self.folder / self.group.name),
            deployment="bench", execution_id=str(self.steps),
        )  # fmt: skip
        result = GroupStep(spark=self.spark, job=job, repository=self.types, open_log=DeltaLog, now_ms=0, start=self.start).run()
        with writing(self.types.engine) as connection:
            self.types.settle(connection, self.group.name, job.execution_id, result.types, str(end.table_uid))
        self.start = TypePlace(uid=end.table_uid, version=log.version)
        return result

    def one_table(self) -> None:
        """The events of the newest version in one table, whose columns are those of all types."""
        log = DeltaLog(self.bronze, self.group.stream.table.name)
        slices = Slices(self.spark, log.table, log, SnapshotPlace(table_uid=log.uid, snapshot_id=SnapshotId(str(log.version))))
        seen = Observed()
        for known in self.types.types(self.group.name).values():
            seen = seen.joined(known.observed)
        parsed = from_payload(F.col("payload"), next_layout(Layout(), seen, self.group.contract)).alias("p")
        rows = slices.after(log.version - 1).select("_src", "_ingested_at", parsed).select("_src", "_ingested_at", "p.*")
        rows.write.format("delta").mode("append").save(str(self.folder / "one"))


def measure(count: int = MESSAGES) -> list[Line]:
    """The lines of the result, each with value, goal and verdict."""
    settings = load_settings()
    spark_settings = settings.spark.model_copy(update={"driver": "local", "cores": 2})
    with (
        tempfile.TemporaryDirectory(prefix="lakechime-bench-") as folder,
        open_driver(spark_settings, Path(folder), jars=settings.jars) as driver,
    ):
        engine = memory_engine()
        upgrade(engine)
        stream = event_stream("game", source=JsonLines("in"), type_field="$.event_type")
        play = Play(driver.spark, Path(folder), event_group("play", stream), SqlEventTypes(engine, "bench"))
        took: dict[str, float] = {}
        for size in (WARM, count):
            play.drop(size)
            began = time.perf_counter()
            play.ingest()
            took["bronze"] = time.perf_counter() - began
            began = time.perf_counter()
            result = play.write()
            took["types"] = time.perf_counter() - began
            began = time.perf_counter()
            play.one_table()
            took["one"] = time.perf_counter() - began
        assert sum(one.written for one in result.types) == count
    both = took["bronze"] + took["types"]
    return [
        at_least("events into the stream's table", count / took["bronze"], "/s", 80_000),
        at_least(f"events into the tables of {TYPES} types", count / took["types"], "/s"),
        *(at_most(f"seconds of that to {phase}", seconds, "s") for phase, seconds in result.seconds.items()),
        at_least("events into both", count / both, "/s", 25_000),
        at_least("seconds: the same rows into one table / into those of types", took["one"] / took["types"], "x", 0.6),
    ]


def main() -> None:
    """Prints value, goal and verdict per line, or one JSON document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    asked = parser.parse_args()
    show(measure(asked.messages), as_json=asked.json)


if __name__ == "__main__":
    main()
