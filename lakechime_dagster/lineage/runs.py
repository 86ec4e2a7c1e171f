"""Records the lineage of runs and of writes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.lineage.columns import (
    LineageRecord,
    Names,
    Producer,
    Statement,
    as_table_names,
    summed,
)
from lakechime_dagster.lineage.plan_dump import dump_of
from lakechime_dagster.lineage.plan_nodes import column_names, generated_columns, with_generated
from lakechime_dagster.lineage.plan_statements import Found, location_written, statements_of
from lakechime_dagster.lineage.recording import LineageToKeep, SqlLineage
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.spark.job import Executed, Observer, Outcome, Seen, TableResult
from lakechime_dagster.tables.lake import Lake, Target
from lakechime_dagster.tables.tables import LakeTable, code_digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakechime_dagster.runtime.resource import RunContext


def names_of(platform: Platform, lake: Lake) -> Names:
    """The tables of a lake, their locations, and what others call them."""
    locations = {table.name: platform.location(table.name, table.location) for table in lake.tables}
    return Names(tuple(locations), locations, lake.aliases)


def lineage_store(platform: Platform) -> SqlLineage:
    """Where lineage is kept."""
    return SqlLineage(platform.store.engine)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a run was seen to compute, and whether that is unlike what the run before it
    recorded.
    """

    statement: Statement
    is_new: bool


def seen_lineage(
    running: RunningExecution, lake: Lake, table: Target, result: TableResult
) -> LineageToKeep | None:
    """What a run was seen to compute, to be kept when its execution is completed; None of one that
    committed nothing itself.
    """
    if result.seen is None or result.outcome is not Outcome.COMMITTED:
        return None
    computed = statement_of(result.seen, lake, table, running.platform)
    statement = completed(
        computed, running.platform, running.platform.location(table.name, table.location)
    )
    code = code_digest(table) if isinstance(table, LakeTable) else None
    at_ms = running.platform.store.now()
    return LineageToKeep(record_of(running, statement, at_ms, table.owner, code))


def record_of(
    running: RunningExecution,
    statement: Statement,
    at_ms: int,
    owner: str | None,
    code: str | None = None,
) -> LineageRecord:
    """The record of what an execution has written."""
    return LineageRecord(
        producer=producer_of(running),
        run_id=run_id_of(running),
        at_ms=at_ms,
        statement=statement,
        consumer=str(running.execution.consumer),
        code=code,
        owners=(owner,) if owner else (),
    )


def producer_of(running: RunningExecution) -> Producer:
    """The subscription of an execution, as who writes."""
    return Producer(namespace=running.execution.consumer.deployment, job=running.subscription.name)


def run_id_of(running: RunningExecution) -> str:
    """The attempt of an execution, as a run."""
    return f"{running.execution.execution_id}/{running.execution.attempt}"


def record_lineage(running: RunningExecution, seen: LineageToKeep | None) -> Recorded | None:
    """What is kept of a run's lineage, also where another one has completed its execution."""
    if seen is None or not running.completed:
        return None
    return Recorded(
        statement=seen.record.statement, is_new=seen.kept(running.platform.store.engine)
    )


def statement_of(seen: Seen, lake: Lake, table: Target, platform: Platform) -> Statement:
    """What was seen, as a statement on the table, with what is unknown."""
    found = statements_of(
        [*map(dump_of, seen.actions), dump_of(seen.result)], names_of(platform, lake), table.name
    )
    own = [one for one in found.statements if one.target == table.name]
    if not own:
        why = found.unknown or ("its plan could not be read",)
        return Statement(target=table.name, inputs=table.inputs, unknown=why)
    return replace(own[-1], unknown=(*own[-1].unknown, *found.unknown))


def completed(statement: Statement, platform: Platform, location: str) -> Statement:
    """A statement with its columns by the names of its target's, a Delta table at this location,
    and those that it makes of them itself.
    """
    try:
        schema = platform.log_at(location, statement.target).schema()
    except TableUnreadableError:
        return replace(
            statement,
            unknown=(
                *statement.unknown,
                "which columns the table makes by itself could not be read",
            ),
        )
    if not schema:
        return statement
    return with_generated(
        as_table_names(statement, column_names(schema)), generated_columns(schema)
    )


def observer(ended: Callable[[Executed], None], agree: Callable[[Seen], None]) -> Observer:
    """Sees what the computation of a table executes: `ended` gets it, also where it fails; `agree`
    may end the attempt by it.
    """
    # only who computes on Spark needs it
    from lakechime_dagster.lineage.spark import LineageObserver

    return LineageObserver(ended, agree)


def written_beside(
    running: RunningExecution, lake: Lake, table: Target, executed: Executed
) -> list[str]:
    """Keep the lineage of the other tables that a function wrote, whatever its result; which they
    are.
    """
    if not executed.actions:
        return []
    names = names_of(running.platform, lake)
    found = statements_of(map(dump_of, executed.actions), names)
    others = replace(
        found, writes=tuple(one for one in found.writes if one.statement.target != table.name)
    )
    return kept_writes(running.platform, others, names, producer_of(running), run_id_of(running))


def kept_writes(
    platform: Platform, found: Found, names: Names, producer: Producer, run_id: str
) -> list[str]:
    """Keep the lineage of what Spark reported as written, but for what a recorder within keeps; the
    tables.
    """
    own = [one for one in found.writes if not one.dump.is_within]
    paths = {
        one.statement.target: location_written(one.dump.plan).path
        for one in own
        if one.dump.plan is not None
    }
    records = []
    for statement in summed(one.statement for one in own):
        recorded = replace(statement, unknown=(*statement.unknown, *found.unknown))
        location = names.locations.get(statement.target) or (
            paths.get(statement.target) or ""
        ).removeprefix("file:")
        recorded = completed(recorded, platform, location) if location else recorded
        records.append(
            LineageRecord(
                producer=producer, run_id=run_id, at_ms=platform.store.now(), statement=recorded
            )
        )
    lineage_store(platform).record_all(records)
    return [one.target for one in records]


@contextmanager
def recording(
    platform: Platform,
    spark: "SparkSession",
    *,
    job: str,
    run_id: str,
    names: Names,
    log: Callable[[str], None],
) -> Iterator[None]:
    """Keep the lineage of what the body writes, as far as Spark reports it as written, also where
    the body fails after it.

    Args:
        platform: Where it is kept.
        spark: The session that the body uses.
        job: The name of the producer.
        run_id: Of the run, by which a repeated record is the same.
        names: Of tables with their locations and what others call them; what is none of them is
            outside.
        log: Gets what is unknown.
    """
    from lakechime_dagster.lineage.spark import watched  # only who writes on Spark needs it

    dumps = []
    try:
        with watched(spark) as dumps:
            yield
    finally:
        found = statements_of(map(dump_of, dumps), names)
        for problem in found.unknown:
            log(f"lineage is not known of one statement: {problem}")
        kept_writes(
            platform, found, names, Producer(namespace=platform.ledger.deployment, job=job), run_id
        )


@contextmanager
def spark_lineage(
    context: "RunContext",
    spark: "SparkSession",
    tables: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Record the lineage of what the body writes with a session of Spark, in a run of any job.

    SQL and both DataFrame APIs, MERGE, UPDATE and DELETE too, when Spark reports them as written;
    what is unknown is logged.

    Args:
        context: Of the run.
        spark: The session that the body uses.
        tables: Further tables by name, with their locations, beside those that declared triggers
            read and write.
        aliases: What others call tables, such as a database that is read by JDBC; as those of a
            `Lake`.
    """
    from lakechime_dagster.runtime.resource import declared_subscriptions  # which imports Dagster

    platform = open_platform()
    subscriptions = declared_subscriptions().values()
    read = dict.fromkeys(name for subscription in subscriptions for name in subscription.reads)
    written = {
        subscription.target: subscription.location
        for subscription in subscriptions
        if subscription.target
    }
    known = {
        name: platform.location(name, location)
        for name, location in {**read, **written, **(tables or {})}.items()
    }
    names = Names(tables=tuple(known), locations=known, aliases=aliases or {})
    with recording(
        platform,
        spark,
        job=context.job_name,
        run_id=context.run_id,
        names=names,
        log=context.log.info,
    ):
        yield
