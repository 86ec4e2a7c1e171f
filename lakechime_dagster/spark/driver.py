"""The Spark driver of a run: attached to the warm one, started locally, or by a master URL."""

import atexit
import fcntl
import hashlib
import logging
import os
import re
import signal
import socket
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import mkstemp
from types import TracebackType
from typing import IO, Any, cast

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER
from py4j.finalizer import ThreadSafeFinalizer
from py4j.java_gateway import JavaPackage, java_import
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from typing_extensions import Self

from lakechime_dagster.errors import LakeChimeError, SparkUnavailableError
from lakechime_dagster.lock import locked
from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.jvm import (
    DELTA_EXTENSION,
    Gateway,
    WarmFile,
    find_java,
    is_alive,
    revision_of,
    start_jvm,
)

PACKAGES = ("io", "java", "org", "scala")
CLASSES = (
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
)


class Connection:
    """A Spark context in a JVM at the other end of a py4j gateway."""

    def __init__(self, context: SparkContext, base: Any, *, is_shared: bool) -> None:
        """`base` is the JVM's default session, which new sessions are made from and no client works
        in.
        """
        self.context = context
        self._base = base
        self._is_shared = is_shared

    def new_session(self) -> SparkSession:
        """A session with temporary views and confs of its own, active in this thread."""
        spark = SparkSession(self.context, self._base.newSession())
        activate(spark)
        # pyspark has just made ours the default of every client
        _session_class(self.context).setDefaultSession(self._base)
        return spark

    def close(self) -> None:
        """Detaches from a shared JVM, or stops the context of our own; dead or alive, this process
        can have another afterwards.
        """
        try:
            self._end()
        finally:
            _forget()

    def _end(self) -> None:
        context = self.context
        gateway: Any = context._gateway
        root = SparkFiles.getRootDirectory() if self._is_shared else None
        if self._is_shared:
            _session_class(context).clearActiveSession()
            context._jsc = None  # so that stopping it here does not stop it there
        _end_in_background(context)
        with _without_interrupt_handler():
            context.stop()
        if self._is_shared:
            _release(gateway)
        else:
            gateway.shutdown()
        if root in sys.path:
            sys.path.remove(root)


def activate(spark: SparkSession) -> None:
    """Makes a session the active one of pyspark and of this thread, which is used where none is
    named.
    """
    SparkSession._activeSession = spark
    _session_class(spark.sparkContext).setActiveSession(spark._jsparkSession)


def connect(gateway: Gateway, *, is_shared: bool) -> Connection:
    """Connects this process; a JVM without a context gets one.

    Args:
        gateway: Where the JVM listens.
        is_shared: Whether other processes use it too: we then never stop it.
    """
    with _environment(
        PYSPARK_GATEWAY_PORT=str(gateway.port), PYSPARK_GATEWAY_SECRET=gateway.secret
    ):
        client = _spared(launch_gateway())
    try:
        with _without_interrupt_handler():
            context = _open_context(client)
            sessions = _session_class(context)
            default = sessions.getDefaultSession()
            base = default.get() if default.isDefined() else SparkSession(context)._jsparkSession
        context.pythonExec = (
            context._conf.get("spark.pyspark.python", sys.executable) or sys.executable
        )
        context.environment |= worker_environment()
        SparkSession._instantiatedSession = (
            None  # the first session that we hand out is what `getOrCreate` finds
        )
    except BaseException:
        _forget()
        raise
    return Connection(context, base, is_shared=is_shared)


def worker_environment() -> dict[str, str]:
    """What makes Python workers import our code: they outlive a client, and one of other code must
    not be taken for ours.
    """
    return {"PYTHONPATH": import_path(), "CODE_REV": code_revision()}


def import_path() -> str:
    """Where this process imports from, for the environment of another."""
    return os.pathsep.join(dict.fromkeys(str(Path(entry).absolute()) for entry in sys.path))


def code_revision() -> str:
    """A digest of the modules that this process has loaded from outside the installed libraries."""
    libraries = {
        str(Path(sysconfig.get_path(name)).resolve())
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    files = {
        file
        for module in list(sys.modules.values())
        if isinstance(file := getattr(module, "__file__", None), str)
    }
    digest = hashlib.sha256()
    for file in sorted(files):
        if (
            not any(file.startswith(library) for library in libraries)
            and (path := Path(file)).is_file()
        ):
            state = path.stat()
            digest.update(f"{file}\0{state.st_mtime_ns}\0{state.st_size}\n".encode())
    return digest.hexdigest()[:16]


def _spared(gateway: Any) -> Any:
    """The gateway, which knows names that pyspark and Delta use again and again.

    For a name alone the JVM looks in each package that pyspark imports, and thus in all jars, each
    time; that takes as long as the call that it is for.
    """
    for name in PACKAGES:
        setattr(gateway.jvm, name, JavaPackage(name, gateway._gateway_client, gateway.jvm._id))
    for name in CLASSES:
        java_import(gateway.jvm, name)
    return gateway


def _open_context(client: Any) -> SparkContext:
    sessions = client.jvm.org.apache.spark.sql.classic.SparkSession
    default = sessions.getDefaultSession()
    if not default.isDefined():
        return SparkContext(gateway=client)
    jsc = client.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        default.get().sparkContext()
    )
    return SparkContext(gateway=client, jsc=jsc, conf=SparkConf(_jconf=jsc.getConf()))


def _end_in_background(context: Any) -> None:
    """Ends the server for accumulators, which takes half a second to notice; that the JVM hangs up
    meanwhile is no error to be shown.
    """
    server, context._accumulatorServer = context._accumulatorServer, None
    if server is not None:
        server.handle_error = lambda *_: None
        threading.Thread(target=server.shutdown, daemon=True).start()


def _session_class(context: SparkContext) -> Any:
    jvm: Any = context._jvm
    # part by part it would be looked for in all jars, again each time
    return getattr(jvm, "org.apache.spark.sql.classic.SparkSession")


@contextmanager
def _without_interrupt_handler() -> Iterator[None]:
    """Keeps the handler of Ctrl-C: pyspark's own cancels the jobs of every client of the JVM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _release(gateway: Any) -> None:
    """Lets the JVM forget every object that it holds for this process, and closes our end."""
    client = gateway._gateway_client
    prefix = f"{client.address}{client.port}"
    held = {
        key.removeprefix(prefix): key
        for key in list(ThreadSafeFinalizer.finalizers)
        if key.startswith(prefix)
    }
    for key in held.values():
        ThreadSafeFinalizer.remove_finalizer(key)
    waiting = client.finalizer_deque
    while waiting:
        try:
            held[waiting.pop()[1]] = ""
        except IndexError:
            break
    for target in held:
        client.garbage_collect_object(target, False)
    waiting.appendleft(SHUTDOWN_FINALIZER_WORKER)
    gateway.shutdown_callback_server()
    client.close()
    client.is_connected = False


def _forget() -> None:
    """Leaves pyspark in this process as if it had never had a JVM."""
    with SparkContext._lock:
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


STACK = re.compile(r"\n+(?:JVM stacktrace:|Driver stacktrace:|\s+at \w).*", re.DOTALL)
# behind its message
PLAN = re.compile(
    r";\n+'?[A-Z]\w+\b(?:[^\n]*[\[(#][^\n]*|[^\n]*(?=\n[+:]))(?:\n[+:\s].*)?\Z", re.DOTALL
)
PACKAGE = re.compile(r"\b(?:org|java|javax|scala|io|com|py4j)\.(?:[a-z][\w$]*\.)+(?=[A-Z])")
QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
FULL_DISK = "No space left on device"
MAX_STACK = 50_000  # characters
GONE = "the Spark driver is gone: start the run again"


class SparkFailedError(LakeChimeError):
    """Spark could not do what it was asked; the message is Spark's own, without its stack."""


@contextmanager
def described() -> Iterator[None]:
    """Turn what Spark raises inside into an error that can be read when its driver is gone: Spark's
    own asks the JVM for its text.
    """
    try:
        with _unlogged():
            yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(description(error)) from error
    except (ConnectionError, EOFError) as error:
        if _driver_answers():
            raise  # another server's
        raise SparkFailedError(GONE) from error


def _driver_answers() -> bool:
    """Whether the JVM that this process is connected to still takes calls; without one it is not
    what is missed.
    """
    context: Any = SparkContext._active_spark_context
    try:
        return context is None or context._jvm.java.lang.System.nanoTime() is not None
    except (Py4JError, OSError):
        return False


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep pyspark from printing each failure with the JVM's whole stack, before anybody could
    catch it.
    """
    before = _is_described()
    _quiet.is_described = True
    try:
        yield
    finally:
        _quiet.is_described = before


def _is_described() -> bool:
    """Whether what fails in this thread is put into words by us."""
    return getattr(_quiet, "is_described", False)


_quiet = threading.local()
# While pyspark makes a logger, it sets the class of all new ones of the process, which no other
# thread must do meanwhile: once, as
# this module is imported.
for _logger in map(PySparkLogger.getLogger, QUERY_LOGGERS):
    _logger.addFilter(lambda _record: not _is_described())


def description(error: Exception) -> str:
    """What failed, in Spark's words: of a Java failure the innermost cause with a message; without
    stacks and packages.
    """
    try:
        if isinstance(error, Py4JNetworkError):
            return GONE
        java = getattr(error, "java_exception", None)
        causes = list(_causes(java or getattr(error, "_origin", None)))
        if any(FULL_DISK in str(cause.getMessage()) for cause in causes):
            return (
                "no space is left on a disk that Spark writes to; free some, and the next attempt "
                "goes on"
            )
        if java is None:
            return f"{type(error).__name__}: {plain(str(error))}"
        speaking = [cause for cause in causes if cause.getMessage()] or causes[-1:]
        return plain(speaking[-1].toString())
    except Exception:  # noqa: BLE001 - a dead JVM fails with whatever its socket raises
        return GONE


def stack(error: BaseException) -> str:
    """The Python stack of a failure and of what caused it, and the JVM's where it still answers:
    for a log, at most MAX_STACK.
    """
    stacks = ["".join(traceback.format_exception(error))]
    cause: BaseException | None = error
    while cause is not None:
        java: Any = getattr(cause, "java_exception", None) or getattr(cause, "_origin", None)
        try:
            context: Any = SparkContext._active_spark_context
            stacks += (
                [context._jvm.org.apache.spark.util.Utils.exceptionString(java)]
                if java is not None
                else []
            )
        except Exception:  # noqa: BLE001 - a dead JVM fails with whatever its socket raises
            break
        cause = cause.__cause__
    return "\n".join(stacks)[:MAX_STACK]


def plain(text: str) -> str:
    """A message of the JVM without its stack and without the query's plan, classes by their own
    names.
    """
    return PACKAGE.sub("", PLAN.sub("", STACK.sub("", text).rstrip())).strip()


def _causes(java: Any) -> Iterator[Any]:
    """A Java exception and what caused it, outermost first."""
    while java is not None:
        yield java
        java = java.getCause()


ANSWER_SECONDS = 20  # long, for a busy machine; a dead driver refuses at once
START_SECONDS = 120


@dataclass(frozen=True)
class Unattached:
    """Why there is no warm driver to use, as the rest of a sentence that begins with `because`."""

    reason: str


@dataclass(frozen=True)
class Presence:
    """The open, locked file by which the host counts this client."""

    path: Path
    stream: IO[str]

    def end(self) -> None:
        self.path.unlink(missing_ok=True)
        self.stream.close()


@dataclass(frozen=True, kw_only=True)
class Warm:
    """An attached client."""

    connection: Connection
    host_pid: int
    presence: Presence

    def leave(self) -> None:
        self.presence.end()


def warm_lock(home: Path) -> Path:
    """Held while a client attaches and while the host retires a JVM: neither sees the other
    half-way.
    """
    return home / "spark" / "warm.lock"


def wake_file(home: Path) -> Path:
    """Made by a client that finds the warm driver asleep."""
    return home / "spark" / "wake"


def clients_folder(home: Path, host_pid: int, generation: int) -> Path:
    return home / "spark" / "clients" / f"{host_pid}-{generation}"


def attach(home: Path, settings: SparkSettings) -> Warm | Unattached:
    """Attaches this process to the warm driver of this home, waiting for one that is just starting
    or wakes up.
    """
    found = _await_up(home)
    if isinstance(found, Unattached):
        return found
    try:
        with locked(warm_lock(home), ANSWER_SECONDS):
            return _attach(home, settings)
    except TimeoutError:
        return Unattached(f"another client has been attaching for {ANSWER_SECONDS} s")


def _attach(home: Path, settings: SparkSettings) -> Warm | Unattached:
    found = WarmFile.read(home)
    if found is None:
        return Unattached("the warm driver has just ended")
    if found.revision != revision_of(settings, version("pyspark")):
        return Unattached(
            "the warm driver was started with other settings or versions; start it again"
        )
    gateway = Gateway(found.port, found.secret)
    if (trouble := probe(gateway)) is not None:
        return Unattached(f"the warm driver of process {found.host_pid} {trouble}")
    presence = _sign_in(clients_folder(home, found.host_pid, found.generation))
    try:
        connection = connect(gateway, is_shared=True)
    except (Py4JError, OSError, ValueError):
        presence.end()
        return Unattached(f"the warm driver of process {found.host_pid} did not let us in")
    return Warm(connection=connection, host_pid=found.host_pid, presence=presence)


def probe(gateway: Gateway) -> str | None:
    """What is wrong with the gateway at this port, or None if it answers and takes the secret."""
    try:
        with socket.create_connection(
            ("127.0.0.1", gateway.port), timeout=ANSWER_SECONDS
        ) as channel:
            channel.sendall(f"A\n{gateway.secret}\n".encode())
            answer = channel.recv(64)
    except TimeoutError:
        return f"did not answer within {ANSWER_SECONDS} s"
    except OSError:
        return "cannot be reached"
    return None if answer.startswith(b"!yv") else "refused our secret"


def present_clients(folder: Path) -> int:
    """How many live processes are attached; what killed ones left is removed."""
    present = 0
    for path in folder.glob("client-*"):
        with suppress(OSError), path.open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                present += 1
            else:
                path.unlink(missing_ok=True)
    return present


def attachments(folder: Path) -> int:
    """How many clients this JVM has had."""
    try:
        return (folder / "attached").stat().st_size
    except FileNotFoundError:
        return 0


def _await_up(home: Path) -> WarmFile | Unattached:
    end = time.monotonic() + START_SECONDS
    while (
        (found := WarmFile.read(home)) is not None
        and is_alive(found.host_pid)
        and not found.is_up
        and time.monotonic() < end
    ):
        if found.is_asleep:
            wake_file(home).touch()
        time.sleep(0.05)
    if found is None:
        return Unattached("no warm driver runs")
    if not is_alive(found.host_pid):
        return Unattached(f"the warm driver of process {found.host_pid} has died")
    return (
        found
        if found.is_up
        else Unattached(f"the warm driver of process {found.host_pid} is still starting")
    )


def _sign_in(folder: Path) -> Presence:
    """An open and locked file in this folder: it counts from the moment it has its name until we
    close it or die.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = mkstemp(prefix=".client-", dir=folder)
    os.close(handle)
    path = Path(name).with_name(f"client-{os.getpid()}-{Path(name).name.removeprefix('.client-')}")
    stream = Path(name).open("a")  # noqa: SIM115 - open, and so locked, for as long as this process is attached
    fcntl.flock(stream, fcntl.LOCK_EX)
    Path(name).rename(path)
    with (folder / "attached").open("a") as count:
        count.write(".")
    return Presence(path, stream)


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
        """Tags every Spark job that this thread starts meanwhile, so that a later attempt can
        cancel it.
        """
        context = self.spark.sparkContext
        context.addJobTag(tag)
        try:
            yield
        finally:
            with suppress(Py4JError, OSError):  # a dead JVM must not hide what went wrong in it
                context.removeJobTag(tag)

    def cancel(self, tag: str) -> int:
        """Cancels the jobs of this tag, whichever client started them, waits for them to end, and
        returns how many there were.

        What the client was doing may still be between two jobs: the target's log alone shows
        whether it committed.
        """
        cancelled: set[int] = set()
        end = time.monotonic() + CANCEL_SECONDS
        while running := self._running(tag):
            cancelled |= running
            self.spark.sparkContext.cancelJobsWithTag(tag)
            if time.monotonic() > end:
                _logger.warning(
                    "Spark jobs %s of %s did not end within %s s of being cancelled",
                    sorted(running),
                    tag,
                    CANCEL_SECONDS,
                )
                break
            time.sleep(0.05)
        return len(cancelled)

    def close(self) -> None:
        """Gives the session back; the last one of this process detaches from a warm driver, or ends
        its own.
        """
        if self._is_open:
            self._is_open = False
            _leave(self._engine)

    def _running(self, tag: str) -> set[int]:
        tracker = cast(Any, self.spark.sparkContext._jsc).sc().statusTracker()
        jobs = tracker.getJobIdsForTag(tag)
        return {
            job
            for job in jobs
            if (info := tracker.getJobInfo(job)).isDefined()
            and info.get().status().toString() == "RUNNING"
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Engine:
    """The one connection of this process, shared by all drivers that are open in it."""

    def __init__(
        self, connection: Connection | None, kind: str, reason: str, end: Callable[[], None]
    ) -> None:
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


def open_driver(
    settings: SparkSettings, home: Path, *, jars: Path, log: Callable[[str], None] = _logger.info
) -> Driver:
    """A driver as the settings ask for it; without a warm one that answers, a local one and a line
    in the log.

    Args:
        settings: Kind of driver, memory, cores, further confs.
        home: Folder of this deployment; logs, temporary files and the warm driver's connection are
            in its `spark` folder.
        jars: Folder of Spark's jars, filled on first use.
        log: Called with one line when the driver is not the requested one, or something is fetched.

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
                raise SparkUnavailableError(
                    "The Spark driver of this process no longer answers: start the run again"
                ) from error
            raise


def _leave(engine: _Engine) -> None:
    global _engine
    with _lock:
        engine.users -= 1
        if engine.users == 0:
            engine.end()
            _engine = None if _engine is engine else _engine


def _open_engine(
    settings: SparkSettings, home: Path, jars: Path, log: Callable[[str], None]
) -> _Engine:
    if SparkContext._active_spark_context is not None:
        return _join_foreign()
    if settings.driver != "warm":
        return _start(
            settings, home, jars, log, f"the driver that is asked for is {settings.driver}"
        )
    warm = attach(home, settings)
    if isinstance(warm, Warm):
        return _Engine(
            warm.connection,
            "warm",
            f"attached to the warm driver of process {warm.host_pid}",
            warm.leave,
        )
    log(f"Starting a local Spark driver, because {warm.reason}")
    return _start(settings.model_copy(update={"driver": "local"}), home, jars, log, warm.reason)


def _start(
    settings: SparkSettings, home: Path, jars: Path, log: Callable[[str], None], why: str
) -> _Engine:
    java = find_java(settings.java)
    if java.is_bundled:
        log(f"Using {java}")
    jvm = start_jvm(settings, java, home=home, jars=jars)
    try:
        connection = connect(jvm.gateway, is_shared=False)
    except Exception as error:
        jvm.stop(0)
        raise SparkUnavailableError(
            f"No Spark context could be opened at {settings.driver} (log: {jvm.log_file})"
        ) from error
    except BaseException:
        jvm.stop(0)
        raise
    kind = "local" if settings.driver == "local" else settings.driver
    return _Engine(connection, kind, f"started with {java}, because {why}", jvm.stop)


def _join_foreign() -> _Engine:
    """Works in the context that somebody else opened in this process, such as a notebook, and
    leaves it running.
    """
    spark = _foreign_session()
    if DELTA_EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise SparkUnavailableError(
            f"This process has a Spark session without Delta: set spark.sql.extensions to "
            f"{DELTA_EXTENSION}, or stop it"
        )
    return _Engine(None, "joined", "this process has a Spark session already", lambda: None)


def _foreign_session() -> SparkSession:
    return SparkSession.builder.getOrCreate()
