"""Shapes of statements that write, in SQL and both APIs, on one small table; each is a MERGE, or
another form of writing.
"""

import tempfile
from collections.abc import Callable

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lakechime_dagster.spark.session import session_confs
from tests.support.zoo import Tables

TARGET = "id int, name string, amount int, day string, item struct<sku: string, price: int>"
COLUMNS = "id, name, amount, day, item"
ROW = "named_struct('sku', 'a', 'price', 1)"


COLUMNS_OF = {"generated": "id int, amount int, double_amount int generated always as (amount * 2)"}


def make_target(spark: SparkSession, folder: str, name: str = "target") -> None:
    """The table that is written to, in this folder and in the session's catalog."""
    spark.sql(
        f"create or replace table {name} ({COLUMNS_OF.get(name, TARGET)}) using delta location "
        f"'{folder}/{name}'"
    )


def make_others(tables: Tables, folder: str) -> None:
    """A second target with a generated column, and the zoo's tables as views."""
    make_target(tables.spark, folder, "generated")
    make_views(tables)


def make_views(tables: Tables) -> None:
    for name, frame in (
        ("orders", tables.orders),
        ("people", tables.people),
        ("visits", tables.visits),
    ):
        frame.createOrReplaceTempView(name)


MERGES: dict[str, str] = {
    "merge_star": f"""
        merge into target t using (select id, name, boss as amount, city as day, {ROW} as item from people) s on t.id = s.id
        when matched then update set * when not matched then insert *""",
    "merge_some_columns": """
        merge into target t using orders s on t.id = s.person when matched then update set amount = s.amount + t.amount
        when not matched then insert (id, amount) values (s.person, s.amount)""",
    "merge_with_conditions": """
        merge into target t using orders s on t.id = s.person and t.day < s.day
        when matched and s.amount < t.amount then update set day = s.day when matched and s.id % 10 > 5 then delete
        when not matched and s.amount > 1 then insert (id, day) values (s.person, upper(s.day))""",
    "merge_not_matched_by_source": """
        merge into target t using people s on t.id = s.id when not matched by source and t.day < '2' then delete
        when not matched by source then update set name = 'gone', amount = t.amount + 1""",
    "merge_deletes": (
        "merge into target t using visits s on t.id = s.person when matched and s.page = 'bye' "
        "then delete"
    ),
    "merge_inserts_a_union": """
        merge into target t using (select id, name from people union all select person, page from visits) s on t.id = s.id
        when not matched then insert (name, id) values (s.name, s.id)""",
    "merge_from_itself": """
        merge into target t using (select x.id, x.amount, p.city from target x join people p on x.id = p.id) s on t.id = s.id
        when matched then update set amount = s.amount, name = s.city""",
    "merge_with_evolution": f"""
        merge with schema evolution into target t using (select id, city as town, name, {ROW} as item from people) s on t.id = s.id
        when matched then update set * when not matched then insert *""",
    "merge_field_of_a_struct": """
        merge into target t using orders s on t.id = s.person when matched then update set t.item.price = s.amount""",
    "merge_case_by_case": """
        merge into target t using people s on t.id = s.id
        when matched then update set name = case when s.city is null then t.name else s.city end, day = coalesce(t.day, s.name)""",
    "merge_newest_of_a_key": """
        merge into target t using (select * from (select *, row_number() over (partition by person order by day desc) as n from orders)
        where n = 1) s on t.id = s.person when matched then update set amount = s.amount, day = s.day
        when not matched then insert (id, amount, day) values (s.person, s.amount, s.day)""",
    "merge_never_matching": """
        merge into target t using people s on false when not matched then insert (id, name) values (s.id, md5(s.name))""",
    "merge_generated_column": """
        merge into generated t using orders s on t.id = s.id when matched then update set amount = s.amount
        when not matched then insert (id, amount) values (s.id, s.amount)""",
    "merge_grouped": """
        merge into target t using (select person, sum(amount) as total, count(*) as n from orders where day > '1' group by person) s
        on t.id = s.person when matched then update set amount = t.amount + s.total, name = s.n""",
}
"""Each of them one statement."""

STATEMENTS: dict[str, str] = {
    "update_where": "update target set amount = amount + id, name = upper(day) where day > '1'",
    "update_all": "update target set name = 'x', item.price = amount",
    "delete_where": "delete from target where amount > 1 and name is null",
    "delete_all": "delete from target",
    "insert_values": f"insert into target values (1, 'x', 2, '3', {ROW})",
    "insert_by_position": f"insert into target select person, page, 1, day, {ROW} from visits",
    "insert_some_columns": "insert into target (amount, id) select id, amount from orders where person = 1",
    "insert_by_name": "insert into target by name select day, person as id from visits",
    "insert_overwrite": f"insert overwrite target select id, name, boss, city, {ROW} from people",
    "insert_replace_where": f"insert into target replace where day = '1' select id, name, boss, '1', {ROW} from people",
    "insert_wider_numbers": f"insert into target select cast(id as bigint), name, boss, city, {ROW} from people",
    "insert_generated": "insert into generated (id, amount) select person, amount from orders",
    "create_as_select": """
        create table made using delta location '{folder}/made' as select person, max(amount) as most from orders group by person""",
    "replace_as_select": """
        create or replace table target using delta location '{folder}/target' as select id, city as name from people""",
}
"""Other statements in SQL; `{folder}` is where the tables are."""

SCRIPTS: dict[str, tuple[str, ...]] = {
    "inserts_of_one_source": (
        """from orders insert into target (id, amount) select id, amount where amount = 1
        insert overwrite table generated select id, person, amount where day = '2'""",
        "insert into target (id) values (7)",
    ),
    "inserts_of_one_cte": (
        """with big as (select * from orders where amount > 2) from big insert into target (id) select id
        insert overwrite directory '{folder}/big' using parquet select day""",
    ),
    "create_as_select_of_parquet": (
        (
            "create table plain using parquet location '{folder}/plain' as select id, max(amount) as "
            "most from orders group by id"
        ),
        "drop table plain",
        (
            "create table if not exists plain using parquet location '{folder}/more' as select person "
            "as id from orders"
        ),
        "drop table plain",
    ),
    "overwrite_a_partition_of_parquet": (
        # tables of this folder that no statement gave it
        "create database zoo location '{folder}/zoo'",
        "create table zoo.days (id int, day string) using parquet partitioned by (day)",
        "insert overwrite zoo.days partition (day = '1') select id from orders",
        "insert overwrite zoo.days partition (day) select id, day from orders",
        "alter table zoo.days add partition (day = '1')",
        "truncate table zoo.days partition (day = '1')",
        "truncate table zoo.days",
        "drop database zoo cascade",
    ),
    "overwrite_a_directory": (
        (
            "insert overwrite directory '{folder}/out' using parquet select id, amount from orders "
            "where day > '1'"
        ),
        (
            "insert overwrite directory using parquet options (path '{folder}/more') select id from "
            "orders"
        ),
    ),
    "alter_a_view": (
        "create or replace temporary view zoo_altered as select id from target",
        "alter view zoo_altered as select amount from target",
    ),
    "explained": (
        "explain select * from orders",
        "explain insert into target (id) select id from orders",
        "describe query select 1",
    ),
}
"""Several statements, one after the other."""

HIVE: dict[str, tuple[str, ...]] = {
    "hive_create_as_select": (
        "create table made stored as textfile as select id, amount + 1 as amount from orders",
        "drop table made",
    ),
    "hive_insert": (
        (
            "create table hived (id int, amount int) partitioned by (day string, hour string) stored "
            "as textfile location '{folder}/hived'"
        ),
        "insert into hived partition (day = '1', hour) select id, amount, day from orders",
        "insert overwrite table hived partition (day, hour) select id, amount, day, day from orders",
        "drop table hived",
    ),
    "hive_insert_whole": (
        "create table hived (id int, amount int) stored as textfile location '{folder}/hived'",
        "insert into hived (id) select person from orders",
        "insert overwrite table hived select id, amount from orders",
        "drop table hived",
    ),
    "hive_directory": (
        (
            "insert overwrite local directory '{folder}/out' row format delimited fields terminated by "
            "',' select id, amount from orders"
        ),
    ),
    "hive_load": (
        (
            "create table hived (id int) partitioned by (day string) stored as textfile location "
            "'{folder}/hived'"
        ),
        "insert overwrite directory '{folder}/in' stored as textfile select 1",
        "load data inpath '{folder}/in' into table hived partition (day = '1')",
        "drop table hived",
        "create table hived (id int) stored as textfile location '{folder}/hived'",
        "insert overwrite directory '{folder}/in' stored as textfile select 1",
        "load data inpath '{folder}/in' overwrite into table hived",
        "drop table hived",
    ),
}
"""Likewise, on tables of Hive."""

Write = Callable[[Tables, str], object]
Frame = Callable[[DataFrame], DataFrame]


def _merge(t: Tables, folder: str) -> None:
    source = t.orders.where("amount > 0").withColumn("later", F.col("amount") + 1).alias("s")
    merge = (
        DeltaTable.forPath(t.spark, f"{folder}/target").alias("t").merge(source, "t.id = s.person")
    )
    merge.whenMatchedUpdate("s.day > '1'", {"amount": "s.later"}).whenNotMatchedInsert(
        values={"id": "s.person", "day": "s.day"}
    ).execute()


def _merge_all(t: Tables, folder: str) -> None:
    source = t.people.select(
        "id",
        "name",
        F.col("boss").alias("amount"),
        F.col("city").alias("day"),
        F.expr(ROW).alias("item"),
    ).alias("s")
    merge = DeltaTable.forName(t.spark, "target").alias("t").merge(source, "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().whenNotMatchedBySourceDelete().execute()


def _merge_into(t: Tables, folder: str) -> None:
    source = t.people.select("id", F.upper("name").alias("name")).alias("s")
    merge = source.mergeInto("target", F.expr("target.id = s.id"))
    merge.whenMatched().update({"name": F.col("s.name")}).whenNotMatched().insert(
        {"id": F.col("s.id")}
    ).merge()


def _dynamically(write: Write) -> Write:
    """A write by a session that overwrites partitions alone."""

    def written(t: Tables, folder: str) -> None:
        make_parted(t.spark, folder)
        with session_confs(t.spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
            write(t, folder)

    return written


def make_parted(spark: SparkSession, folder: str) -> None:
    spark.sql(
        f"create or replace table parted (id int, day string) using delta partitioned by (day) "
        f"location '{folder}/parted'"
    )


DATABASE = {
    "url": "jdbc:derby:memory:zoo;create=true;user=me;password=geheim",
    "driver": "org.apache.derby.jdbc.EmbeddedDriver",
}


def _from_database(folder: str, t: Tables, **what: str) -> None:
    t.spark.sql("select 1 as ID, 2 as AMOUNT").write.format("jdbc").options(
        **DATABASE, dbtable="SALES"
    ).mode("overwrite").save()
    read = t.spark.read.format("jdbc").options(**DATABASE, **what).load()
    read.selectExpr("ID as id", "AMOUNT + 1 as amount").write.format("delta").mode("append").save(
        f"{folder}/target"
    )


def _streaming(
    t: Tables,
    folder: str,
    write: Callable[[DataStreamWriter], StreamingQuery],
    frame: Frame = lambda f: f,
) -> None:
    """A stream from `target`, in which there is a row, all of it in one batch."""
    make_target(t.spark, folder, "other")
    t.spark.sql(STATEMENTS["insert_values"])
    made = frame(t.spark.readStream.format("delta").load(f"{folder}/target"))
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = (
            made.writeStream.format("delta")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
        )
        write(writer).awaitTermination()


def _batch(batch: DataFrame, number: int) -> None:
    """What a stream's function does with a batch, one after the other."""
    target = DeltaTable.forName(batch.sparkSession, "other")
    batch.select("id", "amount").write.format("delta").mode("append").saveAsTable("other")
    newest = batch.groupBy("id").agg(F.max("amount").alias("amount")).alias("s")
    target.alias("t").merge(newest, "t.id = s.id").whenMatchedUpdate(
        set={"amount": "s.amount"}
    ).execute()
    rows = batch.count()
    batch.select("id", F.lit(rows).alias("amount")).write.format("delta").mode(
        "append"
    ).saveAsTable("other")


WRITES: dict[str, Write] = {
    "delta_table_merge": _merge,
    "delta_table_merge_all": _merge_all,
    "merge_into_of_a_frame": _merge_into,
    "delta_table_update": lambda t, folder: DeltaTable.forPath(t.spark, f"{folder}/target").update(
        "id = 1", {"name": "day"}
    ),
    "delta_table_delete": lambda t, folder: DeltaTable.forPath(t.spark, f"{folder}/target").delete(
        "id = 9"
    ),
    "save_append": lambda t, folder: (
        t.people.select("name", "id").write.format("delta").mode("append").save(f"{folder}/target")
    ),
    "save_overwrite": lambda t, folder: (
        t.people.select("id", "name")
        .write.format("delta")
        .mode("overwrite")
        .save(f"{folder}/target")
    ),
    "save_replace_where": lambda t, folder: (
        t.people.select("id", F.lit("1").alias("day"))
        .where("id > 0")
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", "day = '1'")
        .save(f"{folder}/target")
    ),
    "save_as_table_append": lambda t, folder: (
        t.visits.select("day", F.col("person").alias("id"))
        .write.format("delta")
        .mode("append")
        .saveAsTable("target")
    ),
    "save_as_table_new": lambda t, folder: (
        t.visits.groupBy("day")
        .count()
        .write.format("delta")
        .option("path", f"{folder}/saved")
        .saveAsTable("saved")
    ),
    "save_as_table_overwrite": lambda t, folder: (
        t.people.select("id", "name").write.format("delta").mode("overwrite").saveAsTable("target")
    ),
    "insert_into": lambda t, folder: t.people.selectExpr(
        "boss", "city", "id", "name", f"{ROW} as item"
    ).write.insertInto("target"),
    "write_to_append": lambda t, folder: t.orders.select("day", "id").writeTo("target").append(),
    "write_to_overwrite": lambda t, folder: (
        t.orders.select("day", "id").writeTo("target").overwrite(F.col("day") == "1")
    ),
    "write_to_overwrite_partitions": lambda t, folder: (
        t.orders.select("day", "id").writeTo("target").overwritePartitions()
    ),
    "write_to_replace": lambda t, folder: (
        t.orders.select("day", "id").writeTo("target").using("delta").createOrReplace()
    ),
    "parquet_overwrite": lambda t, folder: (
        t.orders.select("id", "day").write.mode("overwrite").parquet(f"{folder}/plain")
    ),
    "save_as_table_of_parquet": lambda t, folder: (
        t.visits.select("page").write.option("path", f"{folder}/pages").saveAsTable("pages")
    ),
    "parquet_of_a_table": lambda t, folder: (
        t.spark.read.format("delta")
        .load(f"{folder}/target")
        .select("id")
        .write.parquet(f"{folder}/p")
    ),
    "from_a_parquet_folder": lambda t, folder: (
        t.spark.read.parquet(f"{folder}/plain")
        .select("id")
        .write.format("delta")
        .mode("append")
        .save(f"{folder}/target")
    ),
    "from_a_view_of_tables": lambda t, folder: (
        make_target(t.spark, folder, "other"),
        t.spark.sql(
            "create or replace temp view zoo_view as select t.id, p.city from target t join people "
            "p on t.id = p.id"
        ),
        t.spark.table("zoo_view")
        .select("id", F.col("city").alias("name"))
        .write.format("delta")
        .mode("append")
        .saveAsTable("other"),
    ),
    "save_overwrite_by_the_session": _dynamically(
        lambda t, folder: (
            t.orders.select("id", "day")
            .write.format("delta")
            .mode("overwrite")
            .save(f"{folder}/parted")
        )
    ),
    "save_overwrite_by_the_option": _dynamically(
        lambda t, folder: (
            t.orders.select("id", "day")
            .write.format("delta")
            .mode("overwrite")
            .option("partitionOverwriteMode", "static")
            .save(f"{folder}/parted")
        )
    ),
    "save_as_table_overwrite_by_the_session": _dynamically(
        lambda t, folder: (
            t.orders.select("id", "day")
            .write.format("delta")
            .mode("overwrite")
            .saveAsTable("parted")
        )
    ),
    "parquet_overwrite_by_the_session": _dynamically(
        lambda t, folder: (
            t.orders.select("id", "day")
            .write.mode("overwrite")
            .partitionBy("day")
            .parquet(f"{folder}/days")
        )
    ),
    "parquet_without_partitions_by_the_session": _dynamically(
        lambda t, folder: (
            t.orders.select("id", "day").write.mode("overwrite").parquet(f"{folder}/plain")
        )
    ),
    "from_a_database": lambda t, folder: _from_database(folder, t, dbtable="SALES"),
    "from_a_query_of_a_database": lambda t, folder: _from_database(
        folder, t, query="select * from SALES where ID = 1"
    ),
    "stream_append": lambda t, folder: _streaming(
        t,
        folder,
        lambda w: w.start(f"{folder}/other"),
        lambda f: f.where("day > '1'").selectExpr("id", "amount + 1 as amount"),
    ),
    "stream_to_a_table": lambda t, folder: _streaming(
        t, folder, lambda w: w.toTable("other"), lambda f: f.select("id", "name")
    ),
    "stream_complete": lambda t, folder: _streaming(
        t,
        folder,
        lambda w: w.outputMode("complete").start(f"{folder}/other"),
        lambda f: f.groupBy("day").agg(F.sum("amount").cast("int").alias("amount")),
    ),
    "stream_for_each_batch": lambda t, folder: _streaming(
        t, folder, lambda w: w.foreachBatch(_batch).start()
    ),
}
"""Writes by the two APIs, which have to be executed to be seen."""
