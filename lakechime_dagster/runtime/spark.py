"""Spark for runs: a driver as the settings ask for it, and one attempt at a table on it."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import dagster as dg

from lakechime_dagster.errors import needs
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.settings import Settings, SparkSettings
from lakechime_dagster.spark.job import Observer, TableJob, TableResult
from lakechime_dagster.tables.events import EventGroup
from lakechime_dagster.tables.names import Account

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
# around imports of PySpark, which only a run needs
ON_SPARK = needs("a table computed on Spark", extra="spark")


@dataclass(frozen=True)
class Attempted(Generic[Result]):
    """What an attempt on Spark did, and which driver it had and why; `ready` is the seconds until
    it had one.

    `facts` are further metadata of the materialisation.
    """

    result: Result
    driver: str
    reason: str
    ready: float
    facts: Mapping[str, Any] = field(default_factory=dict)


SparkAttempt = Attempted[TableResult]


class SparkResource(dg.ConfigurableResource):
    """Runs tables on Spark. The driver is that of the LAKECHIME_SPARK_* settings."""

    def refresh(
        self,
        running: RunningExecution,
        job: TableJob,
        log: Callable[[str], None],
        write_as: Account | None,
        observer: Observer,
    ) -> SparkAttempt:
        """One attempt at the execution of a computed table, by an account where one is declared.

        `observer` sees the computation, and may end the attempt by that before anything is written.

        Raises:
            SparkFailedError: Spark's own message.
        """
        with ON_SPARK:
            from lakechime_dagster.spark.refresh import refresh

        confs = account_confs(write_as, job.location)

        def work(spark: "SparkSession") -> TableResult:
            return refresh(spark, job, running.commit_metadata(), running.platform.log_at, observer)

        return self.attempt(running, log, work, confs=confs)

    def attempt(
        self,
        running: RunningExecution,
        log: Callable[[str], None],
        work: Callable[["SparkSession"], Result],
        *,
        confs: Mapping[str, str] = {},
        spark: SparkSettings | None = None,
    ) -> Attempted[Result]:
        """What the work returns on a driver, in a session with these settings; jobs that earlier
        attempts left running are cancelled.

        Raises:
            SparkFailedError: Spark's own message.
        """
        with ON_SPARK:
            from lakechime_dagster.spark.driver import described, open_driver
            from lakechime_dagster.spark.session import session_confs

        settings = running.platform.settings
        start = time.monotonic()
        with (
            open_driver(
                spark or settings.spark, settings.home, jars=settings.jars, log=log
            ) as driver,
            described(),
        ):
            ready = time.monotonic() - start
            log(f"Spark: {driver.kind}, {driver.reason}")
            for tag in running.execution.earlier_job_tags:
                if cancelled := driver.cancel(tag):
                    log(f"{cancelled} Spark jobs of an earlier attempt were cancelled ({tag})")
            with driver.tagged(running.execution.job_tag), session_confs(driver.spark, confs):
                result = work(driver.spark)
            return Attempted(result, driver.kind, driver.reason, ready)


SPARK = SparkResource()  # one for all, as LAKECHIME is


def spark_of(settings: Settings, group: EventGroup) -> SparkSettings:
    """How the runs of a group get Spark."""
    return (
        settings.spark
        if group.spark is None
        else settings.spark.model_copy(update={"driver": group.spark})
    )


def account_confs(account: Account | None, location: str) -> Mapping[str, str]:
    """The settings of a session that writes a location by an account, where one is declared."""
    return {} if account is None else account.confs(location, os.environ)
