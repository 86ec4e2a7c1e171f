"""Rows give the same answers wherever they are, and rows of both places come together."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.spark_rows import Brought, Here, InWorkers, Rows, Spread
from lakechime_dagster.spark.session import Batches

pytestmark = pytest.mark.spark

DDL = "`key` string, `role` string, `ts_ms` bigint"
ROWS = [("a", "change", 1), ("b", "mark", None), ("a", None, 3), (None, "change", 4)]
OTHERS = [("a", "change", 9)]
Both = tuple[Rows, Rows]


def everywhere(spark: SparkSession) -> list[Both]:
    """The rows and the other rows: in workers, here, and one of them in either place."""
    workers = InWorkers(spark)
    here = Here(workers)
    spread, brought = workers.made(ROWS, DDL), here.made(ROWS, DDL)
    return [
        (spread, workers.made(OTHERS, DDL)),
        (brought, here.made(OTHERS, DDL)),
        (spread, here.made(OTHERS, DDL)),
        (brought, workers.made(OTHERS, DDL)),
    ]


def doubled(batches: Batches) -> Batches:
    """Each key with its number of the group, which is reported by how the rows follow one another."""
    for batch in batches:
        keys = batch.column("key").to_pylist()
        yield pa.RecordBatch.from_arrays([pa.array([f"{key}{key}" for key in keys])], ["key"])


ASKED: dict[str, Callable[[Rows, Rows], list[tuple[object, ...]]]] = {
    "values": lambda rows, _: rows.where({"role": ["mark", "position"]}).tuples("key", "role"),
    "any value": lambda rows, _: rows.where({"role": None}).tuples("key", "role"),
    "one of two": lambda rows, _: rows.where({"role": ["mark"], "key": None}).tuples("key", "role"),
    "shape": lambda rows, _: rows.shaped(
        "`group` string, `key` string, `n` int, `x` string", {"group": "key"}, {"n": 5, "key": None}
    ).tuples("group", "key", "n", "x"),
    "translation": lambda rows, _: rows.translated("key", {"a": "z"}).tuples("key", "ts_ms"),
    "distinct": lambda rows, _: rows.distinct("key").kept().tuples("key"),
    "among": lambda rows, others: rows.among("key", others.distinct("key")).tuples("key", "ts_ms"),
    "union": lambda rows, others: rows.union(others).tuples("key", "role", "ts_ms"),
    "batches": lambda rows, _: rows.on_batches(
        doubled, "`key` string", by="key", keep=False
    ).tuples("key"),
    "frame": lambda rows, _: [tuple(row) for row in rows.frame.collect()],
    "shapes together": lambda rows, others: (
        others.shaped(DDL, values={"ts_ms": 0}).union(rows).tuples("key", "ts_ms")
    ),
    "nothing": lambda rows, _: (
        rows.where({"role": ["no"]}).on_batches(doubled, "`key` string").frame.collect()
    ),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_asked_of_rows_is_the_same_wherever_they_are(spark: SparkSession, asked: str):
    first, *others = [
        sorted(ASKED[asked](rows, other), key=repr) for rows, other in everywhere(spark)
    ]
    assert all(one == first for one in others)
    assert first or asked == "nothing"


def test_few_rows_are_brought_and_more_are_left_to_the_workers(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lakechime_dagster.cdc.spark_rows.MOST", 3)
    here = Here(InWorkers(spark))
    assert isinstance(here.rows(spark.range(3).toDF("key")), Brought)
    assert isinstance(here.rows(spark.range(4).toDF("key")), Spread)


def test_rows_that_spark_knows_to_be_no_nulls_are_brought_beside_others(spark: SparkSession):
    here = Here(workers := InWorkers(spark))
    known = here.near(workers.made(OTHERS, DDL).shaped(DDL, values={"key": "z", "ts_ms": 0}))
    assert isinstance(known, Brought)
    assert known.union(here.made(OTHERS, DDL)).tuples("key", "ts_ms") == [("z", 0), ("a", 9)]
    assert here.made(OTHERS, DDL).union(known).tuples("key", "ts_ms") == [("a", 9), ("z", 0)]
