"""The reconciler: commits that nobody registered become events once, and the sources' changes are
shown with who wrote them.
"""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lakechime_dagster.assets.partitions import partitions_of
from lakechime_dagster.dce.events import DataChangeEvent, EventQuery, SnapshotId, TableFormat
from lakechime_dagster.runtime.platform import Platform, ask_target, open_platform
from lakechime_dagster.runtime.reconcile import reconcile
from lakechime_dagster.sensors.events import events_sensor
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.consumers import Cause
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.support.tables import write

SCHEMA = pa.schema([("day", pa.date32()), ("id", pa.int64())])
orders = SourceTable("bronze.orders", storage=Storage(partitioned_by={"day": "date"}))
items = SourceTable("bronze.items")


@dataclass
class World:
    """A lake of two sources, its events sensor and the instance that it ticks in."""

    platform: Platform
    sensor: dg.SensorDefinition
    cursor: str | None = None

    def commit(self, table: str, *rows: tuple[Any, ...], **options: Any) -> None:
        """What a writer that knows nothing of the store does."""
        data = pa.Table.from_pylist(
            [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA
        )
        write(self.location(table), data, **options)

    def push(self, table: str, version: int) -> None:
        """What a writer that registers its own commit does."""
        self.platform.store.register(self.platform.log(table).events_of_commit(version))

    def tick(self) -> Any:
        with dg.build_sensor_context(cursor=self.cursor) as context:
            result = self.sensor.evaluate_tick(context)
        self.cursor = result.cursor
        return result

    def events(self, table: str) -> list[tuple[str | None, object]]:
        return [
            (one.event.snapshot_id, one.event.partition)
            for one in self.platform.store.fetch(EventQuery(table=table))
        ]

    def location(self, table: str) -> Path:
        location = Path(self.platform.location(table))
        location.mkdir(parents=True, exist_ok=True)
        return location


@pytest.fixture
def world(home: Path) -> World:
    lake = Lake("shop", [orders, items])
    return World(
        open_platform(),
        events_sensor(lake, {table.name: partitions_of(lake, table) for table in lake.sources}),
    )


def shown(result: Any) -> list[dict[str, Any]]:
    """What Dagster is shown: asset, partition and the values of the metadata."""
    return [
        {"asset": event.asset_key.to_user_string(), "dagster partition": event.partition}
        | {name: value.value for name, value in event.metadata.items()}
        for event in result.asset_events
    ]


def a_row(day: int) -> tuple[dt.date, int]:
    return dt.date(2024, 5, day), day


def test_commits_of_foreign_writers_are_found_and_said(world: World) -> None:
    world.commit("bronze.orders", a_row(1), partition_by=["day"])
    found = world.tick()
    assert [one["asset"] for one in shown(found)] == ["bronze/orders"]
    world.commit("bronze.orders", a_row(2))
    world.commit("bronze.items", a_row(2))
    assert {one["asset"] for one in shown(world.tick())} == {"bronze/orders", "bronze/items"}
    assert world.events("bronze.orders") == [("0", ("2024-05-01",)), ("1", ("2024-05-02",))]
    assert world.events("bronze.items") == [("0", None)]
    assert world.tick().skip_message == "no new event"


def test_what_was_pushed_is_not_found_again_and_what_was_found_is_a_duplicate_when_pushed(
    world: World,
) -> None:
    for day in (1, 2, 3):
        world.commit("bronze.orders", a_row(day), partition_by=["day"])
        if day != 2:
            world.push("bronze.orders", day - 1)
        world.tick()
    world.push("bronze.orders", 1)
    world.tick()
    assert world.events("bronze.orders") == [
        ("0", ("2024-05-01",)),
        ("1", ("2024-05-02",)),
        ("2", ("2024-05-03",)),
    ]


def test_a_first_sight_after_a_push_reports_the_state_before_it(world: World) -> None:
    for day in (1, 2, 3):
        world.commit("bronze.orders", a_row(day), partition_by=["day"])
    world.platform.store.register(
        [DataChangeEvent(table="bronze.orders", partition=["2024-05-03"], snapshot_id="2")]  # pyright: ignore[reportArgumentType]
    )
    world.tick()
    events = world.platform.store.fetch(EventQuery(table="bronze.orders"))
    assert [
        (one.event.snapshot_id, one.event.partition, dict(one.event.tags), one.amends)
        for one in events
    ] == [
        ("2", ("2024-05-03",), {}, None),
        ("1", ("2024-05-01",), {"baseline": "true"}, None),
        ("1", ("2024-05-02",), {"baseline": "true"}, None),
    ]


def test_after_a_log_was_put_back_its_state_and_new_commits_of_known_numbers_are_new_events(
    world: World,
) -> None:
    subscription = Subscription(name="items", trigger=SnapshotTrigger(["bronze.items"]))
    for day in (1, 2, 3):
        world.commit("bronze.items", a_row(day))
    world.tick()
    assert fired(world, subscription) == (None, "2")
    (world.location("bronze.items") / "_delta_log" / f"{2:020d}.json").unlink()
    world.tick()
    assert fired(world, subscription) == ("2", "1")
    world.commit("bronze.items", a_row(4))
    world.tick()
    assert fired(world, subscription) == ("1", "2")
    assert [snapshot for snapshot, _ in world.events("bronze.items")] == ["2", "1", "2"]


def fired(world: World, subscription: Subscription) -> tuple[str | None, str]:
    """The snapshots of the next execution, which is completed."""
    evaluator, ledger = world.platform.evaluator, world.platform.ledger
    row = evaluator.activate(subscription)
    (firing,) = evaluator.evaluate(subscription, row).firings
    execution = evaluator.claim(subscription, row, firing, ask_target(None), cause=Cause.TRIGGER)
    assert execution is not None
    ledger.complete(execution, None)
    range_ = execution.ranges()["bronze.items"]
    return range_.start, range_.end


def test_a_table_that_cannot_be_read_hinders_no_other(world: World) -> None:
    world.commit("bronze.items", a_row(1))
    log = world.location("bronze.orders") / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_text("garbage")
    found, (problem,) = reconcile(world.platform, [orders, items])
    assert [one.event.table for one in found] == ["bronze.items"]
    assert "bronze.orders" in problem
    assert "bronze.orders" in world.tick().skip_message


@pytest.mark.parametrize(
    "odd",
    [
        DataChangeEvent(
            table="bronze.orders", snapshot_id=SnapshotId("²"), table_format=TableFormat.HIVE
        ),
        DataChangeEvent(
            table="bronze.orders",
            snapshot_id=SnapshotId("2024-05-01 10:00:00"),
            table_format=TableFormat.HIVE,
        ),
        DataChangeEvent(
            table="bronze.orders", snapshot_id=SnapshotId("a" * 100), table_format=TableFormat.HIVE
        ),
    ],
    ids=["no ASCII digit", "a time", "long"],
)
def test_an_event_with_an_odd_snapshot_hinders_no_other(world: World, odd: DataChangeEvent) -> None:
    world.platform.store.register(
        [odd, DataChangeEvent(table="bronze.items", snapshot_id=SnapshotId("0"))]
    )
    assert "bronze/items" in [one["asset"] for one in shown(world.tick())]
    assert shown(world.tick()) == []
