"""The types that a lake names as assets of their own: outputs of their group's, each with its columns, its commits and its checks."""

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.lake.lake import Lake, named_types
from lakechime_dagster.lake.tables import SourceTable
from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.streams.event_types import event_types
from lakechime_dagster.schema.layout import table_columns
from lakechime_dagster.schema.steps import TypeResult

KINDS = ("deltalake", "spark")
ROWS_ADD_UP, IS_WRITTEN = "rows_add_up", "is_written"


def type_specs(lake: Lake, group: EventGroup) -> list[dg.AssetSpec]:
    """The assets of a group's named types; each comes from the stream's table, where a step finds events of it."""
    return [_spec(group, table) for table in named_types(lake, group)]


def _spec(group: EventGroup, table: SourceTable) -> dg.AssetSpec:
    given: dict[str, Any] = {
        "key": asset_key(table.name),
        "deps": [asset_key(group.stream.table.name)],
        "skippable": True,
        "group_name": table.group or group.name,
        "owners": [owner] if (owner := table.owner or group.owner) else None,
        "kinds": {*(table.kinds or KINDS)},
        "description": table.description or None,
        "freshness_policy": dg.FreshnessPolicy.time_window(table.fresh_within) if table.fresh_within is not None else None,
    }
    metadata = {"dagster/table_name": table.name, "written by": f"the group {group.name}"}
    return dg.AssetSpec(**{**given, **table.dagster, "metadata": {**metadata, **table.dagster.get("metadata", {})}})


def type_check_specs(lake: Lake, group: EventGroup) -> list[dg.AssetCheckSpec]:
    """The checks of a group's named types, which every run of the group reports."""
    return [spec for table in named_types(lake, group) for spec in _check_specs(asset_key(table.name))]


def _check_specs(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    adds_up = "Events of the stream = rows written + discarded + pending."
    return [
        dg.AssetCheckSpec(ROWS_ADD_UP, asset=key, description=adds_up),
        dg.AssetCheckSpec(IS_WRITTEN, asset=key, description="The type could be written, and waits for no table."),
    ]


def type_checks(table: SourceTable, one: TypeResult) -> list[dg.AssetCheckResult]:
    """What a step says of a named type."""
    key, odd = asset_key(table.name), one.failure or one.waits
    counts = {"events": one.rows, "rows written": one.written, "rows discarded": one.discarded, "rows pending": one.pending}
    return [
        dg.AssetCheckResult(asset_key=key, check_name=ROWS_ADD_UP, passed=one.is_balanced, metadata=counts),
        dg.AssetCheckResult(
            asset_key=key, check_name=IS_WRITTEN, passed=not odd, severity=dg.AssetCheckSeverity.WARN, metadata={"reason": odd or "none"}
        ),
    ]


def results_of(lake: Lake, group: EventGroup, results: Iterable[TypeResult]) -> dict[SourceTable, TypeResult]:
    """What a step did for those of its types that are named."""
    by_table = {f"{one.home or group.name}.{one.table}": one for one in results}
    return {table: by_table[table.name] for table in named_types(lake, group) if table.name in by_table}


def type_metadata(platform: Platform, group: EventGroup, written: Mapping[SourceTable, TypeResult]) -> dict[str, dict[str, Any]]:
    """What is shown of the tables of types that a step has written, by their names: columns and rows as they are now."""
    known = event_types(platform).types(group.name) if written else {}
    found: dict[str, dict[str, Any]] = {}
    for table, one in written.items():
        assert one.committed is not None
        columns = [dg.TableColumn(name, kind) for name, kind in table_columns(known[one.type].layout)]
        rows = _rows_at(platform, table, int(one.committed.version))
        found[table.name] = {
            "dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns=columns)),
            **({} if rows is None else {"dagster/row_count": rows}),
            "rows written": one.written,
        }
    return found


def _rows_at(platform: Platform, table: SourceTable, version: int) -> int | None:
    """How many rows a version holds; None where that cannot be told, which hinders nothing, as they are written."""
    try:
        return platform.log(table.name, table.location).size(version).rows
    except LakeChimeError:
        return None
