"""Lineage of a program's own writes on Spark: statements that left a commit, in a run of any Dagster job or asset."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakechime_dagster.lineage.names import Names
from lakechime_dagster.lineage.plans.dump import dump_of
from lakechime_dagster.lineage.plans.statements import statements_of
from lakechime_dagster.lineage.record import Producer
from lakechime_dagster.resources.lineage.writes import kept_writes
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.triggers.flow import Flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakechime_dagster.spark.lineage.recording import Writes


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
            _record(platform, spark, writes, names, Producer(namespace=platform.ledger.deployment, job=job), run_id, log)


def tables_of(platform: Platform, flows: Mapping[str, Flow]) -> dict[str, str]:
    """The locations of the tables that flows read and write."""
    found = {name: platform.location(name) for flow in flows.values() for name in flow.reads}
    return found | {flow.target: platform.location(flow.target, flow.location) for flow in flows.values() if flow.target}


def _record(
    platform: Platform, spark: "SparkSession", writes: "Writes", names: Names, producer: Producer, run_id: str, log: Callable[[str], None]
) -> None:
    found = statements_of(map(dump_of, writes.dumps), names)
    for problem in found.unknown:
        log(f"lineage is not known of one statement: {problem}")
    several = kept_writes(
        platform, found, names, producer=producer, run_id=run_id, mark=writes.mark, stamped_by=run_id, spark=spark
    )  # fmt: skip
    for one in several:
        if not one.is_whole:
            log(one.in_words)
