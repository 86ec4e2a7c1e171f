"""The Spark driver of a run: attached to the warm one, started for this process alone, or by a master URL; it says which, and why."""

import atexit
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from typing_extensions import Self

from lakechime_dagster.errors import SparkUnavailableError
from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.drivers.confs import DELTA_EXTENSION
from lakechime_dagster.spark.drivers.connection import Warm, attach
from lakechime_dagster.spark.drivers.java import find_java
from lakechime_dagster.spark.drivers.jvm import start_jvm
from lakechime_dagster.spark.drivers.session import Connection, connect

CANCEL_SECONDS = 10

_logger = logging.getLogger(__name__)
_lock = threading.RLock()
_engine: "_Engine | None" = None


class Driver:
    """A Spark session for one run; closing it never ends what others use."""

    def __init__(self, engine: "_Engine", spark: SparkSession, kind: str, reason: str) -> None:
        self.spark = spark
        self.kind = kind
        self.reason = reason
        self._engine = engine
        self._is_open = True

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        """Tags every Spark job that this thread starts meanwhile, so that whoever comes after us can cancel it."""
        context = self.spark.sparkContext
        context.addJobTag(tag)
        try:
            yield
        finally:
            with suppress(Py4JError, OSError):  # a dead JVM must not hide what went wrong in it
                context.removeJobTag(tag)

    def cancel(self, tag: str) -> int:
        """Cancels the jobs of this tag, whichever client started them, waits for them to end, and says how many there were.

        What the client was doing may still be between two jobs: the target's log alone says whether it committed.
        """
        cancelled: set[int] = set()
        end = time.monotonic() + CANCEL_SECONDS
        while running := self._running(tag):
            cancelled |= running
            self.spark.sparkContext.cancelJobsWithTag(tag)
            if time.monotonic() > end:
                _logger.warning("Spark jobs %s of %s did not end within %s s of being cancelled", sorted(running), tag, CANCEL_SECONDS)
                break
            time.sleep(0.05)
        return len(cancelled)

    def close(self) -> None:
        """Gives the session back; the last one of this process detaches from a warm driver, or ends its own."""
        if self._is_open:
            self._is_open = False
            _leave(self._engine)

    def _running(self, tag: str) -> set[int]:
        tracker = cast(Any, self.spark.sparkContext._jsc).sc().statusTracker()
        jobs = tracker.getJobIdsForTag(tag)
        return {job for job in jobs if (info := tracker.getJobInfo(job)).isDefined() and info.get().status().toString() == "RUNNING"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Engine:
    """The one connection of this process, shared by all drivers that are open in it."""

    def __init__(self, connection: Connection | None, kind: str, reason: str, end: Callable[[], None]) -> None:
        self.connection = connection
        self.kind = kind
        self.reason = reason
        self.users = 0
        self._end = end

    def session(self) -> SparkSession:
        if self.connection is not None:
            return self.connection.new_session()
        return _foreign_session().newSession()

    def end(self) -> None:
        atexit.unregister(self.end)
        if self.connection is not None:
            with suppress(Py4JError, OSError):  # the JVM is gone already
                self.connection.close()
        self._end()


def open_driver(settings: SparkSettings, home: Path, *, jars: Path, log: Callable[[str], None] = _logger.info) -> Driver:
    """A driver as the settings ask for it; without a warm one that answers, a local one and a line in the log.

    Args:
        settings: Kind of driver, memory, cores, further confs.
        home: Folder of this deployment; logs, temporary files and the warm driver's connection are in its `spark` folder.
        jars: Folder of Spark's jars, filled on first use.
        log: Told, in one line, when the driver is not the one that was asked for, or something is fetched.

    Raises:
        SparkUnavailableError: what is missing, and the remedy.
    """
    global _engine
    with _lock:
        if _engine is None:
            _engine = _open_engine(settings, home.absolute(), jars.absolute(), log)
            atexit.register(_engine.end)
            reason = _engine.reason
        else:
            reason = f"this process has a driver already: {_engine.reason}"
        _engine.users += 1
        engine = _engine
        try:
            return Driver(engine, engine.session(), engine.kind, reason)
        except BaseException as error:
            _leave(engine)
            if isinstance(error, (Py4JError, OSError)):
                raise SparkUnavailableError("The Spark driver of this process no longer answers: start the run again") from error
            raise


def _leave(engine: _Engine) -> None:
    global _engine
    with _lock:
        engine.users -= 1
        if engine.users == 0:
            engine.end()
            _engine = None if _engine is engine else _engine


def _open_engine(settings: SparkSettings, home: Path, jars: Path, log: Callable[[str], None]) -> _Engine:
    if SparkContext._active_spark_context is not None:
        return _join_foreign()
    if settings.driver != "warm":
        return _start(settings, home, jars, log, f"the driver that is asked for is {settings.driver}")
    warm = attach(home, settings)
    if isinstance(warm, Warm):
        return _Engine(warm.connection, "warm", f"attached to the warm driver of process {warm.host_pid}", warm.leave)
    log(f"Starting a local Spark driver, because {warm.reason}")
    return _start(settings.model_copy(update={"driver": "local"}), home, jars, log, warm.reason)


def _start(settings: SparkSettings, home: Path, jars: Path, log: Callable[[str], None], why: str) -> _Engine:
    java = find_java(settings.java)
    if java.is_bundled or java.skipped:
        log(f"Using {java}" + (f"; {'; '.join(java.skipped)}" if java.skipped else ""))
    jvm = start_jvm(settings, java, home=home, jars=jars)
    try:
        connection = connect(jvm.gateway, is_shared=False)
    except Exception as error:
        jvm.stop(0)
        raise SparkUnavailableError(f"No Spark context could be opened at {settings.driver} (log: {jvm.log_file})") from error
    except BaseException:
        jvm.stop(0)
        raise
    kind = "local" if settings.driver == "local" else settings.driver
    return _Engine(connection, kind, f"started with {java}, because {why}", jvm.stop)


def _join_foreign() -> _Engine:
    """Works in the context that somebody else opened in this process, such as a notebook, and leaves it running."""
    spark = _foreign_session()
    if DELTA_EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise SparkUnavailableError(
            f"This process has a Spark session without Delta: set spark.sql.extensions to {DELTA_EXTENSION}, or stop it"
        )
    return _Engine(None, "joined", "this process has a Spark session already", lambda: None)


def _foreign_session() -> SparkSession:
    return SparkSession.builder.getOrCreate()
