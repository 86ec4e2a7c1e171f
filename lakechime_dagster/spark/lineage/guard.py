"""While a table is planned nothing is executed: what Spark would execute is refused before it starts, and what was refused is told."""

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from delta.tables import DeltaTable
from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lakechime_dagster.errors import PlanUnreadableError, RefusedError
from lakechime_dagster.spark.lineage.dumps import Dump, PlanDumper, first_line, kept_in_jvm, text_of

SOURCE = Path(__file__).with_name("PlanGuard.java")

PAST_PLANS: dict[type, tuple[str, ...]] = {
    DataStreamWriter: ("start", "toTable"),
    DeltaTable: ("convertToDelta",),
    RDD: (
        "collect", "collectWithJobGroup", "toLocalIterator", "countApprox", "sumApprox", "meanApprox", "countApproxDistinct",
        "saveAsHadoopDataset", "saveAsHadoopFile", "saveAsNewAPIHadoopDataset", "saveAsNewAPIHadoopFile", "saveAsPickleFile",
        "saveAsSequenceFile", "saveAsTextFile",
    ),
    SparkContext: ("runJob", "setCheckpointDir", "stop"),
    SparkSession: ("stop",),
    Catalog: ("cacheTable", "clearCache", "dropGlobalTempView", "setCurrentCatalog", "setCurrentDatabase", "uncacheTable"),
}  # fmt: skip
"""What acts, or is the whole process's, without a physical plan before; it is refused here, in the whole process."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """What a program would have executed: by which method, whether it is a command, such as a write, and the dump of it if it has one."""

    by: str
    is_command: bool = True
    dump: Dump | None = None


class PlanGuard:
    """Refuses what one session would execute."""

    def __init__(self, spark: SparkSession, dumper: PlanDumper) -> None:
        """The guard of this JVM, made there once.

        Raises:
            PlanUnreadableError: its Spark lacks what the guard needs, so that nothing may be asked of it.
        """
        self._session: Any = spark
        try:
            self._guard = _installed(spark, dumper.listener.getClass().getClassLoader())
        except Py4JError as error:
            raise PlanUnreadableError(f"Spark does not load what refuses to execute: {first_line(error)}") from error

    @contextmanager
    def refusing(self, refused: list[Refused]) -> Iterator[None]:
        """Refuses meanwhile whatever would be executed, and tells of it when it ends; settings and temporary views are as before then.

        Of the session, and of those that are made meanwhile. A program that catches what it is told is told of all the same. What Python
        code does without Spark, to files or over a network, nobody can refuse.
        """
        name = uuid4().hex
        self._guard.open(self._session._jsparkSession, name)
        try:
            with _past_plans(refused):
                yield
        finally:
            told = json.loads(text_of(self._guard.close(self._session._jsparkSession, name)))
            refused += [Refused(by=one["by"], is_command=one["is_command"], dump=one["dump"]) for one in told]


def _installed(spark: SparkSession, loader: Any) -> Any:
    return kept_in_jvm(
        spark,
        "lakechime.lineage.PlanGuard",
        [SOURCE.read_text(encoding="utf-8")],
        lambda guard, name: guard.installed(cast(Any, spark)._jsparkSession, name),
        of=spark.sparkContext.applicationId,
        loader=loader,
    )


@contextmanager
def _past_plans(refused: list[Refused]) -> Iterator[None]:
    kept = [(owner, name, owner.__dict__[name]) for owner, names in PAST_PLANS.items() for name in names]
    for owner, name, method in kept:
        setattr(owner, name, _refusal(owner, name, method, refused))
    try:
        yield
    finally:
        for owner, name, method in kept:
            setattr(owner, name, method)


def _refusal(owner: type, name: str, method: Any, refused: list[Refused]) -> Any:
    by = f"{owner.__name__}.{name}"

    def refuse(*_: Any, **__: Any) -> Any:
        refused.append(Refused(by=by))
        raise RefusedError(f"nothing is executed while a table is planned: {by}")

    if isinstance(method, classmethod | staticmethod):
        return staticmethod(functools.wraps(method.__func__)(refuse))
    return functools.wraps(method)(refuse)
