"""Which functions fold rows, and which give another value on each run, whatever sqlglot makes of
their names.
"""

from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.tables import LakeTable

LIKE_COLUMNS = [
    "x LIKE ANY ('a', 'b')",
    "`localtimestamp`",
    "f.current_time",
    "user",
    "array_size(x)",
    "aggregate(x, 0, (a, b) -> a + b)",
]


def by_rows(expression: str) -> LakeTable:
    return sql_table(
        "silver.f", sql=f"SELECT {expression} AS z FROM bronze.flights f", refresh="rows"
    )


def accepted(expressions: Iterable[str]) -> list[str]:
    """Those of which a table of rows may be made."""
    found = []
    for expression in expressions:
        try:
            by_rows(expression)
        except DeclarationError:
            continue
        found.append(expression)
    return found


@pytest.mark.parametrize(
    "name",
    [
        "mean",
        "std",
        "any",
        "bitmap_and_agg",
        "schema_of_json_agg",
        "theta_union_agg",
        "kll_sketch_agg_bigint",
    ],
)
def test_a_function_that_folds_rows_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(
        DeclarationError, match=rf"cannot keep the aggregate {name.upper()}\(x\) up to date"
    ):
        by_rows(f"{name}(x)")


@pytest.mark.parametrize(
    "call",
    [
        "shuffle(x)",
        "localtimestamp",
        "localtimestamp()",
        "current_time",
        "uniform(1, 2)",
        "reflect('a', 'b')",
    ],
)
def test_a_function_of_another_value_on_each_run_is_refused_by_its_name(call: str) -> None:
    with pytest.raises(DeclarationError, match="which is another value on each run"):
        by_rows(call)


def test_what_only_looks_like_such_a_function_is_accepted() -> None:
    assert accepted(LIKE_COLUMNS) == LIKE_COLUMNS


def test_group_by_all_groups_by_no_mean() -> None:
    sql = "SELECT day, mean(x) AS m FROM bronze.flights GROUP BY ALL"
    assert sql_table("gold.f", sql=sql, keys=["day"], refresh="affected_keys").key_columns == {
        "bronze.flights": {"day": {"day": "day"}}
    }


@pytest.mark.spark
def test_every_function_that_spark_folds_rows_by_or_calls_nondeterministic_is_refused(
    spark: SparkSession,
) -> None:
    jvm: Any = spark._jvm  # SHOW FUNCTIONS does not report what a function is
    classes = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    registry = (
        classes.loadClass("org.apache.spark.sql.catalyst.analysis.FunctionRegistry$")
        .getField("MODULE$")
        .get(None)
        .builtin()
    )
    nondeterministic = classes.loadClass(
        "org.apache.spark.sql.catalyst.expressions.Nondeterministic"
    )
    names = registry.listFunction().toList()
    known = [
        registry.lookupFunction(names.apply(checkpoint)).get() for checkpoint in range(names.size())
    ]
    folding = {one.getName() for one in known if one.getGroup() == "agg_funcs"}
    unstable = {
        one.getName()
        for one in known
        if nondeterministic.isAssignableFrom(classes.loadClass(one.getClassName()))
    }
    assert ({"mean"} <= folding, {"uuid"} <= unstable) == (True, True)
    assert accepted(f"{name}(x)" for name in sorted(folding | unstable)) == []
