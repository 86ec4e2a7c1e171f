"""Dumps that other tools made are read row by row, exactly, or are refused with the file, the row
and the column.
"""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakechime_dagster.cdc.load import Dump, DumpError, first_repeated

NOON = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456)


def test_rows_of_both_kinds_of_files_come_in_the_order_of_names_with_their_checkpoints(
    tmp_path: Path,
) -> None:
    table = pa.table(
        {
            "id": [1, 2],
            "price": [Decimal("1.50"), None],
            "at": pa.array([NOON, None], pa.timestamp("ns", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "1.parquet")
    (tmp_path / "2.jsonl").write_text(
        '{"id": 3, "price": 0.10, "at": "2024-02-29 12:00:00"}\n\n{"id": 4, "price": null, "at": '
        "null}"
    )
    (tmp_path / "_SUCCESS").touch()
    dump = Dump(tmp_path)
    assert dump.columns() == ("id", "price", "at")
    assert list(dump.rows()) == [
        (
            "1.parquet, row 1",
            {"id": 1, "price": Decimal("1.50"), "at": NOON.replace(tzinfo=datetime.timezone.utc)},
        ),
        ("1.parquet, row 2", {"id": 2, "price": None, "at": None}),
        ("2.jsonl, line 1", {"id": 3, "price": Decimal("0.10"), "at": "2024-02-29 12:00:00"}),
        ("2.jsonl, line 3", {"id": 4, "price": None, "at": None}),
    ]
    assert list(dump.rows()) == list(dump.rows())
    assert list(Dump(tmp_path / "1.parquet").rows()) == list(dump.rows())[:2]


def test_a_dump_is_read_in_parts_however_long_it_is(tmp_path: Path) -> None:
    file = tmp_path / "long.parquet"
    pq.write_table(pa.table({"id": range(5_000)}), file, row_group_size=700)
    rows = Dump(file).rows()
    assert next(rows) == ("long.parquet, row 1", {"id": 0})
    assert [row["id"] for _, row in rows] == [*range(1, 5_000)]


def parquet_of_nanoseconds(folder: Path) -> Path:
    pq.write_table(
        pa.table({"at": pa.array([1_000, None, 1_001], pa.timestamp("ns"))}), folder / "a.parquet"
    )
    return folder


def written(name: str, text: str) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder

    return made


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (
            parquet_of_nanoseconds,
            (
                r"a\.parquet cannot be read as Parquet after row 0: Casting from timestamp\[ns\] to "
                r"timestamp\[us\] would lose data"
            ),
        ),
        (
            written("a.parquet", "no such file"),
            r"a\.parquet cannot be read as Parquet after row 0: .*",
        ),
        (
            written("a.jsonl", '{"id": 1}\n{"id": '),
            r"a\.jsonl, line 2: it is no JSON: .*; a row is an object on one line",
        ),
        (
            written("a.json", "[1]"),
            r"a\.json, line 1: it is no row; write an object of the columns, on one line",
        ),
        (
            written("a.csv", "id"),
            (
                r"a\.csv is no file of \*\.parquet, \*\.jsonl, \*\.ndjson, \*\.json; a dump's files "
                r"lie side by side"
            ),
        ),
        (lambda folder: folder, "holds no file; name the folder of the dump"),
        (
            lambda folder: folder / "none",
            "none: there is no such file or folder; name the dump, or mount it here",
        ),
    ],
)
def test_what_is_no_dump_is_refused_with_its_checkpoint(
    made: Callable[[Path], Path], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(DumpError, match=problem):
        list(Dump(made(tmp_path)).rows())


def test_a_key_that_is_there_twice_is_found_with_its_checkpoints() -> None:
    checkpoints = [(f"row {number}", f"[{number % 1_000}]") for number in range(1_001)]
    assert first_repeated(checkpoints) == ("[0]", "row 0", "row 1000")
    assert first_repeated(checkpoints[:1_000]) is None
