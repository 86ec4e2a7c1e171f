"""The command as a process: version, cheap start, exit codes, what is printed where."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from lakechime_dagster.cli.main import main
from tests.support.cli import Cli


def process(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a user starts it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LAKECHIME_")}
    return subprocess.run(
        [sys.executable, "-m", "lakechime_dagster.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=clean | {"LAKECHIME_HOME": str(home)} | environment,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("dce register --table a.b --snapshot-id 1", 0),
        ("trigger pause silver.flights --reason why", 0),
        ("trigger resume silver.flights --reason why", 0),
        ("trigger seek silver.flights --to now --reason why", 0),
        ("trigger forget none --reason why", 3),
        ("execution retry none --reason why", 3),
        ("execution skip none --reason why", 3),
        ("table reconcile", 0),
        ("table drop a.b --reason why", 3),
        ("store upgrade", 0),
        ("store expire --before 30d", 0),
        ("demo", 0),
        ("cdc epoch none", 3),
        ("cdc compare none --repair --key [1]", 3),
        ("cdc load none --from dump --as-of mysql-bin.000001:3", 3),
        ("notification close 1 --reason why", 3),
    ],
)
def test_a_dry_run_in_an_empty_home_leaves_it_empty(
    lakechime_fresh: Cli, command: str, code: int
) -> None:
    assert lakechime_fresh(*command.split(), "--dry-run", "--json").code == code
    assert lakechime_fresh("store", "upgrade", "--dry-run", "--json").json["before"] is None
    assert not lakechime_fresh.home.exists()


def test_a_dry_run_leaves_a_database_without_our_tables_as_it_is(lakechime_fresh: Cli) -> None:
    lakechime_fresh.home.mkdir()
    file = lakechime_fresh.home / "dce.sqlite"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE of_somebody_else (one)")
    assert lakechime_fresh("dce", "register", "--table", "a.b", "--dry-run").code == 0
    assert [name for (name,) in connection.execute("SELECT name FROM sqlite_master")] == [
        "of_somebody_else"
    ]
    connection.close()


@pytest.mark.tier2
def test_what_only_asks_imports_neither_dagster_nor_spark_nor_numpy(tmp_path: Path) -> None:
    code = """
import sys
from lakechime_dagster.cli.main import main
main(["--help"]); heavy = {"dagster", "pyspark", "sqlalchemy", "numpy"} & set(sys.modules)
for command in (["dce", "list"], ["trigger", "show"], ["trigger", "show", "silver.flights"], ["status"]):
    main(command); heavy |= {"dagster", "pyspark", "numpy"} & set(sys.modules)
main(["schema", "show"]); heavy |= {"dagster", "pyspark"} & set(sys.modules)
print(sorted(heavy), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LAKECHIME_HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


@pytest.mark.tier2
def test_a_process_prints_one_document_and_exits_with_its_code(tmp_path: Path) -> None:
    done = process("dce", "register", "--table", "größe.naïve", "--json", home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["registered"][0]["table"] == "größe.naïve"
    assert process("dce", "list", "--table", "nope", "--exit-code", home=tmp_path).returncode == 3
    assert process("dce", "list", "--nope", home=tmp_path).returncode == 2


@pytest.mark.tier2
def test_output_in_a_narrow_encoding_is_still_json(tmp_path: Path) -> None:
    done = process(
        "dce", "register", "--table", "表", "--json", home=tmp_path, PYTHONIOENCODING="latin-1"
    )
    assert json.loads(done.stdout)["registered"][0]["table"] == "表"
    assert process("dce", "list", home=tmp_path, PYTHONIOENCODING="latin-1").returncode == 0


@pytest.mark.tier2
def test_a_reader_that_goes_away_leaves_no_traceback(tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"table": "a.b", "snapshot_id": str(n)}) + "\n" for n in range(2_000)
    )
    events = tmp_path / "events.jsonl"
    events.write_text(lines)
    process("dce", "register", "--file", str(events), home=tmp_path)
    listing = subprocess.Popen(
        [sys.executable, "-m", "lakechime_dagster.cli.main", "dce", "list", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"LAKECHIME_HOME": str(tmp_path)},
    )
    assert listing.stdout is not None
    assert listing.stderr is not None
    listing.stdout.close()
    assert listing.stderr.read() == b""
    assert listing.wait(60) == 1


@pytest.mark.tier2
def test_ctrl_c_is_clean(tmp_path: Path) -> None:
    following = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "lakechime_dagster.cli.main",
            "dce",
            "list",
            "--follow",
            "--after",
            "0-0",
            "--lines",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"LAKECHIME_HOME": str(tmp_path)},
    )
    process("dce", "register", "--table", "a.b", home=tmp_path)
    assert following.stdout is not None
    assert json.loads(following.stdout.readline())["table"] == "a.b"
    following.send_signal(signal.SIGINT)
    _, err = following.communicate(timeout=60)
    assert (following.returncode, err) == (0, "")


def test_a_wrong_usage_is_json_where_json_was_asked_for(lakechime: Cli) -> None:
    answer = lakechime("dce", "list", "--limit", "0", "--json")
    assert (answer.code, answer.json["error"]["type"], answer.err) == (2, "UsageError", "")


def test_a_usage_error_with_bytes_that_are_no_text_is_still_json(lakechime: Cli) -> None:
    assert "explode" in lakechime("explode\udcff", "--json").json["error"]["message"]


def test_what_should_not_happen_is_one_line_unless_asked_for_more(
    lakechime: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("lakechime_dagster.dce.store.DCEStore.fetch", broken)
    answer = lakechime("dce", "list")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == (
        "error: this should not have happened (ZeroDivisionError); LAKECHIME_LOG_LEVEL=DEBUG "
        "shows where\n"
    )
    Path(".env").write_text("LAKECHIME_LOG_LEVEL=DEBUG\n")  # in the temporary folder of the test
    with pytest.raises(ZeroDivisionError):
        main(["dce", "list"])
