"""A table of the lake as one side of a comparison with the database that it follows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from lakechime_dagster.cdc.comparing.checksum import Queries, Query
from lakechime_dagster.cdc.comparing.compare import Key, Row, Summary

_LITERALS = "spark.sql.legacy.parameterSubstitution.constantsOnly"


@dataclass(frozen=True)
class LakeSide:
    """A table that the session finds by the name in its queries, at one version of it."""

    spark: SparkSession
    queries: Queries

    def summary(self, low: Key | None, high: Key | None) -> Summary:
        """The checksum of a range."""
        ((count, distinct, total),) = self._ask(self.queries.summary(low, high))
        return Summary(count, distinct, int(total))

    def rows(self, low: Key | None, high: Key | None) -> list[Row]:
        """All rows of a range."""
        return self._rows(self.queries.rows(low, high))

    def middle(self, low: Key | None, high: Key | None, offset: int) -> Key | None:
        """The key of the row before which so many rows of the range come."""
        return next(iter(self._ask(self.queries.middle(low, high, offset))), None)

    def at(self, keys: Sequence[Key]) -> list[Row]:
        """All rows of these keys."""
        return self._rows(self.queries.at(keys))

    def _rows(self, query: Query) -> list[Row]:
        return [(tuple(key), value) for *key, value in self._ask(query)]

    def _ask(self, query: Query) -> list[tuple[Any, ...]]:
        with _binding(self.spark):
            return [tuple(row) for row in self.spark.sql(query.sql, args=dict(query.parameters)).collect()]


@contextmanager
def _binding(spark: SparkSession) -> Iterator[None]:
    """Statements whose parameters are bound: Delta's parser leaves them where Spark 4.1 replaces them before it parses."""
    before = spark.conf.get(_LITERALS, None)
    spark.conf.set(_LITERALS, "true")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_LITERALS)
        else:
            spark.conf.set(_LITERALS, before)
