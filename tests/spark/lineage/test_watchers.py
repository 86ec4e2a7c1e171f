"""Several who watch one session: each is reported of what is its own, and of nothing that is
another's.
"""

import threading
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.lineage.spark import Dump, watched

pytestmark = pytest.mark.spark

SHARED = "a statement in a thread of its own, while several watch the session"


def execute(spark: SparkSession, name: str) -> None:
    spark.range(3).alias(f"lc:{name}").count()


def in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def reported(dumps: list[Dump]) -> list[str]:
    """The tables that were read, and what is not known, in its order."""
    return [
        dump["error"] or next(node["f"]["name"] for node in dump["nodes"] if node["n"] == "Table")
        for dump in dumps
    ]


def beside_each_other(
    spark: SparkSession, between: Callable[[], None] = lambda: None
) -> list[list[Dump]]:
    """Two who watch in two threads, the first of whom begins and ends first; what happens between,
    both are there for.
    """
    first_is_there, both_are_there, first_is_gone = (threading.Event() for _ in range(3))
    found: dict[str, list[Dump]] = {}

    def first() -> None:
        with watched(spark) as found["first"]:
            first_is_there.set()
            both_are_there.wait()
            execute(spark, "of the first")
        first_is_gone.set()

    def second() -> None:
        first_is_there.wait()
        with watched(spark) as found["second"]:
            in_thread(between)
            both_are_there.set()
            first_is_gone.wait()
            execute(spark, "of the second")
            in_thread(lambda: execute(spark, "of a thread, when nobody else watches"))

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found["first"], found["second"]]


def test_who_watches_beside_another_is_reported_its_own_statements_alone(
    spark: SparkSession,
) -> None:
    first, second = beside_each_other(spark)
    assert reported(first) == ["of the first"]
    assert reported(second) == ["of the second", "of a thread, when nobody else watches"]


def test_of_what_may_be_of_either_both_are_reported_that_it_is_not_known(
    spark: SparkSession,
) -> None:
    first, second = beside_each_other(
        spark, lambda: (execute(spark, "whose"), execute(spark, "whose too"))[0]
    )
    assert reported(first) == [SHARED, "of the first"]
    assert reported(second) == [SHARED, "of the second", "of a thread, when nobody else watches"]
