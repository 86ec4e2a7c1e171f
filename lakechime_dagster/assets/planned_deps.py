"""Inputs that the manifest knows beside the declared ones, as dependencies: those of the checkout, so that all processes agree."""

from collections.abc import Mapping

import dagster as dg

from lakechime_dagster.assets.partitions import partitions_of
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lake.graph import find_cycle
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lineage.planned.manifest import FILE, Manifest
from lakechime_dagster.resources.keys import asset_key


def planned_inputs(lake: Lake, manifest: Manifest | None) -> Mapping[str, tuple[str, ...]]:
    """By table the tables of the lake that its code reads beside the declared ones, as the manifest has it.

    Raises:
        DeclarationError: together they are a cycle; it names the path.
    """
    if manifest is None or manifest.lake != lake.name:
        return {}
    declared, known = lake.graph(), manifest.tables
    found = {
        table.name: tuple(name for name in known[table.name].inputs if name in declared and name not in (*table.inputs, table.name))
        for table in lake.computed
        if table.name in known
    }
    found = {name: inputs for name, inputs in found.items() if inputs}
    cycle = find_cycle({name: (*inputs, *found.get(name, ())) for name, inputs in declared.items()})
    if cycle is not None:
        raise DeclarationError(cycle[0], FILE, f"is a cycle: {' ← '.join(cycle)}; let one of them not read the next, and plan again")
    return found


def planned_deps(lake: Lake, manifest: Manifest | None) -> Mapping[str, tuple[dg.AssetDep, ...]]:
    """The same as dependencies; a table that is read so is read whole, whatever its partitions."""
    return {table: tuple(_dep(lake, name) for name in inputs) for table, inputs in planned_inputs(lake, manifest).items()}


def _dep(lake: Lake, name: str) -> dg.AssetDep:
    whole = dg.AllPartitionMapping() if partitions_of(lake, lake.table(name)) is not None else None
    return dg.AssetDep(asset_key(name), partition_mapping=whole)
