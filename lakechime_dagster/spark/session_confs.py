"""Settings of a session that hold for a few statements only, and threads that share the session and nothing else."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

One = TypeVar("One")
Result = TypeVar("Result")


@contextmanager
def session_confs(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """These settings inside; afterwards they are what they were, whatever happens."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def in_threads(spark: SparkSession, threads: int, function: Callable[[One], Result], several: Iterable[One]) -> list[Result]:
    """What a function returns of each, called in so many threads at a time.

    Each call has a copy of this thread's Spark properties of its own: `inheritable_thread_target` copies them when it wraps a
    function, and all calls of that wrapper would share the copy, in which Spark keeps the ids of a thread's running statement.
    """
    with ThreadPoolExecutor(threads) as pool:
        calls = [pool.submit(inheritable_thread_target(spark)(function), one) for one in several]
        return [call.result() for call in calls]
