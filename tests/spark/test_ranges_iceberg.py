"""What a range of an Iceberg table gives, against a count of the rows that Spark reads at both
ends.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table
from pyiceberg.types import StringType
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotRange, Verdict
from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.formats.iceberg import IcebergLog
from lakechime_dagster.spark.iceberg import IcebergSource
from lakechime_dagster.spark.ranges import CHANGE, RangeRead, ReadMethod, net_changes
from tests.support.iceberg import BY_DAY, IcebergWorld, rows
from tests.support.spark import run_client, small_settings

pytestmark = pytest.mark.spark
Row = tuple[Any, ...]
NAME = "bronze.ice"
_numbers = itertools.count()


@dataclass
class SparkTable:
    """A table that Spark writes in a catalog of folders, registered in pyiceberg's after each
    commit.
    """

    spark: SparkSession
    world: IcebergWorld
    folder: Path
    catalog: str = field(default_factory=lambda: f"ice{next(_numbers)}")

    def __post_init__(self) -> None:
        settings = {"": "SparkCatalog", ".type": "hadoop", ".warehouse": str(self.folder)}
        for key, value in settings.items():
            text = f"org.apache.iceberg.spark.{value}" if not key else value
            self.spark.conf.set(f"spark.sql.catalog.{self.catalog}{key}", text)
        self.world.catalog.create_namespace_if_not_exists("bronze")

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(table=f"{self.catalog}.{NAME}"))
        metadata = self.folder / "bronze" / "ice" / "metadata"
        version = (metadata / "version-hint.text").read_text().strip()
        if self.world.catalog.table_exists(NAME):
            self.world.catalog.drop_table(NAME)
        self.world.catalog.register_table(NAME, str(metadata / f"v{version}.metadata.json"))

    def create(self, version: int, mode: str) -> None:
        modes = ", ".join(f"'write.{verb}.mode' = '{mode}'" for verb in ("delete", "update"))
        self.sql(
            "create table {table} (p int, k bigint, v string) using iceberg partitioned by (p) "
            f"tblproperties ('format-version' = '{version}', {modes})"
        )
        self.sql("insert into {table} select id % 3, id, 'old' from range(6)")


ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2)),
    st.tuples(st.just("update"), st.integers(0, 5)),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("replace"), st.integers(0, 2)),
    st.tuples(st.just("compact"), st.none()),
)


def play(table: SparkTable, actions: list[tuple[str, Any]]) -> None:
    for at, (action, one) in enumerate(actions):
        new = f"select cast({one} as int) p, {100 + at}L k, 'new' v"
        match action:
            case "append":
                table.sql(f"insert into {{table}} {new}")
            case "update":
                table.sql(f"update {{table}} set v = 'changed {at}' where k % 6 = {one}")
            case "delete":
                table.sql(f"delete from {{table}} where k % 6 = {one}")
            case "replace":
                frame = table.spark.sql(new)
                frame.writeTo(f"{table.catalog}.{NAME}").overwrite(F.col("p") == one)
                table.sql("alter table {table} set tblproperties ('touched' = 'true')")
            case _:
                table.sql(
                    f"call {table.catalog}.system.rewrite_data_files("
                    f"table => '{NAME}', options => map('rewrite-all', 'true'))"
                )


def snapshots(world: IcebergWorld) -> list[SnapshotId]:
    table = world.catalog.load_table(NAME)
    return [SnapshotId(str(one.snapshot_id)) for one in table.history()]


def between(world: IcebergWorld, start: SnapshotId | None, end: SnapshotId) -> SnapshotRange:
    uid = IcebergLog(world.properties, NAME).uid
    return SnapshotRange(table=NAME, table_uid=uid, start=start, end=end, start_uid=uid)


def source_of(spark: SparkSession, world: IcebergWorld) -> IcebergSource:
    return IcebergSource(spark, IcebergLog(world.properties, NAME))


def images(read: RangeRead) -> Counter[Row]:
    """Per row, how many more there are at the end than at the start."""
    assert read.changes is not None
    total: Counter[Row] = Counter()
    for row in read.changes.select(*read.end.columns, CHANGE).collect():
        total[tuple(row)[:-1]] += row[CHANGE]
    return Counter({row: count for row, count in total.items() if count})


def read_at(source: IcebergSource, snapshot: SnapshotId) -> list[Row]:
    return [tuple(row) for row in source.read_snapshot(snapshot)[0].collect()]


def applied(source: IcebergSource, start: SnapshotId, read: RangeRead) -> list[Row]:
    """The rows of the start with the net changes by key put on them."""
    assert read.changes is not None
    upserts, deletes = net_changes(read.changes, ["k"])
    state = {row[1]: row for row in read_at(source, start)}
    for row in deletes.collect():
        state.pop(row["k"], None)
    state |= {row["k"]: (row["p"], row["k"], row["v"]) for row in upserts.collect()}
    return sorted(state.values(), key=repr)


@pytest.mark.parametrize(
    ("version", "mode"), [(2, "copy-on-write"), (2, "merge-on-read"), (3, "merge-on-read")]
)
@settings(
    max_examples=2,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(actions=st.lists(ACTIONS, min_size=3, max_size=6), data=st.data())
def test_the_images_of_any_range_are_the_difference_of_its_ends(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    version: int,
    mode: str,
    actions: list[tuple[str, Any]],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("ice")
    world = IcebergWorld.within(folder)
    table = SparkTable(spark, world, folder / "ice")
    table.create(version, mode)
    play(table, [("append", 0), *actions])
    found = snapshots(world)
    end = data.draw(st.integers(1, len(found) - 1), label="end")
    start = data.draw(st.integers(0, end - 1), label="start")
    source = source_of(spark, world)
    read = source.read_range(between(world, found[start], found[end]))
    assert read.verdict.is_incremental
    assert read.method is not ReadMethod.WHOLE
    now, before = Counter(read_at(source, found[end])), Counter(read_at(source, found[start]))
    assert images(read) == Counter(
        {row: now[row] - before[row] for row in now | before if now[row] != before[row]}
    )
    assert applied(source, found[start], read) == sorted(now, key=repr)


@pytest.fixture
def world(tmp_path: Path) -> IcebergWorld:
    return IcebergWorld.within(tmp_path)


@pytest.fixture
def merge_on_read(spark: SparkSession, world: IcebergWorld, tmp_path: Path) -> SparkTable:
    """A table in which rows are deleted by files of deletes."""
    table = SparkTable(spark, world, tmp_path / "ice")
    table.create(2, "merge-on-read")
    return table


def written(world: IcebergWorld, *days: int) -> Table:
    """A table to which pyiceberg appends a row for each of these days, one commit each."""
    table = world.create(BY_DAY)
    for day in days:
        table.append(rows(day))
    return table


def test_appends_are_read_from_their_files_and_compaction_is_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = IcebergWorld.within(tmp_path)
    table = SparkTable(spark, world, tmp_path / "ice")
    table.create(2, "copy-on-write")
    play(table, [("append", 1), ("append", 2), ("compact", None)])
    first, _, third, compacted = snapshots(world)
    source = source_of(spark, world)
    appends = source.read_range(between(world, first, third))
    compaction = source.read_range(between(world, third, compacted))
    whole = source.read_range(between(world, None, third))
    assert (appends.method, appends.only_appends) == (ReadMethod.LOG_FILES, True)
    assert sorted(images(appends)) == [(1, 100, "new"), (2, 101, "new")]
    assert (compaction.method, compaction.verdict) == (ReadMethod.NOTHING, Verdict.GAP_FILLED)
    assert (whole.is_first, whole.end.count()) == (True, 8)


def test_what_does_not_join_is_read_whole_and_says_why(
    spark: SparkSession, world: IcebergWorld
) -> None:
    table = written(world, 1, 2, 3)
    first, second, third = snapshots(world)
    table.manage_snapshots().set_current_snapshot(int(first)).commit()
    table.append(rows(4))
    fourth = snapshots(world)[-1]
    source = source_of(spark, world)
    branched = source.read_range(between(world, third, fourth))
    put_back = source.read_range(between(world, third, second))
    assert (branched.verdict, branched.must_replace) == (Verdict.BRANCHED, True)
    assert sorted(row["id"] for row in branched.end.select("id").collect()) == [1, 4]
    assert (put_back.verdict, put_back.must_replace) == (Verdict.ROLLBACK, True)


def test_an_expired_end_is_read_at_the_newest_snapshot(
    spark: SparkSession, world: IcebergWorld
) -> None:
    table = written(world, 1, 2, 3)
    first, second, third = snapshots(world)
    table.maintenance.expire_snapshots().by_ids([int(second)]).commit()
    source = source_of(spark, world)
    read = source.read_range(between(world, first, second))
    assert (read.verdict, read.snapshot, read.must_replace) == (Verdict.EXPIRED, third, True)
    with pytest.raises(TableUnreadableError, match=f"no longer has snapshot {second}"):
        source.read_snapshot(second)


def test_a_table_that_was_made_again_under_its_name_is_read_whole(
    spark: SparkSession, world: IcebergWorld
) -> None:
    written(world, 1)
    (first,) = snapshots(world)
    claimed = between(world, None, first)
    world.catalog.drop_table(NAME)
    written(world, 7)
    read = source_of(spark, world).read_range(claimed)
    assert (read.verdict, read.must_replace) == (Verdict.RECREATED, True)
    assert [row["id"] for row in read.end.select("id").collect()] == [7]


def test_a_column_added_within_the_range_is_null_before(
    spark: SparkSession, world: IcebergWorld
) -> None:
    table = written(world, 1, 2)
    start = snapshots(world)[-1]
    with table.update_schema() as update:
        update.add_column("note", table.schema().find_field("region").field_type)
    table.append(rows(3).append_column("note", pa.array(["new"])))
    table.delete("id = 1")
    read = source_of(spark, world).read_range(between(world, start, snapshots(world)[-1]))
    found = {(row["id"], row["note"], row[CHANGE]) for row in changes_of(read)}
    assert found == {(3, "new", 1), (1, None, -1)}


def changes_of(read: RangeRead) -> Iterator[Any]:
    assert read.changes is not None
    return iter(read.changes.collect())


def test_a_column_renamed_within_the_range_leads_to_a_whole_read(
    spark: SparkSession, merge_on_read: SparkTable
) -> None:
    table, world = merge_on_read, merge_on_read.world
    (start,) = snapshots(world)
    table.sql("delete from {table} where k = 1")
    table.sql("alter table {table} rename column v to w")
    table.sql("insert into {table} select 0, 9, 'new'")
    read = source_of(spark, world).read_range(between(world, start, snapshots(world)[-1]))
    assert (read.verdict, read.must_replace) == (Verdict.EXPIRED, True)


def test_deletes_that_go_within_the_range_are_read_too(
    spark: SparkSession, merge_on_read: SparkTable
) -> None:
    table, world = merge_on_read, merge_on_read.world
    table.sql("delete from {table} where k = 1")
    start = snapshots(world)[-1]
    table.sql("delete from {table} where p = 1")
    read = source_of(spark, world).read_range(between(world, start, snapshots(world)[-1]))
    assert images(read) == {(1, 4, "old"): -1}


def test_a_nested_field_added_within_the_range_leads_to_a_whole_read(
    spark: SparkSession, merge_on_read: SparkTable
) -> None:
    table, world = merge_on_read, merge_on_read.world
    table.sql("alter table {table} add column st struct<a: int>")
    table.sql("insert into {table} select 0, 9, 'new', named_struct('a', 1)")
    start = snapshots(world)[-1]
    table.sql("alter table {table} add column st.b int")
    table.sql("delete from {table} where k = 1")
    read = source_of(spark, world).read_range(between(world, start, snapshots(world)[-1]))
    assert (read.verdict, read.must_replace) == (Verdict.EXPIRED, True)


def test_a_column_made_again_after_the_range_leads_to_a_whole_read(
    spark: SparkSession, world: IcebergWorld
) -> None:
    table = written(world, 1, 2)
    start, end = snapshots(world)
    with table.update_schema() as update:
        update.delete_column("region")
    with table.update_schema() as update:
        update.add_column("region", StringType())
    read = source_of(spark, world).read_range(between(world, start, end))
    assert (read.verdict, read.must_replace) == (Verdict.EXPIRED, True)
    assert {row["region"] for row in read.end.select("region").collect()} == {"eu"}


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
