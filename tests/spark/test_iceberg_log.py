"""What Spark does to Iceberg tables, as events: compaction, deletes by files of deletes and by
deletion vectors, tables that are replaced.
"""

from pathlib import Path

import pytest

from tests.support.spark import run_client, small_settings

pytestmark = pytest.mark.spark

CODE = """
    from pyiceberg.catalog import load_catalog
    from lakechime_dagster.formats.iceberg import IcebergLog

    properties = {"type": "sql", "uri": f"sqlite:///{home}/catalog.sqlite", "warehouse": f"{home}/ice"}
    catalog = load_catalog("lakechime", **properties)
    catalog.create_namespace("shop")
    seen = {}

    def poll(table):
        # Spark's catalog of folders names the newest metadata in a file
        folder = f"{home}/ice/shop/{table}/metadata"
        version = open(f"{folder}/version-hint.text").read().strip()
        if catalog.table_exists(f"shop.{table}"):
            catalog.drop_table(f"shop.{table}")
        catalog.register_table(f"shop.{table}", f"{folder}/v{version}.metadata.json")
        captured = IcebergLog(properties, f"shop.{table}").changes_after(seen.get(table))
        seen[table] = captured.seen
        found = [
            f"{'-'.join(map(str, one.partition or ()))}:{one.operation_type}"
            + (f":{one.tags['lakechime/verdict']}" if "lakechime/verdict" in one.tags else "")
            for one in captured.events
        ]
        say(table, *sorted(found))

    with open_here() as driver:
        spark = driver.spark
        for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": f"{home}/ice"}.items():
            spark.conf.set(f"spark.sql.catalog.ice{key}", value)
        for table, version in {"two": 2, "three": 3}.items():
            modes = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge"))
            spark.sql(
                f"create table ice.shop.{table} (id bigint, at timestamp) using iceberg partitioned by (days(at)) "
                f"tblproperties ('format-version' = '{version}', {modes})"
            )
            poll(table)
            spark.sql(f"insert into ice.shop.{table} select id, timestamp'2024-05-01 01:00:00' + make_interval(0, 0, 0, cast(id % 2 as int)) from range(0, 20, 1, 1)")
            poll(table)
            spark.sql(f"delete from ice.shop.{table} where id = 2")
            poll(table)
            spark.sql(f"update ice.shop.{table} set id = id + 100 where id = 3")
            poll(table)
            spark.sql(f"call ice.system.rewrite_data_files(table => 'shop.{table}', options => map('rewrite-all', 'true'))")
            poll(table)
            spark.sql(f"delete from ice.shop.{table} where at >= timestamp'2024-05-02 00:00:00'")
            poll(table)
        spark.sql("create or replace table ice.shop.two using iceberg as select 1L as id")
        poll("two")
"""


def test_compaction_is_no_change_and_each_kind_of_delete_is_one(
    spark_jars: Path, tmp_path: Path
) -> None:
    history = [
        "",
        " 2024-05-01:APPEND 2024-05-02:APPEND",
        " 2024-05-01:UPDATE",
        " 2024-05-02:UPDATE",
        "",
        " 2024-05-02:DELETE",
    ]
    assert run_client(CODE, tmp_path, spark_jars, small_settings()) == [
        *(f"two{one}" for one in history),
        *(f"three{one}" for one in history),
        "two :APPEND:RECREATED",
    ]
