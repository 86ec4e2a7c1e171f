"""Plans as data: what is reported of them, what is never reported, and what a session executed while it was
watched.
"""

import json
import threading
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect.session import SparkSession as ConnectSession

from lakechime_dagster.errors import PlanUnreadableError
from lakechime_dagster.lineage.spark import Dump, LineageObserver, dump, listener_of, watched
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
