"""A column that is no source of another can hold anything: where a row of the other changes, a source was missed."""

import json
from collections.abc import Iterator, Sequence
from functools import cache, reduce

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.lineage.plans.statements import statements_of
from tests.lineage.plans.told import LAKE, Dumps, stored
from tests.support.perturbing import ALL, Filled, Way
from tests.support.staying import Columns, Rows, Told, moved, perturbations, unseen
from tests.support.zoo import SHAPES

pytestmark = pytest.mark.spark

LEFT_OUT = frozenset({
    "map_in_pandas", "map_in_arrow", "apply_in_pandas", "apply_in_arrow", "cogrouped", "cogrouped_in_arrow",
    "grouped_pandas_udf", "python_table_function", "python_udf_in_a_filter", "observed",
})  # fmt: skip
"""Shapes that Python makes, most of which come from all that is below, and one that Spark does not let stand beside itself."""

PERTURBED = tuple(sorted(SHAPES.keys() - LEFT_OUT))


@cache
def frames() -> dict[str, Dumps]:
    return stored("frames")


@cache
def told(shape: str) -> Told:
    (statement,) = statements_of(frames()[shape], LAKE).statements
    return Told.of(statement)


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> Iterator[dict[str, list[dict[Columns, Rows]]]]:
    """By shape what it gives, one way of perturbing after the other; of eight rows there is no work to share among tasks."""
    confs = {"spark.sql.shuffle.partitions": "1", "spark.sql.leafNodeDefaultParallelism": "1"}
    before = {conf: spark.conf.get(conf, None) for conf in confs}
    for conf, value in confs.items():
        spark.conf.set(conf, value)
    filled = Filled(spark)
    yield {shape: [found(filled, shape, way) for way in Way] for shape in PERTURBED}
    for conf, value in before.items():
        spark.conf.unset(conf) if value is None else spark.conf.set(conf, value)


def found(filled: Filled, shape: str, way: Way) -> dict[Columns, Rows]:
    """The rows that a shape gives, by what is perturbed."""
    asked = perturbations(told(shape), ALL)
    frames = [_numbered(SHAPES[shape](filled.tables(columns, way)), number) for number, columns in enumerate(asked)]
    rows: list[list[Sequence[object]]] = [[] for _ in asked]
    for number, row in reduce(DataFrame.union, frames).collect():
        rows[number].append([json.dumps(value) for value in json.loads(row).values()])
    return dict(zip(asked, rows, strict=True))


def _numbered(frame: DataFrame, number: int) -> DataFrame:
    named = frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
    return named.selectExpr(str(number), "to_json(struct(*), map('ignoreNullFields', 'false'))")


def test_no_row_changes_by_what_is_not_told_to_have_a_part_in_it(results: dict[str, list[dict[Columns, Rows]]]) -> None:
    assert {shape: found for shape, ways in results.items() if (found := [moved(told(shape), way) for way in ways]) != [[], []]} == {}


UNSEEN = {
    "arrays_maps_and_lambdas": {"3 by orders.person"},  # an array's second value, of which the first is taken: an array is told whole
    "hints_and_partitions": {"rows by people.id"},  # decides on their order alone, in which nothing is compared
    "inlined_structs": {
        "rows by orders.amount",
        "rows by orders.day",
        "rows by orders.id",
    },  # of what is taken apart nobody counts the parts
    "pivot_in_sql": {"rows by orders.day"},  # Spark groups by it first and then no more
    "pivot_with_values": {"rows by orders.day"},
    "scalar_subquery_in_case": {"0 by people.name"},  # what is taken if a condition fails that is one for all rows
}
"""What is told and cannot be seen in these rows, or in any."""


def test_each_source_that_is_left_out_is_found(results: dict[str, list[dict[Columns, Rows]]]) -> None:
    never = {shape: set.intersection(*(set(unseen(told(shape), way)) for way in ways)) for shape, ways in results.items()}
    assert {shape: sources for shape, sources in never.items() if sources} == UNSEEN
