"""What a merge is told to leave alone can hold anything: each variation is a shard of one statement, whose keys meet no other's."""

import json
from collections import Counter
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.lineage.plans.statements import statements_of
from lakechime_dagster.lineage.record import Statement
from tests.lineage.plans.told import LAKE, stored
from tests.support.perturbing import ALL, ROWS, Filled
from tests.support.zoo import Tables
from tests.support.zoo_writes import MERGES

pytestmark = pytest.mark.spark

Columns = frozenset[tuple[str, str]]

STEP = 1_000
"""Between the keys of a shard and those of the next."""

KEYS = {"orders": ("id", "person"), "people": ("id", "boss"), "visits": ("person",)}
TARGETS = "(1, 'x', 1, '1'), (2, null, 4, '3'), (3, 'v', 2, '0'), (9, 'z', null, '0'), (11, 'w', 2, null)"
ONCE = {**ROWS, "orders": [row for place, row in enumerate(ROWS["orders"]) if place in (0, 2, 4, 6)]}
"""Rows of which each key has one, without which a merge cannot tell which to take."""

SEVERAL = {**ROWS, "orders": [row for row in ROWS["orders"] if row[1] != "null"]}

ASSIGNED = ("id", "name", "amount", "day")
MERGED = ("merge_some_columns", "merge_with_conditions", "merge_not_matched_by_source", "merge_case_by_case", "merge_newest_of_a_key")


def lineage(merge: str) -> Statement:
    (statement,) = statements_of(stored("writes")[merge], LAKE).statements
    return statement


def free(statement: Statement) -> dict[str, Columns]:
    """By column of the target, also of one that is kept, the columns that are told to have no part in it."""
    sources = {one.column: one.sources for one in statement.columns}
    return {
        column: frozenset(ALL - {(source.ref.table, source.ref.column) for source in (*statement.indirect, *sources.get(column, ()))})
        for column in ASSIGNED
    }


def shard(tables: Tables, number: int) -> dict[str, DataFrame]:
    return {
        name: getattr(tables, name).withColumns({key: F.col(key) + number * STEP for key in keys}) for name, keys in KEYS.items()
    }  # fmt: skip


def merged(spark: SparkSession, filled: Filled, merge: str, perturbations: list[Columns], folder: Path) -> list[dict[str, Counter[str]]]:
    """What each column of the target holds by key after a merge, with each of these sets of columns perturbed."""
    shards = [shard(filled.tables(columns), number) for number, columns in enumerate(perturbations)]
    for name in KEYS:
        reduce(DataFrame.union, [one[name] for one in shards]).createOrReplaceTempView(name)
    struct = "cast(null as struct<sku: string, price: int>)"
    rows = spark.sql(f"select id, name, amount, day, {struct} as item from values {TARGETS} as (id, name, amount, day)")
    every = reduce(DataFrame.union, [rows.withColumn("id", F.col("id") + number * STEP) for number in range(len(perturbations))])
    every.write.format("delta").save(str(folder / merge))
    spark.sql(MERGES[merge].replace("into target ", f"into delta.`{folder / merge}` "))
    found: list[dict[str, Counter[str]]] = [{} for _ in perturbations]
    for row in spark.read.format("delta").load(str(folder / merge)).select(*ASSIGNED).collect():
        number, key = divmod(row["id"], STEP)
        for column in ASSIGNED:
            value = row[column] % STEP if isinstance(row[column], int) else row[column]
            found[number].setdefault(column, Counter())[json.dumps([key, value])] += 1
    return found


def changed(spark: SparkSession, filled: Filled, merge: str, by_column: dict[str, Columns], folder: Path) -> set[str]:
    perturbations = [frozenset(), *sorted(set(by_column.values()), key=sorted)]
    before, *after = merged(spark, filled, merge, perturbations, folder)
    return {column for column, columns in by_column.items() if after[perturbations.index(columns) - 1][column] != before[column]}


def test_no_column_of_a_target_changes_by_one_that_is_not_its_source(spark: SparkSession, tmp_path: Path) -> None:
    once, several = Filled(spark, ONCE), Filled(spark, SEVERAL)
    rows = {merge: several if merge == "merge_newest_of_a_key" else once for merge in MERGED}
    assert {merge: found for merge in MERGED if (found := changed(spark, rows[merge], merge, free(lineage(merge)), tmp_path))} == {}


def test_a_source_of_a_merge_that_is_left_out_is_found(spark: SparkSession, tmp_path: Path) -> None:
    merge = "merge_some_columns"
    by_column = free(lineage(merge)) | {"amount": frozenset({("orders", "amount")})}
    assert changed(spark, Filled(spark, ONCE), merge, by_column, tmp_path) == {"amount"}
