"""Personal values are no partition level of what comes of them: told at load where it was planned, else before anything is written."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.assets.personal import personal_results
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import DeclarationError, LaneHeldError
from lakechime_dagster.lake import Asset, Lake, SourceTable, Storage, personal, sql_table
from lakechime_dagster.lake.tables import LakeTable, code_digest
from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source
from lakechime_dagster.lineage.personal.reach import Reach
from lakechime_dagster.lineage.planned.manifest import Manifest, PlannedColumn, PlannedTable
from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.resources.lineage.plan import manifest_by
from lakechime_dagster.resources.personal.levels import HELD
from lakechime_dagster.resources.personal.reached import PersonalData
from lakechime_dagster.resources.platform import Platform, open_platform
from lakechime_dagster.spark.drivers.driver import Driver
from lakechime_dagster.spark.lineage.planning import Planner
from lakechime_dagster.store.interventions import By, Interventions
from lakechime_dagster.store.lineage.records import SqlLineage
from lakechime_dagster.triggers import PartitionTrigger, SnapshotTrigger, every
from lakechime_dagster.triggers.lanes import LaneState
from tests.assets.test_table import Location
from tests.lineage.factories import make_record, make_statement, source
from tests.support.home import local_home
from tests.support.tables import write

people = SourceTable("bronze.people", asset=Asset(columns={"email": personal("email")}))
ANA = By(who="ana", reason="addresses of shops")
MAIL = ColumnRef("silver.members", "mail")


def members_table(sql: str = "SELECT id, email AS mail FROM bronze.people", level: str = "mail") -> LakeTable:
    return sql_table("silver.members", sql=sql, trigger=SnapshotTrigger("bronze.people"), storage=Storage(partitioned_by={level: "string"}))


members, others = members_table(), members_table("SELECT 1 AS mail FROM bronze.people")
copies = sql_table("gold.copies", sql="SELECT id, mail AS m FROM silver.members", storage=Storage(partitioned_by={"m": "string"}))
lake = Lake("people", [people, members])


def planned(table: LakeTable, level: str, origin: str, kind: Kind = Kind.IDENTITY, *, is_masking: bool = False) -> PlannedTable:
    """A table as it was planned: where its level comes from."""
    source, _, column = origin.rpartition(".")
    come = PlannedColumn(name=level, type="string", sources=(Source(ColumnRef(source, column), kind, is_masking),))
    return PlannedTable(name=table.name, columns=(come,), inputs=(source,), code=code_digest(table))


def manifest_of(*tables: PlannedTable, of: str = "people") -> Manifest:
    return Manifest(lake=of, tables={table.name: table for table in tables})


OF_EMAIL = manifest_of(planned(members, "MAIL", "bronze.people.email"))


@pytest.fixture
def no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which there is no store yet."""
    monkeypatch.setenv("LAKECHIME_HOME", str(tmp_path))
    monkeypatch.delenv("LAKECHIME_STORE_URL", raising=False)
    return tmp_path


def refused(lake: Lake, manifest: Manifest) -> str:
    """What is said where a lake is not loaded."""
    with pytest.raises(DeclarationError) as told:
        build_definitions(lake, manifest=manifest)
    return str(told.value)


def test_a_lake_whose_manifest_leads_personal_values_to_a_level_is_refused_with_what_to_do(no_store: Path) -> None:
    told = refused(lake, OF_EMAIL)
    assert told.startswith(
        "silver.members, partitioned_by: level 'MAIL' of silver.members holds values of bronze.people.email, which is personal (email): "
    )
    assert "partition by a hash or a mask of it, or by another column" in told
    assert "`lakechime personal decide silver.members MAIL not --reason …`" in told
    assert "lineage.json" in told
    assert 'columns={"' not in told  # a declaration of it would be refused
    assert not (no_store / "dce.sqlite").exists()  # to be refused makes no store


def test_it_is_told_by_way_of_which_columns_the_values_come(no_store: Path) -> None:
    plain = sql_table("silver.members", sql="SELECT id, email AS mail FROM bronze.people")
    manifest = manifest_of(
        planned(plain, "mail", "bronze.people.email"), planned(copies, "m", "silver.members.mail", Kind.TRANSFORMATION)
    )  # fmt: skip
    told = refused(Lake("people", [people, plain, copies]), manifest)
    assert "level 'm' of gold.copies holds values of bronze.people.email, which is personal (email) by way of silver.members.mail" in told


def test_who_waits_for_partitions_of_such_a_level_is_named_as_its_keys_would_be_made_of_it(no_store: Path) -> None:
    wanted = members.partitions(mail="any")
    waiting = sql_table(
        "gold.letters", sql="SELECT id FROM silver.members", trigger=PartitionTrigger(wanted, every(days=1, start="2026-01-01"))
    )
    told = refused(Lake("people", [people, members, waiting]), OF_EMAIL)
    assert "the keys of gold.letters would name it, too" in told


NO_VALUES = {
    "a hash": manifest_of(planned(members, "mail", "bronze.people.email", Kind.TRANSFORMATION, is_masking=True)),
    "a count": manifest_of(planned(members, "mail", "bronze.people.email", Kind.AGGREGATION, is_masking=True)),
    "what only decides": manifest_of(planned(members, "mail", "bronze.people.email", Kind.CONDITIONAL)),
    "another column": manifest_of(planned(members, "mail", "bronze.people.town")),
    "no level": manifest_of(planned(members, "second", "bronze.people.email")),
    "code that has changed since": manifest_of(planned(others, "mail", "bronze.people.email")),
    "another lake": manifest_of(planned(members, "mail", "bronze.people.email"), of="shop"),
}


@pytest.mark.parametrize("manifest", NO_VALUES.values(), ids=NO_VALUES.keys())
def test_what_has_no_values_of_anybody_may_be_a_level(no_store: Path, manifest: Manifest) -> None:
    assets = build_definitions(lake, manifest=manifest).resolve_asset_graph()
    assert asset_key("silver.members") in assets.materializable_asset_keys


def test_what_a_person_decided_not_to_be_personal_may_be_a_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path
) -> None:
    local_home(tmp_path, monkeypatch, upgraded_sqlite)
    refused(lake, OF_EMAIL)
    PersonalData(open_platform(), lake).decide(MAIL, None, ANA)
    build_definitions(lake, manifest=OF_EMAIL)
    PersonalData(open_platform(), lake).decide(MAIL, "email", ANA)
    assert "level 'mail' of silver.members is personal (email)" in refused(lake, OF_EMAIL)


def test_of_a_table_about_to_be_written_anew_it_counts_what_it_will_be_and_not_what_older_code_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path
) -> None:
    local_home(tmp_path, monkeypatch, upgraded_sqlite)
    data = PersonalData(open_platform(), Lake("people", [people, members, copies]))
    plain = make_statement("silver.members", mail="bronze.people.email")
    SqlLineage(data.platform.store.engine).record_all([make_record(plain, job="silver.members")])
    hashed = make_statement("silver.members", mail=source("bronze.people.email", Kind.TRANSFORMATION, masking=True))
    above = data.network_above("silver.members", hashed)
    assert [one.reach for one in data.found(above, ["silver.members"])] == [Reach.PSEUDONYM]
    above = data.network_above("gold.copies", make_statement("gold.copies", m="silver.members.mail"))  # what is above it counts as told
    assert [one.reach for one in data.found(above, ["gold.copies"])] == [Reach.PERSONAL]


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path, spark_driver: Driver) -> Platform:
    local_home(tmp_path, monkeypatch, upgraded_sqlite)
    found = open_platform()
    log = found.log("bronze.people")
    Path(log.location).mkdir(parents=True, exist_ok=True)
    write(log.location, pa.table({"id": [1], "email": ["ana@example.com"], "town": ["Ulm"]}))
    found.store.register(log.events_of_commit(log.version))
    return found


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield instance


@pytest.mark.spark
def test_what_spark_plans_of_the_code_is_refused_and_the_remedy_it_names_is_not(platform: Platform, spark: SparkSession) -> None:
    hashed = members_table("SELECT id, sha2(email, 256) AS mail FROM bronze.people")
    assert "level 'mail' of silver.members" in refused(lake, manifest_by(Planner(spark), lake, platform))
    mended = Lake("people", [people, hashed])
    build_definitions(mended, manifest=manifest_by(Planner(spark), mended, platform))


def held(location: Location) -> str:
    """Why the step of the members is held; nothing of it is written, and no key of it is told."""
    with pytest.raises(LaneHeldError) as told:
        location.run_of("silver_members", "people__tables")
    assert not Path(location.platform.location("silver.members")).exists()
    assert location.events("silver.members") == []
    row = location.platform.ledger.flow("silver.members")
    assert row is not None
    (lane,) = location.platform.ledger.lanes(row).values()
    assert (lane.state, lane.state_reason.startswith(HELD)) == (LaneState.HELD, True)
    assert "example.com" not in str(told.value) + lane.state_reason
    return str(told.value)


def resume(location: Location) -> None:
    row = location.platform.ledger.flow("silver.members")
    assert row is not None
    Interventions(location.platform.ledger).resume(row, ANA)


@pytest.mark.spark
def test_a_step_whose_level_would_hold_values_is_held_before_it_writes_until_a_person_decides(
    platform: Platform, instance: dg.DagsterInstance
) -> None:
    location = Location(instance, build_definitions(lake), platform)
    told = held(location)
    assert "level 'mail' of silver.members holds values of bronze.people.email, which is personal (email)" in told
    assert "partition by a hash or a mask of it, or by another column" in told
    PersonalData(platform, lake).decide(MAIL, None, ANA)
    resume(location)
    assert location.run_of("silver_members", "people__tables").success
    assert location.rows("silver.members") == [(1, "ana@example.com")]


@pytest.mark.spark
def test_a_level_that_is_known_to_be_personal_only_since_its_commit_fails_the_check_as_an_error(
    platform: Platform, instance: dg.DagsterInstance
) -> None:
    by_town = members_table("SELECT email AS mail, town FROM bronze.people", level="town")
    towns = Lake("people", [people, by_town])
    location = Location(instance, build_definitions(towns), platform)
    assert location.run_of("silver_members", "people__tables").success
    (untagged,) = personal_results(towns, by_town, platform)
    assert (untagged.passed, untagged.severity, set(untagged.metadata)) == (
        False, dg.AssetCheckSeverity.WARN, {"columns that should not be", "mail"},
    )  # fmt: skip
    PersonalData(platform, towns).decide(ColumnRef("bronze.people", "town"), "address", ANA)
    (wrong,) = personal_results(towns, by_town, platform)
    assert (wrong.passed, wrong.severity) == (False, dg.AssetCheckSeverity.ERROR)
    remedy = str(wrong.metadata["town"].value)
    assert "silver.members.town is a partition level, whose values stand in names of folders" in remedy
    assert "partition by a hash or a mask of it" in remedy
    assert "declare columns=" not in remedy
