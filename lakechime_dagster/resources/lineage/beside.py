"""What a table's function wrote to other tables beside its result: lineage of theirs, by the same producer."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lakechime_dagster.lake.lake import Lake, Target
from lakechime_dagster.lineage.plans.dump import dump_of
from lakechime_dagster.lineage.plans.statements import statements_of
from lakechime_dagster.lineage.record import Producer
from lakechime_dagster.resources.lineage.names import names_of
from lakechime_dagster.resources.lineage.writes import KeptWrite, kept_writes
from lakechime_dagster.resources.running import RunningExecution
from lakechime_dagster.spark.job import Executed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def written_beside(
    running: RunningExecution, lake: Lake, table: Target, spark: "SparkSession", executed: Executed
) -> list[KeptWrite]:  # fmt: skip
    """Keep it of what left a commit, which is there whatever comes of the function and of the step; of each table whether it was kept."""
    if not executed.actions:
        return []
    platform, execution = running.platform, running.execution
    names = names_of(platform, lake)
    found = statements_of(map(dump_of, executed.actions), names)
    others = replace(found, writes=tuple(one for one in found.writes if one.statement.target != table.name))
    producer = Producer(namespace=execution.lane.deployment, job=running.flow.name)
    run_id = f"{execution.execution_id}/{execution.attempt}"
    return list(kept_writes(platform, others, names, producer=producer, run_id=run_id, mark=executed.mark, spark=spark))
