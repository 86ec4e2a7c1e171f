"""What a manifest tells of tables as their code is now: a table whose code is another one than was planned is not known."""

from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.tables import code_digest
from lakechime_dagster.lineage.planned.manifest import Manifest
from lakechime_dagster.lineage.record import Statement


def planned_of(lake: Lake, manifest: Manifest) -> dict[str, Statement]:
    """What is planned of the computed tables of a lake whose code is still the one that was planned, by name."""
    planned = manifest.tables
    return {
        table.name: planned[table.name].statement
        for table in lake.computed
        if table.name in planned and planned[table.name].code == code_digest(table)
    }
