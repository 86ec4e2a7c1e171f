"""Lineage of a program's own writes on Spark: statements that left a commit, in a run of any Dagster job or asset."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.lineage.names import Names
from lakechime_dagster.lineage.plans.dump import dump_of
from lakechime_dagster.lineage.plans.statements import statements_of
from lakechime_dagster.lineage.record import LineageRecord, Producer, summed
from lakechime_dagster.resources.lineage.runs import completed, lineage_store
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.lanes import CommitStamp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakechime_dagster.spark.lineage.recording import Writes

COMMITS = 100  # of a table's newest that are looked at for the mark of a run


@contextmanager
def recording(
    platform: Platform, spark: "SparkSession", *, job: str, run_id: str, names: Names, log: Callable[[str], None]
) -> Iterator[None]:  # fmt: skip
    """Keep the lineage of what the body writes.

    A statement counts if the log of its table has a commit of the body: one that reported success and committed nothing, such as a
    repeat of a transaction, tells nothing. A body that fails keeps what it committed before.

    Args:
        platform: Where it is kept.
        spark: The session that the body uses.
        job: The name of the producer.
        run_id: Of the run, by which a record that comes again is the same.
        names: Of tables with their locations and what others call them; what is none of them is outside.
        log: Told what could not be told.
    """
    from lakechime_dagster.spark.lineage.recording import recorded_writes  # only who writes on Spark needs it

    writes: Writes | None = None
    try:
        with recorded_writes(spark) as writes:
            yield
    finally:
        if writes is not None:
            _record(platform, writes, names, Producer(namespace=platform.ledger.deployment, job=job), run_id, log)


def tables_of(platform: Platform, flows: Mapping[str, Flow]) -> dict[str, str]:
    """The locations of the tables that flows read and write."""
    found = {name: platform.location(name) for flow in flows.values() for name in flow.reads}
    return found | {flow.target: platform.location(flow.target, flow.location) for flow in flows.values() if flow.target}


def _record(platform: Platform, writes: "Writes", names: Names, producer: Producer, run_id: str, log: Callable[[str], None]) -> None:
    found = statements_of(map(dump_of, writes.dumps), names)
    for problem in found.unknown:
        log(f"lineage is not known of one statement: {problem}")
    for statement in summed(found.statements):
        location = _path(names.locations.get(statement.target, statement.target))
        version = _committed(platform, location, statement.target, writes.mark, run_id)
        if version is None:
            log(f"no commit of this run is in {statement.target}: its lineage is not kept")
            continue
        told = completed(replace(statement, unknown=(*statement.unknown, *found.unknown)), platform, location)
        lineage_store(platform).record(
            LineageRecord(producer=producer, run_id=run_id, at_ms=platform.store.now(), statement=told, version=version)
        )


def _path(location: str) -> str:
    """Where a data set outside of the lake is, by its name."""
    return "/" + location.removeprefix("file/") if location.startswith("file/") else location


def _committed(platform: Platform, location: str, table: str, mark: str, run_id: str) -> str | None:
    """The newest commit of a run in a table's log: one with its mark, or with a stamp of an execution that the run began."""
    with suppress(TableUnreadableError):
        for commit in islice(platform.log_at(location, table).commits_backwards(), COMMITS):
            stamp = CommitStamp.from_text(commit.user_metadata)
            execution = platform.ledger.execution(stamp.execution_id) if stamp is not None and stamp.execution_id else None
            if mark in (commit.user_metadata or "") or (execution is not None and execution.run_id == run_id):
                return str(commit.version)
    return None
