"""What it costs to report of a million messages their type and what they are made of: `python -m
benchmarks.json_hash [--json]`.

Each way reads the same files and writes nowhere. CPU is that of the JVM and of all its Python
workers, scan included; ways in turns, medians, the first round dropped. A Python function of names
alone, as is common, is what the tokenizer is beside.
"""

import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks._lines import Line, at_least, at_most, run_of_messages
from lakechime_dagster.settings import load_settings
from lakechime_dagster.silver.bronze import COLUMNS, load_tokenizer, scan
from lakechime_dagster.spark.driver import open_driver

MESSAGES = 300_000
ROUNDS = 3
TYPES, VARIATIONS, FILES = 30, 4, 8
GOAL = 4

WAYS = FLOOR, FUNCTION, FALLBACK, TOKENIZER = (
    "scan and length",
    "Python function, names alone",
    "in Python workers",
    "in the JVM",
)


def messages(count: int, seed: int = 1, types: int = TYPES) -> Iterator[bytes]:
    """Events of about 500 bytes: of so many types, each grown three times by a field, 30 % of them
    with their fields in another order.
    """
    random = Random(seed)
    for number in range(count):
        kind = random.randrange(types)
        event = _event(random, number, kind, random.randrange(VARIATIONS))
        if random.random() < 0.3:
            event = dict(random.sample(list(event.items()), len(event)))
        yield json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def _event(random: Random, number: int, kind: int, grown: int) -> dict[str, Any]:
    device = {
        "os": random.choice(("ios", "android")),
        "model": f"model {random.randrange(40)}",
        "memory": random.randrange(1, 17) << 10,
    }
    legs = [
        {
            "from": _checkpoint(random),
            "to": _checkpoint(random),
            "miles": random.randrange(5000),
            "late": random.random() < 0.2,
        }
        for _ in range(random.randint(1, 3))
    ]
    event = {
        "event_type": f"game.event_{kind}",
        "event_id": random.randbytes(16).hex(),
        "sent_at": f"2026-11-{random.randint(1, 28):02}T12:{random.randrange(60):02}:00.{number % 1000:03}Z",
        "user": {
            "id": random.randrange(10**9),
            "name": f"Müller {random.randrange(10**6)}",
            "level": random.random() * 99,
        },
        "device": device,
        "legs": legs,
        f"score_{kind}": random.randrange(10**6),
        f"detail_{kind}": {"ratio": random.random(), "tags": ["a", "b"], "note": None},
    }
    return event | {f"grown_{step}": random.randrange(100) for step in range(grown)}


def _checkpoint(random: Random) -> str:
    return "".join(random.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=3))


def names_hash(payload: bytes) -> str:
    """What one writes at first: the sorted paths, hashed."""
    found: set[str] = set()
    _collect(json.loads(payload), "", found)
    return hashlib.md5("|".join(sorted(found)).encode()).hexdigest()


def _collect(value: Any, path: str, found: set[str]) -> None:
    if isinstance(value, dict):
        for name, one in value.items():
            inner = f"{path}.{name}" if path else name
            found.add(inner)
            _collect(one, inner, found)
    elif isinstance(value, list):
        for one in value:
            _collect(one, f"{path}[]", found)


def cpu_seconds(pid: int) -> float:
    """Of a process, its children, and those of them that have ended."""
    root = psutil.Process(pid)
    return sum(sum(one.cpu_times()[:4]) for one in (root, *root.children(recursive=True)))


def ways(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """What is compared; all but the first report of the same messages what they are made of."""
    frame = spark.read.parquet(str(folder / "messages"))
    tokenizer = load_tokenizer(spark, folder / "tokenizers")
    if tokenizer is None:
        raise SystemExit("the tokenizer could not be loaded")
    paths = ("event_type",), ("user", "name")
    return {
        FLOOR: frame.select(F.length("payload")),
        FUNCTION: frame.select(F.udf(names_hash, "string", useArrow=False)("payload")),
        FALLBACK: scan(frame, "payload", *paths, back_end=None).select(*COLUMNS),
        TOKENIZER: scan(frame, "payload", *paths, back_end=tokenizer).select(*COLUMNS),
    }


def measure(count: int = MESSAGES) -> list[Line]:
    """The lines of the result, each with value, goal and verdict."""
    settings = load_settings()
    spark_settings = settings.spark.model_copy(update={"driver": "local", "cores": 2})
    with (
        tempfile.TemporaryDirectory(prefix="lakechime-bench-") as folder,
        open_driver(spark_settings, Path(folder), jars=settings.jars) as driver,
    ):
        write(Path(folder) / "messages", count)
        jvm: Any = driver.spark._jvm
        pid = int(jvm.java.lang.ProcessHandle.current().pid())
        frames = ways(driver.spark, Path(folder))
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in frames}
        for _ in range(ROUNDS + 1):
            for name, frame in frames.items():
                runs[name].append(timed(frame, pid, count))
    return lines(runs)


def write(folder: Path, count: int) -> None:
    """The messages, in files of one size."""
    folder.mkdir()
    payloads = list(messages(count))
    print(
        f"{count:,} messages of {statistics.mean(map(len, payloads[:10_000])):.0f} bytes",
        file=sys.stderr,
    )
    for number in range(FILES):
        pq.write_table(
            pa.table({"payload": pa.array(payloads[number::FILES], pa.binary())}),
            folder / f"{number}.parquet",
        )


def timed(frame: DataFrame, pid: int, count: int) -> tuple[float, float]:
    """Seconds of CPU and of the clock for a million messages."""
    cpu, began = cpu_seconds(pid), time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    took, used = time.perf_counter() - began, cpu_seconds(pid) - cpu
    return used * 1e6 / count, took * 1e6 / count


def lines(runs: dict[str, list[tuple[float, float]]]) -> list[Line]:
    """What each way costs, and how many times less the tokenizer does."""
    cpu = {name: statistics.median(used for used, _ in found[1:]) for name, found in runs.items()}
    clock = {name: statistics.median(took for _, took in found[1:]) for name, found in runs.items()}
    return [
        *(at_most(f"CPU for a million messages: {name}", cpu[name], "s") for name in runs),
        *(
            at_most(f"clock for a million messages, 2 cores: {name}", clock[name], "s")
            for name in runs
        ),
        at_least("CPU: Python function / JVM", cpu[FUNCTION] / cpu[TOKENIZER], "x", GOAL),
        at_least("CPU: Python workers / JVM", cpu[FALLBACK] / cpu[TOKENIZER], "x"),
    ]


if __name__ == "__main__":
    run_of_messages(__doc__, measure, MESSAGES)
