"""The maintenance of a table as an asset."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from lakechime_dagster.assets.report import cell
from lakechime_dagster.runtime.maintenance import Kept, policy_of, remove_expired
from lakechime_dagster.runtime.names import asset_key, maintenance_name, pool_of
from lakechime_dagster.runtime.resource import LakeChimeResource
from lakechime_dagster.silver.maintenance import keep
from lakechime_dagster.tables.events import EventGroup
from lakechime_dagster.tables.lake import Lake, Target
from lakechime_dagster.tables.maintenance import Action

MAX_SHOWN = 50  # actions in a table of the metadata


def maintenance_asset(lake: Lake, table: Target | EventGroup) -> dg.AssetsDefinition:
    """The asset; it depends on none, as what it does is no change of data.

    It shares the pool of its table, whose merges wait for it. A group's executions append, which
    nothing of it hinders: it has no pool.
    """
    policy, of_group = policy_of(table), isinstance(table, EventGroup)
    what = f"all tables of {table.name}" if of_group else table.name

    @dg.asset(
        key=asset_key(maintenance_name(table.name)),
        group_name=table.name
        if isinstance(table, EventGroup)
        else table.group or table.name.split(".")[0],
        owners=[table.owner] if table.owner else None,
        kinds={"deltalake"},
        description=f"What was done to the files of {what}, {policy.every}.",
        pool=None if isinstance(table, EventGroup) else pool_of(table),
        metadata={
            "budget in bytes": policy.budget,
            "removed files are kept for days": policy.keep_for.days,
        },
    )
    def body(
        context: dg.AssetExecutionContext, lakechime: LakeChimeResource
    ) -> dg.MaterializeResult:
        platform, log = lakechime.platform(), context.log.info
        kept = keep(platform, lake, table, log)
        metadata = metadata_of(kept) | ({"tables": len(kept)} if of_group else {})
        context.log_event(
            dg.AssetObservation(
                asset_key(table.name),
                metadata={f"maintenance: {name}": one for name, one in metadata.items()},
            )
        )
        # of tables that have no maintenance any more
        removed = [str(one.folder) for one in remove_expired(platform)]
        return dg.MaterializeResult(
            metadata=metadata | ({"dropped tables removed": removed} if removed else {})
        )

    return body


def metadata_of(kept: Sequence[Kept]) -> dict[str, Any]:
    """What a run did, in numbers that Dagster plots, and why."""
    done = [
        (one.before.plan.table, action, action.reason)
        for one in kept
        for action in one.before.plan.actions
    ]
    refused = [
        (one.before.plan.table, refused.action, refused.why)
        for one in kept
        for refused in one.refused
    ]
    return {
        "files before": sum(len(one.before.files.live) for one in kept),
        "files after": sum(len(one.after.live) for one in kept),
        "bytes rewritten": sum(one.maintained.total("rewritten") for one in kept),
        "bytes freed": sum(one.maintained.total("freed") for one in kept),
        "seconds": round(sum(one.seconds for one in kept), 3),
        "refused actions": len(refused),
        "planned": _table(done),
        "refused": _table(refused),
    }


def _table(rows: Sequence[tuple[str, Action, str]]) -> dg.MetadataValue:
    """Actions as a markdown table."""
    if not rows:
        return dg.MetadataValue.md("nothing")
    lines = ["| table | what | partition | files | bytes | why |", "|---|---|---|---|---|---|"]
    for table, action, why in rows[:MAX_SHOWN]:
        cells = (
            table,
            action.kind.value,
            ", ".join(map(str, action.partition or ())),
            f"{action.files:,}",
            f"{action.bytes:,}",
            why,
        )
        lines.append("| " + " | ".join(map(cell, cells)) + " |")
    left = [f"\nand {len(rows) - MAX_SHOWN} more"] if len(rows) > MAX_SHOWN else []
    return dg.MetadataValue.md("\n".join([*lines, *left]))
