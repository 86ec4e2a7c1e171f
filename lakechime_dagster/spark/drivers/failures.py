"""What Spark's failures say, put into words while the JVM that can tell is still there."""

import re
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from lakechime_dagster.errors import LakeChimeError

STACK = re.compile(r"\n+(?:JVM stacktrace:|Driver stacktrace:|\s+at \w).*", re.DOTALL)
PLAN = re.compile(r";\n+'?[A-Z]\w+\b(?:[^\n]*[\[(#][^\n]*|[^\n]*(?=\n[+:]))(?:\n[+:\s].*)?\Z", re.DOTALL)  # behind what an analysis says
PACKAGE = re.compile(r"\b(?:org|java|javax|scala|io|com|py4j)\.(?:[a-z][\w$]*\.)+(?=[A-Z])")
QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
FULL_DISK = "No space left on device"
MAX_STACK = 50_000  # characters
GONE = "the Spark driver is gone: start the run again"


class SparkFailedError(LakeChimeError):
    """Spark could not do what it was asked; the message is Spark's own, without its stack."""


@contextmanager
def described() -> Iterator[None]:
    """Turn what Spark raises inside into an error that can be read when its driver is gone: Spark's own asks the JVM for its text."""
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
    """Whether the JVM that this process is connected to still takes calls; without one it is not what is missed."""
    context: Any = SparkContext._active_spark_context
    try:
        return context is None or context._jvm.java.lang.System.nanoTime() is not None
    except (Py4JError, OSError):
        return False


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep pyspark from printing each failure with the JVM's whole stack, before anybody could catch it."""
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
# While pyspark makes a logger, it sets the class of all new ones of the process, which no other thread must do meanwhile: once, as
# this module is imported.
for _logger in map(PySparkLogger.getLogger, QUERY_LOGGERS):
    _logger.addFilter(lambda _record: not _is_described())


def description(error: Exception) -> str:
    """What failed, in Spark's words: of a Java failure the innermost cause that says something; without stacks and packages."""
    try:
        if isinstance(error, Py4JNetworkError):
            return GONE
        java = getattr(error, "java_exception", None)
        causes = list(_causes(java or getattr(error, "_origin", None)))
        if any(FULL_DISK in str(cause.getMessage()) for cause in causes):
            return "no space is left on a disk that Spark writes to; free some, and the next attempt goes on"
        if java is None:
            return f"{type(error).__name__}: {plain(str(error))}"
        speaking = [cause for cause in causes if cause.getMessage()] or causes[-1:]
        return plain(speaking[-1].toString())
    except Exception:  # noqa: BLE001 - a dead JVM answers with whatever its socket says
        return GONE


def stack(error: BaseException) -> str:
    """The Python stack of a failure and of what caused it, and the JVM's where that still tells it: for a log, at most MAX_STACK."""
    told = ["".join(traceback.format_exception(error))]
    cause: BaseException | None = error
    while cause is not None:
        java: Any = getattr(cause, "java_exception", None) or getattr(cause, "_origin", None)
        try:
            context: Any = SparkContext._active_spark_context
            told += [context._jvm.org.apache.spark.util.Utils.exceptionString(java)] if java is not None else []
        except Exception:  # noqa: BLE001 - a dead JVM answers with whatever its socket says
            break
        cause = cause.__cause__
    return "\n".join(told)[:MAX_STACK]


def plain(text: str) -> str:
    """A message of the JVM without its stack and without the query's plan, classes by their own names."""
    return PACKAGE.sub("", PLAN.sub("", STACK.sub("", text).rstrip())).strip()


def _causes(java: Any) -> Iterator[Any]:
    """A Java exception and what caused it, outermost first."""
    while java is not None:
        yield java
        java = java.getCause()
