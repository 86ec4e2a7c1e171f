"""Files of a Delta table as its log reports them, their statistics, and rows found by a value."""

import datetime as dt
import io
import os
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.formats.delta import LAST, MAX_TEXT, DeltaLog, statistics_of, table_files
from lakechime_dagster.formats.delta_rows import DeltaRows, column, known, texts
from lakechime_dagster.formats.iceberg import IcebergLog, IcebergRows
from lakechime_dagster.silver.maintenance import remove_empty_folders
from tests.support.iceberg import IcebergWorld
from tests.support.tables import rows, write


def log_at(folder: Path) -> DeltaLog:
    return DeltaLog(str(folder), "bronze.events")


def test_live_files_are_reported_with_sizes_rows_and_typed_partitions(tmp_path: Path) -> None:
    write(tmp_path, rows((None, 5, 1, "a"), (None, None, 2, "b")), partition_by=["hour"])
    files = table_files(log_at(tmp_path))
    assert sorted((file.partition, file.rows) for file in files.live if file.partition == (5,)) == [
        ((5,), 1)
    ]
    assert {file.partition for file in files.live} == {(5,), (None,)}
    assert all(file.size == (tmp_path / file.path).stat().st_size for file in files.live)
    assert (files.removed, files.orphans, files.is_clustered) == ((), (), False)


def test_files_that_a_commit_removed_are_reported_with_its_time_while_they_are_there(
    tmp_path: Path,
) -> None:
    for i in range(3):
        write(tmp_path, rows((None, 1, i, "a")))
    before = {file.path for file in table_files(log_at(tmp_path)).live}
    DeltaTable(str(tmp_path)).optimize.compact()
    files, log = table_files(log_at(tmp_path)), log_at(tmp_path)
    assert ({file.path for file in files.removed}, len(files.live), files.orphans) == (
        before,
        1,
        (),
    )
    assert {file.since for file in files.removed} == {log.commits(2, 3)[0].timestamp}
    (tmp_path / sorted(before)[0]).unlink()
    assert len(table_files(log).removed) == 2


def test_what_no_commit_names_is_an_orphan_but_for_what_is_hidden_and_for_other_tables(
    tmp_path: Path,
) -> None:
    write(tmp_path, rows((None, 1, 1, "a")))
    write(tmp_path / "inner", rows((None, 1, 1, "a")))
    for name in (
        "left.parquet",
        "hour=3/left.parquet",
        "_hidden/x.parquet",
        ".part.crc",
        "deletion_vector_1.bin",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("rows")
    files = table_files(log_at(tmp_path))
    assert sorted((file.path, file.size) for file in files.orphans) == [
        ("hour=3/left.parquet", 4),
        ("left.parquet", 4),
    ]


def test_names_that_a_url_spells_otherwise_are_the_same_file(tmp_path: Path) -> None:
    write(tmp_path, rows((None, 1, 1, "a b/c%20ü")), partition_by=["value"])
    files = table_files(log_at(tmp_path))
    assert ([file.partition for file in files.live], files.removed, files.orphans) == (
        [("a b/c%20ü",)],
        (),
        (),
    )
    DeltaTable(str(tmp_path)).delete()
    files = table_files(log_at(tmp_path))
    assert (files.live, len(files.removed), files.orphans) == ((), 1, ())


NOW = 2_000_000_000_000  # milliseconds


def make_folder(root: Path, name: str = "", age_ms: int = 1_000) -> Path:
    folder = root / (name or uuid4().hex)
    folder.mkdir(parents=True)
    grow(folder, age_ms)
    return folder


def grow(folder: Path, age_ms: int) -> None:
    moment = (NOW - age_ms) * 1_000_000
    os.utime(folder, ns=(moment, moment))


def test_empty_folders_of_appends_are_removed_once_they_are_old(tmp_path: Path) -> None:
    old, young, full, other = (
        make_folder(tmp_path),
        make_folder(tmp_path, age_ms=0),
        make_folder(tmp_path),
        make_folder(tmp_path, "day=1"),
    )
    (full / "part-0.parquet").touch()
    grow(full, 1_000)
    file = tmp_path / uuid4().hex
    file.touch()
    assert remove_empty_folders(str(tmp_path), NOW - 500) == 1
    assert [one.exists() for one in (old, young, full, other, file)] == [
        False,
        True,
        True,
        True,
        True,
    ]
    assert remove_empty_folders(str(tmp_path), NOW - 500) == 0


KINDS = {
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "part": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(max_size=40) | st.text("aé" + LAST, min_size=30, max_size=36)),
    "at": (
        pa.timestamp("us", tz="UTC"),
        st.datetimes(dt.datetime(1, 1, 2), timezones=st.just(dt.timezone.utc)),
    ),
    "local": (pa.timestamp("us"), st.datetimes()),
    "day": (pa.date32(), st.dates()),
}


def written(table: pa.Table, rows_of_a_group: int = 2) -> dict[str, Any]:
    """The statistics of a file with these rows."""
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows_of_a_group)
    return statistics_of(pq.read_metadata(sink))


def read_back(bound: Any, kind: str) -> Any:
    """A bound as a value."""
    if kind == "day":
        return dt.date.fromisoformat(bound)
    return datetime_of_iso(bound) if kind in ("at", "local") else bound


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_lies_within_the_bounds_and_nulls_are_counted(kind: str) -> None:
    type_, values = KINDS[kind]

    @given(st.lists(st.none() | values, min_size=1, max_size=9))
    def holds(rows: list[Any]) -> None:
        reported = written(pa.table({kind: pa.array(rows, type_)}))
        assert (reported["numRecords"], reported["nullCount"]) == (
            len(rows),
            {kind: rows.count(None)},
        )
        present = [one for one in rows if one is not None]
        if kind in reported["minValues"]:
            assert present
            assert read_back(reported["minValues"][kind], kind) <= min(present)
        if kind in reported["maxValues"]:
            assert present
            assert read_back(reported["maxValues"][kind], kind) >= max(present)

    holds()


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_json_holds_have_bounds(kind: str) -> None:
    value = {
        "whole": 7,
        "part": 0.5,
        "text": "x" * 50,
        "at": dt.datetime(2013, 1, 1, tzinfo=dt.timezone.utc),
        "local": dt.datetime(2013, 1, 1),
    }.get(kind, dt.date(2013, 1, 1))
    reported = written(pa.table({kind: pa.array([value], KINDS[kind][0])}))
    assert kind in reported["minValues"]
    assert kind in reported["maxValues"]


def test_a_text_is_cut_to_a_bound_that_still_holds_it() -> None:
    reported = written(pa.table({"t": ["b" * 100, "a" * 100]}))
    assert (reported["minValues"], reported["maxValues"]) == (
        {"t": "a" * MAX_TEXT},
        {"t": "b" * MAX_TEXT + LAST},
    )
    assert written(pa.table({"t": [LAST * 100]}))["maxValues"] == {}


def test_fields_of_structs_are_reported_by_their_structs_and_what_repeats_is_not() -> None:
    table = pa.table(
        {
            "s": [{"a": 1, "in": {"b": "x"}}, {"a": None, "in": None}],
            "many": [[1], [2, 3]],
            "is": [True, False],
        }
    )
    assert written(table) == {
        "numRecords": 2,
        "nullCount": {"s": {"a": 1, "in": {"b": 1}}, "is": 0},
        "minValues": {"s": {"a": 1, "in": {"b": "x"}}},
        "maxValues": {"s": {"a": 1, "in": {"b": "x"}}},
    }


SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("s", pa.int16()),
        ("b", pa.int8()),
        ("f", pa.float32()),
        ("g", pa.float64()),
        ('odd `" name', pa.string()),
        ("is", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("amount", pa.decimal128(12, 3)),
        ("raw", pa.binary()),
    ]
)


NOON = dt.datetime(2024, 5, 1, 12, 0, 0, 1)


ROW: dict[str, Any] = {
    "n": 2**60,
    "i": -5,
    "s": 7,
    "b": 1,
    "f": 0.5,
    "g": 1e300,
    'odd `" name': "it's \\ odd",
    "is": True,
    "day": NOON.date(),
    "at": NOON.replace(tzinfo=dt.timezone.utc),
    "wall": NOON,
    "amount": Decimal("1.200"),
    "raw": b"\x00\xff",
}


@pytest.fixture
def table_of_rows(tmp_path: Path) -> DeltaRows:
    write_deltalake(
        str(tmp_path / "t"), pa.Table.from_pylist([ROW, dict.fromkeys(SCHEMA.names)], schema=SCHEMA)
    )
    return DeltaRows(DeltaLog(str(tmp_path / "t"), "shop.t"))


@pytest.fixture(scope="module")
def iceberg_rows(tmp_path_factory: pytest.TempPathFactory) -> IcebergRows:
    world = IcebergWorld.within(tmp_path_factory.mktemp("iceberg"))
    world.fill("shop.t", pa.Table.from_pylist([ROW, dict.fromkeys(SCHEMA.names)], schema=SCHEMA))
    return IcebergRows(IcebergLog(world.properties, "shop.t"))


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_row_is_found_by_the_value_of_a_column_of_any_type(
    table_of_rows: DeltaRows, iceberg_rows: IcebergRows, name: str
) -> None:
    for table in (table_of_rows, iceberg_rows):
        (found,) = table.with_values({name: ROW[name]})
        assert {one: found[one] for one in ("n", name)} == {"n": ROW["n"], name: ROW[name]}
        assert (table.count(), table.count_known(name)) == (2, 1)


def test_columns_have_the_types_of_spark(
    table_of_rows: DeltaRows, iceberg_rows: IcebergRows
) -> None:
    types = table_of_rows.types()
    assert [types[name] for name in ("n", "i", "s", "at", "wall")] == [
        "bigint",
        "int",
        "smallint",
        "timestamp",
        "timestamp_ntz",
    ]
    assert iceberg_rows.types() == {**types, "s": "int", "b": "int"}


def test_rows_are_counted_ordered_and_cut(table_of_rows: DeltaRows) -> None:
    assert (
        table_of_rows.count(),
        table_of_rows.count(known("n")),
        table_of_rows.count(texts('odd `" name', "a", "it's \\ odd")),
    ) == (2, 1, 1)
    assert [
        row["i"]
        for row in table_of_rows.select("i", where=(column("i").eq(-5),), newest=("n",), limit=1)
    ] == [-5]
