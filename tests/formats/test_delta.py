import datetime as dt
import json
import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakechime_dagster.dce.events import OperationType, Position, Seen, SnapshotId, TableUid
from lakechime_dagster.dce.snapshots import CommitsMissingError, SnapshotCheckpoint
from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId, FileOffsets
from tests.support.tables import rows, write

DAY = dt.date(2013, 1, 1)
CONSUMER = ConsumerId("local", "silver.flights", '["2013-01-01"]')


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "bronze" / "flights"


def log_of(location: Path) -> DeltaLog:
    return DeltaLog(str(location), "bronze.flights", "east")


def hourly(location: Path, *hours: int, **options: object) -> None:
    write(
        location,
        rows(*((DAY, hour, hour, "x") for hour in hours)),
        partition_by=["day", "hour"],
        **options,  # pyright: ignore[reportArgumentType]
    )


def commit_metadata(number: int, end: int, attempt: int = 1, **more: object) -> CommitMetadata:
    sources = {
        "bronze.flights": SnapshotCheckpoint(
            table_uid=TableUid("u"), snapshot_id=SnapshotId(str(end))
        )
    }
    return CommitMetadata(
        consumer=CONSUMER,
        number=number,
        attempt=attempt,
        end=Checkpoint(position=Position(0, end), sources=sources),
        **more,  # pyright: ignore[reportArgumentType]
    )


def forget(location: Path, *versions: int) -> None:
    for version in versions:
        (location / "_delta_log" / f"{version:020d}.json").unlink()


def summary(events: object) -> list[tuple[object, ...]]:
    return [
        (event.partition, event.operation_type, event.snapshot_id, event.prev_snapshot_id)
        for event in events  # pyright: ignore[reportGeneralTypeIssues]
    ]


def test_a_commit_gives_one_event_per_partition_with_typed_values(location: Path) -> None:
    hourly(location, 5, 23)
    log = log_of(location)
    events = log.events_of_commit(0)
    assert summary(events) == [
        (("2013-01-01", 23), OperationType.APPEND, "0", None),
        (("2013-01-01", 5), OperationType.APPEND, "0", None),
    ]
    assert {event.table_uid for event in events} == {log.uid}
    assert {event.cluster for event in events} == {"east"}
    assert all(event.snapshot_ts and event.snapshot_ts > 1_600_000_000_000 for event in events)
    assert log.levels().as_dict() == {"day": "date", "hour": "int"}


def test_an_event_has_the_bytes_of_the_files_that_the_commit_added_to_its_partition(
    location: Path,
) -> None:
    hourly(location, 5, 23)
    hourly(location, 5, 5, mode="append")
    table = DeltaTable(str(location))
    table.optimize.compact()
    table.delete("hour = 23")
    log = log_of(location)

    def added(version: int) -> dict[int, int]:
        text = (location / "_delta_log" / f"{version:020d}.json").read_text()
        files = [json.loads(line).get("add") for line in text.splitlines()]
        sizes: Counter[int] = Counter()
        for file in files:
            if file and file["dataChange"]:
                sizes[int(file["partitionValues"]["hour"])] += file["size"]
        return sizes

    for version in (0, 1):
        found = {one.partition[1]: one.added_bytes for one in log.events_of_commit(version)}  # pyright: ignore[reportOptionalSubscript]
        assert found == added(version)
        assert all(found.values())
    assert log.events_of_commit(2) == []
    assert [one.added_bytes for one in log.events_of_commit(3)] == [0]
    # as a whole the files that there are
    (event,) = log.changes_after(None).events
    (size,) = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist()
    assert event.added_bytes == size


def test_every_partition_type_reads_as_its_typed_value(location: Path) -> None:
    schema = pa.schema(
        [
            ("text", pa.string()),
            ("n", pa.int64()),
            ("flag", pa.bool_()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(10, 2)),
            ("ratio", pa.float64()),
            ("x", pa.int32()),
        ]
    )
    moment = dt.datetime(2013, 1, 1, 5, 30, tzinfo=dt.timezone.utc)
    data = rows(
        ("a b/ü=%", 7, True, moment, Decimal("1.50"), 0.5, 1),
        (None, None, None, None, None, None, 1),
        schema=schema,
    )
    write(location, data, partition_by=["text", "n", "flag", "at", "price", "ratio"])
    partitions = {event.partition for event in log_of(location).events_of_commit(0)}
    assert partitions == {("a b/ü=%", 7, True, "2013-01-01 05:30:00", "1.5", "0.5"), (None,) * 6}
    write(location, rows(("", 7, True, moment, Decimal("1.50"), 0.5, 1), schema=schema))
    captured = log_of(location).changes_after(None)
    assert partitions <= {event.partition for event in captured.events}


def test_operations_report_append_update_and_the_drop_of_a_whole_partition(location: Path) -> None:
    hourly(location, 1, 2)
    hourly(location, 2)
    DeltaTable(str(location)).delete("hour = 1")
    hourly(location, 2, mode="overwrite", predicate="hour = 2")
    log = log_of(location)
    assert summary(log.events_of_commit(2)) == [(("2013-01-01", 1), OperationType.DELETE, "2", "1")]
    assert summary(log.events_of_commit(3)) == [(("2013-01-01", 2), OperationType.UPDATE, "3", "2")]


def test_optimize_and_vacuum_give_no_event(location: Path) -> None:
    hourly(location, 1)
    hourly(location, 1)
    seen = log_of(location).changes_after(None).seen
    DeltaTable(str(location)).optimize.compact()
    DeltaTable(str(location)).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False
    )
    captured = log_of(location).changes_after(seen)
    assert captured.events == ()
    assert int(captured.seen.snapshot_id) == log_of(location).version > 1


def test_the_first_sight_of_a_table_with_history_registers_its_state_as_one_commit(
    location: Path,
) -> None:
    hourly(location, 1)
    hourly(location, 2, tags={"complete": "true"})
    DeltaTable(str(location)).delete("hour = 1")
    hourly(location, 3, tags={"complete": "true"})
    captured = log_of(location).changes_after(None)
    assert summary(captured.events) == [
        (("2013-01-01", 2), OperationType.APPEND, "3", None),
        (("2013-01-01", 3), OperationType.APPEND, "3", None),
    ]
    assert {event.tags["baseline"] for event in captured.events} == {"true"}
    assert captured.seen.snapshot_id == "3"


def test_a_table_replaced_at_the_same_path_gets_a_new_uid_and_a_baseline(location: Path) -> None:
    hourly(location, 1)
    seen = log_of(location).changes_after(None).seen
    shutil.rmtree(location)
    hourly(location, 7)
    hourly(location, 8)
    captured = log_of(location).changes_after(seen)
    assert captured.seen.table_uid == log_of(location).uid != seen.table_uid
    assert [event.partition for event in captured.events] == [("2013-01-01", 7), ("2013-01-01", 8)]
    assert {event.tags["lakechime/verdict"] for event in captured.events} == {"RECREATED"}


def recreate(location: Path, **options: object) -> None:
    """Replace the rows of a table, which is partitioned by day alone from then on."""
    write(
        location,
        rows((DAY, 1, 1, "x")),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=["day"],
        **options,  # pyright: ignore[reportArgumentType]
    )


def test_a_table_that_is_repartitioned_is_reported_whole_once_and_goes_on_by_its_new_partitions(
    location: Path,
) -> None:
    hourly(location, 1, 2)
    seen = log_of(location).changes_after(None).seen
    recreate(location)
    again = log_of(location).changes_after(seen)
    assert summary(again.events) == [(("2013-01-01",), OperationType.APPEND, "1", None)]
    assert {event.tags["lakechime/verdict"] for event in again.events} == {"RECREATED"}
    for version in (2, 3):
        write(location, rows((DAY, version, 1, "x")))
        captured = log_of(location).changes_after(again.seen)
        assert summary(captured.events)[-1] == (
            ("2013-01-01",),
            OperationType.APPEND,
            str(version),
            str(version - 1),
        )
        assert not any("lakechime/verdict" in event.tags for event in captured.events)
    assert [commit.has_foreign_files for commit in log_of(location).commits(-1, 3)] == [
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_a_line_separator_in_the_data_stays_within_its_line_of_the_log(
    location: Path, separator: str
) -> None:
    write(location, rows((DAY, 1, 1, f"a{separator}b")))
    assert [event.snapshot_id for event in log_of(location).changes_after(None).events] == ["0"]


def test_a_log_cleaned_up_past_what_was_seen_gives_a_baseline_that_says_so(location: Path) -> None:
    hourly(location, 1)
    seen = log_of(location).changes_after(None).seen
    hourly(location, 2)
    hourly(location, 3)
    DeltaTable(str(location)).create_checkpoint()
    hourly(location, 4)
    forget(location, 0, 1)
    captured = log_of(location).changes_after(seen)
    assert {event.tags["lakechime/verdict"] for event in captured.events} == {"EXPIRED"}
    assert sorted(event.partition[1] for event in captured.events if event.partition) == [
        1,
        2,
        3,
        4,
    ]
    with pytest.raises(CommitsMissingError) as missing:
        log_of(location).commits(0, 3)
    assert missing.value.version == 1


def test_a_log_put_back_to_an_older_state_says_rollback(location: Path) -> None:
    hourly(location, 1)
    hourly(location, 2)
    seen = log_of(location).changes_after(None).seen
    forget(location, 1)
    captured = log_of(location).changes_after(seen)
    assert {event.tags["lakechime/verdict"] for event in captured.events} == {"ROLLBACK"}
    assert captured.seen.snapshot_id == "0"
    assert captured.seen.table_uid == f"{seen.table_uid}~1"
    hourly(location, 3)
    again = log_of(location).changes_after(captured.seen)
    assert [(event.snapshot_id, event.table_uid) for event in again.events] == [
        ("1", captured.seen.table_uid)
    ]
    forget(location, 1)
    assert log_of(location).changes_after(again.seen).seen.table_uid == f"{seen.table_uid}~2"


def test_tags_come_from_a_producers_commit_metadata_and_from_our_commit_metadata(
    location: Path,
) -> None:
    hourly(location, 1, tags={"complete": "true"})
    hourly(
        location,
        2,
        user_metadata=commit_metadata(1, 1, tags={"watermark": "5"}).to_text(),
        transaction=(str(CONSUMER), 1),
    )
    write(location, rows((DAY, 3, 3, "x")), user_metadata='{"not": "ours"}')
    log = log_of(location)
    assert [dict(log.events_of_commit(version)[0].tags) for version in range(3)] == [
        {"complete": "true"},
        {"watermark": "5"},
        {},
    ]


def test_partitions_that_no_event_can_name_are_reported_as_one_and_hinder_no_other(
    location: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("x", "y"):
        values = [name * 200, name * 199, name]
        write(
            location,
            pa.table({"a": values, "b": values, "c": values, "id": [1, 2, 3]}),
            partition_by=["a", "b", "c"],
        )
    log = log_of(location)
    events = log.changes_after(None).events
    assert {event.partition for event in events} == {("x",) * 3, ("y",) * 3, None}
    assert summary(log.events_of_commit(1)) == [
        (("y",) * 3, OperationType.APPEND, "1", "0"),
        (None, OperationType.UPDATE, "1", "0"),
    ]
    assert (
        "bronze.flights: commit 1 has 2 among its partitions that no event can name" in caplog.text
    )


def test_a_commit_of_an_execution_is_found_below_newer_commits_and_in_a_checkpointed_log(
    location: Path,
) -> None:
    log = log_of(location)
    assert log.committed(CONSUMER, 1) is None
    hourly(location, 0)
    for number in (1, 2):
        hourly(
            location,
            number,
            user_metadata=commit_metadata(number, 10 * number, attempt=number).to_text(),
            transaction=(str(CONSUMER), number),
        )
    hourly(location, 3)
    DeltaTable(str(location)).create_checkpoint()
    found = log.committed(CONSUMER, 1)
    assert found
    assert (found.version, found.commit_metadata) == ("1", commit_metadata(1, 10, attempt=1))
    assert log.committed(CONSUMER, 3) is None
    assert log.committed(CONSUMER, 0) is None
    assert log.committed(ConsumerId("local", "other"), 1) is None
    last = log.last_committed(CONSUMER)
    assert last
    assert (last.version, last.commit_metadata.number, last.commit_metadata.end) == (
        "2",
        2,
        commit_metadata(2, 20).end,
    )


def test_the_watermark_of_a_table_is_that_of_its_newest_commit_that_reports_one(
    location: Path,
) -> None:
    log = log_of(location)
    assert log.watermark() is None
    hourly(location, 0)
    assert log.watermark() is None
    for number, watermark in ((1, 100), (2, 200), (3, None)):
        hourly(
            location,
            number,
            user_metadata=commit_metadata(number, number, watermark=watermark).to_text(),
            transaction=(str(CONSUMER), number),
        )
    DeltaTable(str(location)).optimize.compact()
    assert log.watermark() == 200


def test_up_to_where_a_source_was_read_by_a_version_is_reported_by_the_newest_commit_of_its_consumer(
    location: Path,
) -> None:
    log, checkpoints = (
        log_of(location),
        [Checkpoint(offsets=FileOffsets({"a.jsonl": end}), has_more=end < 9) for end in (7, 9)],
    )
    hourly(location, 0)
    assert log.fed(0) is None
    for number, end in enumerate(checkpoints, start=1):
        hourly(
            location,
            number,
            user_metadata=CommitMetadata(
                consumer=CONSUMER, number=number, attempt=1, end=end
            ).to_text(),
        )
        hourly(location, number, user_metadata=commit_metadata(number, 10).to_text())
    assert [log.fed(version) for version in range(1, 5)] == [
        checkpoints[0],
        checkpoints[0],
        checkpoints[1],
        checkpoints[1],
    ]


def test_an_execution_whose_commit_was_cleaned_up_is_known_to_have_committed(
    location: Path,
) -> None:
    hourly(
        location, 1, user_metadata=commit_metadata(1, 10).to_text(), transaction=(str(CONSUMER), 1)
    )
    hourly(location, 2)
    DeltaTable(str(location)).create_checkpoint()
    forget(location, 0, 1)
    found = log_of(location).committed(CONSUMER, 1)
    assert found
    assert (found.is_commit_metadata_lost, found.commit_metadata.number) == (True, 1)
    assert log_of(location).committed(CONSUMER, 2) is None


def test_a_checkpoint_out_of_reach_is_not_one_without_a_table(location: Path) -> None:
    location.parent.mkdir(parents=True)
    location.touch()
    with pytest.raises(
        TableUnreadableError,
        match=(
            r"bronze\.flights: the log at .* cannot be read; check the location and its access "
            r"rights"
        ),
    ):
        log_of(location).exists()


def test_no_message_reports_a_secret_of_the_location() -> None:
    log = DeltaLog("foo://ada:hunter2@bucket/orders?sig=hunter2", "bronze.orders")
    with pytest.raises(
        TableUnreadableError,
        match=r"there is no Delta table at foo://ada:\*\*\*@bucket/orders; check",
    ):
        log.changes_after(None)
    assert log.shown_location == "foo://ada:***@bucket/orders"


def test_nothing_readable_says_where_and_no_driver_internals(location: Path) -> None:
    log = log_of(location)
    assert not log.exists()
    with pytest.raises(TableUnreadableError, match="there is no Delta table at"):
        log.changes_after(None)
    hourly(location, 1)
    assert log.exists()
    seen = log.changes_after(None).seen
    (location / "_delta_log" / f"{1:020d}.json").write_text("garbage")
    for look in (
        lambda: log.changes_after(seen),
        lambda: log.version,
        lambda: log.events_of_commit(0),
    ):
        with pytest.raises(TableUnreadableError) as error:
            look()
        message = str(error.value)
        assert "bronze.flights" in message
        assert not [internal for internal in ("deltalake.", "Kernel", "\n") if internal in message]


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "drop", "replace", "optimize", "look", "checkpoint"]),
            st.integers(0, 2),
        ),
        max_size=8,
    )
)
def test_looks_at_any_moment_find_each_commit_of_each_partition_once(
    tmp_path_factory: pytest.TempPathFactory, executions: list[tuple[str, int]]
) -> None:
    location = tmp_path_factory.mktemp("history") / "t"
    hourly(location, 0)
    captured = log_of(location).changes_after(None)
    found, seen = list(captured.events), captured.seen
    for action, hour in executions:
        match action:
            case "append":
                hourly(location, hour)
            case "drop":
                DeltaTable(str(location)).delete(f"hour = {hour}")
            case "replace":
                hourly(location, hour, mode="overwrite", predicate=f"hour = {hour}")
            case "optimize":
                DeltaTable(str(location)).optimize.compact()
            case "checkpoint":
                DeltaTable(str(location)).create_checkpoint()
            case _:
                captured = log_of(location).changes_after(seen)
                found, seen = found + list(captured.events), captured.seen
    found += log_of(location).changes_after(seen).events
    whole = log_of(location).changes_after(
        Seen("bronze.flights", log_of(location).uid, SnapshotId("-1"), "east")
    )
    assert found == list(whole.events)
    assert len({(event.snapshot_id, event.partition) for event in found}) == len(found)
