"""Bad input from outside: every message is in golden/bad_input.txt, one line each, without anything of a driver's inside.

`python -m pytest tests/cli/test_bad_input.py --tb=short` shows what differs; `LAKECHIME_WRITE_GOLDEN=1` writes the file anew.
"""

import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lakechime_dagster.spark.drivers.jars import jar_names
from lakechime_dagster.store.upgrade import newest_version
from tests.cli.test_store import write_version
from tests.support.cli import Cli
from tests.support.tables import rows, write

GOLDEN = Path(__file__).with_name("golden") / "bad_input.txt"
INTERNALS = ("Traceback", "py4j", "psycopg", "org.apache", "sqlalchemy", "deltalake.", "sqlite3", 'File "')
WRITES = os.environ.get("LAKECHIME_WRITE_GOLDEN") == "1"


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


def typed(partition: str) -> Bad:
    return Bad(["dce", "register", "--table", "bronze.typed", "--partition", partition], prepare=typed_table)


def newer_store(lakechime: Cli) -> None:
    lakechime("store", "upgrade")
    write_version(lakechime.home / "dce.sqlite", "9999")


def not_a_store(lakechime: Cli) -> None:
    lakechime.home.mkdir()
    (lakechime.home / "dce.sqlite").write_bytes(b"this is no database" * 100)


def broken_table(lakechime: Cli) -> None:
    location = lakechime.home / "warehouse" / "bronze" / "broken"
    write(location, rows((None, 1, 1, "x")))
    (location / "_delta_log" / "00000000000000000000.json").write_text('{"commitInfo": \n')


def typed_table(lakechime: Cli) -> None:
    from lakechime_dagster.dce.partition import PartitionLevels

    lakechime.platform.store.declare("bronze.typed", PartitionLevels.of({"day": "date", "hour": "int"}))


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
    "empty table": Bad(["dce", "register", "--table", ""]),
    "table of spaces": Bad(["dce", "register", "--table", " orders "]),
    "table too long": Bad(["dce", "register", "--table", "x" * 513]),
    "control character": Bad(["dce", "register", "--table", "a\nb"]),
    "null character": line('{"table": "a\\u0000b"}'),
    "half a surrogate pair": line('{"table": "a\\ud800"}'),
    "bytes that are no text": Bad(["dce", "register", "--table", "a\udcff"]),
    "unknown format": register("--format", "PAPER"),
    "unknown operation": register("--operation", "EXPLODE"),
    "delta version as text": register("--snapshot-id", "newest"),
    "snapshot before nothing": register("--prev-snapshot-id", "1"),
    "snapshot before itself": register("--snapshot-id", "1", "--prev-snapshot-id", "1"),
    "time without zone": register("--snapshot-ts", "2013-01-01T00:00"),
    "time that is none": register("--snapshot-ts", "yesterday"),
    "time out of range": register("--snapshot-ts", "999999999999999999"),
    "year for a time": Bad(["trigger", "explain", "silver.flights", "--at", "2012"]),
    "seconds for a time": Bad(["dce", "list", "--since", "1767225600"]),
    "number for an age": Bad(["store", "expire", "--before", "30"]),
    "tag without value": register("--tag", "complete"),
    "tag given twice": register("--tag", "a=1", "--tag", "a=2"),
    "tag too long": register("--tag", f"a={'x' * 5000}"),
    "long event key": register("--event-key", "k" * 513),
    "line that is no JSON": line('{"table": "a.b"}\n{"table": \n'),
    "line that is a list": line('["a.b"]'),
    "line with an unknown field": line('{"table": "a.b", "colour": "red"}'),
    "line without table": line('{"snapshot_id": "1"}'),
    "line with a wrong type": line('{"table": "a.b", "snapshot_id": 5}'),
    "line with tags as a list": line('{"table": "a.b", "tags": ["x"]}'),
    "line with a time as text": line('{"table": "a.b", "snapshot_ts": "2013"}'),
    "line of nested lists": line('{"table": "a.b", "partition": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    "bytes that are no UTF-8": line(b"\xff\xfe\x00"),
    "file that is not there": Bad(["dce", "register", "--file", "no/such/file"]),
    "file and flags": register("--file", "-"),
    "completeness denied": Bad(["dce", "complete", "bronze.orders", "--tag", "complete=false"]),
    # partitions
    "partition that is no JSON": register("--partition", "2013-01-01"),
    "partition that is no list": register("--partition", '{"day": 1}'),
    "partition without level": register("--partition", "[]"),
    "partition that is no number": register("--partition", "[NaN]"),
    "partition too long": register("--partition", f'["{"x" * 600}"]'),
    "partition too shallow": typed('["2013-01-01"]'),
    "partition too deep": typed('["2013-01-01", 5, 6]'),
    "partition of a wrong type": typed('["2013-01-01", "x"]'),
    "partition of no such day": typed('["2013-02-30", 5]'),
    "partition without table": Bad(["dce", "list", "--partition", "[1]"]),
    # hostile names
    "sql for a trigger": Bad(["trigger", "show", "x'; DROP TABLE lc_flow; --"]),
    "slashes for a table": Bad(["table", "reconcile", "../../../etc/passwd"]),
    "quotes for a table": Bad(["table", "show", 'a"b\'c']),
    "unicode for an execution": Bad(["execution", "show", "größe-表-\u202e"]),
    "markup for a table": Bad(["table", "show", "[bold red]x[/]"]),
    # positions, limits, places
    "position that is none": Bad(["dce", "list", "--after", "5"]),
    "limit of nothing": Bad(["dce", "list", "--limit", "0"]),
    "limit that is no number": Bad(["execution", "list", "--limit", "x"]),
    "duration that is no number": Bad(["dce", "tail", "--for", "soon"]),
    "state that is none": Bad(["execution", "list", "--state", "closed"]),
    "executions of nobody": Bad(["execution", "list", "--trigger", "nosuch"]),
    "place that is none": Bad(["trigger", "seek", "silver.flights", "--to", "noon", "--reason", "x"]),
    "resume from nowhere": Bad(["trigger", "resume", "silver.flights", "--from", "somewhere", "--reason", "x"]),
    "empty reason": Bad(["trigger", "pause", "silver.flights", "--reason", ""]),
    "age that is none": Bad(["store", "expire", "--before", "soon"]),
    "age before all time": Bad(["store", "expire", "--before", "999999d"]),
    "limit beyond all events": Bad(["dce", "list", "--limit", "99999999999999999999"]),
    "limit beyond all that comes": Bad(["dce", "tail", "--limit", "99999999999999999999", "--for", "0"]),
    "limit beyond all executions": Bad(["execution", "list", "--limit", "2147483648"]),
    # tables that follow a database
    "table that follows no database": Bad(["cdc", "quarantine", "silver.flights"]),
    "key that is no JSON": Bad(["cdc", "explain", "shop.orders", "--key", "1,2"]),
    "key that is no list": Bad(["cdc", "explain", "shop.orders", "--key", '{"id": 1}']),
    "refused messages without limit": Bad(["cdc", "quarantine", "shop.orders", "--limit", "-1"]),
    "rebuild without a reason": Bad(["cdc", "rebuild", "shop.orders", "--yes"]),
    "epoch of no table": Bad(["cdc", "epoch", "a'; DROP TABLE b; --", "--confirm"]),
    # streams of events
    "type that never came": Bad(["schema", "show", "x'; DROP TABLE lc_layout; --"]),
    "layout that is no number": Bad(["schema", "diff", "shop.buy", "newest"]),
    "layout before all": Bad(["schema", "diff", "shop.buy", "-1"]),
    "refused events without limit": Bad(["schema", "quarantine", "game", "--limit", "0"]),
    # settings
    "unknown database": Bad(["dce", "list"], environment={"LAKECHIME_STORE_URL": "mysql://root:secret@db/x"}),
    "url that is none": Bad(["dce", "list"], environment={"LAKECHIME_STORE_URL": "not a url"}),
    "url without scheme": Bad(["dce", "list"], environment={"LAKECHIME_STORE_URL": "ops:secret@db/dce"}),
    "password with @": Bad(["dce", "list"], environment={"LAKECHIME_STORE_URL": "postgresql://ops:p@secret@db/dce"}),
    "lake that is no module": Bad(["trigger", "explain", "x"], environment={"LAKECHIME_LAKE": "no.such.module:lake"}),
    "lake that is no lake": Bad(["trigger", "explain", "x"], environment={"LAKECHIME_LAKE": "json:dumps"}),
    "lake without attribute": Bad(["status"], environment={"LAKECHIME_LAKE": "json"}),
    "deployment with spaces": Bad(["status"], environment={"LAKECHIME_DEPLOYMENT": "my deployment"}),
    "confs that are no JSON": Bad(["status"], environment={"LAKECHIME_SPARK_CONF": "foo"}),
    "confs that hold a secret": Bad(["status"], environment={"LAKECHIME_SPARK_CONF": "{'fs.s3a.key': 'secret'}"}),
    "confs that are a list": Bad(["status"], environment={"LAKECHIME_SPARK_CONF": '["a"]'}),
    "conf that is no text": Bad(["status"], environment={"LAKECHIME_SPARK_CONF": '{"fs.s3a.key": {"secret": 1}}'}),
    "memory with a unit of its own": Bad(["status"], environment={"LAKECHIME_SPARK_MEMORY": "2GB"}),
    "cores that are no number": Bad(["status"], environment={"LAKECHIME_SPARK_CORES": "all"}),
    # the world
    "store that is not there": Bad(["dce", "list"], environment={"LAKECHIME_STORE_URL": "postgresql://ops:secret@127.0.0.1:1/dce"}),
    "host that is not there": Bad(["dce", "list"], environment={"LAKECHIME_STORE_URL": "postgresql://ops:secret@no-such-host.invalid/dce"}),
    "store of a newer version": Bad(["dce", "list"], prepare=newer_store),
    "store that is no database": Bad(["dce", "list"], prepare=not_a_store),
    "store without tables": Bad(["store", "check"]),
    "home that is a file": Bad(["dce", "list"], environment={"LAKECHIME_HOME": "/dev/null/home"}),
    "table that is not there": Bad(["table", "reconcile", "bronze.nothing"]),
    "table that cannot be read": Bad(["table", "reconcile", "bronze.broken"], prepare=broken_table),
    "port that is taken": Bad(["dev", "--port", "$TAKEN_PORT"], prepare=taken_port),
    "java that is too old": Bad(["dev", "--port", "48123"], environment={"LAKECHIME_SPARK_JAVA": "home/java11"}, prepare=old_java),
    "java that is not there": Bad(["dev", "--port", "48123"], environment={"LAKECHIME_SPARK_JAVA": "/no/such/java"}),
    "jar that is broken": Bad(["dev", "--port", "48123"], environment={"LAKECHIME_SPARK_JARS": "home/broken-jars"}, prepare=broken_jars),
    "unknown command": Bad(["explode"]),
    "unknown option": Bad(["dce", "list", "--explode"]),
    "missing command": Bad(["dce"]),
}  # fmt: skip


def golden() -> dict[str, str]:
    """The expected line of each case: exit code and message."""
    if not GOLDEN.is_file():
        return {}
    return dict(text.split(" → ", 1) for text in GOLDEN.read_text(encoding="utf-8").splitlines() if not text.startswith("#"))


@pytest.mark.parametrize("name", CASES)
def test_bad_input_gives_its_message(lakechime: Cli, tmp_path: Path, name: str) -> None:
    bad = CASES[name]
    bad.prepare(lakechime)
    for variable, value in bad.environment.items():
        lakechime.monkeypatch.setenv(variable, value)
    answer = lakechime(*map(os.path.expandvars, bad.arguments), stdin=bad.stdin)
    message = answer.err.splitlines()[-1] if answer.err else ""
    for text in (answer.err, answer.out):
        assert not [internal for internal in INTERNALS if internal in text]
        assert "secret" not in text
    assert answer.out == ""
    shown = message.replace(str(tmp_path.resolve()), "<folder>").replace(str(tmp_path), "<folder>")
    shown = re.sub(rf"\b{newest_version()}\b", "<newest>", shown)
    shown = re.sub(r"port \d{4,5}", "port <port>", shown)
    if WRITES:
        lines = golden() | {name: f"{answer.code} {shown}"}
        text = "".join(f"{case} → {lines[case]}\n" for case in CASES if case in lines)
        GOLDEN.write_text("# input → exit code and message on standard error\n" + text, encoding="utf-8")
    assert golden()[name] == f"{answer.code} {shown}"
    assert answer.code in (1, 2, 3)


@pytest.mark.parametrize("name", ["unknown database", "store that is not there", "sql for a trigger"])
def test_bad_input_with_json_gives_one_document(lakechime: Cli, name: str) -> None:
    bad = CASES[name]
    for variable, value in bad.environment.items():
        lakechime.monkeypatch.setenv(variable, value)
    answer = lakechime(*bad.arguments, "--json")
    assert set(answer.json) == {"error"}
    assert [fact for fact in answer.json["error"] if fact.startswith("_")] == []
    assert answer.json["error"]["type"] in ("InvalidValueError", "StoreUnreachableError", "NotFoundError")
    assert f"error: {answer.json['error']['message']}\n" == lakechime(*bad.arguments).err.splitlines(keepends=True)[-1]


def test_the_golden_file_has_no_case_that_is_gone() -> None:
    assert set(golden()) == set(CASES)
