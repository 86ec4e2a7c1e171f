"""What is planned for declared tables, by their files and by who is at them."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.runtime.maintenance import keep, look, readers
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.tables.cdc import CDCMerge, cdc_table
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake, Target
from lakechime_dagster.tables.maintenance import Kind, Maintenance, Reader
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.consumers import Checkpoint
from lakechime_dagster.triggers.ledger import Claim
from tests.support.tables import write
from tests.support.world import a_subscription, checkpoint

ORDERS = sql_table(
    "silver.orders",
    sql="SELECT id FROM bronze.orders",
    refresh="full",
    storage=Storage(maintenance=Maintenance(min_files=2)),
)
CHANGES = sql_table("gold.changes", sql="SELECT id FROM silver.orders", refresh="rows", keys=["id"])
WHOLE = sql_table(
    "gold.whole", sql="SELECT id FROM silver.orders", refresh="full", reads=[ORDERS.snapshot()]
)
LAKE = Lake("shop", [SourceTable("bronze.orders"), ORDERS, CHANGES, WHOLE])


@pytest.fixture
def platform(home: Path) -> Platform:
    return open_platform()


def add_rows(platform: Platform, table: str = "silver.orders") -> None:
    write(Path(platform.location(table)), pa.table({"id": [1]}))


def complete(platform: Platform, subscription: str, version: int, table: Target = ORDERS) -> None:
    """Let a subscription have read a table up to a version."""
    row = platform.evaluator.activate(a_subscription(subscription, table.name))
    consumer = platform.ledger.ensure_consumer(row, "")
    end = Checkpoint(
        position=checkpoint(version + 1).position,
        sources={table.name: _at(platform, version, table)},
    )
    platform.ledger.complete(platform.ledger.claim(row, consumer, Claim(end=end)), None)


def _at(platform: Platform, version: int, table: Target) -> SnapshotCheckpoint:
    return SnapshotCheckpoint(
        table_uid=platform.log(table.name).uid, snapshot_id=SnapshotId(str(version))
    )


def read_by(platform: Platform, subscription: str) -> Reader:
    (found,) = [
        one
        for one in readers(platform, LAKE, ORDERS, platform.log(ORDERS.name))
        if one.name == subscription
    ]
    return found


def time_of(platform: Platform, version: int) -> int | None:
    return platform.log(ORDERS.name).commits(version - 1, version)[0].timestamp


def test_a_consumer_needs_what_commits_did_since_and_waits_for_rows_only(
    platform: Platform,
) -> None:
    add_rows(platform)
    add_rows(platform)
    complete(platform, "gold.changes", 1)
    assert read_by(platform, "gold.changes") == Reader(name="gold.changes")
    DeltaTable(platform.location(ORDERS.name)).optimize.compact()
    # it holds none of what was joined
    assert read_by(platform, "gold.changes") == Reader(name="gold.changes")
    add_rows(platform)
    needs = Reader(name="gold.changes", since=time_of(platform, 3), unread=time_of(platform, 3))
    assert read_by(platform, "gold.changes") == needs


def test_a_consumer_that_reads_the_table_whole_needs_only_what_it_has_pinned(
    platform: Platform,
) -> None:
    add_rows(platform)
    complete(platform, "gold.whole", 0)
    add_rows(platform)
    assert read_by(platform, "gold.whole") == Reader(name="gold.whole")
    row = platform.evaluator.activate(a_subscription("gold.whole", ORDERS.name))
    end = Checkpoint(
        position=checkpoint(9).position, sources={ORDERS.name: _at(platform, 0, ORDERS)}
    )
    execution = platform.ledger.claim(row, platform.ledger.ensure_consumer(row, ""), Claim(end=end))
    since = min(time_of(platform, 1) or 0, execution.claimed_ts)
    assert read_by(platform, "gold.whole") == Reader(name="gold.whole", since=since, unread=since)


def test_while_a_consumer_is_blocked_nothing_is_touched(platform: Platform) -> None:
    add_rows(platform)
    add_rows(platform)
    (looked,) = look(platform, LAKE, ORDERS)
    assert [action.kind for action in looked.plan.actions] == [Kind.COMPACT]
    complete(platform, "gold.changes", 1)
    row = platform.evaluator.activate(a_subscription("gold.changes", ORDERS.name))
    assert platform.ledger.block(row, platform.ledger.ensure_consumer(row, ""), "a column changed")
    (kept,) = keep(platform, LAKE, ORDERS, print)  # without anything to do there is no Spark
    assert [(one.action.kind, one.why) for one in kept.refused] == [
        (Kind.COMPACT, "gold.changes waits: it is BLOCKED: a column changed")
    ]
    assert (kept.after, kept.maintained.done) == (kept.before.files, ())


def test_what_is_remembered_beside_a_table_is_kept_with_it(platform: Platform) -> None:
    follows = cdc_table(
        "shop.orders", source=JsonLines("in"), envelope=Debezium(), merge=CDCMerge(keys=("id",))
    )
    lake = Lake("shop", [follows])
    assert look(platform, lake, follows) == []
    for name in ("shop.orders", "shop.orders__state"):
        add_rows(platform, name)
    platform.evaluator.activate(
        a_subscription("shop.orders", "shop.orders__changes", target="shop.orders")
    )
    platform.evaluator.activate(a_subscription("gold.reader", "shop.orders"))
    looked = look(platform, lake, follows)
    assert [one.plan.table for one in looked] == ["shop.orders", "shop.orders__state"]
    assert [
        [one.name for one in readers(platform, lake, follows, found.log)] for found in looked
    ] == [["gold.reader", "shop.orders"], ["shop.orders"]]
