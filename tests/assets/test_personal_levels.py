"""Personal values are no partition level of what comes of them: an execution is blocked before it
writes one.
"""

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.governance.data import PersonalData
from lakechime_dagster.governance.tags import Reach
from lakechime_dagster.lineage.columns import ColumnRef, Kind
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset, Storage, personal
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.consumers import ConsumerState
from lakechime_dagster.triggers.interventions import Interventions
from lakechime_dagster.triggers.registry import By
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.assets.test_table import Location
from tests.lineage.factories import make_record, make_statement, source
from tests.support.tables import write

people = SourceTable("bronze.people", asset=Asset(columns={"email": personal("email")}))
ANA = By(who="ana", reason="addresses of shops")
MAIL = ColumnRef("silver.members", "mail")


def members_table(
    sql: str = "SELECT id, email AS mail FROM bronze.people", level: str = "mail"
) -> LakeTable:
    return sql_table(
        "silver.members",
        sql=sql,
        trigger=SnapshotTrigger("bronze.people"),
        storage=Storage(partitioned_by={level: "string"}),
    )


members = members_table()
copies = sql_table(
    "gold.copies",
    sql="SELECT id, mail AS m FROM silver.members",
    storage=Storage(partitioned_by={"m": "string"}),
)
lake = Lake("people", [people, members])


def test_of_a_table_about_to_be_rewritten_it_counts_what_it_will_be_and_not_what_older_code_wrote(
    home: Path,
) -> None:
    data = PersonalData(open_platform(), Lake("people", [people, members, copies]))
    plain = make_statement("silver.members", mail="bronze.people.email")
    SqlLineage(data.platform.store.engine).record_all([make_record(plain, job="silver.members")])
    hashed = make_statement(
        "silver.members", mail=source("bronze.people.email", Kind.TRANSFORMATION, masking=True)
    )
    above = data.network_above("silver.members", hashed)
    assert [one.reach for one in data.found(above, ["silver.members"])] == [Reach.PSEUDONYM]
    # what is above it counts as reported
    above = data.network_above(
        "gold.copies", make_statement("gold.copies", m="silver.members.mail")
    )
    assert [one.reach for one in data.found(above, ["gold.copies"])] == [Reach.PERSONAL]


@pytest.fixture
def platform(home: Path, spark_driver: Driver) -> Platform:
    found = open_platform()
    log = found.log("bronze.people")
    Path(log.location).mkdir(parents=True, exist_ok=True)
    write(log.location, pa.table({"id": [1], "email": ["ana@example.com"], "town": ["Ulm"]}))
    found.store.register(log.events_of_commit(log.version))
    return found


def held(location: Location) -> str:
    """Why the execution of the members is held; nothing of it is written, and no key of it is
    reported.
    """
    with pytest.raises(ConsumerBlockedError) as reported:
        location.run_of("silver_members", "people__tables")
    assert not Path(location.platform.location("silver.members")).exists()
    assert location.events("silver.members") == []
    row = location.platform.ledger.subscription("silver.members")
    assert row is not None
    (consumer,) = location.platform.ledger.consumers(row).values()
    assert (
        consumer.state,
        consumer.state_reason.startswith("a partition level would hold personal values: "),
    ) == (ConsumerState.BLOCKED, True)
    assert "example.com" not in str(reported.value) + consumer.state_reason
    return str(reported.value)


def resume(location: Location) -> None:
    row = location.platform.ledger.subscription("silver.members")
    assert row is not None
    Interventions(location.platform.ledger).resume(row, ANA)


@pytest.mark.spark
def test_an_execution_whose_level_would_hold_values_is_blocked_before_it_writes_until_a_person_decides(
    platform: Platform, instance: dg.DagsterInstance
) -> None:
    location = Location(instance, build_definitions(lake), platform)
    reported = held(location)
    assert (
        "level 'mail' of silver.members holds values of bronze.people.email, which is personal "
        "(email)" in reported
    )
    assert "partition by a hash or a mask of it, or by another column" in reported
    PersonalData(platform, lake).decide(MAIL, None, ANA)
    resume(location)
    assert location.run_of("silver_members", "people__tables").success
    assert location.rows("silver.members") == [(1, "ana@example.com")]
