"""A check on the tables that personal columns reach: nothing of them is untagged, and nothing of
them is in a public table.
"""

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.governance.data import PersonalData
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset, personal
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.registry import By
from tests.support.tables import write

people = SourceTable("bronze.people", asset=Asset(columns={"email": personal("email")}))
visits = SourceTable("bronze.visits")
members = sql_table(
    "silver.members", sql="SELECT lower(email) AS mail, town FROM bronze.people", refresh="full"
)
towns = sql_table(
    "gold.towns",
    sql="SELECT town, max(sha2(mail, 256)) AS last, count(mail) AS n FROM silver.members GROUP BY 1",
    refresh="full",
    asset=Asset(public=True),
)
pages = sql_table("gold.pages", sql="SELECT page FROM bronze.visits", refresh="full")
lake = Lake("people", [people, visits, members, towns, pages])


@pytest.fixture
def platform(home: Path, spark_driver: Driver) -> Platform:
    found = open_platform()
    log = found.log("bronze.people")
    Path(log.location).mkdir(parents=True, exist_ok=True)
    write(log.location, pa.table({"email": ["Ana@example.com"], "town": ["Ulm"]}))
    found.store.register(log.events_of_commit(log.version))
    return found


def run(
    platform: Platform, table: str, instance: dg.DagsterInstance
) -> tuple[bool, dict[str, object]]:
    """Whether the check of a run passed, and its metadata."""
    job = build_definitions(lake).resolve_job_def("people__tables")
    done = job.execute_in_process(
        instance=instance, asset_selection=[dg.AssetKey(table.split("."))]
    )
    (check,) = [one for one in done.get_asset_check_evaluations() if "personal" in one.check_name]
    return check.passed, {name: value.value for name, value in check.metadata.items()}


@pytest.mark.spark
def test_what_is_untagged_and_what_is_in_a_public_table_fails_the_check_with_the_remedy(
    platform: Platform,
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        passed, reported = run(platform, "silver.members", instance)
        assert not passed
        assert reported["columns that should not be"] == 1
        assert 'columns={"mail": personal("email")}) of silver.members' in str(reported["mail"])
        passed, reported = run(platform, "gold.towns", instance)
        assert not passed
        assert set(reported) == {"columns that should not be", "last"}  # a count is nobody's
        assert "declared public" in str(reported["last"])
        PersonalData(platform, lake).decide(
            ColumnRef("silver.members", "mail"), None, By(who="ana", reason="addresses of shops")
        )
        write(
            platform.log("bronze.people").location,
            pa.table({"email": ["Bo@example.com"], "town": ["Bern"]}),
        )
        passed, reported = run(platform, "silver.members", instance)
        assert (passed, reported) == (True, {"columns that should not be": 0})
