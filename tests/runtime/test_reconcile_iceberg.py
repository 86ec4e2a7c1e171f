"""Iceberg tables through the store: what happens to a table becomes its events, once and in order,
and fires triggers as the changes of a Delta table do.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine.url import make_url

from lakechime_dagster.dce.engine import memory_engine, upgrade
from lakechime_dagster.dce.events import EventQuery, RegisteredEvent, TableFormat
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.formats.iceberg import IcebergLog
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.reconcile import reconcile, reconcile_table
from lakechime_dagster.runtime.table_summaries import table_summaries
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable
from tests.support.iceberg import BY_DAY, IcebergWorld, branched, rows
from tests.support.world import World

ICE = SourceTable("bronze.ice", storage=Storage(format="iceberg"))
NEW = SourceTable("bronze.new", storage=Storage(format="iceberg", partitioned_by={"day": "date"}))
Found = list[tuple[str | None, tuple[object, ...] | None]]


@pytest.fixture
def platform(
    home: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Platform:
    """That of a lake which says nothing of a catalog, or names one in PostgreSQL."""
    if getattr(request, "param", "") == "postgres":
        uri = make_url(request.getfixturevalue("postgres_url")).set(drivername="postgresql+psycopg")
        url = uri.render_as_string(hide_password=False)
        catalog = {"type": "sql", "uri": url, "warehouse": str(home / "warehouse")}
        monkeypatch.setenv("LAKECHIME_ICEBERG_CATALOG", json.dumps(catalog))
    return open_platform()


@pytest.fixture
def ice(platform: Platform) -> IcebergWorld:
    """The catalog of the lake."""
    return IcebergWorld(platform.settings.iceberg_catalog)


def events(platform: Platform) -> list[RegisteredEvent]:
    return platform.store.fetch(EventQuery(table="bronze.ice"))


def found_of(events: Sequence[RegisteredEvent]) -> Found:
    return [(one.event.snapshot_id, one.event.partition) for one in events]


@pytest.mark.parametrize(
    "platform", ["embedded", pytest.param("postgres", marks=pytest.mark.tier2)], indirect=True
)
def test_the_events_of_a_table_are_registered_once_and_of_one_that_is_not_there_its_levels(
    platform: Platform, ice: IcebergWorld
) -> None:
    table = ice.create(BY_DAY)
    table.append(rows(1))
    for day in (2, 3):
        new, problems = reconcile(platform, [ICE, NEW])
        assert (len(new), problems) == (1, [])
        table.append(rows(day))
    reconcile(platform, [ICE, NEW])
    assert reconcile(platform, [ICE, NEW]) == ([], [])
    chain = [str(one.snapshot_id) for one in table.metadata.snapshots]
    assert found_of(events(platform)) == [(chain[at], (f"2024-05-0{at + 1}",)) for at in range(3)]
    assert {one.event.table_format for one in events(platform)} == {TableFormat.ICEBERG}
    assert {one.name: one.levels for one in platform.store.tables()} == dict.fromkeys(
        ("bronze.ice", "bronze.new"), PartitionLevels.of({"day": "date"})
    )


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("rest", "Connection refused"),
        ("hive", "Could not connect to any of"),
        pytest.param("refusing", "no such token", marks=pytest.mark.tier2),
        pytest.param("postgres", 'role "nobody" does not exist', marks=pytest.mark.tier2),
    ],
)
def test_a_catalog_that_cannot_be_asked_is_a_problem_of_its_tables_alone(
    platform: Platform,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    reason: str,
) -> None:
    catalog = {"type": "rest", "uri": "http://127.0.0.1:9", "token": "hunter2"}
    if kind == "hive":
        catalog = {"type": "hive", "uri": "thrift://127.0.0.1:9"}
    if kind == "refusing":
        catalog = request.getfixturevalue("rest_catalog").properties(token="hunter2")
    if kind == "postgres":
        url = make_url(request.getfixturevalue("postgres_url"))
        nobody = url.set(drivername="postgresql+psycopg", username="nobody", password="hunter2")
        catalog = {"type": "sql", "uri": nobody.render_as_string(hide_password=False)}
    monkeypatch.setenv("LAKECHIME_ICEBERG_CATALOG", json.dumps(catalog))
    away = open_platform()
    delta = SourceTable("bronze.delta", storage=Storage(partitioned_by={"day": "date"}))
    new, (problem,) = reconcile(away, [ICE, delta])
    assert new == []
    assert problem.startswith("bronze.ice: it cannot be read by the Iceberg catalog ")
    assert reason in problem
    assert "hunter2" not in problem
    assert "\n" not in problem
    assert [one.name for one in away.store.tables()] == ["bronze.delta"]


@pytest.mark.parametrize("which", ["metadata", "manifest list", "manifest"])
def test_a_file_that_is_half_written_is_a_problem_of_its_table_until_it_is_whole(
    platform: Platform, ice: IcebergWorld, which: str
) -> None:
    table, other = ice.create(BY_DAY), SourceTable("bronze.other", storage=ICE.storage)
    ice.fill(other.name, rows(1))
    table.append(rows(1))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    place = {
        "metadata": table.metadata_location,
        "manifest list": snapshot.manifest_list,
        "manifest": snapshot.manifests(table.io)[0].manifest_path,
    }[which]
    file = Path(place.removeprefix("file://"))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    new, (problem,) = reconcile(platform, [ICE, other])
    assert [one.event.table for one in new] == ["bronze.other"]
    assert problem.startswith("bronze.ice: it cannot be read by the Iceberg catalog sqlite:")
    assert "a metadata file of the table is not whole; check" in problem
    file.write_bytes(whole)
    new, problems = reconcile(platform, [ICE, other])
    assert ([one.event.table for one in new], problems) == (["bronze.ice"], [])


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["append", "drop", "replace", "poll", "poll", "property", "branch"]),
        st.integers(1, 3),
    ),
    max_size=8,
)


@settings(max_examples=10)
@given(ACTIONS)
def test_polls_at_any_moment_register_each_snapshot_of_each_partition_once_and_in_order(
    actions: list[tuple[str, int]],
) -> None:
    engine = memory_engine()
    upgrade(engine)
    with tempfile.TemporaryDirectory() as folder:
        ice = IcebergWorld.within(Path(folder))
        platform = World(engine).platform(Path(folder))
        table, log = ice.create(BY_DAY), IcebergLog(ice.properties, "bronze.ice")
        reconcile_table(platform, log, PartitionLevels())
        for action, day in actions:
            match action:
                case "append":
                    table.append(rows(day))
                case "drop":
                    table.delete(f"day = '2024-05-0{day}'")
                case "replace":
                    table.overwrite(rows(day), overwrite_filter=f"day = '2024-05-0{day}'")
                case "property":
                    with table.transaction() as transaction:
                        transaction.set_properties(day=str(day))
                case "branch" if table.metadata.current_snapshot_id is not None:
                    branched(table, f"b{day}")
                    table.append(rows(day), branch=f"b{day}")
                case _:
                    reconcile_table(platform, log, PartitionLevels())
        reconcile_table(platform, log, PartitionLevels())
        on_main = [table.metadata.current_snapshot()]
        while on_main[-1] is not None and on_main[-1].parent_snapshot_id is not None:
            on_main.append(table.metadata.snapshot_by_id(on_main[-1].parent_snapshot_id))
        got = [(one.event.snapshot_id, one.event.prev_snapshot_id) for one in events(platform)]
    assert got == [
        (
            str(one.snapshot_id),
            None if one.parent_snapshot_id is None else str(one.parent_snapshot_id),
        )
        for one in reversed(on_main)
        if one is not None
    ]


def test_a_table_shows_how_many_snapshots_are_not_captured(
    platform: Platform, ice: IcebergWorld
) -> None:
    table, lake = ice.create(BY_DAY), Lake("ice", [ICE, NEW])
    table.append(rows(1))

    def lags() -> list[object]:
        return [
            (one["captured_by"], one["lag_commits"]) for one in table_summaries(platform, lake, {})
        ]

    assert lags() == [(None, None), (None, None)]
    reconcile(platform, [ICE])
    assert lags() == [("log", 0), (None, None)]
    table.append(rows(2, 3))
    table.append(rows(3))
    assert lags() == [("log", 2), (None, None)]
