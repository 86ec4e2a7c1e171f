"""The table of flattened lineage as an asset beside those of a lake."""

import dagster as dg
from deltalake import DeltaTable

from lakechime_dagster.assets.lineage import lineage_definitions
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.demo.flights import lake
from tests.support.cli import Cli, lakechime

__all__ = ["lakechime"]


def test_the_asset_reports_what_is_known_and_writes_nothing_while_nothing_changes(
    lakechime: Cli,
) -> None:
    location = dg.Definitions.merge(build_definitions(lake), lineage_definitions(lake))
    job = location.resolve_job_def("lakechime_lineage_flat_job")

    def reported() -> dict[str, object]:
        (event,) = job.execute_in_process().get_asset_materialization_events()
        return {name: value.value for name, value in event.materialization.metadata.items()}

    first = reported()
    table = DeltaTable(str(lakechime.home / "warehouse" / "lakechime" / "lineage_flat"))
    assert first["dagster/row_count"] == table.to_pyarrow_table().num_rows > 0
    assert reported()["written"] is False
    assert table.version() == DeltaTable(table.table_uri).version()
    assert (
        location.resolve_schedule_def("lakechime_lineage_flat_schedule").cron_schedule
        == "5 * * * *"
    )
