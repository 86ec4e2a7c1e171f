"""Computed tables in Iceberg catalogs that servers have, REST and Hive: Spark writes them with the
catalog of the setting, and reads what others wrote there.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.dce.events import OperationType, Position
from lakechime_dagster.dce.snapshots import SnapshotRange
from lakechime_dagster.errors import ConsumerConflictError
from lakechime_dagster.formats.iceberg import IcebergLog
from lakechime_dagster.spark.commit import commit
from lakechime_dagster.spark.iceberg import IcebergSource, IcebergTarget, catalog_confs
from lakechime_dagster.spark.job import Outcome
from lakechime_dagster.spark.ranges import ReadMethod
from lakechime_dagster.spark.session import session_confs
from lakechime_dagster.tables.tables import RefreshMode
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId
from tests.support.iceberg import BY_DAY, IcebergWorld, rows
from tests.support.refreshes import Source, Subscription, make_subscription

pytestmark = pytest.mark.spark
ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.int64())])


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session of its own, since one keeps the first catalog that it gets under a name."""
    return spark.newSession()


@pytest.fixture
def log(served_iceberg: IcebergWorld) -> IcebergLog:
    return IcebergLog(served_iceberg.properties, "shop.orders")


def subscription_of(
    session: SparkSession, folder: Path, log: IcebergLog, **fields: Any
) -> tuple[Subscription, Source]:
    source = Source(folder / "orders", ORDERS)
    made = make_subscription(
        session, folder, {"orders": source}, sql="SELECT * FROM orders", log=log, **fields
    )
    return made, source


@pytest.mark.tier2
def test_a_computed_table_is_made_merged_and_replaced(
    session: SparkSession, tmp_path: Path, log: IcebergLog
) -> None:
    subscription, source = subscription_of(session, tmp_path, log, keys=("id",), comment="of tests")
    source.write((1, 10), (2, 20))
    first, _ = subscription.attempt(1, 1)
    again, _ = subscription.attempt(1, 2)
    assert (first.outcome, again.outcome) == (Outcome.COMMITTED, Outcome.SKIPPED)
    assert again.committed == first.committed
    subscription.run()
    source.update({"amount": "11"}, "id = 1")
    source.write((3, 30))
    subscription.run()
    assert subscription.rows == [(1, 11), (2, 20), (3, 30)]
    subscription.run(
        sql="SELECT id, string(amount) AS amount FROM orders", refresh=RefreshMode.FULL
    )
    assert subscription.rows == [(1, "11"), (2, "20"), (3, "30")]
    last, _ = subscription.attempt(5, 1, may_complete_empty=False)
    assert log.last_committed(subscription.consumer) == last.committed
    with pytest.raises(ConsumerConflictError, match="is too late"):
        subscription.attempt(4, 1)


@pytest.mark.tier2
def test_a_write_that_another_overtook_is_compared_again(
    session: SparkSession, served_iceberg: IcebergWorld, log: IcebergLog
) -> None:
    served_iceberg.fill("shop.orders", pa.table({"id": [1], "amount": [10]}, ORDERS))
    target = IcebergTarget(name="orders", log=log, keys=("id",))
    metadata = CommitMetadata(
        consumer=ConsumerId("test", "other"),
        number=1,
        attempt=1,
        execution_id="other",
        end=Checkpoint(position=Position(0, 9)),
    )
    compared = list[int]()

    def prepare() -> Any:
        compared.append(target.read(session).count())
        if len(compared) == 1:
            other = served_iceberg.catalog.load_table("shop.orders")
            other.append(pa.table({"id": [2], "amount": [20]}, ORDERS))
        return lambda: target.append(session.sql("select 7L as id, 70L as amount"))

    committed = commit(session, target, metadata, prepare)
    assert compared == [1, 2]
    assert committed == log.committed(metadata.consumer, 1)
    found = served_iceberg.catalog.load_table("shop.orders").scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == [1, 2, 7]


@pytest.mark.tier2
def test_compaction_is_no_change_and_rows_of_a_range_are_read(
    session: SparkSession, served_iceberg: IcebergWorld
) -> None:
    table, log = served_iceberg.create(BY_DAY), IcebergLog(served_iceberg.properties, "bronze.ice")
    table.append(rows(1, 2))
    seen = log.changes_after(None).seen
    table.append(rows(1))
    with session_confs(session, catalog_confs(log.catalog)):
        options = "map('rewrite-all', 'true')"
        session.sql(
            f"CALL lakechime.system.rewrite_data_files(table => 'bronze.ice', options => {options})"
        ).collect()
    captured = log.changes_after(seen)
    assert [(one.partition, one.operation_type) for one in captured.events] == [
        (("2024-05-01",), OperationType.APPEND)
    ]
    range_ = SnapshotRange(
        table="bronze.ice",
        table_uid=log.uid,
        start=seen.snapshot_id,
        end=captured.seen.snapshot_id,
        start_uid=log.uid,
    )
    read = IcebergSource(session, log).read_range(range_)
    assert (read.method, read.commits, read.data_commits) == (ReadMethod.LOG_FILES, 2, 1)
    assert read.changes is not None
    assert [(one["id"], one["region"]) for one in read.changes.collect()] == [(1, "eu")]
