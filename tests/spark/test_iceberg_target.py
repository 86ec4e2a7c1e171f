"""Who wins where several write one Iceberg table, and what becomes of its columns."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.dce.events import Position
from lakechime_dagster.errors import ConsumerConflictError, DeclarationError, InvalidValueError
from lakechime_dagster.formats.iceberg import IcebergLog
from lakechime_dagster.spark.commit import commit
from lakechime_dagster.spark.iceberg import IcebergSource, IcebergTarget, catalog_confs
from lakechime_dagster.spark.job import Outcome
from lakechime_dagster.tables.tables import RefreshMode
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId
from tests.support.iceberg import IcebergWorld
from tests.support.refreshes import Source, Subscription, make_subscription

pytestmark = [pytest.mark.spark, pytest.mark.tier2]
ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
CONSUMER = ConsumerId("test", "subscription")


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session of its own, since one keeps the first catalog that it gets under a name."""
    return spark.newSession()


def iceberg_subscription(
    spark: SparkSession, folder: Path, sql: str = "SELECT * FROM orders", **fields: Any
) -> tuple[Subscription, Source]:
    """A subscription of a Delta table that writes `shop.orders`."""
    source = Source(folder / "orders", ORDERS)
    log = IcebergLog(IcebergWorld.within(folder).properties, "shop.orders")
    return make_subscription(spark, folder, {"orders": source}, sql=sql, log=log, **fields), source


def table_of(subscription: Subscription) -> Table:
    assert isinstance(subscription.job.log, IcebergLog)
    return IcebergWorld(dict(subscription.job.log.catalog)).catalog.load_table("shop.orders")


def test_a_second_attempt_at_an_execution_writes_nothing_and_a_late_one_is_refused(
    session: SparkSession, tmp_path: Path
) -> None:
    subscription, source = iceberg_subscription(session, tmp_path, keys=("id",))
    source.write((1, 10))
    first, _ = subscription.attempt(1, 1)
    again, _ = subscription.attempt(1, 2)
    assert (first.outcome, again.outcome) == (Outcome.COMMITTED, Outcome.SKIPPED)
    assert again.committed == first.committed
    subscription.attempt(3, 1, may_complete_empty=False)
    with pytest.raises(ConsumerConflictError, match="is too late"):
        subscription.attempt(2, 1)
    assert len(table_of(subscription).history()) == 2


def test_an_attempt_with_nothing_to_do_leaves_no_snapshot_and_a_later_one_a_fence(
    session: SparkSession, tmp_path: Path
) -> None:
    subscription, source = iceberg_subscription(session, tmp_path, keys=("id",))
    source.write((1, 10))
    subscription.run()
    source.write((1, 10))
    idle = subscription.run()
    fence = subscription.run(may_complete_empty=False)
    assert (idle.outcome, fence.outcome) == (Outcome.NOTHING, Outcome.FENCED)
    assert len(table_of(subscription).history()) == 2
    assert subscription.rows == [(1, 10)]


def test_a_write_that_another_overtook_is_compared_again(
    session: SparkSession, tmp_path: Path
) -> None:
    subscription, source = iceberg_subscription(session, tmp_path, keys=("id",))
    source.write((1, 10))
    subscription.run()
    log = subscription.job.log
    assert isinstance(log, IcebergLog)
    target = IcebergTarget(name="orders", log=log, keys=("id",))
    metadata = CommitMetadata(
        consumer=ConsumerId("test", "other"),
        number=1,
        attempt=1,
        execution_id="other",
        end=Checkpoint(position=Position(0, 9)),
    )
    compared: list[int] = []

    def prepare() -> Any:
        rows: DataFrame = session.sql("select 7L as id, 70L as amount")
        compared.append(target.read(session).count())
        if len(compared) == 1:
            table_of(subscription).append(pa.table({"id": [2], "amount": [20]}, schema=ORDERS))
        return lambda: target.append(rows)

    committed = commit(session, target, metadata, prepare)
    assert compared == [1, 2]
    assert subscription.rows == [(1, 10), (2, 20), (7, 70)]
    assert committed == log.committed(metadata.consumer, 1) == log.last_committed(metadata.consumer)
    assert len(table_of(subscription).history()) == 3


def test_changed_rows_are_written_as_is_declared(session: SparkSession, tmp_path: Path) -> None:
    subscription, source = iceberg_subscription(session, tmp_path, keys=("id",))
    source.write((1, 10), (2, 20))
    subscription.run()
    files = []
    for amount, mode in enumerate([None, "merge-on-read", "copy-on-write"]):
        source.write((1, amount))
        subscription.run(write_mode=mode)
        summary = table_of(subscription).snapshots()[-1].summary
        assert summary is not None
        files.append(summary.additional_properties.get("added-delete-files", "0"))
        assert subscription.rows == [(1, amount), (2, 20)]
    assert files == ["0", "1", "0"]


def test_new_columns_are_added_and_a_replaced_table_has_the_columns_of_its_rows(
    session: SparkSession, tmp_path: Path
) -> None:
    subscription, source = iceberg_subscription(session, tmp_path, keys=("id",))
    source.write((1, 10), (2, 20))
    subscription.run()
    source.write((3, 30))
    subscription.run(sql="SELECT id, amount, named_struct('a', 1) AS more FROM orders")
    source.write((4, 40))
    subscription.run(sql="SELECT id, amount, named_struct('a', 1, 'b', 'x') AS more FROM orders")
    assert subscription.rows == [
        (1, 10, None),
        (2, 20, None),
        (3, 30, {"a": 1, "b": None}),
        (4, 40, {"a": 1, "b": "x"}),
    ]
    source.write((5, 50))
    replaced = subscription.run(
        sql="SELECT id, string(amount) AS amount FROM orders", refresh=RefreshMode.FULL
    )
    assert (replaced.replaced, replaced.schema) == (True, (("id", "bigint"), ("amount", "string")))
    assert subscription.rows == [(number, str(10 * number)) for number in range(1, 6)]
    log = subscription.job.log
    assert isinstance(log, IcebergLog)
    rows, snapshot = IcebergSource(session, log).read_snapshot(None)
    assert (sorted(map(tuple, rows.collect())), rows.columns) == (
        subscription.rows,
        ["id", "amount"],
    )
    again = subscription.run(
        sql="SELECT id, string(amount) AS amount FROM orders", refresh=RefreshMode.FULL
    )
    assert (again.outcome, log.newest) == (Outcome.NOTHING, snapshot)


def test_a_replacement_that_does_not_become_current_changes_nothing_that_readers_see(
    session: SparkSession, tmp_path: Path
) -> None:
    subscription, source = iceberg_subscription(session, tmp_path, refresh=RefreshMode.FULL)
    source.write((1, 10))
    subscription.run()
    log = subscription.job.log
    assert isinstance(log, IcebergLog)
    before = log.newest
    columns = log.widen(pa.schema([("id", pa.int64()), ("amount", pa.string())]), replaces=True)
    assert subscription.rows == [(1, 10, None)]
    assert (columns["id"], columns["amount"] == "amount") == ("id", False)
    source.write((2, 20))
    subscription.run(sql="SELECT id, string(amount) AS Amount FROM orders")
    assert subscription.rows == [(1, "10"), (2, "20")]
    assert table_of(subscription).scan(snapshot_id=int(before)).to_arrow().to_pylist() == [
        {"id": 1, "amount": 10}
    ]


def test_rows_of_any_shape_are_replaced_and_added_again(
    session: SparkSession, tmp_path: Path
) -> None:
    sql = """
        SELECT id, array('a') AS list, map('k', id) AS map, named_struct('first-name', 'x') AS named,
               current_date() AS loaded, 'eu' AS region, CAST(id AS SMALLINT) AS small,
               CAST(id AS DECIMAL(9, 2)) AS paid, X'00' AS raw
        FROM orders
    """
    subscription, source = iceberg_subscription(session, tmp_path, sql, refresh=RefreshMode.FULL)
    source.write((1, 10))
    subscription.run()
    fields = table_of(subscription).schema().fields
    source.write((2, 20))
    subscription.run(always_write=True)
    assert [row[0] for row in subscription.rows] == [1, 2]
    assert table_of(subscription).schema().fields == fields


def test_a_column_in_other_letters_is_the_column(session: SparkSession, tmp_path: Path) -> None:
    subscription, source = iceberg_subscription(session, tmp_path)
    source.write((1, 10))
    subscription.run()
    source.write((2, 20))
    subscription.run(sql="SELECT id, amount AS Amount FROM orders")
    assert subscription.rows == [(1, 10), (2, 20)]


def test_a_partition_column_of_another_type_is_refused_with_a_remedy(
    session: SparkSession, tmp_path: Path
) -> None:
    subscription, source = iceberg_subscription(
        session, tmp_path, refresh=RefreshMode.FULL, partitioned_by=("amount",)
    )
    source.write((1, 10))
    subscription.run()
    with pytest.raises(DeclarationError, match="drop the table to make it again"):
        subscription.run(sql="SELECT id, string(amount) AS amount FROM orders", always_write=True)
    assert subscription.rows == [(1, 10)]


def test_a_table_that_others_made_is_written_by_staging_too(
    session: SparkSession, tmp_path: Path
) -> None:
    subscription, source = iceberg_subscription(session, tmp_path)
    IcebergWorld.within(tmp_path).fill("shop.orders", pa.table({"id": [0], "amount": [0]}, ORDERS))
    source.write((1, 10))
    assert subscription.run().outcome is Outcome.COMMITTED
    assert subscription.rows == [(0, 0), (1, 10)]


def test_the_newest_commit_of_a_consumer_outlives_its_snapshot(
    session: SparkSession, tmp_path: Path
) -> None:
    subscription, source = iceberg_subscription(session, tmp_path)
    source.write((1, 10))
    committed = subscription.run().committed
    table = table_of(subscription)
    table.append(pa.table({"id": [5], "amount": [50]}, ORDERS))
    table.maintenance.expire_snapshots().by_ids([table.history()[0].snapshot_id]).commit()
    log = subscription.job.log
    assert isinstance(log, IcebergLog)
    assert log.committed(CONSUMER, 1) == log.last_committed(CONSUMER) == committed
    source.write((2, 20))
    assert not subscription.run(has_committed=True).replaced
    assert subscription.rows == [(1, 10), (2, 20), (5, 50)]


def test_files_hold_no_bounds_of_personal_columns(session: SparkSession, tmp_path: Path) -> None:
    subscription, source = iceberg_subscription(
        session,
        tmp_path,
        "SELECT id, amount, named_struct('mail', 'ann@x.org') AS who FROM orders",
        keys=("id",),
        personal=("Amount", "who"),
    )
    source.write((1, 10))
    subscription.run()
    table = table_of(subscription)
    (task,) = table.scan().plan_files()
    names = [table.schema().find_column_name(one) for one in task.file.upper_bounds]
    assert names == ["id"]


@pytest.mark.parametrize(
    ("properties", "confs"),
    [
        (
            {
                "type": "sql",
                "uri": "postgresql+psycopg://ann:p%40ss@db:5433/lake",
                "warehouse": "/w",
            },
            {
                "type": "jdbc",
                "uri": "jdbc:postgresql://db:5433/lake",
                "jdbc.user": "ann",
                "jdbc.password": "p@ss",
                "jdbc.schema-version": "V1",
                "warehouse": "/w",
            },
        ),
        (
            {"type": "sql", "uri": "sqlite:////srv/ice.sqlite"},
            {"uri": "jdbc:sqlite:/srv/ice.sqlite"},
        ),
        ({"type": "rest", "uri": "https://c"}, {"type": "rest", "uri": "https://c"}),
        ({"type": "hive", "uri": "thrift://m:9083"}, {"type": "hive", "uri": "thrift://m:9083"}),
    ],
)
def test_spark_finds_the_catalog_of_the_setting(
    properties: dict[str, str], confs: dict[str, str]
) -> None:
    found = catalog_confs(properties)
    assert {f"spark.sql.catalog.lakechime.{name}": text for name, text in confs.items()} == {
        name: text
        for name, text in found.items()
        if name.removeprefix("spark.sql.catalog.lakechime.") in confs
    }


def test_a_database_that_spark_cannot_reach_is_named() -> None:
    with pytest.raises(InvalidValueError, match="mysql"):
        catalog_confs({"type": "sql", "uri": "mysql://db/lake"})
