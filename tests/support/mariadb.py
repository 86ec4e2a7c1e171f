"""The MariaDB of the tests, from Debian's mariadb-server-core and mariadb-client-core, spoken to by
MariaDB's own client.
"""

import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lakechime_dagster.demo import servers
from lakechime_dagster.demo.servers import Server
from tests.support.processes import free_port

CAPTURE_USER = "debezium"


class MariaDBSession:
    """One connection, held by a client process of its own: what it began is open until it
    commits.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._client = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )

    def run(self, *statements: str) -> list[str]:
        """The lines that the statements answer; the last of them has been carried out when this
        returns.
        """
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
    server: Server

    def session(self, database: str = "") -> MariaDBSession:
        client = [
            "mariadb",
            "--no-defaults",
            "--batch",
            "--raw",
            "--skip-column-names",
            "--unbuffered",
            "--default-character-set=utf8mb4",
        ]
        return MariaDBSession([*client, f"--socket={self.folder}/socket", "--user=root", database])

    def restart(self, server_id: int) -> None:
        """Ends the server as its operator does and starts it on the same data with another server
        id.
        """
        self.server.end()
        self.server = _start(self.folder, self.port, server_id)

    @property
    def version(self) -> str:
        session = self.session()
        try:
            return session.run("SELECT VERSION()")[0]
        finally:
            session.close()


@contextmanager
def mariadb_server(folder: Path, server_id: int = 1) -> Iterator[MariaDB]:
    """A server of its own folder, which others may enter, and port, with the user that Debezium
    logs in as.

    Raises:
        LakeChimeError: A program that it needs is not installed.
    """
    servers.check_programs("mariadb")
    servers.install(folder, "--auth-root-authentication-method=normal")
    port = free_port()
    running = MariaDB(folder, port, _start(folder, port, server_id))
    try:
        session = running.session()
        session.run(f"CREATE USER {CAPTURE_USER}@'127.0.0.1' IDENTIFIED BY '{CAPTURE_USER}'")
        session.run(
            f"GRANT {servers.CAPTURE_RIGHTS}, INSERT, DELETE ON *.* TO {CAPTURE_USER}@'127.0.0.1'"
        )
        session.close()
        yield running
    finally:
        running.server.end()


def _start(folder: Path, port: int, server_id: int) -> Server:
    ping = [
        "mariadb",
        "--no-defaults",
        f"--socket={folder}/socket",
        "--user=root",
        "--execute=SELECT 1",
    ]

    def answers() -> bool:
        return (
            subprocess.run(
                ping, capture_output=True, check=False, stdin=subprocess.DEVNULL
            ).returncode
            == 0
        )

    server = servers.mariadb_server(
        folder, port, f"--socket={folder}/socket", f"--server-id={server_id}"
    )
    try:
        server.start(answers)
    except BaseException:
        server.end()
        raise
    return server
