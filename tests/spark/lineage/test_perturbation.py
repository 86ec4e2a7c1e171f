"""A column that is no source of another can hold anything: where the other changes, a source was missed."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, reduce

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.lineage.columns import ColumnLineage
from lakechime_dagster.lineage.plans.statements import statements_of
from lakechime_dagster.lineage.record import Statement
from tests.lineage.plans.told import LAKE, Dumps, stored
from tests.support.perturbing import ALL, Filled
from tests.support.zoo import SHAPES

pytestmark = pytest.mark.spark

Columns = frozenset[tuple[str, str]]
Values = Mapping[str, Counter[str]]


@cache
def frames() -> dict[str, Dumps]:
    return stored("frames")


def lineage(shape: str) -> Statement:
    (statement,) = statements_of(frames()[shape], LAKE).statements
    return statement


@pytest.fixture(scope="module")
def filled(spark: SparkSession) -> Iterator[Filled]:
    """The tables, of which each step is one task: eight rows are no work to share."""
    confs = {"spark.sql.shuffle.partitions": "1", "spark.sql.leafNodeDefaultParallelism": "1"}
    before = {conf: spark.conf.get(conf, None) for conf in confs}
    for conf, value in confs.items():
        spark.conf.set(conf, value)
    yield Filled(spark)
    for conf, value in before.items():
        spark.conf.unset(conf) if value is None else spark.conf.set(conf, value)


LEFT_OUT = frozenset({
    "map_in_pandas", "map_in_arrow", "apply_in_pandas", "apply_in_arrow", "cogrouped", "cogrouped_in_arrow",
    "grouped_pandas_udf", "python_table_function", "python_udf_in_a_filter", "observed",
})  # fmt: skip
"""Shapes that Python makes, most of which come from all that is below, and one that Spark does not let stand beside itself."""


def free(statement: Statement) -> dict[str, Columns]:
    """By column those of the tables that are no source of it, in whatever way."""
    deciding = {(source.ref.table, source.ref.column) for source in statement.indirect}
    found = {}
    for one in statement.columns:
        used = deciding | {(source.ref.table, source.ref.column) for source in one.sources}
        found[one.column] = frozenset(ALL - used)
    return found


def values(filled: Filled, shape: str, perturbations: list[Columns]) -> Sequence[Values]:
    """What each column holds, in whatever order, with each of these sets of columns perturbed."""
    frames = [SHAPES[shape](filled.tables(columns)) for columns in perturbations]
    told = [_told(frame, number) for number, frame in enumerate(frames)]
    found: list[dict[str, Counter[str]]] = [{} for _ in perturbations]
    for number, row in reduce(DataFrame.union, told).collect():
        for column, value in json.loads(row).items():
            found[number].setdefault(column, Counter())[json.dumps(value)] += 1
    return found


def _told(frame: DataFrame, number: int) -> DataFrame:
    return frame.select(F.lit(number), F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))


def changed(filled: Filled, shape: str, statement: Statement) -> set[str]:
    """The columns that change although nothing does that they are told to come from."""
    by_column = free(statement)
    perturbations = [frozenset(), *sorted(set(by_column.values()), key=sorted)]
    before, *after = values(filled, shape, perturbations)
    return {column for column, columns in by_column.items() if after[perturbations.index(columns) - 1].get(column) != before.get(column)}


def test_no_column_changes_by_one_that_is_not_its_source(filled: Filled) -> None:
    assert {shape: found for shape in sorted(SHAPES.keys() - LEFT_OUT) if (found := changed(filled, shape, lineage(shape)))} == {}


@pytest.mark.parametrize("shape", ["group_by", "case_when", "correlated_subquery", "self_join", "explode", "union_with_itself"])
def test_sources_that_are_left_out_are_found(filled: Filled, shape: str) -> None:
    known = lineage(shape)
    poorer = replace(known, columns=tuple(ColumnLineage(column=one.column) for one in known.columns), indirect=())
    assert changed(filled, shape, poorer) == {one.column for one in known.columns if one.sources}
