"""The servers of the demo: those of its database, which are MariaDB, Kafka and Kafka Connect with
Debezium, and a Hive metastore.
"""

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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen
from xml.etree import ElementTree

from lakechime_dagster.demo.flights import ABOUT, CDC_SWITCH, DATABASE, PREFIX
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lock import locked
from lakechime_dagster.spark.jvm import Java, pyspark_home, retrieve

STACK_FILE = Path(__file__).with_name("ivy.xml")
METASTORE_FILE = Path(__file__).with_name("metastore.xml")


def ensure_server_jars(
    file: Path, home: Path, java: Java, progress: Callable[[str], None] = print
) -> Path:
    """The folder in `home` of the jars that a file of Ivy asks for, and named after these; it is
    complete where it is there, because it is moved in whole.

    Raises:
        LakeChimeError: they cannot be fetched.
    """
    root = ElementTree.parse(file).getroot()
    asked = sorted(" ".join(each.attrib.values()) for each in root.iter("dependency"))
    (info,) = root.iter("info")
    name, what = info.attrib["module"], info.findtext("description")
    folder = home / f"{name}-{hashlib.sha256(' '.join(asked).encode()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    home.mkdir(parents=True, exist_ok=True)
    with (
        locked(home / f"{name}.lock"),
        tempfile.TemporaryDirectory(prefix=f".{name}-", dir=home) as temporary,
    ):
        if not folder.is_dir():
            progress(f"Fetching {what} into {folder} (once)")
            fetched = Path(temporary) / "jars"
            answer = retrieve(file, fetched, java, cache=Path(temporary) / "cache")
            if answer.returncode or not fetched.is_dir():
                said = (answer.stdout + answer.stderr).strip()[-500:]
                raise LakeChimeError(f"{what} cannot be fetched; is there a network? {said}")
            for other in ("*-sources.jar", "*-javadoc.jar", "*.pom"):
                for one in fetched.glob(other):
                    one.unlink()
            fetched.rename(folder)
    return folder


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


OPENED = ("lang", "net", "io", "util", "util.concurrent")


@dataclass(frozen=True)
class JavaMachine:
    """A Java machine of which this process calls what it wants; `packages` are those of its jars."""

    packages: Any = field(repr=False)
    log: Path
    process: "subprocess.Popen[bytes]" = field(repr=False)


@contextmanager
def java_machine(log: Path, jars: Sequence[Path], java: Java) -> Iterator[JavaMachine]:
    """A Java machine that ends with the block, or with this process.

    Args:
        log: a file for what it prints, in the folder in which it runs.
        jars: those that it has beside pyspark's, as a class path has them.
        java: that runs it.

    Raises:
        LakeChimeError: it does not start.
    """
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    class_path = [*map(str, jars), str(pyspark_home() / "jars" / "*")]
    opened = [f"--add-opens=java.base/java.{one}=ALL-UNNAMED" for one in OPENED]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        try:
            started: Any = launch_gateway(
                classpath=os.pathsep.join(class_path),
                javaopts=[*SMALL, "-Xmx128m", *opened],
                java_path=str(java.executable),
                die_on_exit=True,
                create_new_process_group=True,  # a Ctrl-C is for those that use it first
                enable_auth=True,
                cwd=str(log.parent),
                redirect_stdout=file,
                redirect_stderr=file,
                return_proc=True,
            )
        except ValueError as error:  # it says no port
            raise LakeChimeError(f"{log.stem} does not start; {log} says why") from error
        port, token, process = started
        gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
        )
        try:
            yield JavaMachine(gateway.jvm, log, process)
        finally:
            gateway.shutdown()
            process.kill()
            process.wait()


METASTORE = {
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    "datanucleus.schema.autoCreateAll": "true",
    "datanucleus.connectionPoolingType": "NONE",  # the jar of the default is not among pyspark's
    "hive.metastore.schema.verification": "false",
    "hive.metastore.transactional.event.listeners": "org.apache.hive.hcatalog.listener.DbNotificationListener",
    "hive.async.log.enabled": "false",
    "hive.warehouse.subdir.inherit.perms": "false",  # else it starts a chmod for each folder
}
EXISTS = "X0Y32"  # Derby's state of a table that is there already


@dataclass(frozen=True)
class Metastore:
    """A metastore in a Java machine; `handler` is its own there, which is made while the first
    clients already wait.
    """

    url: str
    log: Path
    process: "subprocess.Popen[bytes]" = field(repr=False)
    made: "Future[Any]" = field(repr=False)
    name = "metastore"

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def handler(self) -> Any:
        return self.made.result()


@contextmanager
def hive_metastore(
    folder: Path, jars: Path, java: Java, database: str = "derby"
) -> Iterator[Metastore]:
    """A metastore from pyspark's jars that listens on this machine only and ends with the block, or
    with this process.

    Args:
        folder: of its log, of its database and of the tables that name no folder.
        jars: those of `METASTORE_FILE`.
        java: that runs it.
        database: of Derby: a folder in that folder, or `memory:` and a name.

    Raises:
        LakeChimeError: it does not start.
    """
    settings = METASTORE | {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{database};create=true",
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
    }
    with (
        java_machine(folder / "metastore.log", [jars / "*"], java) as machine,
        ThreadPoolExecutor(1) as maker,
    ):
        jvm = machine.packages
        any_port = jvm.java.net.InetSocketAddress("127.0.0.1", 0)
        socket = jvm.org.apache.thrift.transport.TServerSocket(any_port)
        url = f"thrift://127.0.0.1:{socket.getServerSocket().getLocalPort()}"
        made = maker.submit(_serve_metastore, jvm, socket, settings)

        def check(done: "Future[Any]") -> None:
            if error := done.exception():
                with machine.log.open("a") as log:
                    log.write(f"{error}\n")
                machine.process.kill()

        made.add_done_callback(check)
        yield Metastore(url, machine.log, machine.process, made)


def _serve_metastore(jvm: Any, socket: Any, settings: Mapping[str, str]) -> Any:
    """What `HiveMetaStore.main` does, which would listen on every address of the machine; the
    handler.
    """
    conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
    for key, value in settings.items():
        conf.set(key, value)
    metastore, thrift, java = jvm.org.apache.hadoop.hive.metastore, jvm.org.apache.thrift, jvm.java
    handler = metastore.HiveMetaStore.HMSHandler("hive", conf, False)
    _make_lock_tables(metastore, conf)
    retrying = metastore.RetryingHMSHandler.getProxy(conf, handler, True)
    processor = metastore.TSetIpAddressProcessor(retrying)
    server = thrift.server.TThreadPoolServer(
        thrift.server.TThreadPoolServer.Args(socket).processor(processor)
    )
    # a thread of Java's, since a call that never returns ends with an error of py4j
    invoke = java.lang.invoke
    returns_nothing = invoke.MethodType.methodType(java.lang.Void.TYPE)
    serve = invoke.MethodHandles.publicLookup().bind(server, "serve", returns_nothing)
    runnable = java.lang.Class.forName("java.lang.Runnable")
    java.lang.Thread(invoke.MethodHandleProxies.asInterfaceInstance(runnable, serve)).start()
    return handler


def _make_lock_tables(metastore: Any, conf: Any) -> None:
    """Make those tables of its database that datanucleus does not: commits of Iceberg tables lock."""
    from py4j.protocol import Py4JJavaError

    try:
        metastore.txn.TxnDbUtil.prepDb(conf)  # all or nothing
    except Py4JJavaError as error:
        if error.java_exception.getSQLState() != EXISTS:
            raise
