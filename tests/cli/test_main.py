"""The command as a process: version, cheap start, exit codes, what is printed where; bad input is
refused by one line, and what cannot be seen is shown by its code.
"""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lakechime_dagster.cli.common import note, print_facts, print_json, print_table, relay, say
from lakechime_dagster.cli.main import main
from lakechime_dagster.spark.jvm import jar_names
from tests.cli.test_store import write_version
from tests.support.cli import Cli
from tests.support.tables import rows, write


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


WAYS: dict[str, Callable[[str], None]] = {
    "a line": say,
    "a line beside the result": note,
    "a cell": lambda name: print_table(["table"], [[name]], empty=""),
    "the head of a column": lambda name: print_table([name], [["x"]], empty=""),
    "a table that has no row": lambda name: print_table(["table"], [], empty=name),
    "the name of a fact": lambda name: print_facts({name: 1}),
    "the value of a fact": lambda name: print_facts({"table": name}),
}
OVERRIDE, ISOLATE, NO_WIDTH, BYTE_ORDER, TAG = "\u202e", "\u2066", "\u200b", "\ufeff", "\U000e0041"
HIDDEN = "".join(
    (
        OVERRIDE,
        ISOLATE,
        NO_WIDTH,
        BYTE_ORDER,
        TAG,
        "\u2028",
        "\u2029",
        "\x1b",
        "\r",
        "\t",
        "\x7f",
        "\x9b",
        "\ud800",
    )
)


@pytest.mark.parametrize("way", WAYS)
def test_what_cannot_be_seen_is_columns_in_its_code(
    way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    WAYS[way](f"gold.{HIDDEN}größe → 東京")
    reported = "".join(capsys.readouterr())
    assert [raw for raw in HIDDEN if raw in reported] == []
    assert f"gold.{ascii(HIDDEN)[1:-1]}größe → 東京" in reported.replace("\n", "").replace("  ", "")


def test_a_document_reports_by_its_code_what_cannot_be_seen_and_is_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = {"tables": [f"gold.{HIDDEN}größe → 東京"], HIDDEN: "\n"}
    print_json(document)
    reported = capsys.readouterr().out
    assert json.loads(reported) == document
    assert ([raw for raw in HIDDEN if raw in reported], "größe → 東京" in reported) == ([], True)


def test_a_value_makes_no_line_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["table"], [["a\nb"]], empty="")
    print_facts({"table": "a\nb"})
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "table",
        "a\\nb",
        "table  a\\nb",
    ]


def test_lines_of_ours_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say("\none:\n- two")
    note("three\nfour")
    assert tuple(capsys.readouterr()) == ("\none:\n- two\n", "three\nfour\n")


def test_what_a_program_of_ours_wrote_keeps_its_colours(capsys: pytest.CaptureFixture[str]) -> None:
    relay("\x1b[32mdagster\x1b[0m is there")
    assert capsys.readouterr().err == "\x1b[32mdagster\x1b[0m is there\n"


INTERNALS = (
    "Traceback",
    "py4j",
    "psycopg",
    "org.apache",
    "sqlalchemy",
    "deltalake.",
    "sqlite3",
    'File "',
)


def nothing(_: Cli) -> None:
    """No preparation."""


@dataclass(frozen=True)
class Bad:
    """An input that must be refused."""

    arguments: list[str]
    stdin: str | bytes = ""
    environment: dict[str, str] = field(default_factory=dict)
    prepare: Callable[[Cli], object] = nothing


def register(*arguments: str) -> Bad:
    return Bad(["dce", "register", "--table", "bronze.orders", *arguments])


def line(text: str | bytes) -> Bad:
    return Bad(["dce", "register", "--file", "-"], stdin=text)


def newer_store(lakechime: Cli) -> None:
    write_version(lakechime.home / "dce.sqlite", "9999")


def not_a_store(lakechime: Cli) -> None:
    (lakechime.home / "dce.sqlite").write_bytes(b"this is no database" * 100)


def broken_table(lakechime: Cli) -> None:
    location = lakechime.home / "warehouse" / "bronze" / "broken"
    write(location, rows((None, 1, 1, "x")))
    (location / "_delta_log" / "00000000000000000000.json").write_text('{"commitInfo": \n')


def old_java(lakechime: Cli) -> None:
    java = lakechime.home / "java11" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)


def broken_jars(lakechime: Cli) -> None:
    folder = lakechime.home / "broken-jars"
    folder.mkdir(parents=True)
    for name in jar_names():
        (folder / name).write_bytes(b"not a jar")


def taken_port(lakechime: Cli) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    lakechime.monkeypatch.setenv("TAKEN_PORT", str(listener.getsockname()[1]))
    lakechime.monkeypatch.setattr(socket, "_kept_open_by_a_test", listener, raising=False)


CASES = {
    # malformed events
    "no table": Bad(["dce", "register"]),
    "control character": Bad(["dce", "register", "--table", "a\nb"]),
    "time that is none": register("--snapshot-ts", "yesterday"),
    "year for a time": Bad(["trigger", "show", "silver.flights", "--at", "2012"]),
    "tag given twice": register("--tag", "a=1", "--tag", "a=2"),
    "line that is no JSON": line('{"table": "a.b"}\n{"table": \n'),
    "line of nested lists": line(
        '{"table": "a.b", "partition": ' + "[" * 100_000 + "]" * 100_000 + "}"
    ),
    "bytes that are no UTF-8": line(b"\xff\xfe\x00"),
    "file and flags": register("--file", "-"),
    # partitions
    "partition that is no JSON": register("--partition", "2013-01-01"),
    "partition without table": Bad(["dce", "list", "--partition", "[1]"]),
    # hostile names
    "sql for a trigger": Bad(["trigger", "show", "x'; DROP TABLE lc_subscription; --"]),
    # positions, limits, checkpoints
    "position that is none": Bad(["dce", "list", "--after", "5"]),
    "checkpoint that is none": Bad(
        ["trigger", "seek", "silver.flights", "--to", "noon", "--reason", "x"]
    ),
    "age before all time": Bad(["store", "expire", "--before", "999999d"]),
    # settings
    "unknown database": Bad(
        ["dce", "list"], environment={"LAKECHIME_STORE_URL": "mysql://root:secret@db/x"}
    ),
    "password with @": Bad(
        ["dce", "list"], environment={"LAKECHIME_STORE_URL": "postgresql://ops:p@secret@db/dce"}
    ),
    "lake that is no module": Bad(
        ["trigger", "show", "x"], environment={"LAKECHIME_LAKE": "no.such.module:lake"}
    ),
    "confs that hold a secret": Bad(
        ["status"], environment={"LAKECHIME_SPARK_CONF": "{'fs.s3a.key': 'secret'}"}
    ),
    # the world
    "store that is not there": Bad(
        ["dce", "list"],
        environment={"LAKECHIME_STORE_URL": "postgresql://ops:secret@127.0.0.1:1/dce"},
    ),
    "store of a newer version": Bad(["dce", "list"], prepare=newer_store),
    "store that is no database": Bad(["dce", "list"], prepare=not_a_store),
    "home that is a file": Bad(["dce", "list"], environment={"LAKECHIME_HOME": "/dev/null/home"}),
    "table that is not there": Bad(["table", "reconcile", "bronze.nothing"]),
    "table that cannot be read": Bad(["table", "reconcile", "bronze.broken"], prepare=broken_table),
    "port that is taken": Bad(["dev", "--port", "$TAKEN_PORT"], prepare=taken_port),
    "java that is too old": Bad(
        ["dev", "--port", "48123"],
        environment={"LAKECHIME_SPARK_JAVA": "home/java11"},
        prepare=old_java,
    ),
    "jar that is broken": Bad(
        ["dev", "--port", "48123"],
        environment={"LAKECHIME_SPARK_JARS": "home/broken-jars"},
        prepare=broken_jars,
    ),
    "unknown command": Bad(["explode"]),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_by_one_line_of_ours(lakechime: Cli, name: str) -> None:
    bad = CASES[name]
    bad.prepare(lakechime)
    for variable, value in bad.environment.items():
        lakechime.monkeypatch.setenv(variable, value)
    answer = lakechime(*map(os.path.expandvars, bad.arguments), stdin=bad.stdin)
    assert (answer.code in (1, 2, 3), answer.out) == (True, "")
    assert answer.err.splitlines()[-1].startswith("error: ")
    assert [internal for internal in (*INTERNALS, "secret") if internal in answer.err] == []


@pytest.mark.parametrize(
    "name", ["unknown database", "store that is not there", "sql for a trigger"]
)
def test_bad_input_with_json_gives_one_document(lakechime: Cli, name: str) -> None:
    bad = CASES[name]
    for variable, value in bad.environment.items():
        lakechime.monkeypatch.setenv(variable, value)
    answer = lakechime(*bad.arguments, "--json")
    assert set(answer.json) == {"error"}
    assert [fact for fact in answer.json["error"] if fact.startswith("_")] == []
    assert answer.json["error"]["type"] in (
        "InvalidValueError",
        "StoreUnreachableError",
        "NotFoundError",
    )
    assert (
        f"error: {answer.json['error']['message']}\n"
        == lakechime(*bad.arguments).err.splitlines(keepends=True)[-1]
    )
