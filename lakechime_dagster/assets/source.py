"""A source table as an external asset: written elsewhere, its events shown as they come."""

from typing import Any

import dagster as dg

from lakechime_dagster.assets.partitions import levels_text, partitions_of
from lakechime_dagster.dce.event import TableFormat
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.tables import SourceTable
from lakechime_dagster.resources.keys import asset_key

KINDS = {TableFormat.DELTA: "deltalake", TableFormat.ICEBERG: "iceberg", TableFormat.HIVE: "hive"}


def source_asset(lake: Lake, table: SourceTable) -> dg.AssetSpec:
    """The external asset of a source."""
    schema = table.name.split(".")[0]
    writer = "somebody else; its events are registered or reconciled"
    metadata: dict[str, Any] = {"dagster/table_name": table.name, "written by": writer}
    if table.levels:
        metadata["partitioned by"] = levels_text(table.levels)
    given: dict[str, Any] = {
        "key": asset_key(table.name),
        "partitions_def": partitions_of(lake, table),
        "group_name": table.group or schema,
        "owners": [table.owner] if table.owner else None,
        "kinds": {*table.kinds} or {KINDS[TableFormat(table.format)]},
        "description": table.description or None,
        "freshness_policy": dg.FreshnessPolicy.time_window(table.fresh_within) if table.fresh_within is not None else None,
    }
    return dg.AssetSpec(**{**given, **table.dagster, "metadata": {**metadata, **table.dagster.get("metadata", {})}})
