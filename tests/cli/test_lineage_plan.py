"""`lakechime lineage plan`: the manifest of the code in a file, and what a change of the code does,
by it.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copy

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind, Read
from lakechime_dagster.lineage.manifest import read_manifest
from lakechime_dagster.lineage.recording import keep_reads, note_way
from lakechime_dagster.spark.driver import Driver
from tests.support.cli import Answer, Cli

LAKE = """
from lakechime_dagster import Asset, Lake, SourceTable, sql_table
orders = SourceTable("bronze.orders")
paid = sql_table("silver.paid", sql="SELECT {columns} FROM bronze.orders WHERE amount > 0", refresh="full")
total = sql_table("gold.total", sql="SELECT sum({read}) AS total FROM silver.paid", refresh="full", asset=Asset(owner="team:gold"))
lake = Lake("shop", [orders, paid, total])
"""
ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.int64())])


@pytest.fixture
def code(
    lakechime: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark_driver: Driver
) -> Callable[..., None]:
    """Makes the lake's code what is asked for."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LAKECHIME_LAKE", "planned_lake:lake")
    monkeypatch.setenv("LAKECHIME_SPARK_DRIVER", "local")
    monkeypatch.chdir(tmp_path)
    # a text as long, of the same second, is taken for the compiled one
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(
        times: int = 2, read: str = "twice", columns: str = "id, amount * {times} AS twice"
    ) -> None:
        text = LAKE.format(columns=columns.format(times=times), read=read)
        (tmp_path / "planned_lake.py").write_text(text, encoding="utf-8")
        sys.modules.pop("planned_lake", None)

    write()
    return write


@pytest.mark.spark
def test_the_manifest_is_written_checked_and_compared(
    lakechime: Cli, code: Callable[..., None], tmp_path: Path
) -> None:
    file = str(tmp_path / "lineage.json")
    first = lakechime("lineage", "plan", "--out", file)
    assert first.code == 0
    assert "silver.paid: not known until bronze.orders is" in first.err

    write_deltalake(lakechime.platform.location("bronze.orders"), ORDERS.empty_table())
    known = lakechime("lineage", "plan", "--out", file)
    assert (known.code, known.out) == (0, f"{file}: 3 columns of 2 computed tables, 0 unknown\n")
    assert lakechime("lineage", "plan", "--out", file, "--check").code == 0
    assert (
        lakechime("lineage", "plan", "--against", file).out == "No table, row or value changes.\n"
    )
    both = lakechime("lineage", "plan", "--against", file, "--check")
    assert (both.code, "leave out" in both.err) == (2, True)

    code(times=3)
    changed = lakechime("lineage", "plan", "--out", file, "--check")
    assert (changed.code, "is not what the code says" in changed.out) == (1, True)
    reported = lakechime("lineage", "plan", "--out", file, "--check", "--json")
    assert (
        reported.code,
        reported.json["was_current"],
        reported.json["written"],
        reported.json["unknown"],
    ) == (1, False, False, [])
    gate = lakechime("lineage", "plan", "--against", file)
    assert gate.code == 0
    assert "| values change | gold.total | total | reads silver.paid.twice |" in gate.out
    assert "### team:gold" in gate.out
    assert "- silver.paid: its next run recomputes all of it" in gate.out
    assert "Unknown: who else reads it: no audit log is configured" in gate.out
    assert lakechime("lineage", "plan", "--against", file, "--fail-on", "values change").code == 1

    read = Read(
        consumer=Consumer(ConsumerKind.DASHBOARD, "bi", "Sales"),
        refs=(ColumnRef("gold.total", "total"),),
        at_ms=1_700_000_000_000,
    )
    with writing(lakechime.platform.store.engine) as connection:
        keep_reads(connection, [read])
        note_way(connection, "audit")
    assert "| dashboard Sales (2023-11-14) |" in lakechime("lineage", "plan", "--against", file).out
    lakechime.monkeypatch.setenv(
        "LAKECHIME_STORE_URL", "postgresql+psycopg://me:secret@127.0.0.1:1/none"
    )
    apart = lakechime("lineage", "plan", "--against", file, "--json")
    assert (apart.code, apart.json["findings"][0]["readers"]) == (0, [])
    assert "cannot be reached" in apart.json["readers_unknown"]
    assert "secret" not in apart.out + apart.err


@pytest.mark.spark
def test_what_breaks_fails_until_it_is_accepted(
    lakechime: Cli, code: Callable[..., None], tmp_path: Path
) -> None:
    file = str(tmp_path / "lineage.json")
    write_deltalake(lakechime.platform.location("bronze.orders"), ORDERS.empty_table())
    assert lakechime("lineage", "plan", "--out", file).code == 0
    code(read="no_such_column")
    gate = lakechime("lineage", "plan", "--against", file, "--json")
    assert gate.code == 1
    (broken,) = [one for one in gate.json["findings"] if one["kind"] == "breaks"]
    assert (broken["table"], "no_such_column" in broken["what"]) == ("gold.total", True)

    unknown = lakechime(
        "lineage", "plan", "--against", file, "--accept", "no such finding", "--reason", "x"
    )
    assert (unknown.code, "there is no finding" in unknown.err) == (3, True)
    accepted = lakechime(
        "lineage",
        "plan",
        "--against",
        file,
        "--accept",
        broken["key"],
        "--reason",
        "agreed on Monday",
    )
    assert accepted.code == 0
    again = lakechime("lineage", "plan", "--against", file)
    assert (again.code, "agreed on Monday" in again.out) == (0, True)


@pytest.fixture
def main(lakechime: Cli, code: Callable[..., None], tmp_path: Path) -> str:
    """A copy of the manifest of the main branch, of the code as it begins."""
    write_deltalake(lakechime.platform.location("bronze.orders"), ORDERS.empty_table())
    assert lakechime("lineage", "plan").code == 0
    return str(copy(tmp_path / "lineage.json", tmp_path / "lineage-of-main.json"))


@pytest.mark.spark
def test_what_is_accepted_goes_with_the_change_until_it_is_another_one(
    lakechime: Cli, code: Callable[..., None], main: str, tmp_path: Path
) -> None:
    def gate(*more: str) -> Answer:
        return lakechime("lineage", "plan", "--against", main, "--fail-on", "values change", *more)

    own, before = tmp_path / "lineage.json", Path(main).read_text(encoding="utf-8")
    code(times=3)
    assert lakechime("lineage", "plan").code == 0
    keys = [one["key"] for one in gate("--json").json["findings"]]
    assert len(keys) == 2
    for key in keys:
        assert (
            gate("--accept", key, "--reason", "agreed on Monday").out
            == f"accepted in {own}: {key}\n"
        )
    assert Path(main).read_text(encoding="utf-8") == before
    assert gate().code == 0
    text = own.read_text(encoding="utf-8")
    assert lakechime("lineage", "plan").code == 0
    assert lakechime("lineage", "plan", "--out", str(tmp_path / "other.json")).code == 0
    assert (
        own.read_text(encoding="utf-8"),
        (tmp_path / "other.json").read_text(encoding="utf-8"),
    ) == (text, text)

    code(times=4)
    assert gate().code == 1
    others = [one["key"] for one in gate("--json").json["findings"]]
    assert [gate("--accept", key, "--reason", "and this").code for key in others] == [0, 0]
    assert ({*read_manifest(own).accepted}, gate().code) == ({*others}, 0)
    merged = tmp_path / "merged.json"  # what is accepted there already is accepted no more
    merged.write_text(
        replace(read_manifest(Path(main)), accepted=read_manifest(own).accepted).to_json(),
        encoding="utf-8",
    )
    asked = ("lineage", "plan", "--against", str(merged), "--fail-on", "values change")
    assert lakechime(*asked).code == 1
    same = lakechime(*asked, "--accept", others[0], "--reason", "and this")
    assert (same.code, "say why again" in same.err) == (2, True)
    for key in others:
        assert lakechime(*asked, "--accept", key, "--reason", "once more", "--json").json == {
            "accepted": key,
            "file": str(own),
        }
    assert lakechime(*asked).code == 0
    own.unlink()
    nowhere = gate("--accept", others[0], "--reason", "agreed")
    assert (nowhere.code, "lakechime lineage plan" in nowhere.err) == (3, True)


@pytest.mark.parametrize(
    ("text", "reported"), [("{", "cannot be read"), ('{"version": 7}', "has version 7")]
)
def test_a_file_that_is_no_manifest_is_refused(
    lakechime: Cli, tmp_path: Path, text: str, reported: str
) -> None:
    file = tmp_path / "lineage.json"
    file.write_text(text, encoding="utf-8")
    answer = lakechime("lineage", "plan", "--against", str(file))
    assert (answer.code, reported in answer.err, "lakechime lineage plan" in answer.err) == (
        1,
        True,
        True,
    )
