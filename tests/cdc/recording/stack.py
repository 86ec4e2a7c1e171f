"""A real capture stack on loopback: Kafka, Kafka Connect with Debezium, MariaDB and PostgreSQL, ended with the recording.

Each server has a folder of its own below a temporary one and a free port, is waited for by asking it, and is ended by its process id.
Needed beside the repository's own packages: Java, Debian's mariadb-server-core and mariadb-client-core. Jars come as ivy.xml says, once.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import psycopg
from psycopg.conninfo import conninfo_to_dict

from lakechime_dagster.lock import locked
from lakechime_dagster.spark.jars import retrieve
from lakechime_dagster.spark.java import Java, find_java
from tests.support.postgres import find_binaries, server
from tests.support.processes import REPOSITORY, await_found, free_port, is_listening

IVY_FILE = Path(__file__).with_name("ivy.xml")
JARS = REPOSITORY / ".lakechime" / "cdc-jars"
SERVER_USER = "nobody"  # whom MariaDB runs as when we are root
CAPTURE_USER = "debezium"
_RIGHTS = (
    "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, BINLOG MONITOR, SLAVE MONITOR, LOCK TABLES, INSERT, DELETE"
)
_SMALL = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The running servers, and the folder that further ones may use."""

    folder: Path
    kafka: str
    connect: "Connect"
    mariadb: "MariaDB"
    postgres: "Postgres"


@contextmanager
def started(jars: Path = JARS) -> Iterator[Stack]:
    """All servers; they end with the context, however it is left."""
    java = find_java()
    ensure_jars(jars, java)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakechime-cdc-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)
        postgres = stack.enter_context(_postgres())
        mariadb = stack.enter_context(mariadb_server(folder / "mariadb"))
        kafka = stack.enter_context(_kafka(folder / "kafka", java, jars))
        connect = stack.enter_context(_connect(folder / "connect", java, jars, kafka))
        yield Stack(folder=folder, kafka=kafka, connect=connect, mariadb=mariadb, postgres=postgres)


def ensure_jars(folder: Path, java: Java) -> None:
    """Fetches the jars by the Ivy inside pyspark; a folder that is there is complete, because it is moved in whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock")), tempfile.TemporaryDirectory(prefix=".cdc-", dir=folder.parent) as temporary:
        if folder.is_dir():
            return
        fetched = Path(temporary) / "jars"
        answer = retrieve(IVY_FILE, fetched, java, cache=Path(temporary) / "cache")
        if answer.returncode or not fetched.is_dir():
            raise RuntimeError(f"the jars of the capture stack could not be fetched: {answer.stdout}{answer.stderr}")
        for other in (*fetched.glob("*-sources.jar"), *fetched.glob("*-javadoc.jar"), *fetched.glob("*.pom")):
            other.unlink()
        fetched.rename(folder)


@dataclass(frozen=True)
class Connect:
    """A Kafka Connect worker, spoken to by its REST interface."""

    url: str
    log: Path

    def create(self, name: str, config: Mapping[str, str]) -> None:
        self._ask("POST", "/connectors", {"name": name, "config": config})
        await_found(lambda: self._tasks(name), f"a task of {name}", 60)

    def delete(self, name: str) -> None:
        """Ends a connector; what it has read is in Kafka then, because a task flushes its producer when it stops."""
        self._ask("DELETE", f"/connectors/{name}")

    def forget(self, name: str) -> None:
        """Removes the offsets of a connector, as one does to make it begin anew; it stands still afterwards."""
        self._ask("PUT", f"/connectors/{name}/stop")
        await_found(lambda: self._ask("GET", f"/connectors/{name}/status")["connector"]["state"] == "STOPPED", f"{name} stopped", 30)
        self._ask("DELETE", f"/connectors/{name}/offsets")

    def resume(self, name: str) -> None:
        self._ask("PUT", f"/connectors/{name}/resume")
        await_found(lambda: self._tasks(name), f"a task of {name}", 60)

    def expect_health(self, name: str) -> None:
        """Raises what a failed task says."""
        for task in self._tasks(name):
            if task["state"] == "FAILED":
                raise RuntimeError(f"the task of {name} failed: {task['trace']}")

    def _tasks(self, name: str) -> list[dict[str, Any]]:
        return self._ask("GET", f"/connectors/{name}/status")["tasks"]

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data=data, method=method, headers={"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=60) as answer:
                text = answer.read()
        except HTTPError as error:
            if method == "GET" and error.code == 404:  # a connector that was posted a moment ago
                return {"tasks": [], "connector": {"state": "UNKNOWN"}}
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from error
        return json.loads(text) if text else None


class MariaDBSession:
    """One connection, held by a client process of its own: what it began is open until it commits."""

    def __init__(self, command: Sequence[str]) -> None:
        self._client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")

    def run(self, *statements: str) -> list[str]:
        """The lines that the statements answer; the last of them has been carried out when this returns."""
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        end = f"end-{uuid.uuid4().hex}"
        for statement in (*statements, f"SELECT '{end}'"):
            self._client.stdin.write(statement + ";\n")
        self._client.stdin.flush()
        lines = []
        for line in self._client.stdout:
            if line.rstrip("\n") == end:
                return lines
            lines.append(line.rstrip("\n"))
        raise RuntimeError(f"{statements} failed: {lines}")

    def close(self) -> None:
        assert self._client.stdin is not None
        with suppress(BrokenPipeError):
            self._client.stdin.close()
        self._client.wait(30)


@dataclass
class MariaDB:
    """A MariaDB server with a row-based binary log."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    def session(self, database: str = "") -> MariaDBSession:
        client = ["mariadb", "--no-defaults", "--batch", "--raw", "--skip-column-names", "--unbuffered", "--default-character-set=utf8mb4"]
        return MariaDBSession([*client, f"--socket={self.folder}/socket", "--user=root", database])

    def restart(self, server_id: int) -> None:
        """Ends the server as its operator does and starts it on the same data with another server id."""
        _end(self.process)
        self.process = _start_mariadb(self.folder, self.port, server_id)

    @property
    def version(self) -> str:
        session = self.session()
        try:
            return session.run("SELECT VERSION()")[0]
        finally:
            session.close()


class PostgresSession:
    """One connection; a transaction is what stands between BEGIN and COMMIT."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def run(self, *statements: str) -> list[str]:
        """The first column of what the statements answer."""
        answers = []
        for statement in statements:
            cursor = self.connection.execute(statement.encode())
            if cursor.description is not None:
                answers += [str(row[0]) for row in cursor]
        return answers

    def close(self) -> None:
        self.connection.close()


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL server with a logical write-ahead log."""

    port: int

    def session(self, database: str = "postgres") -> PostgresSession:
        return PostgresSession(psycopg.connect(host="127.0.0.1", port=self.port, user="postgres", dbname=database, autocommit=True))

    @property
    def version(self) -> str:
        session = self.session()
        try:
            return session.run("SHOW server_version")[0].split()[0]
        finally:
            session.close()


@contextmanager
def mariadb_server(folder: Path, server_id: int = 1) -> Iterator[MariaDB]:
    """A MariaDB server of its own, with the user that Debezium logs in as."""
    folder.mkdir()
    user = [f"--user={SERVER_USER}"] if os.getuid() == 0 else []
    if user:
        shutil.chown(folder, SERVER_USER)
    install = ["mariadb-install-db", "--no-defaults", f"--datadir={folder}/data", *user]
    install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
    with folder.with_name(f"{folder.name}.log").open("ab") as log:
        subprocess.run(install, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    port = free_port()
    running = MariaDB(folder, port, _start_mariadb(folder, port, server_id))
    try:
        session = running.session()
        session.run(f"CREATE USER {CAPTURE_USER}@'127.0.0.1' IDENTIFIED BY '{CAPTURE_USER}'")
        session.run(f"GRANT {_RIGHTS} ON *.* TO {CAPTURE_USER}@'127.0.0.1'")
        session.close()
        yield running
    finally:
        _end(running.process)


def _start_mariadb(folder: Path, port: int, server_id: int) -> subprocess.Popen[bytes]:
    user = [f"--user={SERVER_USER}"] if os.getuid() == 0 else []
    command = [
        "mariadbd", "--no-defaults", *user, f"--datadir={folder}/data", f"--socket={folder}/socket", f"--port={port}",
        "--bind-address=127.0.0.1", f"--server-id={server_id}", "--log-bin=mysql-bin", "--binlog-format=ROW", "--binlog-row-image=FULL",
        "--binlog-row-metadata=FULL", "--default-time-zone=+00:00", "--character-set-server=utf8mb4", "--innodb-buffer-pool-size=32M",
    ]  # fmt: skip
    process = _start(command, folder.with_name(f"{folder.name}.log"))
    ping = ["mariadb", "--no-defaults", f"--socket={folder}/socket", "--user=root", "--execute=SELECT 1"]

    def answers() -> bool:
        _expect_running(process, "MariaDB")
        return subprocess.run(ping, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode == 0

    try:
        await_found(answers, "MariaDB answers", 60)
    except BaseException:
        _end(process)
        raise
    return process


@contextmanager
def _postgres() -> Iterator[Postgres]:
    with server(find_binaries(), durable=False) as running:
        port = conninfo_to_dict(running.url)["port"]
        assert port is not None
        postgres = Postgres(int(port))
        session = postgres.session()
        session.run("ALTER SYSTEM SET wal_level = 'logical'", "ALTER SYSTEM SET max_replication_slots = 40")
        session.close()
        running.restart()
        yield postgres


@contextmanager
def _kafka(folder: Path, java: Java, jars: Path) -> Iterator[str]:
    """A broker that is its own controller; gives the address for clients."""
    folder.mkdir()
    port, controller = free_port(), free_port()
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": f"{folder}/data",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    file = _write_properties(folder / "server.properties", properties)
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    run = [str(java.executable), *_SMALL, "-cp", f"{jars}/*"]
    with (folder / "format.log").open("wb") as log:
        format_storage = [*run, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)]
        subprocess.run(format_storage, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    with _running([*run, "kafka.Kafka", str(file)], folder / "kafka.log") as process:

        def listens() -> bool:
            _expect_running(process, "Kafka")
            return is_listening(port)

        await_found(listens, "Kafka listens", 60)
        yield f"127.0.0.1:{port}"


@contextmanager
def _connect(folder: Path, java: Java, jars: Path, kafka: str) -> Iterator[Connect]:
    folder.mkdir()
    port = free_port()
    properties = {
        "bootstrap.servers": kafka,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.storage.file.filename": f"{folder}/offsets",
        "offset.flush.interval.ms": "1000",
        "listeners": f"http://127.0.0.1:{port}",
    }
    file = _write_properties(folder / "worker.properties", properties)
    log, url = folder / "connect.log", f"http://127.0.0.1:{port}"
    command = [str(java.executable), *_SMALL, "-cp", f"{jars}/*", "org.apache.kafka.connect.cli.ConnectStandalone", str(file)]
    with _running(command, log) as process:

        def answers() -> bool:
            _expect_running(process, "Kafka Connect")
            with suppress(URLError, ConnectionError, TimeoutError), urlopen(f"{url}/connectors", timeout=5) as answer:
                return answer.status == 200
            return False

        await_found(answers, "Kafka Connect answers", 120)
        yield Connect(url, log)


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = _start(command, log)
    try:
        yield process
    finally:
        _end(process)


def _start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as stream:
        return subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)


def _expect_running(process: subprocess.Popen[bytes], name: str) -> None:
    if process.poll() is not None:
        raise RuntimeError(f"{name} ended with {process.returncode}: see its log in the folder of the stack")


def _write_properties(file: Path, properties: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
    return file
