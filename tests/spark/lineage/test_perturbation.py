"""A column that is no source of another can hold anything: where a row of the other changes, a
source was missed.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache, reduce

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.lineage.plan_statements import statements_of
from lakechime_dagster.spark.session import session_confs
from tests.lineage.plans.meanings import LAKE, Dumps, stored
from tests.support.perturbing import ALL, ONE_TASK, Filled
from tests.support.staying import Reported, Result, World, moved, turned_round, unseen, worlds
from tests.support.zoo import SHAPES

pytestmark = pytest.mark.spark

LEFT_OUT = frozenset(
    {
        "map_in_pandas",
        "map_in_arrow",
        "apply_in_pandas",
        "apply_in_arrow",
        "cogrouped",
        "cogrouped_in_arrow",
        "grouped_pandas_udf",
        "python_table_function",
        "python_udf_in_a_filter",
        "observed",
    }
)
"""Shapes that Python makes, most of which come from all that is below, and one that Spark does not
let stand beside itself.
"""

Results = dict[str, dict[World, Result]]
PERTURBED = tuple(sorted(SHAPES.keys() - LEFT_OUT))


@cache
def frames() -> dict[str, Dumps]:
    return stored("frames")


@cache
def reported(shape: str) -> Reported:
    (statement,) = statements_of(frames()[shape], LAKE).statements
    return Reported.of_query(statement)


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> Iterator[Results]:
    """By shape what it gives."""
    with session_confs(spark, ONE_TASK):
        filled = Filled(spark)
        yield {shape: found(filled, shape) for shape in PERTURBED}


def found(filled: Filled, shape: str) -> dict[World, Result]:
    """The rows that a shape gives in each world; a source that nobody would miss so far is turned
    round too.
    """
    results = rows_of(filled, shape, worlds(reported(shape), ALL))
    if missed_by_nobody := unseen(reported(shape), results):
        results |= rows_of(filled, shape, turned_round(one.source for one in missed_by_nobody))
    return results


def rows_of(filled: Filled, shape: str, asked: Sequence[World]) -> dict[World, Result]:
    frames = [
        _numbered(SHAPES[shape](filled.tables(world)), number) for number, world in enumerate(asked)
    ]
    rows: list[list[Sequence[object]]] = [[] for _ in asked]
    for number, row in reduce(DataFrame.union, frames).collect():
        rows[number].append(
            [json.dumps(value) for _, value in json.loads(row, object_pairs_hook=list)]
        )
    return dict(zip(asked, rows, strict=True))


def _numbered(frame: DataFrame, number: int) -> DataFrame:
    """Each row as one text, in which a column that comes twice does so too."""
    return frame.selectExpr(str(number), "to_json(struct(*), map('ignoreNullFields', 'false'))")


def test_no_row_changes_by_what_is_not_reported_to_have_a_part_in_it(results: Results) -> None:
    assert {
        shape: wrong for shape, given in results.items() if (wrong := moved(reported(shape), given))
    } == {}


UNSEEN = {
    "arrays_maps_and_lambdas": {
        "3 by orders.person"
    },  # an array's second value, of which the first is taken: an array is reported whole
    "hints_and_partitions": {
        "rows by people.id"
    },  # decides on their order alone, in which nothing is compared
    "inlined_structs": {
        "rows by orders.amount",
        "rows by orders.day",
        "rows by orders.id",
    },  # of what is taken apart nobody counts the parts
    "pivot_in_sql": {"rows by orders.day"},  # Spark groups by it first and then no more
    "pivot_with_values": {"rows by orders.day"},
    "scalar_subquery_in_case": {
        "0 by people.name"
    },  # what is taken if a condition fails that is one for all rows
}
"""What is reported and cannot be seen in these rows, or in any."""


def test_each_source_that_is_left_out_is_found(results: Results) -> None:
    assert {
        shape: {repr(one) for one in never}
        for shape, given in results.items()
        if (never := unseen(reported(shape), given))
    } == UNSEEN
