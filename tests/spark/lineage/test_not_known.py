"""What a watcher missed is reported as not known, whatever the reason; never is it silence."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.lineage import spark as lineage_spark
from lakechime_dagster.lineage.columns import Names
from lakechime_dagster.lineage.plan_dump import dump_of
from lakechime_dagster.lineage.plan_statements import statements_of
from lakechime_dagster.lineage.spark import SOURCES, Dump, watched
from lakechime_dagster.spark.session import made

pytestmark = pytest.mark.spark

QUEUE = "lakechimeUnderTest"
PACKAGE = "lakechime.lineage"
BLOCKED = """
package lakechime.lineage;
import java.util.concurrent.CountDownLatch;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
public final class Blocked extends SparkListener {
    private final CountDownLatch latch = new CountDownLatch(1);
    public void on(SparkContext context, String queue) { context.listenerBus().addToQueue(this, queue); }
    public void release() { latch.countDown(); }
    public void onOtherEvent(SparkListenerEvent event) {
        try { latch.await(); } catch (InterruptedException error) { Thread.currentThread().interrupt(); }
    }
}
"""


@contextmanager
def listening(
    spark: SparkSession, changes: Mapping[str, str], capacity: str = "10000"
) -> Iterator[None]:
    """A listener that is on a queue of its own for so many events, with these texts in
    place of those that it has.
    """
    sc, listeners = context_of(spark), lineage_spark._listeners
    sources = [
        Path(lineage_spark.__file__).with_name(f"{name}.java").read_text(encoding="utf-8")
        for name in SOURCES
    ]
    for before, after in ({**changes, "lakechimeLineage": QUEUE}).items():
        assert before in sources[-1]
        sources[-1] = sources[-1].replace(before, after)
    listener, setting = (
        again(spark, sources, "PlanListener"),
        f"spark.scheduler.listenerbus.eventqueue.{QUEUE}.capacity",
    )
    sc.conf().set(setting, capacity)
    try:
        listeners[spark.sparkContext] = listener.installed(sc, f"lakechime.test.{uuid4().hex}")
        yield
    finally:
        listeners.pop(spark.sparkContext, None)
        sc.listenerBus().removeListener(listener)
        sc.conf().remove(setting)


@contextmanager
def held_up(spark: SparkSession) -> Iterator[Any]:
    """No event of a statement gets through the queue until what is given is released."""
    blocked = again(spark, [BLOCKED], "Blocked")
    blocked.on(context_of(spark), QUEUE)
    try:
        yield blocked
    finally:
        blocked.release()
        context_of(spark).listenerBus().removeListener(blocked)


def again(spark: SparkSession, sources: list[str], name: str) -> Any:
    """An object of a class that these define, in a package of its own: py4j knows methods by the
    name of their class.
    """
    package = f"lakechime.test{uuid4().hex}"
    loader = cast(Any, spark)._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return made(
        spark.sparkContext,
        loader,
        [one.replace(PACKAGE, package) for one in sources],
        f"{package}.{name}",
    )


def context_of(spark: SparkSession) -> Any:
    return cast(Any, spark.sparkContext)._jsc.sc()


def unknown(dumps: list[Dump]) -> tuple[str, ...]:
    return statements_of(map(dump_of, dumps), Names()).unknown


def test_events_that_spark_drops_are_reported(spark: SparkSession) -> None:
    with listening(spark, {}, "4"), held_up(spark) as blocked, watched(spark) as dumps:
        for _ in range(5):
            spark.range(3).count()
        blocked.release()
    assert "Spark dropped events" in unknown(dumps)
    with listening(spark, {}), watched(spark) as dumps:
        spark.range(3).count()
    assert unknown(dumps) == ()


@pytest.mark.parametrize(("bound", "kept"), [("2_000", 2), ("1", 0)])
def test_plans_that_are_too_large_to_keep_are_counted(
    spark: SparkSession, bound: str, kept: int
) -> None:
    with listening(spark, {"32 << 20": bound}), watched(spark) as dumps:
        spark.range(3).count()
        spark.range(3).select(
            *(F.col("id").alias(f"column {number}") for number in range(50))
        ).collect()
        spark.range(3).count()
    assert len(dumps) == kept + 1
    assert unknown(dumps) == (f"{3 - kept} plans were too large to keep",)


def test_a_statement_that_has_not_ended_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    begun, go = str(tmp_path / "begun"), str(tmp_path / "go")
    os.mkfifo(begun)
    os.mkfifo(go)

    def waits(number: int) -> int:
        Path(begun).write_text("now", encoding="utf-8")
        return len(Path(go).read_text(encoding="utf-8"))

    frame = spark.range(0, 1, 1, 1).select(F.udf(waits, "int")("id"))
    thread = threading.Thread(target=frame.collect)
    with watched(spark) as dumps:
        thread.start()
        Path(begun).read_text(encoding="utf-8")
    Path(go).write_text("on", encoding="utf-8")
    thread.join()
    assert unknown(dumps) == ("1 statements that had begun had not ended",)
