"""What a range of a Hive table gives, against SQL over the whole table, as another Spark reads it."""

import datetime as dt
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakechime_dagster.dce.engine import memory_engine, upgrade
from lakechime_dagster.dce.events import (
    EventQuery,
    PartitionEvents,
    Position,
    Seen,
    SnapshotId,
    TableUid,
)
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, SnapshotRange, Verdict
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.formats.hive import HiveLog
from lakechime_dagster.spark.hive import HiveSource
from lakechime_dagster.spark.job import InputJob, TableJob, TableResult
from lakechime_dagster.spark.ranges import RangeRead
from lakechime_dagster.spark.refresh import refresh
from lakechime_dagster.tables.tables import RefreshMode
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId
from lakechime_dagster.triggers.evidence import partition_events
from tests.support.metastore import HiveTable, Metastore
from tests.support.refreshes import open_log, read_rows
from tests.support.spark import run_client, small_settings

pytestmark = [pytest.mark.spark, pytest.mark.tier3]
DAYS = [f"2024-05-0{day}" for day in (1, 2, 3)]
NOWHERE = "__HIVE_DEFAULT_PARTITION__"
COLUMNS = {"id": "bigint", "region": "varchar(10)", "amount": "int"}
SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string()), ("amount", pa.int32())])


def some_rows(*ids: int, region: str = "eu", amount: int = 1) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": one, "region": region, "amount": amount} for one in ids], schema=SCHEMA
    )


@dataclass
class HiveWorld:
    """A Hive table by day, and a store into which its changes are captured."""

    spark: SparkSession
    table: HiveTable
    store: DCEStore = field(default_factory=lambda: DCEStore(memory_engine()))

    def __post_init__(self) -> None:
        upgrade(self.store.engine)
        self.table.create("day date")

    @property
    def log(self) -> HiveLog:
        return HiveLog(
            self.table.metastore.url,
            self.table.name,
            named=PartitionLevels.of({"day": "date"}),
            known=lambda keys: self.store.listing(self.table.name, "", keys),
            lists_all=True,
        )

    def poll(self) -> SnapshotCheckpoint:
        """Capture the changes; the position of the newest event."""
        known = self.store.table(self.table.name)
        seen = (
            Seen(self.table.name, known.table_uid, known.seen)
            if known and known.table_uid and known.seen
            else None
        )
        if seen is None:
            self.store.declare(self.table.name, PartitionLevels.of({"day": "date"}))
        captured = self.log.changes_after(seen)
        self.store.register(captured.events, [captured.seen])
        events = self.store.fetch(EventQuery(table=self.table.name))
        if not events:
            return SnapshotCheckpoint()
        newest = events[-1]
        return SnapshotCheckpoint(
            table_uid=newest.event.table_uid, snapshot_id=SnapshotId(str(newest.position))
        )

    def put(self, day: str, rows: pa.Table) -> None:
        """Add a file to a day, and its partition where there is none."""
        self.table.write(day, rows=rows)
        if not self.has(day):
            self.table.add(day)

    def has(self, day: str) -> bool:
        return any(folder.values == (None if day == NOWHERE else day,) for folder in self.folders)

    @property
    def folders(self) -> list[Any]:
        return [one for found in self.log.stored().folders.values() for one in found]

    def overwrite(self, day: str, rows: pa.Table) -> None:
        for file in self.table.at(day).glob("*.parquet"):
            file.unlink()
        self.put(day, rows)

    def drop(self, day: str) -> None:
        if self.has(day):
            self.table.drop_partition(day)
            for file in self.table.at(day).glob("*.parquet"):
                file.unlink()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows, read by pyarrow from the folders that the metastore names."""
        found = []
        for folder in self.folders:
            for file in Path(folder.location.removeprefix("file:")).glob("*.parquet"):
                day = folder.values[0] and dt.date.fromisoformat(folder.values[0])
                found += [{**row, "day": day} for row in pq.read_table(file).to_pylist()]
        return found

    def events(self, start: str | None, end: str) -> PartitionEvents:
        uid = self.log.uid
        begun = Position.parse(start) if start else Position.ORIGIN
        return partition_events(
            self.store.engine, ("", self.table.name), uid, begun, Position.parse(end)
        )

    def range(self, start: SnapshotCheckpoint, end: SnapshotCheckpoint) -> SnapshotRange:
        assert end.snapshot_id is not None
        return SnapshotRange(
            table=self.table.name,
            table_uid=end.table_uid,
            start=start.snapshot_id,
            end=end.snapshot_id,
            start_uid=start.table_uid,
        )

    def read(self, start: SnapshotCheckpoint, end: SnapshotCheckpoint) -> RangeRead:
        assert end.snapshot_id is not None
        events = self.events(start.snapshot_id, end.snapshot_id)
        return HiveSource(self.spark, self.log, events).read_range(self.range(start, end))


@dataclass
class Target:
    """A target by SQL over the table, and its consumer."""

    world: HiveWorld
    job: TableJob
    checkpoint: SnapshotCheckpoint = SnapshotCheckpoint()
    number: int = 0

    def run(self, end: SnapshotCheckpoint) -> TableResult | None:
        if end == self.checkpoint or end.snapshot_id is None:
            return None
        self.number += 1
        name, start = self.world.table.name, self.checkpoint
        one = InputJob(
            alias="h",
            table=name,
            location="",
            log=self.world.log,
            events=self.world.events(start.snapshot_id, end.snapshot_id),
            range=self.world.range(start, end),
        )
        begun = {name: start} if start.snapshot_id else {}
        result = refresh(
            self.world.spark,
            replace(
                self.job,
                inputs=(one,),
                start=Checkpoint(position=Position(0, self.number - 1), sources=begun),
            ),
            CommitMetadata(
                consumer=ConsumerId("test", self.job.name),
                number=self.number,
                attempt=1,
                execution_id=f"e{self.number}",
                end=Checkpoint(position=Position(0, self.number), sources={name: end}),
            ),
            open_log,
        )
        self.checkpoint = end
        return result

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return read_rows(self.job.location)


def target(world: HiveWorld, name: str, sql: str, **fields: Any) -> Target:
    location = str(world.table.folder / "targets" / name)
    sql = sql.format(h=world.table.name)
    return Target(world, TableJob(name=name, location=location, inputs=(), sql=sql, **fields))


def five_targets(world: HiveWorld) -> list[Target]:
    per_day = "SELECT day, sum(amount) AS amount, count(*) AS rows FROM {h} GROUP BY day"
    per_region = "SELECT region, sum(amount) AS amount FROM {h} GROUP BY region"
    each = "SELECT day, id, region, amount FROM {h}"
    by_day = {"keys": ("day",), "partitioned_by": ("day",), "refresh": RefreshMode.PARTITIONS}
    groups = {"refresh": RefreshMode.AFFECTED_KEYS}
    return [
        target(world, "each", each, keys=("day", "id")),
        target(world, "log", each),
        target(world, "days", per_day, **by_day),
        target(world, "day_keys", per_day, keys=("day",), **groups),
        target(world, "regions", per_region, keys=("region",), **groups),
    ]


def expected(world: HiveWorld) -> list[list[tuple[Any, ...]]]:
    """What the targets hold, computed by Python from the files."""
    rows = world.rows
    each = [(one["day"], one["id"], one["region"], one["amount"]) for one in rows]
    days = sorted({one["day"] for one in rows}, key=repr)
    regions = sorted({one["region"] for one in rows})
    amounts = {day: [one["amount"] for one in rows if one["day"] == day] for day in days}
    per_day = [(day, sum(amounts[day]), len(amounts[day])) for day in days]
    per_region = [
        (region, sum(one["amount"] for one in rows if one["region"] == region))
        for region in regions
    ]
    # a row without a value in its key is quarantined
    keyed = [[row for row in table if row[0] is not None] for table in (each, per_day)]
    tables = [keyed[0], each, keyed[1], keyed[1], per_region]
    return [sorted(table, key=repr) for table in tables]


ACTIONS = st.tuples(
    st.sampled_from(["put", "put", "overwrite", "drop", "empty"]),
    st.sampled_from([*DAYS, NOWHERE]),
    st.sampled_from(["eu", "us"]),
)


@settings(
    max_examples=2,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    history=st.lists(
        st.tuples(st.lists(ACTIONS, min_size=1, max_size=3), st.booleans()), min_size=2, max_size=4
    )
)
def test_targets_are_what_sql_over_the_whole_table_gives(
    spark: SparkSession, metastore: Metastore, history: list[tuple[list[Any], bool]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = HiveWorld(spark, HiveTable(metastore, Path(folder), COLUMNS))
        targets = five_targets(world)
        del targets[3]  # it is refreshed as days are
        number = 0
        for actions, runs_early in history:
            for action, day, region in actions:
                number += 1
                rows = some_rows(number, 100 + number, region=region, amount=number)
                match action:
                    case "put":
                        world.put(day, rows)
                    case "overwrite":
                        world.overwrite(day, rows)
                    case "empty":
                        world.overwrite(day, rows.slice(0, 0))
                    case _:
                        world.drop(day)
            end = world.poll()
            if runs_early and end.snapshot_id:
                # of a partition of which no event speaks yet
                world.put(DAYS[number % 3], some_rows(1000 + number))
            for one in targets:
                one.run(end)
        end = world.poll()
        for one in targets:
            one.run(end)
        if end.snapshot_id is not None:
            found = expected(world)
            assert [one.rows for one in targets] == [*found[:3], found[4]]


@pytest.fixture
def world(spark: SparkSession, metastore: Metastore, tmp_path: Path) -> HiveWorld:
    return HiveWorld(spark, HiveTable(metastore, tmp_path, COLUMNS))


def test_how_each_target_is_refreshed(world: HiveWorld) -> None:
    targets = five_targets(world)
    actions: list[Callable[[], object]] = [
        lambda: world.put(DAYS[0], some_rows(1, 2)),
        lambda: world.put(DAYS[1], some_rows(3, region="us")),
        lambda: world.put(DAYS[0], some_rows(4)),
        lambda: world.overwrite(DAYS[0], some_rows(5)),
        lambda: world.drop(DAYS[1]),
    ]
    replaced: dict[str, list[bool]] = {one.job.name: [] for one in targets}
    for act in actions:
        act()
        end = world.poll()
        for one in targets:
            result = one.run(end)
            assert result is not None
            replaced[one.job.name].append(result.replaced)
        assert [one.rows for one in targets] == expected(world)
    assert {name: found[1:] for name, found in replaced.items()} == {
        "each": [False, False, False, False],
        "log": [False, True, True, True],
        "days": [False, False, False, False],
        "day_keys": [False, False, False, False],
        "regions": [False, False, True, True],
    }


def test_partitions_of_another_format_are_read_by_their_own(world: HiveWorld) -> None:
    world.put(DAYS[0], some_rows(1))
    world.table.add(DAYS[1])
    orc.write_table(some_rows(2), str(world.table.at(DAYS[1]) / "part.orc"))
    with world.table.metastore.client() as client:
        partition: Any = client.get_partition(world.table.database, "h", [DAYS[1]])
        partition.sd.serdeInfo.serializationLib = "org.apache.hadoop.hive.ql.io.orc.OrcSerde"
        client.alter_partition(world.table.database, "h", partition)
    end = world.read(SnapshotCheckpoint(), world.poll()).end
    assert sorted((row["id"], str(row["day"])) for row in end.collect()) == [
        (1, DAYS[0]),
        (2, DAYS[1]),
    ]


def test_a_partition_without_an_event_is_not_read_yet(world: HiveWorld) -> None:
    world.put(DAYS[0], some_rows(1))
    first = world.poll()
    world.put(DAYS[1], some_rows(2))
    start = SnapshotCheckpoint(table_uid=first.table_uid, snapshot_id=SnapshotId("0-0"))
    assert world.read(start, first).end.count() == 1
    read = world.read(first, world.poll())
    assert read.changes is not None
    assert (read.end.count(), read.changes.count(), read.only_appends) == (2, 1, True)


def test_what_does_not_join_is_read_whole_and_says_why(world: HiveWorld) -> None:
    world.put(DAYS[0], some_rows(1))
    first = world.poll()
    world.put(DAYS[0], some_rows(2))
    second = world.poll()
    put_back = world.read(second, first)
    assert (put_back.verdict, put_back.must_replace) == (Verdict.ROLLBACK, True)
    other = replace(first, table_uid=TableUid("hive-1"))
    recreated = world.read(other, second)
    assert (recreated.verdict, recreated.must_replace) == (Verdict.RECREATED, True)
    claimed = world.read(other, other)
    assert (claimed.verdict, claimed.end.count()) == (Verdict.RECREATED, 2)


def test_the_metastore_says_what_the_columns_are(world: HiveWorld, tmp_path: Path) -> None:
    world.put(DAYS[0], some_rows(1).drop_columns(["amount"]))
    world.put(NOWHERE, some_rows(2))
    world.table.add(DAYS[1], at=tmp_path / "far" / "a%3Ab")
    pq.write_table(some_rows(3), tmp_path / "far" / "a%3Ab" / "part.parquet")
    world.put(DAYS[2], some_rows(4))
    (world.table.at(DAYS[2]) / "gone").mkdir()
    end = world.read(SnapshotCheckpoint(), world.poll()).end
    assert dict(end.dtypes) == {**COLUMNS, "region": "string", "day": "date"}
    for file in [*world.table.at(DAYS[2]).iterdir()]:
        file.rmdir() if file.is_dir() else file.unlink()
    world.table.at(DAYS[2]).rmdir()
    end = world.read(SnapshotCheckpoint(), world.poll()).end
    assert sorted(tuple(row) for row in end.select("id", "amount", "day").collect()) == [
        (1, None, dt.date(2024, 5, 1)),
        (2, 1, None),
        (3, 1, dt.date(2024, 5, 2)),
    ]


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
