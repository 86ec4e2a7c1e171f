"""Spark for runs: a driver as the settings ask for it, and one attempt at a table on it."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import dagster as dg

from lakechime_dagster.cdc.job import BronzeJob, ChangeJob
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import needs
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.settings import Settings, SparkSettings
from lakechime_dagster.silver.job import EventJob, GroupJob
from lakechime_dagster.silver.requests import event_types
from lakechime_dagster.silver.results import GroupResult
from lakechime_dagster.silver.schema import NOWHERE, TypeCheckpoint
from lakechime_dagster.spark.job import Observer, TableJob, TableResult
from lakechime_dagster.tables.events import EventGroup
from lakechime_dagster.tables.names import Account

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
ON_SPARK = needs("a table computed on Spark", extra="spark")  # around imports of PySpark, which only a run needs


@dataclass(frozen=True)
class Attempted(Generic[Result]):
    """What an attempt on Spark did, and which driver it had and why; `ready` is the seconds until it had one.

    `facts` are told of the materialisation beside what follows from the result.
    """

    result: Result
    driver: str
    reason: str
    ready: float
    facts: Mapping[str, Any] = field(default_factory=dict)


SparkAttempt = Attempted[TableResult]


class SparkResource(dg.ConfigurableResource):
    """Runs tables on Spark. The driver comes from LAKECHIME_SPARK_* settings."""

    def refresh(
        self,
        running: RunningExecution,
        job: TableJob,
        log: Callable[[str], None],
        write_as: Account | None,
        observer: Observer,
    ) -> SparkAttempt:
        """One attempt at the execution's step of a computed table, by an account where one is declared.

        `observer` sees the computation, and may end the attempt by that before anything is written.

        Raises:
            SparkFailedError: what Spark said.
        """
        with ON_SPARK:
            from lakechime_dagster.spark.refresh import refresh

        confs = _confs(write_as, job.location)

        def work(spark: "SparkSession") -> TableResult:
            return refresh(spark, job, running.commit_metadata(), running.platform.log_at, observer)

        return self._attempt(running, log, confs, work)

    def ingest(self, running: RunningExecution, job: BronzeJob, log: Callable[[str], None], write_as: Account | None) -> SparkAttempt:
        """The same of a table that holds the messages of a feed."""
        with ON_SPARK:
            from lakechime_dagster.cdc.spark_bronze import ingest

        job = replace(job, environment=os.environ)
        confs = _confs(write_as, job.location)
        return self._attempt(running, log, confs, lambda spark: ingest(spark, job, running.commit_metadata(), running.platform.log_at))

    def ingest_events(self, running: RunningExecution, job: EventJob, log: Callable[[str], None], write_as: Account | None) -> SparkAttempt:
        """The same of a table that holds the events of a stream."""
        with ON_SPARK:
            from lakechime_dagster.silver.bronze import ingest_events

        job = replace(job, environment=os.environ)
        confs = _confs(write_as, job.location)
        return self._attempt(
            running, log, confs, lambda spark: ingest_events(spark, job, running.commit_metadata(), running.platform.log_at)
        )

    def write_group(self, running: RunningExecution, job: GroupJob, log: Callable[[str], None]) -> Attempted[GroupResult]:
        """One attempt at the execution's step of a group of types."""
        with ON_SPARK:
            from lakechime_dagster.silver.refresh import GroupStep

        platform, source = running.platform, job.group.stream.table.name
        begun = running.execution.start.sources.get(source, SnapshotCheckpoint())
        start = TypeCheckpoint(uid=begun.table_uid, version=int(begun.snapshot_id or NOWHERE))
        repository = replace(event_types(platform), beside=frozenset(one.name for one in job.groups))

        def work(spark: "SparkSession") -> GroupResult:
            step = GroupStep(
                spark=spark, job=job, repository=repository, open_log=platform.log_at, now_ms=platform.store.now(), start=start
            )
            return step.run()

        return self._attempt(running, log, {}, work, spark_of(platform.settings, job.group))

    def follow(self, running: RunningExecution, job: ChangeJob, log: Callable[[str], None], write_as: Account | None) -> SparkAttempt:
        """The same of a table that follows a database."""
        with ON_SPARK:
            from lakechime_dagster.cdc.spark_refresh import follow

        confs = _confs(write_as, job.location)
        return self._attempt(running, log, confs, lambda spark: follow(spark, job, running.commit_metadata(), running.platform.log_at))

    def _attempt(
        self,
        running: RunningExecution,
        log: Callable[[str], None],
        confs: Mapping[str, str],
        work: Callable[["SparkSession"], Result],
        spark: SparkSettings | None = None,
    ) -> Attempted[Result]:
        """What the work gives on a driver, in a session with these confs; jobs that earlier attempts left running are cancelled first."""
        with ON_SPARK:
            from lakechime_dagster.spark.driver import described, open_driver
            from lakechime_dagster.spark.session import session_confs

        settings = running.platform.settings
        start = time.monotonic()
        with open_driver(spark or settings.spark, settings.home, jars=settings.jars, log=log) as driver, described():
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
    return settings.spark if group.spark is None else settings.spark.model_copy(update={"driver": group.spark})


def _confs(account: Account | None, location: str) -> Mapping[str, str]:
    return {} if account is None else account.confs(location, os.environ)
