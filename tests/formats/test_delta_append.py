"""Files in a table's folder come into the table once, with the commit that names them."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, Schema, TableFeatures
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from lakechime_dagster.dce.events import OperationType
from lakechime_dagster.errors import ConsumerConflictError
from lakechime_dagster.formats.delta import DeltaLog, add_folder
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId
from tests.support.tables import rows, write

CONSUMER = ConsumerId("test", "game", "buy")


def table_at(folder: Path) -> DeltaLog:
    write(folder, rows((None, 1, 1, "a")))
    return DeltaLog(str(folder), "game.buy")


def staged(log: DeltaLog, name: str, *ids: int) -> str:
    """A folder with a file of rows with these ids, and what a writer leaves beside it."""
    folder = Path(log.location) / name
    folder.mkdir()
    pq.write_table(
        pa.table({"id": pa.array(ids, pa.int64()), "value": ["x"] * len(ids)}),
        folder / "part-0.parquet",
    )
    (folder / "_SUCCESS").touch()
    return name


def commit_metadata(number: int, attempt: int = 1) -> CommitMetadata:
    return CommitMetadata(
        consumer=CONSUMER,
        number=number,
        attempt=attempt,
        execution_id=f"e{attempt}",
        end=Checkpoint(),
        tags={"schema_version": "3"},
    )


def ids(log: DeltaLog) -> list[int]:
    return sorted(DeltaTable(log.location).to_pyarrow_table()["id"].to_pylist())


def test_a_folder_becomes_one_commit_that_reports_its_execution_and_how_many_rows(
    tmp_path: Path,
) -> None:
    log = table_at(tmp_path)
    assert log.add_folder(staged(log, "a", 7, 8), commit_metadata(1))
    found = log.committed(CONSUMER, 1)
    assert found is not None
    assert (found.commit_metadata, found.version, ids(log)) == (commit_metadata(1), "1", [1, 7, 8])
    (commit,) = log.commits(0, 1)
    assert [(file.path, file.rows, file.nulls) for file in commit.added] == [
        ("a/part-0.parquet", 2, {"id": 0, "value": 0})
    ]
    (event,) = log.events_of_commit(1)
    assert (event.operation_type, dict(event.tags)) == (
        OperationType.APPEND,
        {"schema_version": "3"},
    )


def test_an_execution_that_has_committed_takes_no_folder_nor_does_an_earlier_one(
    tmp_path: Path,
) -> None:
    log = table_at(tmp_path)
    assert log.add_folder(staged(log, "a", 7), commit_metadata(2))
    assert [
        log.add_folder(staged(log, name, 8), commit_metadata(number, attempt=2))
        for name, number in (("b", 2), ("c", 1))
    ] == [False, False]
    assert (ids(log), log.version) == ([1, 7], 1)


def test_of_two_that_looked_before_either_committed_one_is_refused(tmp_path: Path) -> None:
    log = table_at(tmp_path)
    states = [DeltaTable(log.location) for _ in range(2)]
    for name in "ab":
        staged(log, name, 7)
    assert add_folder(states[0], log.folder, "a", str(CONSUMER), 1, {})
    with pytest.raises(CommitFailedError):
        add_folder(states[1], log.folder, "b", str(CONSUMER), 1, {})
    assert ids(log) == [1, 7]


def test_an_append_of_others_meanwhile_is_no_hindrance_and_new_columns_are(tmp_path: Path) -> None:
    log = table_at(tmp_path)
    before = DeltaTable(log.location)
    write(tmp_path, rows((None, 1, 2, "b")))
    assert add_folder(before, log.folder, staged(log, "a", 7), str(CONSUMER), 1, {})
    assert ids(log) == [1, 2, 7]
    late = Late(log.location, log.table)
    with pytest.raises(ConsumerConflictError, match="look again"):
        late.add_folder(staged(log, "b", 8), commit_metadata(2))
    assert ids(log) == [1, 2, 7]


class Late(DeltaLog):
    """A log whose table gets a column behind each look at it."""

    def _open(self, version: int | None = None) -> DeltaTable:
        state = super()._open(version)
        DeltaTable(self.location).alter.add_columns([Field("more", PrimitiveType("string"))])
        return state


def test_files_without_rows_are_left_out_and_the_execution_has_its_commit(tmp_path: Path) -> None:
    log = table_at(tmp_path)
    assert log.add_folder(staged(log, "a"), commit_metadata(1))
    assert (
        log.commits(0, 1)[0].added,
        log.committed(CONSUMER, 1) is not None,
        log.events_of_commit(1),
    ) == ((), True, [])


def test_tables_that_hold_their_rows_to_something_are_not_plain(tmp_path: Path) -> None:
    plain = table_at(tmp_path / "plain").plain_columns()
    assert plain is not None
    assert [field["name"] for field in json.loads(plain)["fields"]] == [
        "day",
        "hour",
        "id",
        "value",
    ]
    assert DeltaLog(str(tmp_path / "none"), "t").plain_columns() is None
    write(tmp_path / "parts", rows((None, 1, 1, "a")), partition_by=["hour"])
    table_at(tmp_path / "bound")
    DeltaTable(tmp_path / "bound").alter.add_constraint({"positive": "id > 0"})
    table_at(tmp_path / "marked")
    DeltaTable(tmp_path / "marked").alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    strict = {"name": "id", "type": "long", "nullable": False, "metadata": {}}
    deep = {
        "name": "s",
        "type": {"type": "struct", "fields": [strict]},
        "nullable": True,
        "metadata": {},
    }
    for name, field in {"strict": strict, "deep": deep}.items():
        DeltaTable.create(
            tmp_path / name, Schema.from_json(json.dumps({"type": "struct", "fields": [field]}))
        )
    assert [
        DeltaLog(str(tmp_path / name), "t").plain_columns()
        for name in ("parts", "bound", "marked", "strict", "deep")
    ] == [None] * 5
