"""What lies in a table's folder is told without a JVM: rows, what commits removed, and what none names."""

from pathlib import Path

from deltalake import DeltaTable

from lakechime_dagster.formats.delta import DeltaLog, table_files
from tests.support.tables import rows, write


def log_at(folder: Path) -> DeltaLog:
    return DeltaLog(str(folder), "bronze.events")


def test_live_files_are_told_with_sizes_rows_and_typed_partitions(tmp_path: Path) -> None:
    write(tmp_path, rows((None, 5, 1, "a"), (None, None, 2, "b")), partition_by=["hour"])
    files = table_files(log_at(tmp_path))
    assert sorted((file.partition, file.rows) for file in files.live if file.partition == (5,)) == [((5,), 1)]
    assert {file.partition for file in files.live} == {(5,), (None,)}
    assert all(file.size == (tmp_path / file.path).stat().st_size for file in files.live)
    assert (files.removed, files.orphans, files.is_clustered) == ((), (), False)


def test_files_that_a_commit_removed_are_told_with_its_time_while_they_are_there(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path, rows((None, 1, i, "a")))
    before = {file.path for file in table_files(log_at(tmp_path)).live}
    DeltaTable(str(tmp_path)).optimize.compact()
    files, log = table_files(log_at(tmp_path)), log_at(tmp_path)
    assert ({file.path for file in files.removed}, len(files.live), files.orphans) == (before, 1, ())
    assert {file.since for file in files.removed} == {log.commits(2, 3)[0].timestamp}
    (tmp_path / sorted(before)[0]).unlink()
    assert len(table_files(log).removed) == 2


def test_what_no_commit_names_is_an_orphan_but_for_what_is_hidden_and_for_other_tables(tmp_path: Path) -> None:
    write(tmp_path, rows((None, 1, 1, "a")))
    write(tmp_path / "inner", rows((None, 1, 1, "a")))
    for name in ("left.parquet", "hour=3/left.parquet", "_hidden/x.parquet", ".part.crc", "deletion_vector_1.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("rows")
    files = table_files(log_at(tmp_path))
    assert sorted((file.path, file.size) for file in files.orphans) == [("hour=3/left.parquet", 4), ("left.parquet", 4)]


def test_names_that_a_url_spells_otherwise_are_the_same_file(tmp_path: Path) -> None:
    write(tmp_path, rows((None, 1, 1, "a b/c%20ü")), partition_by=["value"])
    files = table_files(log_at(tmp_path))
    assert ([file.partition for file in files.live], files.removed, files.orphans) == ([("a b/c%20ü",)], (), ())
    DeltaTable(str(tmp_path)).delete()
    files = table_files(log_at(tmp_path))
    assert (files.live, len(files.removed), files.orphans) == ((), 1, ())
