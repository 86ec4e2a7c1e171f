"""Starting the JVM of a driver directly: no spark-submit, no shell, and so any Java that is whole enough.

The JVM lives as long as its standard input is open, so it ends with the process that started it, however that one ends.
"""

import os
import re
import shutil
import struct
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

from lakechime_dagster.errors import SparkUnavailableError
from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.drivers.confs import build_confs
from lakechime_dagster.spark.drivers.jars import ensure_jars, pyspark_home
from lakechime_dagster.spark.drivers.java import Java

START_SECONDS = 180
LOGS_KEPT = 20
LOGGING = Path(__file__).with_name("log4j2.properties")

_OPENED = (
    "lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent", "util.concurrent.atomic",
)  # fmt: skip
_OPENED_INTERNALS = ("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar")
_KNOWN_FAILURES = (
    (re.compile(r"Could not reserve|insufficient memory|Cannot allocate memory"), "not enough memory; lower LAKECHIME_SPARK_MEMORY"),
    (re.compile(r"Invalid (maximum|initial) heap size|Too small maximum heap"), "LAKECHIME_SPARK_MEMORY does not fit this machine"),
    (re.compile(r"No space left on device"), "no space left on its disk"),
    (re.compile(r"UnsupportedClassVersionError"), "this Java is too old for Spark"),
)  # fmt: skip


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


def start_jvm(settings: SparkSettings, java: Java, *, home: Path, jars: Path) -> Jvm:
    """Starts a JVM with a py4j gateway and no Spark context yet.

    Raises:
        SparkUnavailableError: a jar is broken, a folder cannot be written, or the JVM does not start; says where its log is.
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
                stdin=subprocess.PIPE, stdout=log, stderr=log, env=_environment(connection, confs),
                process_group=0,  # Ctrl-C in a terminal reaches whole process groups; the driver is ended by its owner instead
            )  # fmt: skip
    except OSError as error:
        raise SparkUnavailableError(f"Spark's driver cannot be started in {spark_home}: {error.strerror or error}") from error
    try:
        gateway = _await_gateway(process, connection, log_file)
    except BaseException:
        process.kill()
        process.wait()
        shutil.rmtree(work, ignore_errors=True)
        raise
    return Jvm(process=process, gateway=gateway, java=java, work=work, log_file=log_file)


def _command(java: Java, settings: SparkSettings, jars: list[Path], properties: Path, work: Path) -> list[str]:
    hadoop = [path for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if (path := os.environ.get(name))]
    class_path = [f"{pyspark_home() / 'jars'}/*", *map(str, jars), *hadoop]
    opened = [f"java.base/java.{package}" for package in _OPENED] + [f"java.base/{package}" for package in _OPENED_INTERNALS]
    return [
        str(java.executable), *java.trust_options, "-cp", os.pathsep.join(class_path), f"-Xmx{settings.memory}",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in (*opened, "java.security.jgss/sun.security.krb5")),
        "-Djdk.reflect.useDirectMethodHandle=false", "-Dio.netty.tryReflectionSetAccessible=true",
        "-XX:+ExitOnOutOfMemoryError", f"-Djava.io.tmpdir={work}", f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "org.apache.spark.deploy.SparkSubmit", "--properties-file", str(properties), "pyspark-shell",
    ]  # fmt: skip


def _environment(connection: Path, confs: dict[str, str]) -> dict[str, str]:
    """This process's environment without what would bring other confs or another connection in."""
    local = {"SPARK_LOCAL_IP": address} if (address := confs.get("spark.driver.bindAddress")) else {}
    foreign = ("SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
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
    """Whether a process of this id runs; one that has ended and only waits for its parent to notice does not."""
    with suppress(OSError, IndexError):
        if Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0] == "Z":
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _write_properties(work: Path, confs: dict[str, str]) -> Path:
    """Confs go through a file that only we can read: a command line is seen by everybody, and confs may hold keys of object stores."""
    path = work / "spark.properties"
    path.touch(mode=0o600)
    path.write_text("".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in confs.items()), encoding="ascii")
    return path


def _escaped(text: str) -> str:
    """A key or value in the form of Java's properties files."""
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)


def _await_gateway(process: subprocess.Popen[bytes], connection: Path, log_file: Path) -> Gateway:
    """Waits for the file that the JVM writes and renames when its gateway listens: int32 port, int32 length, secret."""
    end = time.monotonic() + START_SECONDS
    while not connection.is_file():
        if (code := process.poll()) is not None:
            raise SparkUnavailableError(
                f"Spark's driver ended while starting, {_failure(log_file) or f'exit code {code}'} (log: {log_file})"
            )
        if time.monotonic() > end:
            raise SparkUnavailableError(f"Spark's driver did not start within {START_SECONDS} s (log: {log_file})")
        time.sleep(0.02)
    content = connection.read_bytes()
    connection.unlink()
    port, length = struct.unpack(">ii", content[:8])
    return Gateway(port, content[8 : 8 + length].decode())


def _failure(log_file: Path) -> str | None:
    text = log_file.read_text(encoding="utf-8", errors="replace")
    return next((meaning for pattern, meaning in _KNOWN_FAILURES if pattern.search(text)), None)
