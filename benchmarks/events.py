"""What it costs to bring a batch of events into a table for each type: `python -m benchmarks.events
[--json]`.

Messages per second of the clock, of two executions after one another: the stream's table, and the
tables of all types. Beside it what the same rows cost in one table, read by Spark with a schema
that somebody knew before. An execution of each comes before, unmeasured.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import functions as F

from benchmarks._lines import Line, at_least, at_most, run_of_messages
from benchmarks.json_hash import TYPES, messages
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.settings import load_settings
from lakechime_dagster.silver.event import Variation
from lakechime_dagster.silver.results import GroupResult
from lakechime_dagster.silver.rows import from_payload
from lakechime_dagster.silver.schema import TypeSchema, next_schema
from lakechime_dagster.silver.slices import Slices
from lakechime_dagster.spark.driver import open_driver
from lakechime_dagster.tables.events import event_group, event_stream
from lakechime_dagster.tables.sources import JsonLines
from tests.support.streams import Stream

MESSAGES = 1_000_000
WARM = 2  # executions


def one_table(play: Stream) -> None:
    """Write the events of the newest version into one table, whose columns are those of all
    types.
    """
    end = play.end()
    slices = Slices(
        play.spark, play.stream.table.name, DeltaLog(play.bronze, play.stream.table.name), end
    )
    types = play.types.types(play.group.name).values()
    seen = Variation(frozenset().union(*(known.observed.kinds for known in types)))
    parsed = from_payload(
        F.col("payload"), next_schema(TypeSchema(), seen, play.group.contract)
    ).alias("p")
    rows = (
        slices.rows(slices.version - 1)
        .select("_src", "_ingested_at", parsed)
        .select("_src", "_ingested_at", "p.*")
    )
    rows.write.format("delta").mode("append").save(str(play.folder / "one"))


def measure(count: int = MESSAGES) -> list[Line]:
    """The lines of the result, each with value, goal and verdict."""
    settings = load_settings()
    spark_settings = settings.spark.model_copy(update={"driver": "local", "cores": 2})
    with (
        tempfile.TemporaryDirectory(prefix="lakechime-bench-") as folder,
        open_driver(spark_settings, Path(folder), jars=settings.jars) as driver,
    ):
        game = event_stream("game", source=JsonLines("in"), type_field="$.event_type")
        play = Stream(
            driver.spark,
            Path(folder),
            event_group("play", game),
            stream=game,
            classes=str(Path(folder) / "classes"),
        )
        took: dict[str, float] = {}
        result = GroupResult(types=())
        for number in range(1 + WARM):
            play.drop(*messages(count, seed=number), name=f"{number}.jsonl")
            with _clock(took, "bronze"):
                play.ingest()
            end = play.end()
            with _clock(took, "types"):
                result = play.execute(end, execution=str(number)).run()
                play.complete(result, end, str(number))
            with _clock(took, "one"):
                one_table(play)
        assert sum(one.written for one in result.types) == count
    both = took["bronze"] + took["types"]
    return [
        at_least("events into the stream's table", count / took["bronze"], "/s", 80_000),
        at_least(f"events into the tables of {TYPES} types", count / took["types"], "/s"),
        *(
            at_most(f"seconds of that to {phase}", seconds, "s")
            for phase, seconds in result.seconds.items()
        ),
        at_least("events into both", count / both, "/s", 25_000),
        at_least(
            "seconds: the same rows into one table / into those of types",
            took["one"] / took["types"],
            "x",
            0.6,
        ),
    ]


@contextmanager
def _clock(took: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    took[name] = time.perf_counter() - began


if __name__ == "__main__":
    run_of_messages(__doc__, measure, MESSAGES)
