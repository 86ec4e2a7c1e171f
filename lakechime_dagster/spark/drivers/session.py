"""This process's connection to the JVM of a driver, and the sessions made over it.

pyspark keeps one context per process in class attributes, so there is at most one `Connection` at a time. A connection to a JVM that is
shared with other processes leaves without a trace: nothing is stopped, and what the JVM held for us is released.
"""

import hashlib
import os
import signal
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER
from py4j.finalizer import ThreadSafeFinalizer
from py4j.java_gateway import JavaPackage, java_import
from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from lakechime_dagster.spark.drivers.jvm import Gateway

PACKAGES = ("io", "java", "org", "scala")
CLASSES = ("org.apache.spark.api.python.PythonUtils", "org.apache.spark.sql.api.python.PythonSQLUtils")


class Connection:
    """A Spark context in a JVM at the other end of a py4j gateway."""

    def __init__(self, context: SparkContext, base: Any, *, is_shared: bool) -> None:
        """`base` is the JVM's default session, which new sessions are made from and no client works in."""
        self.context = context
        self._base = base
        self._is_shared = is_shared

    def new_session(self) -> SparkSession:
        """A session with temporary views and confs of its own, active in this thread."""
        spark = SparkSession(self.context, self._base.newSession())
        activate(spark)
        _session_class(self.context).setDefaultSession(self._base)  # pyspark has just made ours the default of every client
        return spark

    def close(self) -> None:
        """Detaches from a shared JVM, or stops the context of our own; dead or alive, this process can have another afterwards."""
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
    """Makes a session the active one of pyspark and of this thread, which is used where none is named."""
    SparkSession._activeSession = spark
    _session_class(spark.sparkContext).setActiveSession(spark._jsparkSession)


def connect(gateway: Gateway, *, is_shared: bool) -> Connection:
    """Connects this process; a JVM without a context gets one.

    Args:
        gateway: Where the JVM listens.
        is_shared: Whether other processes use it too: we then never stop it.
    """
    with _environment(PYSPARK_GATEWAY_PORT=str(gateway.port), PYSPARK_GATEWAY_SECRET=gateway.secret):
        client = _spared(launch_gateway())
    try:
        with _without_interrupt_handler():
            context = _open_context(client)
            sessions = _session_class(context)
            default = sessions.getDefaultSession()
            base = default.get() if default.isDefined() else SparkSession(context)._jsparkSession
        context.pythonExec = context._conf.get("spark.pyspark.python", sys.executable) or sys.executable
        context.environment |= worker_environment()
        SparkSession._instantiatedSession = None  # the first session that we hand out is what `getOrCreate` finds
    except BaseException:
        _forget()
        raise
    return Connection(context, base, is_shared=is_shared)


def worker_environment() -> dict[str, str]:
    """What makes Python workers import our code: they outlive a client, and one of other code must not be taken for ours."""
    return {"PYTHONPATH": import_path(), "CODE_REV": code_revision()}


def import_path() -> str:
    """Where this process imports from, for the environment of another."""
    return os.pathsep.join(dict.fromkeys(str(Path(entry).absolute()) for entry in sys.path))


def code_revision() -> str:
    """A digest of the modules that this process has loaded from outside the installed libraries."""
    libraries = {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    files = {file for module in list(sys.modules.values()) if isinstance(file := getattr(module, "__file__", None), str)}
    digest = hashlib.sha256()
    for file in sorted(files):
        if not any(file.startswith(library) for library in libraries) and (path := Path(file)).is_file():
            state = path.stat()
            digest.update(f"{file}\0{state.st_mtime_ns}\0{state.st_size}\n".encode())
    return digest.hexdigest()[:16]


def _spared(gateway: Any) -> Any:
    """The gateway, which knows names that pyspark and Delta use again and again.

    For a name alone the JVM looks in each package that pyspark imports, and thus in all jars, each time anew; that takes as long as
    the call that it is for.
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
    jsc = client.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(default.get().sparkContext())
    return SparkContext(gateway=client, jsc=jsc, conf=SparkConf(_jconf=jsc.getConf()))


def _end_in_background(context: Any) -> None:
    """Ends the server for accumulators, which takes half a second to notice; that the JVM hangs up meanwhile is no error to be shown."""
    server, context._accumulatorServer = context._accumulatorServer, None
    if server is not None:
        server.handle_error = lambda *_: None
        threading.Thread(target=server.shutdown, daemon=True).start()


def _session_class(context: SparkContext) -> Any:
    jvm: Any = context._jvm
    return getattr(jvm, "org.apache.spark.sql.classic.SparkSession")  # part by part it would be looked for in all jars, again each time


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
    held = {key.removeprefix(prefix): key for key in list(ThreadSafeFinalizer.finalizers) if key.startswith(prefix)}
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
