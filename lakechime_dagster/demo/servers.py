"""The servers of the demo's database: MariaDB, Kafka, Kafka Connect with Debezium."""

import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen
from xml.etree import ElementTree

from lakechime_dagster.demo.flights import ABOUT, CDC_SWITCH, DATABASE, PREFIX
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lock import locked
from lakechime_dagster.spark.jvm import Java, retrieve

IVY_FILE = Path(__file__).with_name("ivy.xml")


def ensure_server_jars(home: Path, java: Java, progress: Callable[[str], None] = print) -> Path:
    """Their folder in `home`, named after what ivy.xml asks for; it is complete where it is there,
    because it is moved in whole.

    Raises:
        LakeChimeError: they cannot be fetched.
    """
    asked = sorted(
        " ".join(each.attrib.values())
        for each in ElementTree.parse(IVY_FILE).getroot().iter("dependency")
    )
    folder = home / f"stack-jars-{hashlib.sha256(' '.join(asked).encode()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    home.mkdir(parents=True, exist_ok=True)
    with (
        locked(home / "stack-jars.lock"),
        tempfile.TemporaryDirectory(prefix=".stack-", dir=home) as temporary,
    ):
        if not folder.is_dir():
            progress(
                f"Fetching the jars of Kafka, Connect and Debezium into {folder} (once, about 65 "
                f"MB)"
            )
            _fetch(Path(temporary), folder, java)
    return folder


def _fetch(temporary: Path, folder: Path, java: Java) -> None:
    fetched = temporary / "jars"
    answer = retrieve(IVY_FILE, fetched, java, cache=temporary / "cache")
    if answer.returncode or not fetched.is_dir():
        said = (answer.stdout + answer.stderr).strip()[-500:]
        raise LakeChimeError(
            f"the jars of Kafka, Connect and Debezium cannot be fetched; is there a network? {said}"
        )
    for other in (
        *fetched.glob("*-sources.jar"),
        *fetched.glob("*-javadoc.jar"),
        *fetched.glob("*.pom"),
    ):
        other.unlink()
    fetched.rename(folder)


LOOK_SECONDS = 0.1
END_SECONDS = 30.0  # for what it has to write; then it is killed


class Server:
    """A server that is started, asked whether it is ready, ended or killed, and started again."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, log: Path | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.folder = folder
        self.log = log or folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, answers: Callable[[], bool], seconds: float = 120) -> None:
        """Start it, and wait until it answers.

        Raises:
            LakeChimeError: it ended, or does not answer in time; its log says why.
        """
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + seconds
        while not answers():
            if not self.is_running:
                raise LakeChimeError(
                    f"{self.name} ended with exit code {self.process.poll()}; {self.log} says "
                    f"why:\n{self.tail(5)}"
                )
            if time.monotonic() > end:
                raise LakeChimeError(
                    f"{self.name} does not answer within {seconds:.0f} s; {self.log} says "
                    f"why:\n{self.tail(5)}"
                )
            time.sleep(LOOK_SECONDS)

    def kill(self) -> None:
        """End it at once, as a power failure does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Let it write what it must, and end it; by force what of its group is there after that."""
        if self.process is None:
            return
        if self.is_running:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def tail(self, lines: int = 40) -> str:
        """The last lines of its log."""
        return (
            "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
            if self.log.exists()
            else ""
        )


def environment() -> dict[str, str]:
    """This process's without the options of Spark's drivers, which have other classes."""
    return {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}


def free_port() -> int:
    """A port of loopback that nobody uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def listens(port: int) -> bool:
    """Whether something listens at a port of loopback."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def write_properties(file: Path, properties: Mapping[str, str]) -> Path:
    """A file of settings as Java reads it, for nobody else's eyes."""
    file.touch(mode=0o600)
    file.write_text(
        "".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8"
    )
    return file


SMALL = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SINGLE = {  # what a cluster of one broker cannot have more of
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


@contextmanager
def kafka_broker(
    folder: Path,
    jars: Path,
    java: Java,
    port: int,
    *,
    listeners: Mapping[str, tuple[int, str]] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """A broker that keeps its topics in a folder, found at a port of 127.0.0.1.

    Args:
        folder: made where it is not there.
        jars: those of `ensure_server_jars`.
        java: that runs it.
        port: of clients without a login.
        listeners: further ones, by name their port and security protocol.
        settings: further ones of the broker.

    Raises:
        LakeChimeError: it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ports = {
        "PLAINTEXT": (port, "PLAINTEXT"),
        "CONTROLLER": (free_port(), "PLAINTEXT"),
        **(listeners or {}),
    }
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER'][0]}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, (port, _) in ports.items()),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, (_, protocol) in ports.items()
        ),
        "log.dirs": f"{folder}/data",
        **SINGLE,
        **(settings or {}),
    }
    file = write_properties(folder / "server.properties", properties)
    if not (folder / "data" / "meta.properties").exists():
        format_storage(folder, file, jars, java, uuid.uuid4())
    server = Server("kafka", java_command(java, jars, "kafka.Kafka", str(file)), folder)
    try:
        server.start(lambda: listens(port))
        yield server
    finally:
        server.end()


def java_command(java: Java, jars: Path, *arguments: str) -> list[str]:
    """A Java program of these jars, in a small heap."""
    return [str(java.executable), *SMALL, "-cp", f"{jars}/*", *arguments]


def format_storage(
    folder: Path, properties: Path, jars: Path, java: Java, cluster: uuid.UUID
) -> None:
    """Prepare the folder of a broker of a new cluster; its id is in hex, since one in base64 may
    begin as an option does.
    """
    command = java_command(
        java, jars, "kafka.tools.StorageTool", "format", "-t", cluster.hex, "-c", str(properties)
    )
    with (folder / "format.log").open("wb") as log:
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment()
        )


JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True)
class Connect:
    """A running worker."""

    url: str
    server: Server

    def answers(self) -> bool:
        with (
            suppress(URLError, ConnectionError, TimeoutError),
            urlopen(f"{self.url}/connectors", timeout=5) as answer,
        ):
            return answer.status == 200
        return False


@contextmanager
def connect_worker(
    folder: Path,
    jars: Path,
    java: Java,
    kafka: str,
    *,
    connectors: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[Connect]:
    """A standalone worker, which keeps its offsets in a folder and forgets all connectors but those
    that it starts with.

    Args:
        folder: made where it is not there.
        jars: those of `ensure_server_jars`.
        java: that runs it.
        kafka: the address of the broker.
        connectors: by name the settings of those that it starts with, each time.

    Raises:
        LakeChimeError: it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    properties = {
        "bootstrap.servers": kafka,
        "key.converter": JSON_CONVERTER,
        "value.converter": JSON_CONVERTER,
        "offset.storage.file.filename": f"{folder}/offsets",
        "offset.flush.interval.ms": "1000",
        "listeners": f"http://127.0.0.1:{port}",
    }
    files = [write_properties(folder / "worker.properties", properties)]
    for name, settings in (connectors or {}).items():
        files.append(write_properties(folder / f"{name}.properties", {"name": name, **settings}))
    command = java_command(
        java, jars, "org.apache.kafka.connect.cli.ConnectStandalone", *map(str, files)
    )
    connect = Connect(f"http://127.0.0.1:{port}", Server("connect", command, folder))
    try:
        connect.server.start(connect.answers)
        yield connect
    finally:
        connect.server.end()


PROGRAMS = ("mariadbd", "mariadb-install-db")
REMEDY = (
    "install MariaDB's server (Debian, Ubuntu: apt-get install mariadb-server-core "
    "mariadb-client-core; it starts no service)"
)
CAPTURE_RIGHTS = (
    "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, BINLOG MONITOR, SLAVE "
    "MONITOR, LOCK TABLES"
)
SERVER_USER = "nobody"  # whom it runs as when we are root


def check_programs(*others: str) -> None:
    """Check that MariaDB's programs are installed, and others of its package.

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
    command = [
        "mariadb-install-db",
        "--no-defaults",
        f"--datadir={folder}/data",
        *_as_user(),
        "--skip-test-db",
        *options,
    ]
    with _log_of(folder).open("ab") as log:
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment()
        )


def mariadb_server(folder: Path, port: int, *options: str) -> Server:
    """A server, not started yet, of a folder that was installed; its socket is the file `socket`
    among its data unless named.
    """
    command = [
        "mariadbd",
        "--no-defaults",
        *_as_user(),
        f"--datadir={folder}/data",
        "--socket=socket",
        f"--port={port}",
        "--bind-address=127.0.0.1",
        "--server-id=1",
        "--log-bin=mysql-bin",
        "--binlog-format=ROW",
        "--binlog-row-image=FULL",
        "--binlog-row-metadata=FULL",
        "--default-time-zone=+00:00",
        "--character-set-server=utf8mb4",
        "--innodb-buffer-pool-size=32M",
        *options,
    ]
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


SCHEMA = Path(__file__).with_name("reservations.sql")
APPLICATION, CAPTURE, READER = "application", "debezium", "lakechime"  # users of the database
PACKAGES = {"confluent_kafka": "kafka", "pymysql": "mysql"}  # by module the extra that brings it


@dataclass(frozen=True)
class Reservations:
    """The running system; `url` is its database for the application, `reader_url` for who only
    reads it, each with a password.
    """

    url: str
    reader_url: str
    mariadb: Server
    kafka: Server
    connect: Connect

    @property
    def servers(self) -> tuple[Server, ...]:
        return self.mariadb, self.kafka, self.connect.server


def check_parts(kafka: str) -> None:
    """See that all is there that is not fetched, before anything is started.

    Raises:
        LakeChimeError: naming what is not there and what to install, or the port that is taken.
    """
    check_programs()
    if extras := [extra for module, extra in PACKAGES.items() if find_spec(module) is None]:
        raise LakeChimeError(
            f"{CDC_SWITCH} needs more packages: install lakechime-dagster[{','.join(extras)}]"
        )
    host, _, port = kafka.rpartition(":")
    if listens(int(port)):
        remedy = f"end what uses it, or choose another one with {CDC_SWITCH}={host}:{int(port) + 1}"
        raise LakeChimeError(f"port {port} of {host}, at which Kafka is to be, is in use; {remedy}")


@contextmanager
def reservations(folder: Path, kafka: str, jars: Path, java: Java) -> Iterator[Reservations]:
    """Start the system, and end it with the context.

    Args:
        folder: where all of it is kept.
        kafka: the address of the broker, the same at each start, as the lake's declaration names
            it.
        jars: those of `ensure_server_jars`.
        java: that runs Kafka and Connect.

    Raises:
        LakeChimeError: a server does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # run by root, MariaDB is another user
    with ExitStack() as stack:
        passwords = {user: secrets.token_urlsafe(16) for user in (APPLICATION, CAPTURE, READER)}
        port = free_port()
        database = stack.enter_context(_mariadb(folder / "mariadb", port, passwords))
        broker = stack.enter_context(
            kafka_broker(
                folder / "kafka",
                jars,
                java,
                int(kafka.rpartition(":")[2]),
                settings={"log.retention.ms": "-1"},
            )
        )
        connectors = {PREFIX: _connector(kafka, port, passwords[CAPTURE])}
        connect = stack.enter_context(
            connect_worker(folder / "connect", jars, java, kafka, connectors=connectors)
        )
        url, reader_url = (
            f"mysql://{user}:{passwords[user]}@127.0.0.1:{port}/{DATABASE}"
            for user in (APPLICATION, READER)
        )
        yield Reservations(url, reader_url, database, broker, connect)


@contextmanager
def _mariadb(folder: Path, port: int, passwords: dict[str, str]) -> Iterator[Server]:
    install(folder)
    rights = {
        APPLICATION: f"ALL ON {DATABASE}.*",
        CAPTURE: f"{CAPTURE_RIGHTS} ON *.*",
        READER: "SELECT, BINLOG MONITOR ON *.*",
    }
    users = [
        statement
        for user, password in passwords.items()
        for statement in (
            f"CREATE OR REPLACE USER {user}@'127.0.0.1' IDENTIFIED BY '{password}';",
            f"GRANT {rights[user]} TO {user}@'127.0.0.1';",
        )
    ]
    first = folder / "first.sql"
    write_for_server(first, "\n".join([*users, SCHEMA.read_text(encoding="utf-8")]))
    server = mariadb_server(folder, port, f"--init-file={first}")
    try:
        server.start(lambda: listens(port))
        yield server
    finally:
        server.end()


def _connector(kafka: str, port: int, password: str) -> dict[str, str]:
    """Debezium's settings: the tables of the lake as topics `airline.reservations.<table>`."""
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "tasks.max": "1",
        "topic.prefix": PREFIX,
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.server.id": "4242",
        "database.user": CAPTURE,
        "database.password": password,
        "database.include.list": DATABASE,
        "table.include.list": ",".join(f"{DATABASE}.{table}" for table in ABOUT),
        "schema.history.internal.kafka.bootstrap.servers": kafka,
        "schema.history.internal.kafka.topic": f"{PREFIX}-history",
        "key.converter": JSON_CONVERTER,
        "value.converter": JSON_CONVERTER,
        "value.converter.replace.null.with.default": "false",
    }
