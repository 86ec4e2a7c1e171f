"""What a manifest says that it does not know of a lake, and why; nothing is executed to know it."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.lake import Lake, SourceTable
from lakechime_dagster.lineage.columns import Kind
from lakechime_dagster.lineage.planned.manifest import Manifest
from lakechime_dagster.lineage.plans.digests import Digests
from lakechime_dagster.lineage.plans.dump import Node
from lakechime_dagster.resources.lineage import plan
from lakechime_dagster.resources.lineage.plan import manifest_by
from lakechime_dagster.resources.platform import open_platform
from lakechime_dagster.sensors.trigger import lakechime_sensor
from lakechime_dagster.settings import load_settings
from lakechime_dagster.spark.lineage.planning import Planner
from lakechime_dagster.triggers import SnapshotTrigger
from tests.support.planned import ORDERS, direct, orders, orders_table, paid, paid_table, planned, towns_table

pytestmark = pytest.mark.spark
__all__ = ["planned"]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A table of two versions, which nothing may change; where `gold.kept` is in the lake that is planned."""
    path = Path(open_platform(load_settings(home=tmp_path)).location("gold.kept"))
    path.parent.mkdir(parents=True, exist_ok=True)
    for count in (3, 5):
        write_deltalake(path, pa.table({"id": range(count)}), mode="overwrite")
    return path


def files_beside(path: Path) -> set[tuple[str, int]]:
    return {(str(one), one.stat().st_mtime_ns) for one in path.parent.rglob("*")}


def ids(orders: DataFrame) -> DataFrame:
    return orders.select("id")


@dg.op
def nothing() -> None:
    pass


@dg.job
def nightly_job() -> None:
    nothing()


def test_a_plan_that_no_digest_can_be_made_of_makes_its_own_table_unknown(
    planned: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    whole = planned(paid_table(), towns_table())
    digests_of = plan.digests_of

    def fails(node: Node) -> Digests:
        if any(one.name == "Aggregate" for one in node.walk()):
            raise RecursionError("too deep")
        return digests_of(node)

    monkeypatch.setattr(plan, "digests_of", fails)
    tables = planned(paid_table(), towns_table()).tables
    assert tables["silver.paid"] == whole.tables["silver.paid"]
    assert tables["gold.towns"].unknown == ("not known: its plan could not be read: RecursionError: too deep",)
    assert list(tables["gold.towns"].by_name) == ["city", "total"]


def test_what_cannot_be_asked_is_said(planned: Callable[..., Manifest]) -> None:
    def breaks(orders: DataFrame) -> DataFrame:
        return orders.where(F.col("id") > None["id"])  # type: ignore[index]

    def gone(orders: DataFrame) -> DataFrame:
        return orders.select("no_such_column")

    def wants(orders: DataFrame, context: Any) -> DataFrame:
        return orders

    def why(function: Callable[..., DataFrame]) -> str:
        (reason,) = planned(paid_table(function)).tables["silver.paid"].unknown
        return reason

    assert why(breaks).startswith("TypeError: ")
    assert "no_such_column" in why(gone)
    assert why(wants) == "not known until it runs: its function wants context; give it a default"


ACTIONS: dict[str, tuple[Callable[[DataFrame], Any], str]] = {
    "count": (lambda orders: orders.count(), "it acts (DataFrame.count)"),
    "first": (lambda orders: orders.first(), "it acts (DataFrame.collect)"),
    "show": (lambda orders: orders.show(), "it acts (DataFrame.show)"),
    "foreach": (lambda orders: orders.foreach(print), "it acts (DataFrame.rdd)"),
    "pivot": (lambda orders: orders.groupBy("id").pivot("city").count(), "it acts (RelationalGroupedDataset.pivot)"),
    "RDD": (lambda orders: orders.sparkSession.sparkContext.parallelize([1]).count(), "it acts (RDD.collect)"),
}


def test_of_a_function_that_acts_it_is_told_and_nothing_is_executed(planned: Callable[..., Manifest]) -> None:
    def acting(act: Callable[[DataFrame], Any]) -> Callable[[DataFrame], DataFrame]:
        def acts(orders: DataFrame) -> DataFrame:
            act(orders)
            return orders

        return acts

    names = {f"silver.t{at}": action for at, action in enumerate(ACTIONS)}
    tables = [orders_table(name, acting(ACTIONS[action][0])) for name, action in names.items()]
    told = planned(*tables).tables
    said = {action: told[name].unknown for name, action in names.items()}
    assert said == {action: (f"not known until it runs: {why}",) for action, (_, why) in ACTIONS.items()}


Write = Callable[[DataFrame, str], Any]


def sql_of(statement: str) -> Write:
    return lambda frame, path: frame.sparkSession.sql(statement.format(path=path))


def delta(frame: DataFrame, path: str) -> DeltaTable:
    return DeltaTable.forPath(frame.sparkSession, path)


def stream(frame: DataFrame, path: str) -> None:
    rows = frame.sparkSession.readStream.format("delta").load(path)
    rows.writeStream.format("delta").option("checkpointLocation", f"{path}_checkpoint").start(f"{path}_streamed")


WRITES: dict[str, tuple[Write, str]] = {
    "save": (lambda frame, path: frame.write.format("delta").mode("overwrite").save(path), "it writes gold.kept (DataFrameWriter.save)"),
    "files": (lambda frame, path: frame.write.csv(f"{path}_files"), "it writes kept_files (DataFrameWriter.csv)"),
    "a table": (lambda frame, _: frame.write.format("delta").saveAsTable("made"), "it writes default.made (DataFrameWriter.saveAsTable)"),
    "version 2": (
        lambda frame, path: frame.writeTo(f"delta.`{path}`").overwrite(F.lit(True)), "it writes gold.kept (DataFrameWriterV2.overwrite)",
    ),
    "JDBC": (
        lambda frame, _: frame.write.jdbc("jdbc:postgresql://127.0.0.1:1/none", "made"),
        "it executes SaveIntoDataSourceCommand (DataFrameWriter.jdbc)",
    ),
    "stream": (stream, "it acts (DataStreamWriter.start)"),
    "INSERT": (sql_of("INSERT INTO delta.`{path}` VALUES (9)"), "it writes gold.kept (SparkSession.sql)"),
    "DELETE": (sql_of("DELETE FROM delta.`{path}`"), "it writes gold.kept (SparkSession.sql)"),
    "UPDATE": (sql_of("UPDATE delta.`{path}` SET id = 9"), "it writes gold.kept (SparkSession.sql)"),
    "MERGE": (
        sql_of("MERGE INTO delta.`{path}` t USING (SELECT 1 AS id) s ON s.id = t.id WHEN MATCHED THEN DELETE"),
        "it writes gold.kept (SparkSession.sql)",
    ),
    "ALTER": (sql_of("ALTER TABLE delta.`{path}` ADD COLUMNS (more INT)"), "it executes AddColumns (SparkSession.sql)"),
    "OPTIMIZE": (sql_of("OPTIMIZE delta.`{path}`"), "it executes OptimizeTableCommand (SparkSession.sql)"),
    "delete": (lambda frame, path: delta(frame, path).delete(), "it writes gold.kept (DeltaTable.delete)"),
    "update": (lambda frame, path: delta(frame, path).update(set={"id": "9"}), "it writes gold.kept (DeltaTable.update)"),
    "merge": (
        lambda frame, path: delta(frame, path).alias("t").merge(frame.alias("s"), "s.id = t.id").whenNotMatchedBySourceDelete().execute(),
        "it writes gold.kept (DeltaMergeBuilder.execute)",
    ),
    "optimize": (
        lambda frame, path: delta(frame, path).optimize().executeCompaction(),
        "it executes OptimizeTableCommand (DeltaOptimizeBuilder.executeCompaction)",
    ),
    "vacuum": (lambda frame, path: delta(frame, path).vacuum(), "it executes VacuumTableCommand (DeltaTable.vacuum)"),
    "restore": (
        lambda frame, path: delta(frame, path).restoreToVersion(0),
        "it writes gold.kept (DeltaTable.restoreToVersion)",
    ),
    "properties": (
        lambda frame, path: delta(frame, path).upgradeTableProtocol(1, 7),
        "it executes AlterTableSetPropertiesDeltaCommand (DeltaTable.upgradeTableProtocol)",
    ),
    "a session of its own": (
        lambda frame, path: frame.sparkSession.newSession().sql(f"DELETE FROM delta.`{path}`"),
        "it writes gold.kept (SparkSession.sql)",
    ),
}  # fmt: skip


def test_what_functions_write_is_not_written_while_they_are_planned(planned: Callable[..., Manifest], kept: Path) -> None:
    def writing(write: Write) -> Callable[[DataFrame], DataFrame]:
        def writes(orders: DataFrame) -> DataFrame:
            write(orders.select("id"), str(kept))
            return orders

        return writes

    before = files_beside(kept)
    names = {f"silver.t{at}": write for at, write in enumerate(WRITES)}
    tables = [orders_table(name, writing(WRITES[write][0])) for name, write in names.items()]
    told = planned(*tables, orders_table("gold.kept", ids)).tables
    said = {write: told[name].unknown for name, write in names.items()}
    assert said == {write: (f"not known until it runs: {why}",) for write, (_, why) in WRITES.items()}
    assert told["gold.kept"].unknown == ()
    assert files_beside(kept) == before


def test_after_planning_a_session_writes_and_has_its_settings_and_views(
    planned: Callable[..., Manifest], kept: Path, spark: SparkSession
) -> None:  # fmt: skip
    partitions, views = spark.conf.get("spark.sql.shuffle.partitions"), spark.sql("SHOW TABLES").collect()

    def sets(orders: DataFrame) -> DataFrame:
        orders.sparkSession.conf.set("spark.sql.shuffle.partitions", "3")
        orders.sparkSession.sql("SET spark.sql.ansi.enabled = false")
        orders.createOrReplaceTempView("left_behind")
        orders.cache().explain()
        return orders.sparkSession.sql("SELECT id FROM left_behind")

    table = planned(paid_table(sets)).tables["silver.paid"]
    assert (table.unknown, direct(table, "id")) == ((), {("bronze.orders", "id", Kind.IDENTITY)})
    assert (spark.conf.get("spark.sql.shuffle.partitions"), spark.sql("SHOW TABLES").collect()) == (partitions, views)
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    spark.range(7).write.format("delta").mode("overwrite").save(str(kept))
    assert spark.sql(f"SELECT count(*) FROM delta.`{kept}`").first() == (7,)
    assert spark.sparkContext.parallelize([1]).count() == 1


def test_what_a_function_writes_in_a_thread_and_what_it_catches_is_told(planned: Callable[..., Manifest], kept: Path) -> None:
    def write(orders: DataFrame) -> None:
        with suppress(Exception):
            orders.write.format("delta").mode("overwrite").save(str(kept))

    def catches(orders: DataFrame) -> DataFrame:
        write(orders)
        return orders

    def in_thread(orders: DataFrame) -> DataFrame:
        thread = threading.Thread(target=write, args=[orders])
        thread.start()
        thread.join()
        return orders

    before = files_beside(kept)
    for function in (catches, in_thread):
        assert planned(paid_table(function)).tables["silver.paid"].unknown == (
            "not known until it runs: it writes kept (DataFrameWriter.save)",
        )
    assert files_beside(kept) == before


def test_a_table_that_is_read_beside_is_known_though_its_log_is_read(planned: Callable[..., Manifest], tmp_path: Path) -> None:
    for _ in range(11):  # with a checkpoint
        write_deltalake(tmp_path / "beside", pa.table({"id": [1], "more": ["a"]}), mode="append")

    def joins(orders: DataFrame) -> DataFrame:
        return orders.join(orders.sparkSession.read.format("delta").load(str(tmp_path / "beside")), "id").select("id", "more")

    table = planned(paid_table(joins)).tables["silver.paid"]
    assert [column.name for column in table.columns] == ["id", "more"]


def test_what_reads_a_table_that_acts_is_asked_over_the_columns_that_it_has(planned: Callable[..., Manifest], tmp_path: Path) -> None:
    def acts(orders: DataFrame) -> DataFrame:
        orders.count()
        return paid(orders)

    alone = planned(paid_table(acts), towns_table()).tables
    assert alone["gold.towns"].unknown == ("not known until silver.paid is",)
    there = pa.schema([("id", pa.int64()), ("twice", pa.int64()), ("city", pa.string())])
    write_deltalake(open_platform(load_settings(home=tmp_path)).location("silver.paid"), there.empty_table())
    made = planned(paid_table(acts), towns_table())
    assert made.tables["gold.towns"].unknown == ()
    assert made.tables["silver.paid"].by_name["twice"].opaque == ("not known until it runs: it acts (DataFrame.count)",)
    assert direct(made.tables["gold.towns"], "total") == {("silver.paid", "twice", Kind.AGGREGATION)}
    assert planned(paid_table(acts), towns_table(), before=made, only_manifest=True) == made


def test_a_table_that_a_plain_asset_writes_is_not_known_until_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    nightly = SourceTable("lab.nightly")
    lakechime_sensor("plain_nightly", SnapshotTrigger([orders.name]), job=nightly_job, writes=nightly.name)
    platform, lake = open_platform(load_settings(home=tmp_path)), Lake("shop", [orders, nightly])
    write_deltalake(platform.location("lab.nightly"), ORDERS.empty_table())
    made = manifest_by(Planner(spark), lake, platform)
    assert made.tables["lab.nightly"].unknown == ("not known until it runs: the job of plain_nightly writes it",)
    assert len(made.tables["lab.nightly"].columns) == len(ORDERS)
    assert manifest_by(Planner(spark), lake, platform, made, only_manifest=True).tables["lab.nightly"] == made.tables["lab.nightly"]
