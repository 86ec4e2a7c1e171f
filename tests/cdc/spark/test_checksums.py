"""Two tables are compared by Spark down to the rows that differ, and by what it leaves of its
session's confs.
"""

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.change import BinlogPosition, LogPosition, TransactionSnapshot
from lakechime_dagster.cdc.compare import Fault, Queries, compare, comparison_of, confirmed
from lakechime_dagster.cdc.spark_compare import is_above, run_in

pytestmark = pytest.mark.spark

CONF = "spark.sql.legacy.parameterSubstitution.constantsOnly"


def a_side(spark: SparkSession, view: str, rows: str) -> Queries:
    types: dict[str, str] = dict.fromkeys(("id", "value"), "bigint")
    spark.sql(f"SELECT id, id * 10 AS value FROM {rows}").createOrReplaceTempView(view)
    return comparison_of(Dialect.POSTGRES, types, types, ["id"]).lake(run_in(spark), view)


def test_rows_that_differ_are_found_and_found_again(spark: SparkSession):
    session = spark.newSession()
    before = session.conf.get(CONF, None)
    one = a_side(session, "one", "range(1000)")
    other = a_side(session, "other", "(SELECT IF(id = 700, 7000, id) AS id FROM range(1000))")
    found = compare(one, other, leaf=500)
    assert found.faults == {("700",): Fault.MISSING, ("7000",): Fault.EXTRA}
    assert confirmed(found, one.at(list(found.faults)), other).faults == found.faults
    assert session.conf.get(CONF, None) == before


def test_changes_above_a_snapshot_are_distinguished_also_where_numbers_of_transactions_restart(
    spark: SparkSession,
):
    def above(snapshot: LogPosition, *changes: tuple[list[int], int | None]) -> list[bool]:
        rows = [
            (number, position, None if one is None else f'{{"source": {{"txId": {one}}}}}')
            for number, (position, one) in enumerate(changes)
        ]
        messages = spark.createDataFrame(rows, "n int, position array<bigint>, value string")
        found = messages.select("n", is_above(snapshot).alias("is_above")).sort("n").collect()
        return [row["is_above"] for row in found]

    numbers = (2**32 - 3, 2**32 - 2, 2**32 - 1, 3, 4, 5, 6)
    snapshot = TransactionSnapshot(lsn=100, end=5, open=frozenset({2**32 - 2}))
    assert above(snapshot, *(([1, 1], number) for number in numbers)) == [
        False,
        True,
        False,
        False,
        False,
        True,
        True,
    ]
    assert above(snapshot, ([1, 99], None), ([1, 100], None)) == [False, True]
    places = ([2, 900, 0], None), ([3, 119, 0], None), ([3, 120, 0], None), ([4, 4, 0], None)
    assert above(BinlogPosition((3, 120)), *places) == [False, False, True, True]
