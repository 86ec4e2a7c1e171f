"""What concerns a whole source of a table that follows a database: truncations, snapshots, epochs,
hours, shards, heartbeats.
"""

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from lakechime_dagster.cdc.record import Record
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, TableSize
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.runtime.platform import hours_of
from lakechime_dagster.spark.job import Outcome, TableResult
from lakechime_dagster.tables.cdc import HOUR_LEVELS
from lakechime_dagster.triggers.consumers import COMPLETE, Checkpoint, CommitMetadata, ConsumerId
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionCondition, PartitionTrigger
from tests.cdc.factories import envelope_schema, make_payload, make_record
from tests.cdc.spark.test_refresh import interrupt
from tests.support.orders import at_position, deletion, order, snapshot_row, truncation
from tests.support.replica import Replica
from tests.support.world import World

pytestmark = pytest.mark.spark


def test_a_truncation_takes_all_rows_of_its_source_unless_it_is_declared_to_be_ignored(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = [order(1, at=1), order(2, at=2), truncation(at=3), order(2, at=4, name="Bob")]
    for folder, merge, rows in (
        ("all", {}, [(2, "Bob")]),
        ("none", {"apply_as_truncates": False}, [(1, "Ann"), (2, "Bob")]),
    ):
        table = Replica(spark, tmp_path / folder, ("id",), merge=merge)
        for part in (records[:2], records[2:]):
            table.send(part)
            table.run()
        assert [(row["id"], row["name"]) for row in table.rows] == rows


def test_few_messages_meet_many_rows_and_much_that_is_remembered(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Replica(spark, tmp_path, ("id",), few=TableSize(rows=3, bytes=1_000_000))
    parts = [
        [order(number, at=number) for number in (1, 2, 3)],
        [order(number, at=number) for number in range(4, 9)],
        [order(2, at=20, name="Bob"), deletion(3, at=21)],
        [order(9, at=22)],
        [order(2, at=19, name="late"), order(3, at=23, name="again")],
        [order(9, at=24, amount=6)],
        [truncation(at=30), order(7, at=31)],
    ]
    found = []
    for part in parts:
        table.send(part)
        table.run()
        found.append({row["id"]: row["name"] for row in table.rows})
    assert found[2] == dict.fromkeys((1, 4, 5, 6, 7, 8), "Ann") | {2: "Bob"}
    assert found[5] == dict.fromkeys((1, 4, 5, 6, 7, 8, 9), "Ann") | {2: "Bob", 3: "again"}
    assert found[6] == {7: "Ann"}


def test_positions_that_restart_block_the_consumer_until_somebody_says_that_they_may(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Replica(spark, tmp_path, ("id",))
    table.send([order(1, at=10, name="old"), order(2, at=20)])
    table.run()
    table.send([replace(order(1, at=4, name="new"), offset=21), replace(order(3, at=6), offset=22)])
    with pytest.raises(
        ConsumerBlockedError,
        match=r"goes back from \[3, 20, 0\] to \[3, 4, 0\] at offset 21.*lakechime cdc epoch orders",
    ):
        table.attempt(2)
    table.confirm_epoch("m.shop.orders", 1)
    table.run()
    assert [(row["id"], row["name"]) for row in table.rows] == [(1, "new"), (2, "Ann"), (3, "Ann")]
    table.send([replace(order(3, at=8, name="newer"), offset=23)])
    table.run()
    assert [(row["id"], row["name"]) for row in table.rows] == [
        (1, "new"),
        (2, "Ann"),
        (3, "newer"),
    ]


def test_messages_that_come_again_further_on_in_their_topic_change_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As a connector sends them that was killed before it could say how far it was."""
    records = [order(1, at=10), order(2, at=11), order(1, at=12, name="Bob")]
    table = Replica(spark, tmp_path, ("id",))
    table.send(records)
    table.run()
    table.send(
        [
            replace(one, offset=offset)
            for offset, one in enumerate([*records[1:], order(3, at=13)], start=20)
        ]
    )
    assert table.run().events == {"delivered again": 2, "applied": 1}
    assert [(row["id"], row["name"]) for row in table.rows] == [(1, "Bob"), (2, "Ann"), (3, "Ann")]


def test_a_snapshot_that_lacks_too_many_rows_blocks_the_consumer(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Replica(spark, tmp_path, ("id",))
    table.send([order(number, at=number) for number in range(1, 21)])
    table.run()
    table.send(
        [
            snapshot_row(1, at=30, mark="first"),
            replace(snapshot_row(2, at=30, mark="last"), offset=31),
        ]
    )
    with pytest.raises(
        ConsumerBlockedError, match=r"lacks 18 of 20 rows, more than max_delete_ratio=0\.1"
    ):
        table.attempt(2)
    assert len(table.rows) == 20
    table.options = {"max_delete_ratio": 0.9}
    table.run()
    assert [row["id"] for row in table.rows] == [1, 2]


def test_an_hour_is_complete_when_every_source_has_reported_later_than_its_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    hour, minute = 3_600_000, 60_000
    table = Replica(spark, tmp_path, ("id",), options={"max_transaction": dt.timedelta(minutes=1)})
    table.send([order(1, at=1, ts_ms=5 * hour)])
    assert table.run().complete == (5 * hour - minute, 5 * hour - minute)
    shard = {**at_position(1, 5 * hour + minute), "db": "shard"}
    # whose time is not of the log
    beside = {**at_position(3, 20 * hour), "snapshot": "incremental"}
    table.send(
        [
            make_record(
                make_payload("r", source=beside, after={"id": 3, "name": "Ann", "amount": 5}),
                schema=envelope_schema(),
                offset=3,
            ),
            order(1, at=2, ts_ms=7 * hour + 2 * minute),
            make_record(
                make_payload("c", source=shard, after={"id": 2, "name": "Ann", "amount": 5}),
                schema=envelope_schema(),
            ),
        ]
    )
    second = table.run()
    assert second.complete == (5 * hour - minute, 5 * hour)
    assert second.committed is not None
    assert (second.committed.commit_metadata.watermark, second.committed.commit_metadata.facts) == (
        5 * hour,
        {"complete": [5 * hour - minute, 5 * hour]},
    )
    table.send(
        [
            make_record(
                make_payload("d", source={**shard, "pos": 2, "ts_ms": 8 * hour}, before={"id": 9}),
                schema=envelope_schema(),
            )
        ]
    )
    third = table.attempt(3)
    assert (third.outcome, third.complete) == (Outcome.NOTHING, (5 * hour, 7 * hour + minute))


def test_a_heartbeat_completes_the_hours_of_a_quiet_table_with_the_next_execution(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As what came before it may lie in a partition that was asked before it was read."""
    hour, minute = 3_600_000, 60_000
    options, topics = (
        {"max_transaction": dt.timedelta(minutes=1)},
        {"heartbeats": "demo.*.heartbeat"},
    )
    table = Replica(spark, tmp_path, ("id",), options=options, topics=topics)
    table.send([order(1, at=1, ts_ms=5 * hour)])
    table.run()
    ends = []
    for at in (7, 8):
        table.send([beat(at * hour, at)])
        ends.append(table.run().complete)
    assert ends == [(5 * hour - minute, 5 * hour - minute), (5 * hour - minute, 7 * hour - minute)]
    assert [row["id"] for row in table.rows] == [1]


def test_while_a_source_holds_more_no_hour_is_complete_whatever_heartbeats_and_newer_changes_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As what lies in another partition, and before the heartbeat, may not have been read yet."""
    hour, minute = 3_600_000, 60_000
    options, topics = (
        {"max_transaction": dt.timedelta(minutes=1)},
        {"heartbeats": "demo.*.heartbeat"},
    )
    table = Replica(spark, tmp_path, ("id",), options=options, topics=topics)
    table.send([order(1, at=1, ts_ms=5 * hour), beat(7 * hour, 2)])
    table.run()
    table.send([order(2, at=4, ts_ms=6 * hour)], has_more=True)
    second = table.run()
    assert second.complete is None
    assert second.committed is not None
    assert second.committed.commit_metadata.watermark == 5 * hour - minute
    table.send([replace(order(3, at=3, ts_ms=6 * hour), partition=1)])
    assert table.run().complete == (5 * hour - minute, 7 * hour - minute)


def test_late_changes_fire_again_for_their_hours_and_a_rebuild_for_none(
    spark: SparkSession, tmp_path: Path, sqlite_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hours were completed by an execution that left the table without a commit."""
    hour, minute, world = 3_600_000, 60_000, World(sqlite_engine)
    subscription = of_hours(range(5, 10))
    options, topics = (
        {"max_transaction": dt.timedelta(minutes=1)},
        {"heartbeats": "demo.*.heartbeat"},
    )
    table = Replica(spark, tmp_path, ("id",), options=options, topics=topics)
    parts = [
        [order(1, at=1, ts_ms=5 * hour)],
        [beat(10 * hour + minute, 3)],
        [beat(10 * hour + 2 * minute, 4)],
    ]
    fired = []
    for part in parts:
        table.send(part)
        fired.append(fire(world, subscription, table.run()))
    assert fired == [[], [], ["5", "6", "7", "8", "9"]]
    assert table.log("orders").watermark() == 5 * hour - minute

    changes = [
        order(3, at=10, ts_ms=5 * hour),
        order(1, at=11, ts_ms=9 * hour),
        order(4, at=12, ts_ms=10 * hour + 3 * minute),
    ]
    table.send(changes)
    with monkeypatch.context() as dying:
        dying.setattr("lakechime_dagster.cdc.spark_refresh.write_rows", interrupt)
        with pytest.raises(KeyboardInterrupt):
            table.attempt(4)
    table.number = 4
    second = table.attempt(4, 2)
    assert second.committed is not None
    table.checkpoint = second.committed.commit_metadata.end.sources["orders__changes"]
    assert second.late == {5: 1, 9: 1}
    assert fire(world, subscription, second) == ["5", "9"]
    assert fire(world, subscription, second) == []

    table.send([replace(one, offset=one.offset + 10) for one in changes])
    again = table.run()
    assert (again.late, again.events, fire(world, subscription, again)) == (
        {},
        {"delivered again": 3},
        [],
    )

    table.checkpoint = SnapshotCheckpoint()  # as `trigger seek --to beginning` does
    table.send([order(5, at=30, ts_ms=12 * hour + minute)])
    rebuilt = table.run()
    assert (rebuilt.replaced, rebuilt.late, rebuilt.complete) == (
        True,
        {},
        (10 * hour + 2 * minute, 12 * hour),
    )
    assert fire(world, subscription, rebuilt) == []


def of_hours(hours: range) -> Subscription:
    """A subscription that fires for each of these hours of the first day once it is complete, and
    again for late changes of it.
    """
    specs = {"source_date": tick("-1h"), "source_hour": tick("-1h", "%H")}
    condition = PartitionCondition.of("orders__hours", specs, PartitionLevels.of(HOUR_LEVELS))
    schedule = every(
        hours=1, start=f"1970-01-01T{hours.start + 1:02}:00", until=f"1970-01-01T{hours.stop:02}:00"
    )
    return Subscription(
        name="hourly",
        trigger=PartitionTrigger(condition, schedule, late="refire", max_in_flight=10),
    )


def fire(world: World, subscription: Subscription, result: TableResult) -> list[str]:
    """The hours for which a subscription fires by what an execution registers, as the platform
    does.
    """
    without_commit = CommitMetadata(
        consumer=ConsumerId("test", "orders"),
        number=0,
        attempt=1,
        end=Checkpoint(),
        facts={COMPLETE: result.complete},
    )
    world.store.register(
        hours_of(result.committed.commit_metadata if result.committed else without_commit, "orders")
    )
    executions = world.fire(subscription)
    for execution in executions:
        world.ledger.complete(execution, None)
    return [execution.consumer.key.rpartition("=")[2] for execution in executions]


def test_a_snapshot_speaks_for_its_source_when_the_source_holds_no_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Replica(spark, tmp_path, ("id",))
    table.send([order(number, at=number) for number in range(1, 21)])
    table.run()
    table.send(
        [
            snapshot_row(1, at=30, mark="first"),
            replace(snapshot_row(20, at=30, mark="last"), offset=31),
        ],
        has_more=True,
    )
    table.run()
    assert [row["id"] for row in table.rows] == list(range(1, 21))
    others = [
        replace(snapshot_row(number, at=30, mark="true"), partition=1, offset=number)
        for number in range(3, 20)
    ]
    table.send(others)
    table.run()
    assert [row["id"] for row in table.rows] == [1, *range(3, 21)]
    table.send([order(2, at=40, name="new")])
    table.run()
    assert [row["id"] for row in table.rows] == list(range(1, 21))


@pytest.mark.parametrize(("most", "committed"), [(None, []), (0, [2, 3, 4]), (1, [3])])
def test_at_most_so_many_executions_in_a_row_leave_no_commit_and_the_next_one_reports_the_watermark(
    spark: SparkSession, tmp_path: Path, most: int | None, committed: list[int]
) -> None:
    hour = 3_600_000
    options, topics = (
        {"max_transaction": dt.timedelta(0), "max_continuous_empty_commits": most},
        {"heartbeats": "demo.*.heartbeat"},
    )
    table = Replica(spark, tmp_path, ("id",), options=options, topics=topics)
    table.send([order(1, at=1, ts_ms=hour)])
    table.run()
    log = table.log("orders")
    empty = {}
    for number in range(2, 5):
        table.send([beat(number * hour, number)])
        result = table.run()
        if result.committed is not None:
            assert (result.outcome, result.counts.changed) == (Outcome.FENCED, 0)
            empty[number] = result.committed.commit_metadata.watermark
        assert log.watermark() == max([hour, *empty.values()])
    # a heartbeat is read with the next execution
    assert empty == {number: (number - 1) * hour for number in committed}
    assert [row["id"] for row in table.rows] == [1]


def beat(ts_ms: int, at: int) -> Record:
    source = {**at_position(at, ts_ms), "table": "heartbeat"}
    payload = make_payload("u", source=source, after={"name": "lake", "at": ts_ms})
    return replace(make_record(payload, key=None, offset=at), topic="demo.shop.heartbeat")
