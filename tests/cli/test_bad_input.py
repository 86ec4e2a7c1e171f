"""Bad input from outside is refused by one line, with nothing of a driver's inside, no secret, and
no result.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from lakechime_dagster.spark.jvm import jar_names
from tests.cli.test_store import write_version
from tests.support.cli import Cli
from tests.support.tables import rows, write

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
