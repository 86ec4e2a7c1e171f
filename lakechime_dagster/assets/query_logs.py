"""Audit tables as subscriptions: each has an asset whose runs read what was added to the table,
into reads and writes of columns.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from lakechime_dagster.assets.report import events_table, nothing_new
from lakechime_dagster.lineage.ingest import LineageIngest
from lakechime_dagster.lineage.recording import Refused, Taken
from lakechime_dagster.runtime.asset_keys import asset_key
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.resource import LakeChimeResource, NothingNewError
from lakechime_dagster.tables.lake import Lake, QueryLog
from lakechime_dagster.triggers.subscription import Subscription

MAX_SHOWN = 20  # rows that were refused, and names of data sets


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
