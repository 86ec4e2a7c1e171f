"""What Spark's failures say, put into words while the JVM that can tell is still there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lakechime_dagster.errors import LakeChimeError

STACK = "\n\nJVM stacktrace:"
FULL_DISK = "No space left on device"


class SparkFailedError(LakeChimeError):
    """Spark could not do what it was asked; the message is Spark's own, without its stack."""


@contextmanager
def described() -> Iterator[None]:
    """Turn what Spark raises inside into an error that can be read when its driver is gone: Spark's own asks the JVM for its text."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(description(error)) from error


def description(error: Exception) -> str:
    """The text of a failure without the stack of the JVM; its type alone when the JVM cannot tell any more."""
    kind = type(error).__name__
    try:
        java = getattr(error, "java_exception", None)
        if any(FULL_DISK in str(cause.getMessage()) for cause in _causes(java or getattr(error, "_origin", None))):
            return "no space is left on a disk that Spark writes to; free some, and the next attempt goes on"
        text = str(error) if java is None else java.toString()
    except Exception:  # noqa: BLE001 - a dead JVM answers with whatever its socket says
        return f"{kind}: the Spark driver is gone, and with it what it had to say"
    return f"{kind}: {text.split(STACK)[0].strip()}"


def _causes(java: Any) -> Iterator[Any]:
    """A Java exception and what caused it, outermost first."""
    while java is not None:
        yield java
        java = java.getCause()
