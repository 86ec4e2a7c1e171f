"""Assets of lineage: the flat table, and audit tables as subscriptions, whose runs read what was
added to them into reads and writes of columns.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from lakechime_dagster.assets.report import events_table, nothing_new
from lakechime_dagster.lineage.ingest import LineageIngest
from lakechime_dagster.lineage.recording import Refused, Taken
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.names import asset_key, dagster_name
from lakechime_dagster.runtime.resource import LAKECHIME, LakeChimeResource, NothingNewError
from lakechime_dagster.tables.lake import Lake, QueryLog
from lakechime_dagster.triggers.subscription import Subscription

MAX_SHOWN = 20  # rows that were refused, and names of data sets


def lineage_definitions(
    lake: Lake, *, cron: str = "5 * * * *", column_rows: int | None = None
) -> dg.Definitions:
    """The asset of `lakechime.lineage_flat` and its schedule, to be merged with those of a lake.

    `column_rows` is the largest number of pairs that begin with a column, 2,000,000 by default.
    """
    # imports numpy, which a code location without this table does not need
    from lakechime_dagster.lineage.flat import COLUMN_ROWS, TABLE, flatten

    most = COLUMN_ROWS if column_rows is None else column_rows

    @dg.asset(
        key=asset_key(TABLE),
        group_name="lakechime",
        kinds={"deltalake"},
        description=(
            "Which tables and columns lead to which, at the least layer, and how surely, as runs "
            "recorded it."
        ),
        metadata={"dagster/table_name": TABLE, "rows of columns at most": most},
    )
    def body(
        context: dg.AssetExecutionContext, lakechime: LakeChimeResource
    ) -> dg.MaterializeResult:
        written = flatten(lakechime.platform(), lake, column_rows=most)
        if written is None:
            return dg.MaterializeResult(metadata={"written": False})
        if written.refusal:
            context.log.warning(written.refusal)
        rows = written.tables + (written.columns or 0)
        return dg.MaterializeResult(
            metadata={
                "dagster/row_count": rows,
                "pairs of tables": written.tables,
                "pairs of columns": written.columns or 0,
                "columns": written.refusal or "written",
                "written": True,
            }
        )

    job = dg.define_asset_job(dagster_name(f"{TABLE}_job"), selection=[body])
    schedule = dg.ScheduleDefinition(
        name=dagster_name(f"{TABLE}_schedule"),
        job=job,
        cron_schedule=cron,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    return dg.Definitions(
        assets=[body], jobs=[job], schedules=[schedule], resources={"lakechime": LAKECHIME}
    )


def query_log_asset(lake: Lake, one: QueryLog, subscription: Subscription) -> dg.AssetsDefinition:
    """The asset of what an audit table records; the table is its only dependency."""

    @dg.asset(
        key=asset_key(subscription.name),
        deps=[asset_key(one.table)],
        group_name=one.table.split(".")[0],
        kinds={"deltalake"},
        description=(
            f"Who read and wrote which columns, as {one.table} records. Its run's success "
            f"completes an execution."
        ),
        metadata={"waits for": subscription.condition},
    )
    def body(
        context: dg.AssetExecutionContext, lakechime: LakeChimeResource
    ) -> dg.MaterializeResult:
        try:
            with lakechime.execution(context, subscription.name) as running:
                through = running.execution.end.sources.get(one.table)
                taken = LineageIngest(running.platform, lake).take_log(one, through)
                metadata = _report(running, taken)
        except NothingNewError as nothing:
            return dg.MaterializeResult(metadata=nothing_new(str(nothing)).metadata)
        for refused in taken.refused[:MAX_SHOWN]:
            context.log.warning(
                f"{one.table}, row {refused.line} of this execution: {refused.problem}"
            )
        return dg.MaterializeResult(metadata=metadata)

    return body


def _report(running: RunningExecution, taken: Taken) -> Mapping[str, Any]:
    """What a person sees of an execution."""
    execution, outside = running.execution, taken.outside
    shown = [
        *outside[:MAX_SHOWN],
        *([f"and {len(outside) - MAX_SHOWN} more"] if len(outside) > MAX_SHOWN else []),
    ]
    return {
        "last fired because": execution.reason or execution.cause.value,
        "statements": taken.documents,
        "writes recorded": taken.records,
        "reads recorded": taken.reads,
        "rows that could not be read": len(taken.refused),
        "refused": _refused(taken.refused),
        "data sets that are not the lake's": ", ".join(shown) or "none",
        "events consumed": events_table(running.events),
        "number": execution.number,
        "attempt": execution.attempt,
    }


def _refused(refused: Sequence[Refused]) -> dg.MetadataValue:
    """The first rows that could not be read, as a list."""
    lines = [f"- row {one.line}: {one.problem}" for one in refused[:MAX_SHOWN]]
    left = [f"- and {len(refused) - MAX_SHOWN} more"] if len(refused) > MAX_SHOWN else []
    return dg.MetadataValue.md("\n".join([*lines, *left]) or "none")
