"""What a table's function wrote to other tables beside its result: lineage of theirs, by the same producer."""

from dataclasses import replace

from lakechime_dagster.lake.lake import Lake, Target
from lakechime_dagster.lineage.plans.dump import dump_of
from lakechime_dagster.lineage.plans.statements import statements_of
from lakechime_dagster.lineage.record import Producer
from lakechime_dagster.resources.lineage.names import names_of
from lakechime_dagster.resources.lineage.writes import KeptWrite, kept_writes
from lakechime_dagster.resources.running import RunningExecution
from lakechime_dagster.spark.job import TableResult


def written_beside(running: RunningExecution, lake: Lake, table: Target, result: TableResult) -> list[KeptWrite]:
    """Keep it of what left a commit, which is there whatever came of the step; of each table whether it was kept."""
    seen = result.seen
    if seen is None or not seen.actions:
        return []
    platform, execution = running.platform, running.execution
    names = names_of(platform, lake)
    found = statements_of(map(dump_of, seen.actions), names)
    others = replace(found, writes=tuple(one for one in found.writes if one.statement.target != table.name))
    producer = Producer(namespace=execution.lane.deployment, job=running.flow.name)
    run_id = f"{execution.execution_id}/{execution.attempt}"
    return list(kept_writes(platform, others, names, producer=producer, run_id=run_id, mark=seen.mark))
