"""Spark for runs: a driver as the settings ask for it, and one attempt at a table on it."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from lakechime_dagster.resources.running import RunningExecution
from lakechime_dagster.spark.job import TableJob, TableResult


@dataclass(frozen=True)
class SparkAttempt:
    """What an attempt on Spark did, and which driver it had and why; `ready` is the seconds until it had one."""

    result: TableResult
    driver: str
    reason: str
    ready: float


class SparkResource(dg.ConfigurableResource):
    """Runs tables on Spark. The driver comes from LAKECHIME_SPARK_* settings."""

    def refresh(self, running: RunningExecution, job: TableJob, log: Callable[[str], None]) -> SparkAttempt:
        """One attempt at the execution's step; jobs that earlier attempts left running are cancelled first.

        Raises:
            SparkFailedError: what Spark said.
        """
        from lakechime_dagster.spark.driver import open_driver  # the one sanctioned lazy import: only a run needs Spark
        from lakechime_dagster.spark.failures import described
        from lakechime_dagster.spark.refresh import refresh

        settings = running.platform.settings
        start = time.monotonic()
        with open_driver(settings.spark, settings.home, jars=settings.jars, log=log) as driver, described():
            ready = time.monotonic() - start
            log(f"Spark: {driver.kind}, {driver.reason}")
            for tag in running.execution.earlier_job_tags:
                if cancelled := driver.cancel(tag):
                    log(f"{cancelled} Spark jobs of an earlier attempt were cancelled ({tag})")
            with driver.tagged(running.execution.job_tag):
                result = refresh(driver.spark, job, running.stamp(), running.platform.log_at)
            return SparkAttempt(result, driver.kind, driver.reason, ready)


SPARK = SparkResource()  # one for all, as LAKECHIME is
