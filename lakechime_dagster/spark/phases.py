"""The phases of an attempt: how long each took, and which of them a Spark job is of."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession


@dataclass
class Phases:
    """The clock of an attempt at a table; its jobs are shown in Spark under the table and the phase."""

    spark: SparkSession
    table: str
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        self.spark.sparkContext.setLocalProperty("spark.job.description", f"{self.table}: {name}")
        try:
            yield
        finally:
            self.spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
            self.seconds[name] = round(self.seconds.get(name, 0) + time.monotonic() - began, 3)
