"""Records the lineage of runs and of writes."""

from dataclasses import dataclass, replace

from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.lineage.columns import LineageRecord, Names, Producer, Statement, as_table_names
from lakechime_dagster.lineage.plan_dump import dump_of
from lakechime_dagster.lineage.plan_nodes import column_names, generated_columns, with_generated
from lakechime_dagster.lineage.plan_statements import statements_of
from lakechime_dagster.lineage.recording import LineageToKeep, SqlLineage
from lakechime_dagster.lineage.store import code_since
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.spark.job import Outcome, Seen, TableResult
from lakechime_dagster.tables.lake import Lake, Target
from lakechime_dagster.tables.tables import LakeTable, RefreshMode, code_digest


def names_of(platform: Platform, lake: Lake) -> Names:
    """The tables of a lake, where they lie, and what others call them."""
    locations = {table.name: platform.location(table.name, table.location) for table in lake.tables}
    return Names(tuple(locations), locations, lake.aliases)


def lineage_store(platform: Platform) -> SqlLineage:
    """Where lineage is kept."""
    return SqlLineage(platform.store.engine)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a run was seen to compute, and whether that is new: unlike what the run before it told."""

    statement: Statement
    is_new: bool


def seen_lineage(running: RunningExecution, lake: Lake, table: Target, result: TableResult) -> LineageToKeep | None:
    """What a run was seen to compute, to be kept when its step is settled; None of one that committed nothing itself."""
    if result.seen is None or result.outcome is not Outcome.COMMITTED:
        return None
    told = statement_of(result.seen, lake, table, running.platform)
    statement = completed(told, running.platform, running.platform.location(table.name, table.location))
    execution = running.execution
    record = LineageRecord(
        producer=Producer(namespace=execution.consumer.deployment, job=running.subscription.name),
        run_id=f"{execution.execution_id}/{execution.attempt}",
        at_ms=running.platform.store.now(),
        statement=statement,
        consumer=str(execution.consumer),
        version=result.version,
        code=code_digest(table) if isinstance(table, LakeTable) else None,
        owners=(table.owner,) if table.owner else (),
    )
    return LineageToKeep(record, result.replaced)


def record_lineage(running: RunningExecution, seen: LineageToKeep | None) -> Recorded | None:
    """What is kept of a run's lineage, also where another one has settled its step."""
    if seen is None or not running.settled:
        return None
    return Recorded(statement=seen.record.statement, is_new=seen.kept(running.platform.store.engine))


def older_code(running: RunningExecution, table: Target, result: TableResult) -> str:
    """Which rows of a table are by older code, and what makes them anew; "" where none is known to be."""
    if not isinstance(table, LakeTable) or result.replaced or table.refresh is RefreshMode.FULL:
        return ""
    producer = Producer(namespace=running.execution.consumer.deployment, job=running.subscription.name)
    since = code_since(running.platform.store.engine, producer, table.name, code_digest(table))
    if since is None:
        return ""
    remedy = f"`lakechime backfill run --dry-run --columns {table.name}`"
    return f"rows before version {since} are by older code, unless they were computed again; {remedy}"


def statement_of(seen: Seen, lake: Lake, table: Target, platform: Platform) -> Statement:
    """What was seen, as a statement on the table; what could not be told is in it as not known."""
    found = statements_of([*map(dump_of, seen.actions), dump_of(seen.result)], names_of(platform, lake), table.name)
    own = [one for one in found.statements if one.target == table.name]
    if not own:
        why = found.unknown or ("its plan could not be read",)
        return Statement(target=table.name, inputs=table.inputs, unknown=why)
    return replace(own[-1], unknown=(*own[-1].unknown, *found.unknown))


def completed(statement: Statement, platform: Platform, location: str) -> Statement:
    """A statement with its columns by the names of its target's, a Delta table at this location, and those that it makes of them itself."""
    try:
        schema = platform.log_at(location, statement.target).schema()
    except TableUnreadableError:
        return replace(statement, unknown=(*statement.unknown, "which columns the table makes by itself could not be read"))
    if not schema:
        return statement
    return with_generated(as_table_names(statement, column_names(schema)), generated_columns(schema))
