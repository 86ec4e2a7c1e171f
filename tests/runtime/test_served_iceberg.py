"""Iceberg tables of catalogs that servers have, REST and Hive: what happens to them is captured, and
of several writers one is first.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from lakechime_dagster.dce.events import EventQuery, OperationType, Position, SnapshotId
from lakechime_dagster.errors import ConcurrentWriteError
from lakechime_dagster.formats.iceberg import IcebergLog
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.reconcile import reconcile
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId
from tests.support.iceberg import BY_DAY, IcebergWorld, branched, rows, tagged
from tests.support.rest_catalog import RestCatalog

ICE = SourceTable("bronze.ice", storage=Storage(format="iceberg"))
DELTA = SourceTable("bronze.delta", storage=Storage(partitioned_by={"day": "date"}))
APPEND, UPDATE, DELETE = OperationType.APPEND, OperationType.UPDATE, OperationType.DELETE


@pytest.fixture
def platform(home: Path, served_iceberg: IcebergWorld, monkeypatch: pytest.MonkeyPatch) -> Platform:
    monkeypatch.setenv("LAKECHIME_ICEBERG_CATALOG", json.dumps(served_iceberg.properties))
    return open_platform()


def log_of(world: IcebergWorld) -> IcebergLog:
    return IcebergLog(world.properties, "bronze.ice")


def test_what_happens_to_a_table_is_registered_once(
    platform: Platform, served_iceberg: IcebergWorld
) -> None:
    table = served_iceberg.create(BY_DAY)
    table.append(rows(1), snapshot_properties=tagged(complete="true"))
    reconcile(platform, [ICE])
    table.append(rows(1, 2))
    table.overwrite(rows(2), overwrite_filter="day = '2024-05-02'")
    table.delete("day = '2024-05-01'")
    assert len(reconcile(platform, [ICE])[0]) == 5
    assert reconcile(platform, [ICE]) == ([], [])
    found = [one.event for one in platform.store.fetch(EventQuery(table="bronze.ice"))]
    assert [(one.partition and one.partition[0], one.operation_type) for one in found] == [
        ("2024-05-01", APPEND),
        ("2024-05-01", APPEND),
        ("2024-05-02", APPEND),
        ("2024-05-02", DELETE),
        ("2024-05-02", APPEND),
        ("2024-05-01", DELETE),
    ]
    assert dict(found[0].tags) == {"complete": "true"}
    assert {one.table_uid for one in found} == {str(table.metadata.table_uuid)}


def test_a_dropped_table_is_absent_and_one_of_its_name_another(
    platform: Platform, served_iceberg: IcebergWorld
) -> None:
    served_iceberg.create(BY_DAY).append(rows(1))
    reconcile(platform, [ICE])
    served_iceberg.catalog.drop_table("bronze.ice")
    assert reconcile(platform, [ICE]) == ([], [])
    assert not log_of(served_iceberg).exists()
    served_iceberg.create(BY_DAY).append(rows(2))
    (again,), problems = reconcile(platform, [ICE])
    assert (again.event.partition, problems) == (("2024-05-02",), [])
    assert again.event.tags["lakechime/verdict"] == "RECREATED"


@pytest.mark.parametrize("served_iceberg", ["rest"], indirect=True)
def test_a_server_that_is_down_is_a_problem_of_its_tables_alone_and_it_goes_on_when_it_is_up(
    platform: Platform, served_iceberg: IcebergWorld, rest_catalog: RestCatalog
) -> None:
    table = served_iceberg.create(BY_DAY)
    table.append(rows(1))
    reconcile(platform, [ICE])
    table.append(rows(2))
    with rest_catalog.stopped():
        new, (problem,) = reconcile(platform, [ICE, DELTA])
    assert (new, [one.name for one in platform.store.tables()]) == (
        [],
        ["bronze.delta", "bronze.ice"],
    )
    assert problem.startswith(
        "bronze.ice: it cannot be read by the Iceberg catalog http://127.0.0.1"
    )
    assert ("Connection refused" in problem, "\n" in problem) == (True, False)
    assert [one.event.partition for one in reconcile(platform, [ICE])[0]] == [("2024-05-02",)]


def staged(world: IcebergWorld, table: Table, number: int) -> tuple[str, CommitMetadata]:
    """A snapshot on the current one that is not current itself."""
    name = uuid4().hex
    branched(table, name)
    table.append(rows(number), branch=name, snapshot_properties={"wap.id": name})
    metadata = CommitMetadata(
        consumer=ConsumerId("test", "subscription"),
        number=number,
        attempt=1,
        execution_id=name,
        end=Checkpoint(position=Position(0, number)),
    )
    return name, metadata


def test_of_writers_that_publish_at_once_one_is_first_and_the_others_are_refused(
    served_iceberg: IcebergWorld,
) -> None:
    table = served_iceberg.create(BY_DAY)
    table.append(rows(1))
    for _ in range(2):
        base = log_of(served_iceberg).newest
        offered = [staged(served_iceberg, table, number) for number in (1, 2, 3)]
        start = Barrier(len(offered))

        def publish(
            one: tuple[str, CommitMetadata], base: SnapshotId = base, start: Barrier = start
        ) -> bool:
            log = log_of(served_iceberg)
            start.wait()
            try:
                return log.publish(one[0], base, one[1], is_kept=True)
            except ConcurrentWriteError:
                return False

        with ThreadPoolExecutor(len(offered)) as pool:
            won = list(pool.map(publish, offered))
        assert won.count(True) == 1
        current = served_iceberg.catalog.load_table("bronze.ice").current_snapshot()
        assert current is not None
        assert current.summary is not None
        first = offered[won.index(True)][0]
        assert current.summary.additional_properties["wap.id"] == first
        assert str(current.parent_snapshot_id) == base
        table.refresh()


def test_a_table_is_made_once_where_several_make_it(served_iceberg: IcebergWorld) -> None:
    start = Barrier(4)

    def create(number: int) -> None:
        start.wait()
        schema = pa.schema([("day", pa.date32()), ("id", pa.int64())])
        log_of(served_iceberg).create(schema, ["day"], f"by {number}", {"format-version": "2"})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create, range(4)))
    log = log_of(served_iceberg)
    assert (log.exists(), log.levels().as_dict()) == (True, {"day": "date"})
