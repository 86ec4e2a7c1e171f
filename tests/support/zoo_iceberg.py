"""Shapes of statements on Iceberg tables, which Spark itself rewrites; as a program it makes the
dumps again that plain tests read.

`python -m tests.support.zoo_iceberg` executes each for tables that write changed files again, and
for those that write what changed.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from lakechime_dagster.lineage.spark import Dump, watched
from lakechime_dagster.spark.driver import open_driver
from tests.support.spark import REPOSITORY, small_settings
from tests.support.zoo import Tables
from tests.support.zoo_dumps import empty_tables, keep, placed
from tests.support.zoo_writes import MERGES, STATEMENTS, TARGET

MODES = ("copy-on-write", "merge-on-read")
LIKE_DELTA = (
    "merge_star",
    "merge_some_columns",
    "merge_with_conditions",
    "merge_not_matched_by_source",
    "merge_deletes",
    "merge_from_itself",
    "merge_with_evolution",
    "merge_field_of_a_struct",
    "merge_never_matching",
    "merge_grouped",
    "update_where",
    "update_all",
    "delete_where",
    "delete_all",
)
"""What Delta tables are written by too."""

ROWS = "id int not null, amount int not null, day string"
OWN: dict[str, str] = {
    "merge_two_inserts": """
        merge into target t using orders s on t.id = s.person and t.amount < s.amount
        when not matched and s.id > 3 then insert (id, day) values (s.person, upper(s.day))
        when not matched then insert (id, amount) values (s.person, s.amount)""",
    "merge_one_insert": """
        merge into target t using orders s on t.id = s.person
        when not matched and s.amount > 3 then insert (id, name) values (s.person, uuid())""",
    "merge_of_rows_of_a_day": """
        merge into target t using orders s on t.id = s.person and t.day > '1' when matched then update set amount = s.amount""",
    "merge_of_columns_without_nulls": """
        merge into required t using orders s on t.id = s.person when matched then update set amount = s.amount, day = t.day
        when not matched then insert (id, amount) values (s.person, 1)""",
    "update_where_others_say": """
        update target set amount = (select max(amount) from orders), name = 'x' where id in (select id from people where boss = 1)""",
    "update_by_a_condition": "update target set amount = if(id > 3, id, amount), day = day where name is null",
    "update_of_numbered_rows": "update numbered set day = 'x', amount = id where amount > 1",
    "delete_where_others_say": (
        "delete from target as t where exists (select 1 from orders o where o.person = t.id) and "
        "amount > 3"
    ),
    "delete_never": "delete from target where false",
    "truncate": "truncate table target",
    "insert_rows_that_are_not_there": (
        "insert into target (id) select s.person from orders s left anti join target t on s.person "
        "= t.id"
    ),
}
"""`required` has columns that are never null, and the rows of `numbered` keep a number."""


def statements() -> dict[str, str]:
    """All statements, by the shape's name."""
    return {name: (MERGES | STATEMENTS)[name] for name in LIKE_DELTA} | OWN


def make_tables(tables: Tables, folder: str, mode: str) -> None:
    """Empty tables of a catalog in this folder, which becomes the session's, and the zoo's tables
    as views.
    """
    spark = tables.spark
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": folder,
    }.items():
        spark.conf.set(f"spark.sql.catalog.ice{key}", value)
    spark.sql("create namespace if not exists ice.zoo")
    spark.sql("use ice.zoo")
    modes = ", ".join(
        f"'write.{command}.mode' = '{mode}'" for command in ("merge", "update", "delete")
    )
    for name, columns, version in (
        ("target", TARGET, 2),
        ("required", ROWS, 2),
        ("numbered", ROWS, 3),
    ):
        spark.sql(f"drop table if exists {name}")
        spark.sql(
            f"create table {name} ({columns}) using iceberg tblproperties ({modes}, "
            f"'format-version' = '{version}')"
        )
    for name, frame in (
        ("orders", tables.orders),
        ("people", tables.people),
        ("visits", tables.visits),
    ):
        frame.createOrReplaceTempView(name)


def statement_dumps(spark: SparkSession, folder: str, mode: str) -> Mapping[str, list[Dump]]:
    """The dumps of each statement, which is executed."""
    tables = empty_tables(spark)
    found = {}
    for name, statement in statements().items():
        make_tables(tables, folder, mode)
        with watched(spark) as dumps:
            spark.sql(statement)
        found[name] = [placed(dump, folder) for dump in dumps]
    return found


def main() -> None:
    extensions = "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    conf = {"spark.sql.extensions": extensions}
    with (
        tempfile.TemporaryDirectory() as home,
        open_driver(
            small_settings(conf=conf), Path(home), jars=REPOSITORY / ".lakechime" / "jars"
        ) as driver,
    ):
        for mode in MODES:
            keep(mode, statement_dumps(driver.spark, f"{home}/tables", mode))


if __name__ == "__main__":
    main()
