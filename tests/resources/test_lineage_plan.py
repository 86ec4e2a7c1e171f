"""The manifest of a lake: what its code says before any run, the same for the same code, and what of it is not known and why."""

import inspect
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

from lakechime_dagster.lake import Lake, SourceTable, spark_table, sql_table
from lakechime_dagster.lake.tables import LakeTable
from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source
from lakechime_dagster.lineage.planned.findings import Class
from lakechime_dagster.lineage.planned.gate import compare
from lakechime_dagster.lineage.planned.manifest import Manifest, PlannedTable, read_manifest
from lakechime_dagster.lineage.plans.digests import Digests
from lakechime_dagster.lineage.plans.dump import Node
from lakechime_dagster.resources.lineage import plan
from lakechime_dagster.resources.lineage.plan import manifest_by
from lakechime_dagster.resources.platform import open_platform
from lakechime_dagster.sensors.trigger import lakechime_sensor
from lakechime_dagster.settings import load_settings
from lakechime_dagster.spark.lineage.planning import Planner
from lakechime_dagster.triggers import SnapshotTrigger

pytestmark = pytest.mark.spark

orders = SourceTable("bronze.orders", owner="team:shop")
ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("city", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])


def paid(orders: DataFrame) -> DataFrame:
    return orders.where("amount > 0").select("id", (F.col("amount") * 2).alias("twice"), F.lower("city").alias("city"))


def paid_table(function: Callable[..., DataFrame] = paid, **fields: Any) -> LakeTable:
    return spark_table("silver.paid", keys=["id"], reads={"orders": orders.changes()}, **fields)(function)


def paid_table_of(name: str, function: Callable[..., DataFrame]) -> LakeTable:
    return spark_table(name, keys=["id"], reads={"orders": orders.changes()})(function)


def towns_table(sql: str = "SELECT city, sum(twice) AS total FROM silver.paid GROUP BY city") -> LakeTable:
    return sql_table("gold.towns", sql=sql, refresh="full", owner="team:gold")


@pytest.fixture
def planned(spark: SparkSession, tmp_path: Path) -> Callable[..., Manifest]:
    """The manifest of a lake of these computed tables, in which the source is there."""
    platform = open_platform(load_settings(home=tmp_path))
    write_deltalake(platform.location("bronze.orders"), ORDERS.empty_table())

    def manifest(*tables: LakeTable, before: Manifest | None = None, only_manifest: bool = False) -> Manifest:
        return manifest_by(Planner(spark), Lake("shop", [orders, *tables]), platform, before, only_manifest=only_manifest)

    return manifest


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


def orders_table(name: str, function: Callable[..., DataFrame]) -> LakeTable:
    return spark_table(name, keys=["id"], reads={"orders": orders.changes()})(function)


def ids(orders: DataFrame) -> DataFrame:
    return orders.select("id")


@dg.op
def nothing() -> None:
    pass


@dg.job
def nightly_job() -> None:
    nothing()


def direct(table: PlannedTable, column: str) -> set[tuple[str, str | None, Kind]]:
    return {(one.ref.table, one.ref.column, one.kind) for one in table.by_name[column].sources}


def test_columns_of_functions_and_of_sql_are_known_before_any_run(planned: Callable[..., Manifest]) -> None:
    tables = planned(paid_table(), towns_table()).tables
    paid_, towns = tables["silver.paid"], tables["gold.towns"]
    assert direct(paid_, "twice") == {("bronze.orders", "amount", Kind.TRANSFORMATION)}
    assert paid_.indirect == (Source(ColumnRef("bronze.orders", "amount"), Kind.FILTER),)
    assert [(column.name, column.type) for column in paid_.columns] == [("id", "long"), ("twice", "long"), ("city", "string")]
    assert direct(towns, "total") == {("silver.paid", "twice", Kind.AGGREGATION)}
    assert (towns.owner, towns.inputs) == ("team:gold", ("silver.paid",))


def test_equal_code_gives_an_equal_file(planned: Callable[..., Manifest], tmp_path: Path) -> None:
    first, second = planned(paid_table(), towns_table()), planned(paid_table(), towns_table())
    path = tmp_path / "lineage.json"
    path.write_text(first.to_json(), encoding="utf-8")
    assert first.to_json() == second.to_json()
    assert read_manifest(path) == first
    assert read_manifest(path).to_json() == first.to_json()


def test_another_row_of_a_text_of_sql_is_told_and_is_in_no_file(planned: Callable[..., Manifest]) -> None:
    def made(rows: str) -> PlannedTable:
        sql = f"SELECT o.id, n.name FROM bronze.orders o JOIN (VALUES {rows}) AS n(city, name) ON n.city = o.city"
        return planned(sql_table("silver.named", sql=sql, keys=["id"])).tables["silver.named"]

    def digests(table: PlannedTable) -> tuple[str, ...]:
        return (table.rows, *(column.digest for column in table.columns))

    was, same, other = (
        made(rows) for rows in ("('u', 'Ulm'), ('b', 'Bonn')", "('u','Ulm'),  ('b','Bonn')", "('u', 'Ulm'), ('b', 'Berlin')")
    )
    assert digests(same) == digests(was)
    assert [one == now for one, now in zip(digests(was), digests(other), strict=True)] == [False, True, False]
    assert was.by_name["name"].sources == ()
    assert "Bonn" not in str(was)


def test_a_file_stands_for_tables_that_are_not_there(planned: Callable[..., Manifest]) -> None:
    before = planned(paid_table(), towns_table())
    assert planned(paid_table(), towns_table(), before=before, only_manifest=True) == before
    unknown = planned(paid_table(), only_manifest=True)
    assert unknown.tables["silver.paid"].unknown == ("not known until bronze.orders is",)


def test_digests_tell_what_changed(planned: Callable[..., Manifest]) -> None:
    def other_value(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 0").select("id", (F.col("amount") * 3).alias("twice"), F.lower("city").alias("city"))

    def other_rows(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 1").select("id", (F.col("amount") * 2).alias("twice"), F.lower("city").alias("city"))

    def same(orders: DataFrame) -> DataFrame:
        """Said in other words."""
        twice = orders.withColumn("t", F.col("amount") * 2).filter(F.col("amount") > 0)
        return twice.select("id", F.col("t").alias("twice"), F.lower("city").alias("city"))

    def digests(function: Callable[..., DataFrame]) -> tuple[str, ...]:
        table = planned(paid_table(function)).tables["silver.paid"]
        return (table.rows, *(column.digest for column in table.columns))

    was, value, rows, again = digests(paid), digests(other_value), digests(other_rows), digests(same)
    assert [one == other for one, other in zip(was, value, strict=True)] == [True, True, False, True]
    assert [one == other for one, other in zip(was, rows, strict=True)] == [False, True, True, True]
    assert again == was


MADE = {
    "explode": "SELECT id, explode(array(amount, id)) AS one FROM bronze.orders",
    "explode_outer": "SELECT id, place, one FROM bronze.orders LATERAL VIEW OUTER posexplode(array(amount, id)) AS place, one",
    "stack": "SELECT id, k, v FROM bronze.orders LATERAL VIEW stack(2, 'a', amount, 'i', id) AS k, v",
    "inline": "SELECT id, inline(array(named_struct('a', amount))) FROM bronze.orders",
    "json": "SELECT id, parsed.a FROM bronze.orders LATERAL VIEW json_tuple(city, 'a') parsed AS a",
    "lateral": "SELECT o.id, t.twice FROM bronze.orders o, LATERAL (SELECT o.amount * 2 AS twice) t",
}  # by what makes its columns


def mapped(orders: DataFrame) -> DataFrame:
    return orders.select("id", "city").mapInPandas(lambda frames: frames, "id long, city string")


def test_columns_that_no_expression_makes_are_known_and_leave_other_tables_as_they_are(planned: Callable[..., Manifest]) -> None:
    tables = [sql_table(f"silver.{name}", sql=sql, keys=["id"]) for name, sql in MADE.items()]
    found = planned(paid_table(), paid_table_of("silver.mapped", mapped), *tables)
    alone = planned(paid_table()).tables["silver.paid"]
    assert found.tables["silver.paid"] == alone
    for table in (one for one in found.tables.values() if one.is_computed):
        assert all((table.rows, *(column.digest for column in table.columns))), (table.name, table.unknown)


def test_another_generator_changes_what_it_makes(planned: Callable[..., Manifest]) -> None:
    def digests(sql: str) -> tuple[str, ...]:
        table = planned(sql_table("silver.made", sql=sql, keys=["id"])).tables["silver.made"]
        return (table.rows, *(column.digest for column in table.columns))

    was, now = digests(MADE["explode"]), digests(MADE["explode"].replace("(amount, id)", "(amount)"))
    assert [one == other for one, other in zip(was, now, strict=True)] == [False, True, False]


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


def test_readers_that_do_not_say_what_they_read_are_unsure_of_what_changes(planned: Callable[..., Manifest]) -> None:
    def other(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 0").select("id", (F.col("amount") * 3).alias("twice"), F.lower("city").alias("city"))

    def without(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 0").select("id", F.lower("city").alias("city"))

    @spark_table("gold.wants", keys=["id"], reads={"paid": SourceTable("silver.paid").snapshot()}, refresh="full")
    def wants(paid: DataFrame, context: Any) -> DataFrame:
        return paid

    @spark_table("gold.by_rdd", keys=["id"], reads={"paid": SourceTable("silver.paid").snapshot()}, refresh="full")
    def by_rdd(paid: DataFrame) -> DataFrame:
        return paid.sparkSession.createDataFrame(paid.rdd.map(lambda row: (row[0],)), "id long")

    before = planned(paid_table(), wants, by_rdd)
    for function in (other, without):
        findings = compare(before, planned(paid_table(function), wants, by_rdd))
        unsure = {(one.table, one.column) for one in findings if one.kind is Class.UNSURE}
        assert unsure == {("gold.wants", None), ("gold.by_rdd", None)}


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


def test_how_a_table_is_kept_is_told(planned: Callable[..., Manifest]) -> None:
    table = planned(paid_table(expect={"is positive": "twice > 0"})).tables["silver.paid"]
    assert table.laid_out == {"keys": "id", "refresh": "rows", "expect is positive": "twice > 0"}
    assert inspect.cleandoc(planned(paid_table()).to_json()).count('"name": "twice"') == 1
