"""Changes of Hive tables as events: what happens in a metastore and to files, and what a poll finds."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakechime_dagster.dce.events import OperationType, SnapshotId, TableFormat
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import TableAbsentError, TableUnreadableError
from lakechime_dagster.formats import hive
from lakechime_dagster.formats.hive import HiveLog
from tests.support.metastore import HiveTable, Polls, found, tags

APPEND, UPDATE, DELETE = OperationType.APPEND, OperationType.UPDATE, OperationType.DELETE


def test_partitions_that_are_added_or_dropped_are_events(hive_table: HiveTable) -> None:
    polls = Polls(hive_table.create("day date"))
    assert polls.events() == ()
    hive_table.write("2024-05-01")
    hive_table.add("2024-05-01", complete="true")
    hive_table.add("2024-05-02")
    (first, second) = polls.events()
    assert (first.partition, second.partition) == (("2024-05-01",), ("2024-05-02",))
    assert (first.operation_type, first.table_format) == (APPEND, TableFormat.HIVE)
    assert (first.snapshot_id, first.cluster, first.table_uid) == (None, "east", polls.log.uid)
    assert tags([first, second]) == [{"complete": "true"}, {}]
    hive_table.drop_partition("2024-05-01")
    assert polls.found() == [("2024-05-01", DELETE)]
    assert polls.found() == polls.found(lists_all=True) == []
    assert polls.log.levels() == PartitionLevels.of({"day": "date"})


def test_files_of_which_the_metastore_learns_nothing_are_found_when_all_are_listed(
    hive_table: HiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = Polls(hive_table.create("day date"))
    for day in ("2024-05-01", "2024-05-02", "2024-05-03", "2024-05-04"):
        hive_table.write(day, name="one")
        hive_table.add(day)
    assert len(polls.events()) == 4
    hive_table.write("2024-05-01")
    hive_table.write("2024-05-02", name="one")
    hive_table.write("2024-05-04")
    (hive_table.at("2024-05-04") / "one").unlink()
    for name in ("_SUCCESS", ".part.crc"):
        (hive_table.at("2024-05-03") / name).touch()
    assert polls.found() == []
    monkeypatch.setattr(hive, "WHOLE_LISTING_MS", 0)
    assert polls.found() == [("2024-05-01", APPEND), ("2024-05-02", UPDATE), ("2024-05-04", UPDATE)]
    (hive_table.at("2024-05-03") / "one").unlink()
    assert polls.found() == [("2024-05-03", DELETE)]
    assert polls.found() == []


def test_an_event_has_the_bytes_of_the_files_that_are_new_in_its_partition(
    hive_table: HiveTable,
) -> None:
    polls = Polls(hive_table.create("day date"))

    def write(day: str, name: str, size: int) -> None:
        hive_table.write(day, name=name).write_bytes(bytes(size))

    def sizes() -> list[int | None]:
        return [one.added_bytes for one in polls.events(lists_all=True)]

    write("2024-05-01", "a", 10)
    write("2024-05-02", "a", 20)
    for day in ("2024-05-01", "2024-05-02"):
        hive_table.add(day)
    assert sizes() == [10, 20]
    write("2024-05-01", "b", 5)
    assert sizes() == [5]
    write("2024-05-01", "a", 30)  # rewritten: which of its files are new is not known
    assert sizes() == [35]
    hive_table.drop_partition("2024-05-02")
    assert sizes() == [0]


def test_a_notification_is_no_change_and_says_which_files_to_look_at(hive_table: HiveTable) -> None:
    polls = Polls(hive_table.create("day date"))
    hive_table.write("2024-05-01")
    hive_table.add("2024-05-01")
    polls.events()
    hive_table.analyze("2024-05-01")
    assert polls.found() == []
    hive_table.write("2024-05-01")
    hive_table.analyze("2024-05-01")
    assert polls.found() == [("2024-05-01", APPEND)]


def test_values_have_the_types_of_the_columns_and_strange_ones_are_found(
    hive_table: HiveTable, tmp_path: Path
) -> None:
    hive_table.create("day date", "hour int", "note varchar(20)")
    polls = Polls(hive_table, PartitionLevels.of({"Note": "string", "Day": "date", "hour": "int"}))
    assert polls.events() == ()
    hive_table.add("2024-05-01", "3", "a: b/ä")
    hive_table.add("2024-05-02", "4", "__HIVE_DEFAULT_PARTITION__", at=tmp_path / "far" / "a%3Ab")
    assert [one.partition for one in polls.events()] == [
        ("a: b/ä", "2024-05-01", 3),
        (None, "2024-05-02", 4),
    ]
    hive_table.write("2024-05-01", "3", "a: b/ä")
    (tmp_path / "far" / "a%3Ab" / "part").touch()
    assert polls.found(lists_all=True) == [("a: b/ä", APPEND), (None, APPEND)]


@pytest.mark.parametrize("serde", ["serde2.lazy.LazySimpleSerDe", "serde2.OpenCSVSerde"])
def test_a_serde_that_spark_reads_otherwise_is_refused_by_name(
    hive_table: HiveTable, serde: str
) -> None:
    hive_table.create()
    with hive_table.metastore.client() as client:
        table: Any = client.get_table(hive_table.database, "h")
        table.sd.serdeInfo.serializationLib = f"org.apache.hadoop.hive.{serde}"
        client.alter_table(hive_table.database, "h", table)
    with pytest.raises(TableUnreadableError, match=f"written with org.apache.hadoop.hive.{serde}"):
        HiveLog(hive_table.metastore.url, hive_table.name).stored()


def test_values_that_do_not_fit_the_declared_type_are_an_event_without_a_partition(
    hive_table: HiveTable,
) -> None:
    polls = Polls(hive_table.create("day string"), PartitionLevels.of({"day": "date"}))
    hive_table.add("2024-05-01")
    hive_table.add("unknown")
    assert polls.found() == [("2024-05-01", APPEND), (None, UPDATE)]
    hive_table.drop_partition("unknown")
    assert polls.found() == [(None, UPDATE)]


def test_an_unpartitioned_table_changes_as_a_whole(hive_table: HiveTable) -> None:
    polls = Polls(hive_table.create())
    assert polls.events() == ()
    path = hive_table.write()
    assert polls.found(lists_all=True) == [(None, APPEND)]
    assert polls.log.levels() == PartitionLevels()
    path.unlink()
    assert polls.found(lists_all=True) == [(None, DELETE)]
    assert polls.found(lists_all=True) == []


@pytest.mark.parametrize("columns", [(), ("day date",)])
def test_a_table_that_was_dropped_and_created_again_is_another(
    hive_table: HiveTable, columns: tuple[str, ...]
) -> None:
    polls = Polls(hive_table.create(*columns, **{"lakechime.tags": '{"source": "shop"}'}))
    hive_table.write()
    polls.events()
    hive_table.drop()
    with pytest.raises(TableAbsentError, match=r"has no such table; check the name"):
        polls.events()
    hive_table.create("day date")
    hive_table.add("2024-05-01")
    before = polls.seen
    (event,) = polls.events()
    assert (event.partition, event.operation_type) == (("2024-05-01",), APPEND)
    assert tags([event]) == [{"baseline": "true", "lakechime/verdict": "RECREATED"}]
    assert before is not None
    assert event.table_uid != before.table_uid
    assert polls.found() == polls.found(lists_all=True) == []


def test_the_first_poll_registers_the_partitions_that_there_are_with_their_tags(
    hive_table: HiveTable,
) -> None:
    hive_table.create("day date", **{"lakechime.tags": '{"source": "shop", "n": 1}'})
    hive_table.add("2024-05-01", source="till")
    assert tags(Polls(hive_table).events()) == [{"baseline": "true", "n": "1", "source": "till"}]


def test_after_notifications_were_cleaned_up_unread_all_partitions_are_compared(
    hive_table: HiveTable,
) -> None:
    polls = Polls(hive_table.create("day date"))
    hive_table.add("2024-05-01")
    hive_table.add("2024-05-02")
    polls.events()
    hive_table.write("2024-05-01")
    hive_table.drop_partition("2024-05-02")
    hive_table.metastore.forget_notifications()
    events = polls.events()
    assert found(events) == [("2024-05-01", APPEND), ("2024-05-02", DELETE)]
    assert tags(events) == [{"lakechime/verdict": "EXPIRED"}] * 2
    assert polls.found() == []


def test_a_metastore_that_was_put_back_is_compared_as_a_whole(hive_table: HiveTable) -> None:
    polls = Polls(hive_table.create("day date"))
    polls.events()
    hive_table.add("2024-05-01")
    assert polls.seen is not None
    number, _, listed = polls.seen.snapshot_id.partition("-")
    ahead = SnapshotId(f"{int(number) + 100}-{listed}")
    polls.seen = replace(polls.seen, snapshot_id=ahead)
    assert tags(polls.events()) == [{"lakechime/verdict": "EXPIRED"}]
    assert polls.found() == []


def test_more_notifications_than_are_read_at_once_lead_to_a_listing_of_all(
    hive_table: HiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = Polls(hive_table.create("day date"))
    polls.events()
    days = [f"2024-05-{day:02}" for day in range(1, 6)]
    for day in days:
        hive_table.add(day)
    monkeypatch.setattr(hive, "MAX_NOTIFICATIONS", 3)
    monkeypatch.setattr(hive, "BATCH", 2)
    assert polls.found() == [(day, APPEND) for day in days]
    monkeypatch.setattr(hive, "MAX_NAMED", 0)
    hive_table.add("2024-05-06")
    assert polls.found() == [("2024-05-06", APPEND)]


def test_notifications_of_other_tables_move_a_table_on_when_there_are_many(
    hive_table: HiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = Polls(hive_table.create("day date"))
    polls.events()
    seen = polls.seen
    HiveTable(hive_table.metastore, hive_table.folder / "other").create()
    assert polls.found() == []
    assert polls.seen == seen
    monkeypatch.setattr(hive, "MAX_REPEATED", 2)
    assert polls.found() == []
    assert polls.seen is not None
    assert polls.seen.snapshot_id.partition("-")[0] == polls.log.newest
    hive_table.add("2024-05-01")
    assert polls.found() == [("2024-05-01", APPEND)]


def test_files_that_changed_while_others_were_notified_are_found_by_the_next_whole_listing(
    hive_table: HiveTable,
) -> None:
    polls = Polls(hive_table.create("day date"))
    hive_table.add("2024-05-01")
    polls.events()
    hive_table.write("2024-05-01")
    hive_table.add("2024-05-02")
    assert polls.found() == [("2024-05-02", APPEND)]
    assert polls.found(lists_all=True) == [("2024-05-01", APPEND)]


def test_a_clock_that_was_put_back_makes_no_two_polls_alike(
    hive_table: HiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = Polls(hive_table.create("day date"))
    hive_table.add("2024-05-01")
    keys = [one.event_key for one in polls.events()]
    monkeypatch.setattr(hive, "_now_ms", lambda: 7)
    for _ in range(2):
        hive_table.write("2024-05-01")
        keys += [one.event_key for one in polls.events()]
    assert len(set(keys)) == 3


def test_what_cannot_be_read_is_named_in_a_sentence(hive_table: HiveTable, tmp_path: Path) -> None:
    down = HiveLog("thrift://127.0.0.1:9", "bronze.h")
    with pytest.raises(
        TableUnreadableError,
        match=r"^bronze\.h: it cannot be read by the Hive metastore thrift://127\.0\.0\.1:9: Could",
    ):
        down.changes_after(None)
    polls = Polls(hive_table.create("day date"))
    hive_table.add("2024-05-01")
    away = hive_table.folder / "away"
    (hive_table.folder / "h").rename(away)
    with pytest.raises(TableUnreadableError, match=r'Local path ".*" does not exist'):
        polls.events()
    away.rename(hive_table.folder / "h")
    assert polls.found() == [("2024-05-01", APPEND)]
    with pytest.raises(TableUnreadableError, match=r"declared as region, and its .* are day;"):
        Polls(hive_table, PartitionLevels.of({"region": "string"})).events()


def test_a_partition_whose_folder_is_gone_has_no_rows_and_hinders_no_other(
    hive_table: HiveTable,
) -> None:
    polls = Polls(hive_table.create("day date"))
    for day in ("2024-05-01", "2024-05-02"):
        hive_table.add(day)
        hive_table.write(day)
    polls.events()
    shutil.rmtree(hive_table.at("2024-05-01"))
    hive_table.write("2024-05-02")
    assert polls.found(lists_all=True) == [("2024-05-01", DELETE), ("2024-05-02", APPEND)]
