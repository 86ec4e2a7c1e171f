"""What it costs to see what a function computes: `python -m benchmarks.lineage_dump [--json]`.

Of plans of 50 and 500 nodes: watching the function, the flush of Spark's events, the dump, its way
to Python, and the columns' sources of it. Beside it a run of 1,000 changed rows by key, and the
plan of a function before any run. One warm session, medians.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks._lines import Line, at_most, show
from benchmarks.refresh import Bench
from lakechime_dagster.lineage.columns import Names
from lakechime_dagster.lineage.plan_dump import dump_of
from lakechime_dagster.lineage.plan_statements import statements_of
from lakechime_dagster.lineage.spark import LineageObserver, marked, planned
from lakechime_dagster.settings import load_settings
from lakechime_dagster.spark.driver import open_driver

ROUNDS = 30
NAMES = Names()
SCHEMA = (("k", "long", False), ("a", "long", True), ("b", "string", True), ("c", "double", True))


def plan_of(frame: DataFrame, nodes: int) -> DataFrame:
    """A plan of so many nodes above the table: filters, new columns, a join and an aggregate."""
    other = frame.groupBy("k").agg(F.sum("a").alias("total"))
    result = frame.join(other, "k")
    for at in range((nodes - 6) // 2):
        result = result.where(F.col("a") > at).withColumn("c", F.col("c") + F.length("b"))
    return result


def seen_seconds(spark: SparkSession, nodes: int) -> Iterator[float]:
    """The seconds that seeing takes of each of several computations, without the computation
    itself.
    """
    table = spark.range(10).selectExpr(
        "id as k", "id as a", "cast(id as string) as b", "cast(id as double) as c"
    )
    frame = plan_of(marked(table, "bronze.t", "t"), nodes)
    for _ in range(ROUNDS):
        began = time.perf_counter()
        computed, seen = LineageObserver(lambda _: None, lambda _: None).computed(
            spark, lambda: frame
        )
        found = statements_of(
            [*map(dump_of, seen.actions), dump_of(seen.result)], NAMES, "silver.t"
        )
        took = time.perf_counter() - began
        if [
            column.column for column in found.statements[0].columns
        ] != computed.columns or found.unknown:
            raise SystemExit(f"the lineage of {nodes} nodes is not whole: {found.unknown}")
        yield took


def planned_seconds(spark: SparkSession) -> Iterator[float]:
    inputs = {"t": ("bronze.t", SCHEMA)}
    functions: list[tuple[Callable[[DataFrame], DataFrame] | None, str | None]] = [
        (lambda t: t.join(t.groupBy("k").agg(F.max("a").alias("m")), "k"), None),
        (lambda t: plan_of(t, 20), None),
        (None, "SELECT k, sum(a) AS a, count(*) AS n FROM bronze.t WHERE c > 1 GROUP BY k"),
    ]
    for _ in range(ROUNDS // 3):
        for function, sql in functions:
            began = time.perf_counter()
            plan = planned(spark, lambda t, of=function: of(t) if of else None, sql, inputs)
            yield time.perf_counter() - began
            if plan.result is None:
                raise SystemExit(plan.why)


def measure() -> Iterator[Line]:
    settings = load_settings()
    with (
        tempfile.TemporaryDirectory() as folder,
        open_driver(settings.spark, settings.home, jars=settings.jars) as driver,
    ):
        spark = driver.spark
        list(seen_seconds(spark, 50))  # warm
        small = statistics.median(seen_seconds(spark, 50))
        large = statistics.median(seen_seconds(spark, 500))
        yield at_most("seen, dumped and read, 50 nodes, median", small * 1000, "ms", 15)
        yield at_most("seen, dumped and read, 500 nodes, median", large * 1000, "ms", 40)
        bench = Bench(spark, Path(folder), 100_000)
        bench.make()
        runs = []
        for round_ in range(5):
            bench.change(round_)
            runs.append(bench.follow())
        yield at_most(
            "of a run of 1,000 changed rows, 50 nodes",
            100 * small / statistics.median(runs[1:]),
            "%",
            2,
        )
        list(planned_seconds(spark))
        yield at_most(
            "a function planned before any run, median",
            statistics.median(planned_seconds(spark)) * 1000,
            "ms",
            150,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    show(measure(), as_json=parser.parse_args().json)


if __name__ == "__main__":
    main()
