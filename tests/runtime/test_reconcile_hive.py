"""Hive tables through the store: what happens to a table becomes its events, once, and fires
triggers by partition.
"""

import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakechime_dagster.dce.engine import memory_engine, upgrade
from lakechime_dagster.dce.events import RegisteredEvent, Seen, SnapshotId
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.formats.changes import Captured
from lakechime_dagster.formats.hive import HiveLog
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.reconcile import reconcile, reconcile_table
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable
from tests.support.metastore import HiveTable, Metastore
from tests.support.world import World

DAYS = PartitionLevels.of({"day": "date"})


@pytest.fixture
def platform(home: Path, metastore: Metastore, monkeypatch: pytest.MonkeyPatch) -> Platform:
    monkeypatch.setenv("LAKECHIME_METASTORE", metastore.url)
    return open_platform()


def declared(table: HiveTable) -> SourceTable:
    return SourceTable(table.name, storage=Storage(format="hive", partitioned_by={"day": "date"}))


def log_of(platform: Platform, table: HiveTable) -> HiveLog:
    return platform.hive_log(table.name, DAYS, lists_all=True)


def days(events: Collection[RegisteredEvent]) -> list[object]:
    return [one.event.partition and one.event.partition[0] for one in events]


def test_a_metastore_out_of_reach_is_a_problem_of_its_tables_alone(
    platform: Platform, hive_table: HiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKECHIME_METASTORE", "thrift://127.0.0.1:9")
    delta = SourceTable("bronze.delta", storage=Storage(partitioned_by={"day": "date"}))
    new, (problem,) = reconcile(open_platform(), [declared(hive_table), delta])
    assert new == []
    assert problem.startswith(f"{hive_table.name}: it cannot be read by the Hive metastore thrift:")
    assert {one.name: one.levels for one in platform.store.tables()} == dict.fromkeys(
        ("bronze.delta", hive_table.name), DAYS
    )


def test_what_is_half_written_is_no_change_and_a_folder_out_of_reach_hinders_no_other_table(
    platform: Platform, hive_table: HiveTable, metastore: Metastore, tmp_path: Path
) -> None:
    other = HiveTable(metastore, tmp_path / "other").create("day date")
    hive_table.create("day date")
    tables = [declared(hive_table), declared(other)]
    for one in (hive_table, other):
        one.add("2024-05-01")
    assert len(reconcile(platform, tables)[0]) == 2
    staged = hive_table.at("2024-05-01", "_temporary", "0", "task")
    staged.mkdir(parents=True)
    (staged / "part-0.parquet").write_bytes(b"PAR1")
    (hive_table.at("2024-05-01") / "._COPYING_").write_bytes(b"PAR1")
    hive_table.analyze("2024-05-01")
    assert reconcile(platform, tables) == ([], [])
    hive_table.analyze("2024-05-01")
    (hive_table.folder / "h").rename(hive_table.folder / "away")
    other.add("2024-05-02")
    new, (problem,) = reconcile(platform, tables)
    assert days(new) == ["2024-05-02"]
    assert problem.startswith(f"{hive_table.name}: it cannot be read by the Hive metastore thrift:")
    assert "\n" not in problem


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_polls_at_once_one_registers_and_the_other_polls_again(
    platform: Platform, hive_table: HiveTable, is_first: bool
) -> None:
    @dataclass(frozen=True)
    class Overtaken(HiveLog):
        """A log that is polled and registered by somebody else while its first poll lasts."""

        def changes_after(self, seen: Seen | None, pushed: Collection[SnapshotId] = ()) -> Captured:
            captured = super().changes_after(seen, pushed)
            if not overtaken:
                overtaken.extend(reconcile_table(platform, log, DAYS).registration.registered)
                hive_table.write("2024-05-02")
            return captured

    overtaken: list[RegisteredEvent] = []
    hive_table.create("day date")
    log = log_of(platform, hive_table)
    if not is_first:
        reconcile_table(platform, log, DAYS)
    for day in ("2024-05-01", "2024-05-02"):
        hive_table.add(day)
    slow = Overtaken(**vars(log))
    done = reconcile_table(platform, slow, DAYS).registration.registered
    assert (days(overtaken), days(done)) == (["2024-05-01", "2024-05-02"], ["2024-05-02"])
    assert reconcile_table(platform, log, DAYS).registration.registered == ()


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "drop", "write", "replace", "remove", "poll", "poll", "list"]),
        st.integers(1, 3),
    ),
    max_size=10,
)


@settings(max_examples=10)
@given(ACTIONS)
def test_polls_at_any_moment_find_each_difference_once_and_a_listing_of_all_finds_all(
    metastore: Metastore, actions: list[tuple[str, int]]
) -> None:
    engine = memory_engine()
    upgrade(engine)
    with tempfile.TemporaryDirectory() as folder:
        table = HiveTable(metastore, Path(folder)).create("day date")
        platform = World(engine).platform(Path(folder))
        present: dict[str, dict[Path, int]] = {}  # by day its files, each with its size and time
        reported: dict[str, dict[Path, int]] = {}  # when its last event was registered

        def poll(lists_all: bool) -> None:
            log = HiveLog(
                metastore.url,
                table.name,
                known=lambda keys: platform.store.listing(table.name, "", keys),
                lists_all=lists_all,
            )
            for event in reconcile_table(platform, log, DAYS).registration.registered:
                assert event.event.partition is not None
                (day,) = event.event.partition
                assert reported.get(day) != present.get(day)
                reported.pop(day, None)
                if day in present:
                    reported[day] = dict(present[day])

        poll(lists_all=False)
        for number, (action, at) in enumerate(actions):
            day = f"2024-05-0{at}"
            files = present.get(day)
            match action:
                case "add" if files is None:
                    for path in table.at(day).glob("*"):
                        path.unlink()
                    table.add(day)
                    present[day] = {}
                case "drop" if files is not None:
                    table.drop_partition(day)
                    del present[day]
                case "write" if files is not None:
                    files[table.write(day)] = number
                case "replace" if files:
                    path = next(iter(files))
                    files[table.write(day, name=path.name)] = number
                case "remove" if files:
                    path = next(iter(files))
                    path.unlink()
                    del files[path]
                case _:
                    poll(lists_all=action == "list")
        poll(lists_all=True)
        assert reported == present
