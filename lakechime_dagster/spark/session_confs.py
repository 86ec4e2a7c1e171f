"""Settings of a session that hold for a few statements only."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


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
