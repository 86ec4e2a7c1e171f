"""Iceberg's snapshots as events: what pyiceberg does to a table, and what a poll finds of it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    YearTransform,
)

from lakechime_dagster.dce.events import DataChangeEvent, OperationType, Seen, SnapshotId, TableUid
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.snapshots import NO_SNAPSHOT
from lakechime_dagster.errors import TableAbsentError, TableUnreadableError
from lakechime_dagster.formats.iceberg import IcebergLog
from tests.support.iceberg import BY_DAY, IcebergWorld, branched, by, rows, tagged

APPEND, UPDATE, DELETE = OperationType.APPEND, OperationType.UPDATE, OperationType.DELETE


@pytest.fixture
def world(tmp_path: Path) -> IcebergWorld:
    return IcebergWorld.within(tmp_path)


def log_of(world: IcebergWorld, named: PartitionLevels | None = None) -> IcebergLog:
    return IcebergLog(world.properties, "bronze.ice", "east", named)


def polled(world: IcebergWorld) -> tuple[Table, IcebergLog, Seen]:
    """A table with a row of the first of May, its log, and what its first poll has seen."""
    table, log = world.create(BY_DAY), log_of(world)
    table.append(rows(1))
    return table, log, log.changes_after(None).seen


def found(events: Iterable[DataChangeEvent]) -> list[tuple[Any, OperationType]]:
    return [(one.partition and one.partition[0], one.operation_type) for one in events]


def verdicts(events: Iterable[DataChangeEvent]) -> set[str | None]:
    return {one.tags.get("lakechime/verdict") for one in events}


def test_each_snapshot_gives_an_event_per_partition_in_the_order_of_the_chain(
    world: IcebergWorld,
) -> None:
    table = world.create(BY_DAY)
    log = log_of(world)
    empty = log.changes_after(None)
    assert (empty.events, empty.seen.snapshot_id) == ((), NO_SNAPSHOT)
    table.append(rows(1, 2), snapshot_properties=tagged(complete="true"))
    table.append(rows(2))
    table.delete("day = '2024-05-01'")
    captured = log.changes_after(empty.seen)
    assert found(captured.events) == [
        ("2024-05-01", APPEND),
        ("2024-05-02", APPEND),
        ("2024-05-02", APPEND),
        ("2024-05-01", DELETE),
    ]
    chain = [str(one.snapshot_id) for one in table.metadata.snapshots]
    assert [one.snapshot_id for one in captured.events] == [chain[0], *chain]
    assert [one.prev_snapshot_id for one in captured.events] == [None, None, *chain[:2]]
    assert [dict(one.tags) for one in captured.events] == [
        {"complete": "true"},
        {"complete": "true"},
        {},
        {},
    ]
    assert {(one.table_uid, one.cluster) for one in captured.events} == {(log.uid, "east")}
    assert log.levels().as_dict() == {"day": "date"}
    assert log.changes_after(captured.seen).events == ()
    assert captured.seen.snapshot_id == log.newest == chain[-1]


def test_an_overwrite_of_rows_is_a_delete_and_an_append_and_some_rows_less_are_an_update(
    world: IcebergWorld,
) -> None:
    table = world.create(BY_DAY)
    table.append(pa.concat_tables([rows(1), rows(1, region="us"), rows(2)]))
    log = log_of(world)
    seen = log.changes_after(None).seen
    table.delete("region = 'us'")
    table.overwrite(rows(2), overwrite_filter="day = '2024-05-02'")
    captured = log.changes_after(seen)
    assert found(captured.events) == [
        ("2024-05-01", UPDATE),
        ("2024-05-02", DELETE),
        ("2024-05-02", APPEND),
    ]


def test_whether_a_partition_is_emptied_is_found_without_reading_of_others(
    world: IcebergWorld,
) -> None:
    table, log, seen = polled(world)
    (away,) = table.inspect.manifests()["path"].to_pylist()
    table.append(pa.concat_tables([rows(2), rows(4)]))
    table.append(rows(2, region="us"))
    table.append(rows(3))
    table.delete("region = 'us'")
    table.delete("day = '2024-05-03'")
    Path(away.removeprefix("file://")).unlink()
    assert found(log.changes_after(seen).events)[-2:] == [
        ("2024-05-02", UPDATE),
        ("2024-05-03", DELETE),
    ]


def test_the_events_of_a_snapshot_have_the_bytes_that_its_summary_counts(
    world: IcebergWorld,
) -> None:
    table, log, seen = polled(world)
    table.append(pa.concat_tables([rows(1), rows(2)]))
    table.append(rows(2, region="us"))
    table.delete("region = 'us'")
    events = log.changes_after(seen).events
    for snapshot in table.metadata.snapshots[1:]:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        of = [one.added_bytes for one in events if one.snapshot_id == str(snapshot.snapshot_id)]
        assert sum(filter(None, of)) == int(summary.get("added-files-size", 0))
    assert [bool(one.added_bytes) for one in events] == [True, True, True, False]
    # as a whole the files that there are
    live = {one["partition"]["day"]: 0 for one in table.inspect.files().to_pylist()}
    for one in table.inspect.files().to_pylist():
        live[one["partition"]["day"]] += one["file_size_in_bytes"]
    baseline = log.changes_after(None).events
    assert [one.added_bytes for one in baseline] == [live[day] for day in sorted(live)]


@pytest.mark.parametrize(
    ("transform", "name", "kind", "value"),
    [
        (DayTransform(), "at_day", "date", "2024-05-03"),
        (HourTransform(), "at_hour", "timestamp", "2024-05-03 07:00:00"),
        (MonthTransform(), "at_month", "date", "2024-05-01"),
        (YearTransform(), "at_year", "date", "2024-01-01"),
    ],
)
def test_a_partition_of_times_has_the_name_of_its_field_and_the_beginning_of_its_period(
    world: IcebergWorld, transform: Transform, name: str, kind: str, value: str
) -> None:
    world.create(by(transform, name)).append(rows(3, hour=7))
    log = log_of(world)
    assert log.levels().as_dict() == {name: kind}
    assert found(log.changes_after(None).events) == [(value, APPEND)]


@pytest.mark.parametrize("column", [1, 2, 3])
def test_a_bucket_is_a_number_whatever_it_is_made_of(world: IcebergWorld, column: int) -> None:
    world.create(by(BucketTransform(1), "bucket", column=column)).append(rows(3))
    assert log_of(world).levels().as_dict() == {"bucket": "int"}
    assert found(log_of(world).changes_after(None).events) == [(0, APPEND)]


def test_the_first_poll_of_a_table_with_history_registers_its_state_as_one_commit(
    world: IcebergWorld,
) -> None:
    table = world.create(BY_DAY)
    table.append(rows(1))
    table.append(rows(2))
    table.delete("day = '2024-05-01'")
    table.append(rows(3), snapshot_properties=tagged(complete="true"))
    captured = log_of(world).changes_after(None)
    assert found(captured.events) == [("2024-05-02", APPEND), ("2024-05-03", APPEND)]
    assert {(one.tags["baseline"], one.tags["complete"]) for one in captured.events} == {
        ("true", "true")
    }
    assert {one.snapshot_id for one in captured.events} == {captured.seen.snapshot_id}


def test_snapshots_that_writers_registered_before_the_first_poll_follow_the_state_before_them(
    world: IcebergWorld,
) -> None:
    table = world.create(BY_DAY)
    for day in (1, 2, 3, 4):
        table.append(rows(day))
    chain = [SnapshotId(str(one.snapshot_id)) for one in table.metadata.snapshots]
    captured = log_of(world).changes_after(None, {chain[2], SnapshotId("77")})
    assert [(one.snapshot_id, one.partition) for one in captured.events] == [
        (chain[1], ("2024-05-01",)),
        (chain[1], ("2024-05-02",)),
        (chain[2], ("2024-05-03",)),
        (chain[3], ("2024-05-04",)),
    ]


def test_a_table_that_is_put_back_says_so_and_goes_on_as_a_new_generation(
    world: IcebergWorld,
) -> None:
    table = world.create(BY_DAY)
    table.append(rows(1))
    first = table.metadata.current_snapshot_id
    table.append(rows(2))
    log = log_of(world)
    seen = log.changes_after(None).seen
    table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    back = log.changes_after(seen)
    assert found(back.events) == [("2024-05-01", UPDATE)]
    assert verdicts(back.events) == {"ROLLBACK"}
    assert back.seen == Seen("bronze.ice", TableUid(f"{log.uid}~1"), log.newest, "east")
    assert {one.table_uid for one in back.events} == {f"{log.uid}~1"}
    table.refresh().append(rows(3))
    after = log.changes_after(back.seen)
    assert found(after.events) == [("2024-05-03", APPEND)]
    assert verdicts(after.events) == {None}


def test_a_history_that_no_longer_holds_what_was_seen_is_registered_as_a_whole(
    world: IcebergWorld,
) -> None:
    table, log, seen = polled(world)
    for day in (2, 3):
        table.append(rows(day))
    old = [one.snapshot_id for one in table.metadata.snapshots][:2]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    captured = log.changes_after(seen)
    assert found(captured.events) == [(f"2024-05-0{day}", UPDATE) for day in (1, 2, 3)]
    assert verdicts(captured.events) == {"EXPIRED"}
    assert captured.seen.table_uid == log.uid


def test_a_table_that_is_dropped_and_made_again_is_another(world: IcebergWorld) -> None:
    world.create(BY_DAY).append(rows(1))
    log = log_of(world)
    seen = log.changes_after(None).seen
    world.catalog.drop_table("bronze.ice")
    with pytest.raises(TableAbsentError, match=r"bronze\.ice: .* has no such table"):
        log.changes_after(seen)
    world.create(BY_DAY).append(rows(2))
    captured = log.changes_after(seen)
    assert found(captured.events) == [("2024-05-02", APPEND)]
    assert verdicts(captured.events) == {"RECREATED"}
    assert captured.seen.table_uid == log.uid != seen.table_uid


def test_only_main_is_the_table_and_a_branch_counts_when_main_is_set_to_it(
    world: IcebergWorld,
) -> None:
    table, log, seen = polled(world)
    branched(table, "audit")
    table.append(rows(2), branch="audit")
    table.append(rows(3), branch="audit")
    assert log.changes_after(seen).events == ()
    table.manage_snapshots().set_current_snapshot(ref_name="audit").commit()
    captured = log.changes_after(seen)
    assert found(captured.events) == [("2024-05-02", APPEND), ("2024-05-03", APPEND)]
    assert verdicts(captured.events) == {None}


def test_main_that_is_set_to_a_branch_which_lacks_what_was_seen_is_branched(
    world: IcebergWorld,
) -> None:
    table = world.create(BY_DAY)
    table.append(rows(1))
    branched(table, "audit")
    table.append(rows(2))
    table.append(rows(3), branch="audit")
    log = log_of(world)
    seen = log.changes_after(None).seen
    table.manage_snapshots().set_current_snapshot(ref_name="audit").commit()
    captured = log.changes_after(seen)
    assert found(captured.events) == [("2024-05-01", UPDATE), ("2024-05-03", UPDATE)]
    assert verdicts(captured.events) == {"BRANCHED"}


def test_files_of_another_spec_name_their_partition_where_it_has_the_levels(
    world: IcebergWorld,
) -> None:
    table = world.create(BY_DAY)
    table.append(rows(1))
    log = log_of(world, PartitionLevels.of({"day": "date"}))
    seen = log.changes_after(None).seen
    with table.update_spec() as update:
        update.add_identity("region")
    table.append(rows(2))
    with table.update_spec() as update:
        update.remove_field("day")
    table.append(rows(3))
    assert found(log.changes_after(seen).events) == [("2024-05-02", APPEND), (None, APPEND)]


def test_declared_levels_that_no_spec_has_are_refused_with_those_that_it_has(
    world: IcebergWorld,
) -> None:
    world.create(BY_DAY).append(rows(1))
    log = log_of(world, PartitionLevels.of({"hour": "int"}))
    with pytest.raises(TableUnreadableError, match=r"declared as hour, .* partition spec are day"):
        log.changes_after(None)


def test_metadata_or_a_catalog_that_cannot_be_read_give_one_sentence(
    world: IcebergWorld, tmp_path: Path
) -> None:
    table = world.create(BY_DAY)
    table.append(rows(1))
    Path(table.metadata_location.removeprefix("file://")).write_text("{")
    with pytest.raises(TableUnreadableError, match=r"bronze\.ice: it cannot be read") as error:
        log_of(world).changes_after(None)
    assert "\n" not in str(error.value)
    away = {"type": "rest", "uri": "http://anna:secret@127.0.0.1:9"}
    with pytest.raises(TableUnreadableError) as error:
        IcebergLog(away, "bronze.ice").changes_after(None)
    assert "secret" not in str(error.value)


def test_columns_are_said_as_spark_says_them(tmp_path: Path) -> None:
    world = IcebergWorld.within(tmp_path)
    assert IcebergLog(world.properties, "shop.all").columns() == ()
    inner = pa.struct([("a", pa.int32())])
    kinds = {
        "id": pa.int64(),
        "paid": pa.decimal128(9, 2),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "list": pa.list_(inner),
        "map": pa.map_(pa.string(), pa.float64()),
    }
    world.fill("shop.all", pa.schema(list(kinds.items())).empty_table())
    struct = {
        "type": "struct",
        "fields": [{"name": "a", "type": "integer", "nullable": True, "metadata": {}}],
    }
    assert IcebergLog(world.properties, "shop.all").columns() == (
        ("id", "long", True),
        ("paid", "decimal(9,2)", True),
        ("at", "timestamp", True),
        ("local", "timestamp_ntz", True),
        ("list", {"type": "array", "elementType": struct, "containsNull": True}, True),
        (
            "map",
            {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
            True,
        ),
    )
