"""A MariaDB server with a row-based binary log, from the programs that are installed, on loopback."""

import os
import shutil
import subprocess
from pathlib import Path

from lakechime_dagster.demo.servers.server import Server, environment
from lakechime_dagster.errors import LakeChimeError

PROGRAMS = ("mariadbd", "mariadb-install-db")
REMEDY = "install MariaDB's server (Debian, Ubuntu: apt-get install mariadb-server-core mariadb-client-core; it starts no service)"
CAPTURE_RIGHTS = "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, BINLOG MONITOR, SLAVE MONITOR, LOCK TABLES"
SERVER_USER = "nobody"  # whom it runs as when we are root


def check_programs(*others: str) -> None:
    """See that its programs are there, and others that come with them.

    Raises:
        LakeChimeError: naming those that are not, and what to install.
    """
    if absent := [program for program in (*PROGRAMS, *others) if shutil.which(program) is None]:
        raise LakeChimeError(f"{' and '.join(absent)} not found on PATH; {REMEDY}")


def install(folder: Path, *options: str) -> None:
    """Make the folder of a server and an empty database in it, where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.getuid() == 0:
        shutil.chown(folder, SERVER_USER)
    if (folder / "data" / "mysql").is_dir():
        return
    command = ["mariadb-install-db", "--no-defaults", f"--datadir={folder}/data", *_as_user(), "--skip-test-db", *options]
    with _log_of(folder).open("ab") as log:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment())


def mariadb_server(folder: Path, port: int, *options: str) -> Server:
    """A server, not started yet, of a folder that was installed; its socket is the file `socket` among its data unless named."""
    command = [
        "mariadbd", "--no-defaults", *_as_user(), f"--datadir={folder}/data", "--socket=socket", f"--port={port}",
        "--bind-address=127.0.0.1", "--server-id=1", "--log-bin=mysql-bin", "--binlog-format=ROW", "--binlog-row-image=FULL",
        "--binlog-row-metadata=FULL", "--default-time-zone=+00:00", "--character-set-server=utf8mb4", "--innodb-buffer-pool-size=32M",
        *options,
    ]  # fmt: skip
    return Server("mariadb", command, folder, _log_of(folder))


def write_for_server(file: Path, text: str) -> None:
    """A file that the server reads, and nobody else."""
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    if os.getuid() == 0:
        shutil.chown(file, SERVER_USER)


def _as_user() -> list[str]:
    return [f"--user={SERVER_USER}"] if os.getuid() == 0 else []


def _log_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")
