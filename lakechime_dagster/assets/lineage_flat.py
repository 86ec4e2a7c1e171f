"""The flat table of lineage as an asset."""

import dagster as dg

from lakechime_dagster.lineage.flat import COLUMN_ROWS, TABLE, flatten
from lakechime_dagster.runtime.asset_keys import asset_key
from lakechime_dagster.runtime.names import dagster_name
from lakechime_dagster.runtime.resource import LAKECHIME, LakeChimeResource
from lakechime_dagster.tables.lake import Lake


def lineage_definitions(
    lake: Lake, *, cron: str = "5 * * * *", column_rows: int = COLUMN_ROWS
) -> dg.Definitions:
    """The asset of `lakechime.lineage_flat` and its schedule, to be merged with those of a lake.

    `column_rows` is the largest number of pairs that begin with a column.
    """

    @dg.asset(
        key=asset_key(TABLE),
        group_name="lakechime",
        kinds={"deltalake"},
        description=(
            "Which tables and columns lead to which, at the least layer, and how surely, as runs "
            "recorded it."
        ),
        metadata={"dagster/table_name": TABLE, "rows of columns at most": column_rows},
    )
    def body(
        context: dg.AssetExecutionContext, lakechime: LakeChimeResource
    ) -> dg.MaterializeResult:
        written = flatten(lakechime.platform(), lake, column_rows=column_rows)
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
