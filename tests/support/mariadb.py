"""A real MariaDB with a row-based binary log, from Debian's mariadb-server-core and mariadb-client-core."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import Service, await_found, free_port

PROGRAMS = ("mariadbd", "mariadb", "mariadb-install-db")
CAPTURE_USER = "debezium"
_SERVER_USER = "nobody"  # whom it runs as when we are root
_RIGHTS = (
    "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, BINLOG MONITOR, SLAVE MONITOR, LOCK TABLES, INSERT, DELETE"
)


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
    """A MariaDB server, which knows no password but Debezium's."""

    folder: Path
    port: int
    service: Service

    def session(self, database: str = "") -> MariaDBSession:
        client = ["mariadb", "--no-defaults", "--batch", "--raw", "--skip-column-names", "--unbuffered", "--default-character-set=utf8mb4"]
        return MariaDBSession([*client, f"--socket={self.folder}/socket", "--user=root", database])

    def restart(self, server_id: int) -> None:
        """Ends the server as its operator does and starts it on the same data with another server id."""
        _end(self.service)
        self.service = _start(self.folder, self.port, server_id)

    @property
    def version(self) -> str:
        session = self.session()
        try:
            return session.run("SELECT VERSION()")[0]
        finally:
            session.close()


@contextmanager
def mariadb_server(folder: Path, server_id: int = 1) -> Iterator[MariaDB]:
    """A server of its own folder, which others may enter, and port, with the user that Debezium logs in as.

    Raises:
        LookupError: A program that it needs is not installed.
    """
    if absent := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise LookupError(f"{', '.join(absent)} not found")
    folder.mkdir()
    if os.getuid() == 0:
        shutil.chown(folder, _SERVER_USER)
    install = ["mariadb-install-db", "--no-defaults", f"--datadir={folder}/data", *_as_user()]
    install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
    with _log_of(folder).open("ab") as log:
        subprocess.run(install, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    port = free_port()
    running = MariaDB(folder, port, _start(folder, port, server_id))
    try:
        session = running.session()
        session.run(f"CREATE USER {CAPTURE_USER}@'127.0.0.1' IDENTIFIED BY '{CAPTURE_USER}'")
        session.run(f"GRANT {_RIGHTS} ON *.* TO {CAPTURE_USER}@'127.0.0.1'")
        session.close()
        yield running
    finally:
        _end(running.service)


def _start(folder: Path, port: int, server_id: int) -> Service:
    command = [
        "mariadbd", "--no-defaults", *_as_user(), f"--datadir={folder}/data", f"--socket={folder}/socket", f"--port={port}",
        "--bind-address=127.0.0.1", f"--server-id={server_id}", "--log-bin=mysql-bin", "--binlog-format=ROW", "--binlog-row-image=FULL",
        "--binlog-row-metadata=FULL", "--default-time-zone=+00:00", "--character-set-server=utf8mb4", "--innodb-buffer-pool-size=32M",
    ]  # fmt: skip
    service = Service("mariadb", command, cwd=folder, env=os.environ, port=port, log=_log_of(folder))
    service.start()
    ping = ["mariadb", "--no-defaults", f"--socket={folder}/socket", "--user=root", "--execute=SELECT 1"]

    def answers() -> bool:
        if not service.is_running:
            raise RuntimeError(f"MariaDB ended: {service.tail()}")
        return subprocess.run(ping, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode == 0

    try:
        await_found(answers, "MariaDB answers", 60)
    except BaseException:
        _end(service)
        raise
    return service


def _end(service: Service) -> None:
    """Ends it as its operator does: an interrupt from a terminal it does not heed."""
    assert service.process is not None
    service.process.terminate()
    with suppress(subprocess.TimeoutExpired):
        service.process.wait(30)
    service.end()


def _as_user() -> list[str]:
    return [f"--user={_SERVER_USER}"] if os.getuid() == 0 else []


def _log_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")
