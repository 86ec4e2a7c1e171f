"""Plans as data: what is reported of them, what is never reported, what a session executed while it was
watched, of which files and rows it came, and that what a watcher missed is reported as not known.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect.session import SparkSession as ConnectSession

from lakechime_dagster.errors import PlanUnreadableError
from lakechime_dagster.lineage import spark as lineage_spark
from lakechime_dagster.lineage.columns import Names, Statement
from lakechime_dagster.lineage.plan_dump import dump_of
from lakechime_dagster.lineage.plan_nodes import PROGRAM
from lakechime_dagster.lineage.plan_statements import statements_of
from lakechime_dagster.lineage.spark import (
    SOURCES,
    Dump,
    LineageObserver,
    dump,
    listener_of,
    watched,
)
from lakechime_dagster.spark.session import made, session_confs
from tests.support.dumps import nested, nodes_of

pytestmark = pytest.mark.spark


def names_of(one: Dump) -> list[str]:
    return [node["n"] for node in nodes_of(one["plan"])]


@pytest.mark.tier1
def test_nothing_personal_is_in_a_dump(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("secret row", 1)], "s string, n int")
    rows.createOrReplaceTempView("personal_rows")
    query = """
        select n, case when s = 'secret case' then 'secret then' end, regexp_extract(s, 'secret regexp'),
               (select max(s) from personal_rows where s <> 'secret sub')
        from personal_rows where s in ('secret list') or s like 'secret like%' or s rlike 'secret rlike' order by 1 limit 7
    """
    union = (
        "select 'secret', concat(s, 'secret concat') from personal_rows union select s, 'secret "
        "union' from personal_rows"
    )
    reported = json.dumps(
        [
            dump(spark.sql(query)),
            dump(spark.sql(query).toDF("a", "b", "c", "d")),
            dump(spark.sql(union)),
            dump(spark.sql("select * from values ('secret value', 2) t(x, y)")),
            dump(
                rows.replace("secret old", "secret new")
                .fillna("secret fill")
                .where(F.col("s").startswith("secret start"))
            ),
        ]
    )
    spark.catalog.dropTempView("personal_rows")
    assert "Aggregate" in reported
    assert "secret" not in reported, reported[
        max(0, reported.find("secret") - 200) : reported.find("secret") + 50
    ]


def test_a_plan_of_any_depth_is_read(spark: SparkSession) -> None:
    frame = spark.range(1)
    for _ in range(120):
        frame = frame.where("id >= 0")
    deep = nested(dump(frame))
    wide = dump(spark.range(1).select(sum((F.col("id") for _ in range(150)), F.lit(0)).alias("x")))
    assert deep["error"] is None
    node, depth = deep["plan"], 0
    while node["n"] == "Filter":
        node, depth = node["f"]["child"], depth + 1
    assert (depth, node["n"]) == (120, "Range")
    assert wide["error"] is None


@pytest.mark.tier1
def test_each_statement_is_watched_once_also_those_of_threads(spark: SparkSession) -> None:
    spark.range(5).count()
    with watched(spark) as dumps:
        spark.range(3).alias("lc:one").count()
        thread = threading.Thread(target=lambda: spark.range(3).alias("lc:two").first())
        thread.start()
        thread.join()
        spark.newSession().range(9).count()  # of this thread, so that it is ours
        with pytest.raises(Exception, match="by zero"):
            spark.range(1).select(F.expr("raise_error('by zero')")).collect()
    spark.range(7).count()
    assert [one["failed"] for one in dumps] == [False, False, False, True]
    tables = [
        [node["f"]["name"] for node in nodes_of(nested(one)["plan"]) if node["n"] == "Table"]
        for one in dumps
    ]
    assert tables == [["one"], ["two"], [], []]


def test_a_job_without_a_plan_is_reported_as_one(spark: SparkSession) -> None:
    with watched(spark) as dumps:
        assert spark.range(3).rdd.count() == 3
    assert [(one["name"], one["plan"]) for one in dumps if one["error"]] == [("job", None)]


def test_what_is_too_much_to_keep_is_reported(spark: SparkSession) -> None:
    with watched(spark) as dumps:
        context = cast(Any, spark.sparkContext)._jsc.sc()
        for i in range(40):  # a client that was killed leaves what it had opened
            listener_of(spark).open(context, f"session {i}", f"job {i}")
    assert [one["error"] for one in dumps] == ["what was executed was let go"]


def test_over_spark_connect_it_is_not_known_and_computed_all_the_same(spark: SparkSession) -> None:
    connect: Any = ConnectSession("sc://127.0.0.1:1")  # nobody listens there, and nobody is asked
    with pytest.raises(PlanUnreadableError, match="a session of Spark Connect shows no plans"):
        listener_of(connect)
    frame = connect.range(1)
    computed, seen = LineageObserver(ended=print, agree=print).computed(connect, lambda: frame)
    assert (computed, seen.result["plan"]) == (frame, None)
    assert all("Spark Connect" in one["error"] for one in (seen.result, *seen.actions))


ADDRESSES = {
    "jdbc:postgresql://db.example.com/crm": "postgresql://db.example.com/crm",
    "jdbc:postgresql://db:5433/crm?user=me&password=geheim": "postgresql://db:5433/crm",
    "jdbc:postgresql://me:geheim@a:1,b:2/crm": "postgresql://a:1,b:2/crm",
    "jdbc:mysql://me:ge/heim@db/shop?useSSL=true": "mysql://db/shop",
    "jdbc:sqlserver://db:1433;user=me;password=geheim;databaseName=crm;encrypt=true": "sqlserver://db:1433/crm",
    "jdbc:oracle:thin:me/geheim@//db:1521/sales": "oracle://db:1521/sales",
    "jdbc:oracle:thin:@db:1521:sales": "oracle://db:1521:sales",
    "jdbc:h2:mem:shop;USER=me;PASSWORD=geheim": "h2:mem:shop",
    "jdbc:postgresql://me:ge@heim@db/crm": None,
    "jdbc:postgresql://me:ge?heim@db/crm": None,
    "jdbc:postgresql://me:geheim;x@db/crm": None,
    "jdbc:postgresql://db/crm?user=me@geheim": None,
    "jdbc:mysql://(host=db,user=me,password=geheim)/shop": None,
    "geheim": None,
}


def test_of_the_address_of_a_database_no_user_and_no_password_is_reported(
    spark: SparkSession,
) -> None:
    assert {url: address_in(spark, url) for url in ADDRESSES} == ADDRESSES


def address_in(spark: SparkSession, url: str) -> str | None:
    """What the dumper reports of a URL of JDBC."""
    jvm: Any = spark._jvm
    array = cast(Any, spark.sparkContext)._gateway.new_array
    loader = listener_of(spark).getClass().getClassLoader()
    types, given = array(jvm.java.lang.Class, 1), array(jvm.java.lang.Object, 1)
    types[0], given[0] = jvm.java.lang.Class.forName("java.lang.String"), url
    return (
        loader.loadClass("lakechime.lineage.PlanDump")
        .getMethod("database", types)
        .invoke(None, given)
    )


NUMBERS = {"a": [1, 2]}


def opaque(frame: DataFrame) -> set[str]:
    """Why it is not known what a frame's columns come from; nothing if they are all constants."""
    (statement,) = statements_of([dump_of(dump(frame))], Names(), "made").statements
    assert not any(column.sources for column in statement.columns)
    return {reason for column in statement.columns for reason in column.opaque}


@pytest.mark.parametrize("by_arrow", ["true", "false"])
def test_rows_of_a_program_are_not_known_however_they_came(
    spark: SparkSession, by_arrow: str
) -> None:
    with session_confs(spark, {"spark.sql.execution.arrow.pyspark.enabled": by_arrow}):
        reported = [
            opaque(spark.createDataFrame(rows))
            for rows in (pd.DataFrame(NUMBERS), pa.table(NUMBERS), [(1,), (2,)])
        ]
    assert reported[1] == {PROGRAM}
    assert all(reported)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {rows}",
        "SELECT l.a, r.a AS b FROM {rows} l JOIN {rows} r ON l.a = r.a",
        "SELECT (SELECT max(r.a) FROM {rows} l JOIN {rows} r ON l.a = r.a) AS a",
        (
            "WITH q AS (SELECT a FROM {rows}) SELECT l.a FROM q l JOIN q r ON l.a = r.a JOIN {rows} s "
            "ON l.a = s.a"
        ),
    ],
)
def test_whose_rows_these_are_is_reported_through_joins_and_queries_of_themselves(
    spark: SparkSession, query: str
) -> None:
    of_program, of_text = (
        spark.createDataFrame(pa.table(NUMBERS)),
        spark.sql("SELECT * FROM VALUES (1), (2) AS t(a)"),
    )
    assert opaque(spark.sql(query, rows=of_program)) == {PROGRAM}
    assert opaque(spark.sql(query, rows=of_text)) == set()


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


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with two tables of the lake, of which one has partitions, and two data sets of
    others.
    """
    folder = str(tmp_path_factory.mktemp("roots"))
    for name in ("lake/orders", "others/prices", "others/rates"):
        spark.range(2).write.parquet(f"{folder}/{name}")
    days = spark.range(3).withColumn("day", F.col("id") % 3)
    for name in ("lake/days", "others/days"):
        days.write.partitionBy("day").parquet(f"{folder}/{name}")
    return folder


def read(frame: DataFrame, folder: str) -> Statement:
    """What the plan of a frame says, where `folder` is short for its path."""
    names = Names(
        ("orders", "days"), {"orders": f"file:{folder}/lake/orders", "days": f"{folder}/lake/days"}
    )
    (statement,) = statements_of([dump_of(dump(frame))], names, "made").statements
    return statement


def sources(statement: Statement, folder: str, column: str = "id") -> set[str]:
    (found,) = [one for one in statement.columns if one.column == column]
    assert found.opaque == statement.unknown == ()
    return {str(source.ref).replace(folder.lstrip("/"), "folder") for source in found.sources}


@pytest.mark.tier1
def test_each_of_several_paths_is_a_source(spark: SparkSession, folder: str) -> None:
    paths = [f"{folder}/lake/orders", f"{folder}/others/prices", f"{folder}/others/rates"]
    reported = {"orders.id", "file/folder/others/prices.id", "file/folder/others/rates.id"}
    assert sources(read(spark.read.parquet(*paths), folder), folder) == reported
    assert sources(read(spark.read.format("parquet").load(paths), folder), folder) == reported
    assert sources(
        read(spark.read.parquet(f"{folder}/others/{{prices,rates}}"), folder), folder
    ) == reported - {"orders.id"}


@pytest.mark.parametrize("glob", ["*", "*/*", "day=1", "day={0,2}"])
def test_a_glob_and_a_partition_are_of_the_table_or_of_the_folder_that_they_are_in(
    spark: SparkSession, folder: str, glob: str
) -> None:
    both = spark.read.parquet(f"{folder}/lake/days/{glob}", f"{folder}/others/days/{glob}")
    assert sources(read(both, folder), folder) == {"days.id", "file/folder/others/days.id"}


def test_a_stream_of_files_is_of_their_folder(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "files" / name).write_text("1\n")
    frame = spark.readStream.schema("id long").csv(f"{tmp_path}/files")
    with watched(spark) as dumps:
        stream = (
            frame.writeStream.format("delta")
            .option("checkpointLocation", f"{tmp_path}/checkpoint")
            .trigger(availableNow=True)
        )
        stream.start(f"{tmp_path}/made").awaitTermination()
    (statement,) = statements_of(map(dump_of, dumps), Names()).statements
    assert statement.inputs == (f"file{tmp_path}/files",)


def test_of_very_many_files_the_folders_are_reported_and_never_is_a_table_hidden(
    spark: SparkSession, tmp_path: Path
) -> None:
    for part in range(101):
        (tmp_path / "many" / f"{part}.csv").parent.mkdir(exist_ok=True)
        (tmp_path / "many" / f"{part}.csv").write_text("1\n")
    many = dump_of(dump(spark.read.schema("id long").csv(f"{tmp_path}/many/*.csv")))
    reported = {
        where: statements_of([many], Names(("t",), {"t": f"{tmp_path}/{where}"}), "made")
        .statements[0]
        .columns[0]
        for where in WHERE
    }
    assert [str(source.ref) for source in reported["elsewhere"].sources] == [
        f"file{tmp_path}/many.id"
    ]
    assert [str(source.ref) for source in reported["many"].sources] == ["t.id"]
    assert reported["elsewhere"].opaque == reported["many"].opaque == ()
    assert reported["many/7.csv"].opaque == (
        "files in many folders, among which are tables of the lake",
    )


WHERE = ("elsewhere", "many", "many/7.csv")
"""Where a table of the lake may lie."""


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
