"""The host process of the warm driver."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pydantic import BaseModel
from pyspark.sql import SparkSession

from lakechime_dagster.errors import SparkUnavailableError
from lakechime_dagster.lock import locked
from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.driver import (
    Connection,
    attachments,
    clients_folder,
    connect,
    import_path,
    present_clients,
    wake_file,
    warm_lock,
)
from lakechime_dagster.spark.jvm import Jvm, WarmFile, find_java, revision_of, start_jvm, warm_file

CLIENTS_PER_JVM = 200  # each one leaves about 2 MB behind, however it ends
HEAP_FILLED = 0.75  # of the maximum, after a collection
FAILURES_IN_A_ROW = 3
TICK_SECONDS = 0.5

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WarmHost:
    """The host as the process that started it sees it; closing its standard input ends it."""

    process: subprocess.Popen[bytes]
    home: Path
    log_file: Path

    def wait_warmed(self, seconds: float = 120) -> bool:
        """Waits until Delta has been exercised; False if the host ended, or that took longer."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            found = WarmFile.read(self.home)
            if found is not None and found.host_pid == self.process.pid and found.is_warmed:
                return True
            time.sleep(0.05)
        return False

    def stop(self, seconds: float = 30) -> None:
        """Ends the host and its JVM."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_warm_driver(
    settings: SparkSettings,
    home: Path,
    jars: Path,
    *,
    clients_per_jvm: int = CLIENTS_PER_JVM,
    idle_seconds: float | None = None,
    is_exercised: bool = True,
) -> WarmHost:
    """Starts the host and returns at once; it ends with this process.

    Args:
        settings: As the clients' settings, or they will not attach.
        home: Folder of this deployment.
        jars: Folder of Spark's jars.
        clients_per_jvm: After so many the JVM is replaced for later clients.
        idle_seconds: After so long without clients the JVM is ended until the next one; the
            settings' `idle_minutes` if None.
        is_exercised: Whether Delta is used once before the first client does.
    """
    home = home.absolute()
    logs = home / "spark" / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log_file = logs / "warm.log"
    wish = _Wish(
        settings=settings,
        home=home,
        jars=jars.absolute(),
        clients_per_jvm=clients_per_jvm,
        is_exercised=is_exercised,
        idle_seconds=settings.idle_minutes * 60 if idle_seconds is None else idle_seconds,
    )
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "lakechime_dagster.spark.warm", "--home", str(home)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": import_path()},
        )
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.write(wish.model_dump_json().encode() + b"\n")
            process.stdin.flush()
    return WarmHost(process, home, log_file)


def warm_up(spark: SparkSession, folder: Path) -> None:
    """Exercises what the first run would otherwise wait for: a Delta write, its change feed, a
    MERGE, a group by.
    """
    path = str(folder / "warm-up")
    rows = spark.range(100).selectExpr(
        "id", "id % 7 AS part", "cast(id AS string) AS name", "timestamp_seconds(id) AS ts"
    )
    rows.write.format("delta").option("delta.enableChangeDataFeed", "true").partitionBy(
        "part"
    ).save(path)
    rows.where("id < 50").selectExpr(
        "id + 30 AS id", "part", "'new' AS name", "ts"
    ).createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO delta.`{path}` AS target USING changes AS source ON target.id = source.id AND "
        f"target.part = source.part "
        "WHEN MATCHED AND source.name = 'gone' THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT "
        "MATCHED THEN INSERT *"
    ).collect()
    changes = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", 1)
        .load(path)
    )
    changes.groupBy("part", "_change_type").count().collect()
    shutil.rmtree(path, ignore_errors=True)


class _Wish(BaseModel):
    """What a host is to do: the first line of its standard input, since settings may hold keys of
    object stores.
    """

    settings: SparkSettings
    home: Path
    jars: Path
    clients_per_jvm: int
    idle_seconds: float
    is_exercised: bool


class _Host:
    """The life of one host: JVMs one after the other, and their connection file."""

    def __init__(self, wish: _Wish) -> None:
        self.wish = wish
        self.settings = wish.settings
        self.home = wish.home
        self.generation = 0
        self.jvm: Jvm | None = None
        self.connection: Connection | None = None
        self.retired: list[tuple[Jvm, Path]] = []
        self.last_client = time.monotonic()
        self.failures = 0

    @property
    def clients(self) -> Path:
        return clients_folder(self.home, os.getpid(), self.generation)

    def run(self) -> None:
        """Until a signal, or the end of standard input, which is made one."""
        self.publish(self.blank())
        self.start()
        while True:
            time.sleep(TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        self.end_retired()
        if self.jvm is None:
            if wake_file(self.home).exists():
                self.start()
            return
        if self.jvm.process.poll() is not None or self.is_stopped():
            _logger.warning(
                "The warm driver's JVM ended (log: %s); starting another", self.jvm.log_file
            )
            self.replace_jvm()
            return
        if present_clients(self.clients):
            self.last_client = time.monotonic()
        elif time.monotonic() - self.last_client > self.wish.idle_seconds:
            _logger.info(
                "No client for %s s: the warm driver sleeps until the next one",
                self.wish.idle_seconds,
            )
            self.sleep()
            return
        if attachments(self.clients) >= self.wish.clients_per_jvm or self.is_filled():
            _logger.info(
                "The warm driver's JVM has had %s clients; starting another",
                attachments(self.clients),
            )
            self.replace_jvm()

    def start(self) -> None:
        """Starts a JVM, lets clients in, and exercises it; the previous one, if any, serves its
        clients to their end.
        """
        wake_file(self.home).unlink(missing_ok=True)
        previous, previous_clients = self.jvm, self.clients
        try:
            jvm = start_jvm(
                self.settings, find_java(self.settings.java), home=self.home, jars=self.wish.jars
            )
            connection = self.reconnect(jvm)
        except (SparkUnavailableError, Py4JError, OSError) as error:
            self.failed(error)
            return
        self.generation += 1
        self.jvm, self.connection, self.last_client = jvm, connection, time.monotonic()
        gateway = jvm.gateway
        up = replace(
            self.blank(),
            is_up=True,
            jvm_pid=jvm.process.pid,
            port=gateway.port,
            secret=gateway.secret,
        )
        self.publish(up)
        if previous is not None:
            self.retired.append((previous, previous_clients))
        try:
            if self.wish.is_exercised:
                warm_up(connection.new_session(), jvm.work)
        except Exception:
            _logger.exception("The warm driver could not be exercised")
            return
        self.failures = 0
        self.publish(replace(up, is_warmed=True))
        _logger.info(
            "The warm driver is ready (Java %s, process %s)", jvm.java.version, jvm.process.pid
        )

    def reconnect(self, jvm: Jvm) -> Connection:
        self.disconnect()
        try:
            connection = connect(jvm.gateway, is_shared=True)
        except BaseException:
            jvm.stop(0)
            raise
        _end_on_signals()
        return connection

    def replace_jvm(self) -> None:
        if self.jvm is not None and self.jvm.process.poll() is not None:
            self.publish(self.blank())
            self.disconnect()
            self.jvm.stop()
            shutil.rmtree(self.clients, ignore_errors=True)
            self.jvm = None
        self.start()

    def sleep(self) -> None:
        """Ends the JVM, unless a client attached at the last moment: it signs in under the lock, so
        it is seen or reads of the sleep.
        """
        try:
            with locked(warm_lock(self.home), 30):
                if present_clients(self.clients):
                    return
                replace(self.blank(), is_asleep=True).write(self.home)
        except TimeoutError:
            return  # a client is still attaching
        self.disconnect()
        if self.jvm is not None:
            self.jvm.stop()
        shutil.rmtree(self.clients, ignore_errors=True)
        self.jvm = None

    def failed(self, error: Exception) -> None:
        self.failures += 1
        _logger.error("The warm driver's JVM did not start: %s", error)
        if self.failures >= FAILURES_IN_A_ROW:
            raise SystemExit(1)
        wake_file(self.home).touch()

    def end_retired(self) -> None:
        for jvm, clients in list(self.retired):
            if not present_clients(clients):
                jvm.stop()
                shutil.rmtree(clients, ignore_errors=True)
                self.retired.remove((jvm, clients))

    def is_stopped(self) -> bool:
        try:
            return bool(self.java().sc().isStopped())
        except (Py4JError, OSError):
            return True

    def is_filled(self) -> bool:
        """Whether the heap stays filled after a collection, which is asked for only when it looks
        filled.
        """
        if self.connection is None:
            return False
        jvm: Any = self.connection.context._jvm
        if self.used_heap(jvm) < HEAP_FILLED:
            return False
        jvm.java.lang.System.gc()
        return self.used_heap(jvm) >= HEAP_FILLED

    def used_heap(self, jvm: Any) -> float:
        runtime = jvm.java.lang.Runtime.getRuntime()
        return (runtime.totalMemory() - runtime.freeMemory()) / runtime.maxMemory()

    def java(self) -> Any:
        if self.connection is None:
            raise OSError("not connected")
        return self.connection.context._jsc

    def disconnect(self) -> None:
        if self.connection is not None:
            with suppress(Py4JError, OSError):
                self.connection.close()
            self.connection = None

    def blank(self) -> WarmFile:
        spark_version = version("pyspark")
        return WarmFile(
            host_pid=os.getpid(),
            generation=self.generation,
            revision=revision_of(self.settings, spark_version),
            spark_version=spark_version,
        )

    def publish(self, file: WarmFile) -> None:
        """Under the lock, so that a client has signed in with the JVM that it read about before
        another one is named.
        """
        with suppress(TimeoutError), locked(warm_lock(self.home), 30):
            file.write(self.home)

    def end(self) -> None:
        """Ends all JVMs; clients that are still attached lose theirs."""
        warm_file(self.home).unlink(missing_ok=True)
        for jvm in [*(jvm for jvm, _ in self.retired), *([self.jvm] if self.jvm else [])]:
            jvm.stop(5)
        shutil.rmtree(self.clients, ignore_errors=True)


def main() -> None:
    """Reads what to do from the first line of standard input, and ends when that closes."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    _end_on_signals()
    line = sys.stdin.readline()
    if not line:
        raise SystemExit("The warm driver is started by `lakechime dev`.")
    wish = _Wish.model_validate_json(line)
    threading.Thread(target=_end_with_input, daemon=True).start()
    host = _Host(wish)
    try:
        with locked(wish.home / "spark" / "host.lock", 5):
            try:
                host.run()
            finally:
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
                host.end()
    except TimeoutError:
        raise SystemExit(f"Another warm driver serves {wish.home}.") from None


def _end_on_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit)


def _exit(number: int, frame: object) -> None:
    raise SystemExit(0)


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
