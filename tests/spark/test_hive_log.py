"""What Spark does to Hive tables, as events, most of which leave nothing in the metastore."""

from pathlib import Path

import pytest

from tests.support.metastore import Metastore
from tests.support.spark import run_client, small_settings

pytestmark = [pytest.mark.spark, pytest.mark.tier3]

CODE = """
    from lakechime_dagster.formats.hive import HiveLog

    seen, listings = {}, {}

    def poll(table):
        listing = listings.setdefault(table, {})
        log = HiveLog("METASTORE", f"spark_shop.{table}", known=lambda keys: listing, lists_all=True)
        captured = log.changes_after(seen.get(table))
        seen[table] = captured.seen
        listing.update(captured.seen.listing)
        for key in [key for key, files in listing.items() if files is None]:
            del listing[key]
        say(table, *(f"{one.partition and one.partition[0]}:{one.operation_type}" for one in captured.events))

    with open_here() as driver:
        spark = driver.spark
        spark.sql(f"create database spark_shop location '{home}/shop'")
        created = {
            "native": "(id bigint, day date) using parquet partitioned by (day)",
            "serde": "(id bigint) partitioned by (day date) stored as textfile",
        }
        for table, columns in created.items():
            name = f"spark_shop.{table}"
            spark.sql(f"create table {name} {columns}")
            poll(table)
            for day in (1, 2):
                spark.sql(f"insert into {name} partition (day = '2024-05-0{day}') values (1)")
            poll(table)
            spark.sql(f"insert into {name} partition (day = '2024-05-01') values (2)")
            poll(table)
            spark.sql(f"insert overwrite {name} partition (day = '2024-05-02') values (3)")
            poll(table)
            spark.sql(f"analyze table {name} partition (day) compute statistics")
            poll(table)
            spark.sql(f"truncate table {name} partition (day = '2024-05-01')")
            poll(table)
            spark.sql(f"alter table {name} drop partition (day = '2024-05-02')")
            poll(table)
        spark.sql("create table spark_shop.whole (id bigint) using parquet")
        poll("whole")
        spark.sql("insert into spark_shop.whole values (1)")
        poll("whole")
        spark.sql("insert overwrite spark_shop.whole values (2)")
        poll("whole")
"""


def test_each_write_is_an_event_and_statistics_are_none(
    metastore: Metastore, spark_jars: Path, tmp_path: Path
) -> None:
    settings = small_settings(
        conf={
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": metastore.url,
        }
    )
    history = [
        "",
        " 2024-05-01:APPEND 2024-05-02:APPEND",
        " 2024-05-01:APPEND",
        " 2024-05-02:UPDATE",
        "",
        " 2024-05-01:DELETE",
        " 2024-05-02:DELETE",
    ]
    code = CODE.replace("METASTORE", metastore.url)
    assert run_client(code, tmp_path, spark_jars, settings) == [
        *(f"native{one}" for one in history),
        *(f"serde{one}" for one in history),
        "whole",
        "whole None:APPEND",
        "whole None:UPDATE",
    ]
