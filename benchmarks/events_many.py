"""What many types cost, beside a query for each and beside dlt: `python -m benchmarks.events_many
[--json] [--messages 100000]`.

Each way brings the same files of JSON events into a Delta table for each type. Before a time
counts, every table must have as many rows as there were events of its type. A batch of the same
size comes before, unmeasured, which also makes the tables. Queries are handed the new file and the
columns; ours and dlt find both out. The session stays, from one number of types to the next.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from benchmarks._dlt_home import DltHome
from benchmarks._lines import Line, at_least, at_most, run_of_messages
from benchmarks._queries import query_per_type
from benchmarks.json_hash import TYPES, messages
from lakechime_dagster.settings import load_settings
from lakechime_dagster.silver.rows import payload_type
from lakechime_dagster.silver.schema import TypeSchema, next_schema
from lakechime_dagster.spark.driver import open_driver
from lakechime_dagster.tables.events import event_group, event_stream, table_of
from lakechime_dagster.tables.sources import JsonLines
from tests.support.streams import Stream

MESSAGES = 100_000
SEVERAL, MANY = 100, 300  # types
MANY_MESSAGES = 80_000
BATCHES = 2  # of which the last counts
CORES = 2  # of Spark, and processes of dlt that normalize


@dataclass(frozen=True)
class Ours:
    """Seconds of an execution: of the stream's table, of the tables of types, and of these by
    phase.
    """

    bronze: float
    types: float
    phases: Mapping[str, float] = field(default_factory=dict)

    @property
    def both(self) -> float:
        return self.bronze + self.types


@dataclass(frozen=True)
class Batches:
    """Files of events of so many types in a folder of their own, and what they are brought into."""

    spark: SparkSession
    folder: Path
    types: int
    count: int

    @cached_property
    def play(self) -> Stream:
        game = event_stream("game", source=JsonLines("in"), type_field="$.event_type")
        return Stream(
            self.spark,
            self.folder,
            event_group("play", game),
            stream=game,
            classes=str(self.folder.parent / "classes"),
        )

    @property
    def files(self) -> list[Path]:
        return sorted((self.folder / "in").glob("*.jsonl"))

    def ours(self) -> Ours:
        """The last batch's execution; it makes the files."""
        self.folder.mkdir()
        took = Ours(0, 0)
        for number in range(BATCHES):
            self.play.drop(
                *messages(self.count, seed=number, types=self.types), name=f"{number}.jsonl"
            )
            took = self._step(str(number))
        self._expect({name: self.play.location(name) for name in self.sent})
        return took

    def _step(self, execution: str) -> Ours:
        began = time.perf_counter()
        self.play.ingest()
        ingested = time.perf_counter()
        end = self.play.end()
        result = self.play.execute(end, execution=execution).run()
        self.play.complete(result, end, execution)
        return Ours(ingested - began, time.perf_counter() - ingested, result.seconds)

    def queries(self) -> float:
        """Seconds of a query for each type over the last file."""
        seconds = 0.0
        for number, file in enumerate(self.files):
            began = time.perf_counter()
            query_per_type(self.spark, file, self.folder / "queries", self.schemas, number)
            seconds = time.perf_counter() - began
        self._expect({name: str(self.folder / "queries" / table_of(name)) for name in self.sent})
        return seconds

    def dlt(self, home: DltHome) -> float:
        """Seconds of dlt's load of the last file; arrays of events go into tables of their own, as
        is its custom.
        """
        done = subprocess.run(
            [
                home.python,
                "-m",
                "benchmarks._dlt_events",
                str(self.folder / "dlt"),
                *map(str, self.files),
            ],
            env={**home.environment, "NORMALIZE__WORKERS": str(CORES)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        self._expect(
            {
                name: str(self.folder / "dlt" / "types" / name.replace(".", "_"))
                for name in self.sent
            }
        )
        return float(done.stdout.split()[-1])

    @cached_property
    def sent(self) -> Counter[str]:
        """The events of all files by type."""
        return Counter(
            json.loads(line)["event_type"]
            for file in self.files
            for line in file.read_bytes().splitlines()
        )

    @cached_property
    def schemas(self) -> dict[str, StructType]:
        """What the events of each type are made of."""
        known = self.play.types.types(self.play.group.name)
        return {
            name: payload_type(next_schema(TypeSchema(), one.observed, self.play.group.contract))
            for name, one in known.items()
        }

    def _expect(self, locations: Mapping[str, str]) -> None:
        """All tables have the rows of all files, each those of its type."""
        found = {name: DeltaTable(location).count() for name, location in locations.items()}
        assert len(found) == self.types
        assert found == self.sent


def measure(count: int = MESSAGES) -> Iterator[Line]:
    """The lines of the result, each with value, goal and verdict."""
    settings = load_settings()
    spark_settings = settings.spark.model_copy(update={"driver": "local", "cores": CORES})
    with (
        tempfile.TemporaryDirectory(prefix="lakechime-bench-") as name,
        open_driver(spark_settings, Path(name), jars=settings.jars) as driver,
    ):
        folder = Path(name)
        yield from measure_dlt(Batches(driver.spark, folder / "few", TYPES, count))
        several = Batches(driver.spark, folder / "several", SEVERAL, count)
        yield from beside_queries(several.ours(), several.queries())
        many = min(count, MANY_MESSAGES)
        yield from of_many(Batches(driver.spark, folder / "many", MANY, many).ours(), many)


def measure_dlt(few: Batches) -> Iterable[Line]:
    """Nothing, said aloud, where dlt cannot be had."""
    home = DltHome()
    try:
        home.install()
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"dlt is not measured, as it cannot be installed: {problem}", file=sys.stderr)
        return []
    return beside_dlt(few.ours(), few.dlt(home), few.count)


def beside_queries(ours: Ours, queries: float) -> list[Line]:
    return [
        at_most(f"{SEVERAL} types: seconds of our two executions", ours.both, "s"),
        at_most(f"{SEVERAL} types: seconds of a query for each", queries, "s"),
        at_least(f"{SEVERAL} types: a query for each / ours", queries / ours.both, "x", 3),
    ]


def of_many(ours: Ours, count: int) -> list[Line]:
    return [
        at_most(f"{MANY} types: an execution of {count:,} events", ours.types, "s", 60),
        *(
            at_most(f"{MANY} types: seconds of that to {phase}", seconds, "s")
            for phase, seconds in ours.phases.items()
        ),
    ]


def beside_dlt(ours: Ours, dlt: float, count: int) -> list[Line]:
    return [
        at_least(f"{TYPES} types: events into both of ours", count / ours.both, "/s"),
        at_least(f"{TYPES} types: events by dlt", count / dlt, "/s"),
        at_least(f"{TYPES} types: dlt / ours, seconds", dlt / ours.both, "x"),
    ]


if __name__ == "__main__":
    run_of_messages(__doc__, measure, MESSAGES)
