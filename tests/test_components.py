"""Declarations in YAML: each is the one that Python makes, and those of several files are one
lake.
"""

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from pydantic import ValidationError

from lakechime_dagster.cli.main import main
from lakechime_dagster.components import (
    CDCTableComponent,
    DeadlineComponent,
    EventStreamComponent,
    LakeComponent,
    LakePart,
    SourceTableComponent,
    SqlTableComponent,
    TriggerComponent,
)
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.runtime import resource
from lakechime_dagster.runtime.resource import declared_subscriptions, lake_of_definitions
from lakechime_dagster.sensors.trigger import deadline_sensor
from lakechime_dagster.tables.cdc import CDCMerge, SourceSchema, cdc_table
from lakechime_dagster.tables.databases import Canal, Database, Debezium, Limits, Monitor
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.events import Contract, GroupOptions, event_group, event_stream
from lakechime_dagster.tables.lake import Lake, QueryLog
from lakechime_dagster.tables.maintenance import Maintenance
from lakechime_dagster.tables.names import Account
from lakechime_dagster.tables.options import Asset, Storage, personal
from lakechime_dagster.tables.sources import JsonLines, KafkaTopic, TableRows
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.schedule import every, hours_of, tick
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
    TableName,
)

SOURCE = """
name: bronze.orders
storage: {partitioned_by: {day: date, hour: int}, location: s3://lake/orders, format: hive}
asset:
  owner: team:shop
  fresh_within: {hours: 2, minutes: 30}
  columns: {email: email}
  dagster: {metadata: {runbook: [one, two]}}
"""
SQL = """
name: gold.revenue
sql: SELECT day, SUM(amount) AS revenue FROM bronze.orders JOIN bronze.rates USING (day) GROUP BY day
reads: [{table: bronze.rates, mode: snapshot, on_change: ignore}]
keys: [day]
refresh: affected_keys
trigger: {snapshot_trigger: {every: {days: 1, start: "2026-01-02T03:00", zone: Europe/Paris}, wait_after_last: {minutes: 5}, min_time_between: {minutes: 20}}}
storage:
  maintenance: {every: {days: 1}, keep_for: {days: 8}, properties: {delta.logRetentionDuration: interval 60 days}}
  write_as: {name: shop, settings: {fs.s3a.access.key: $KEY}}
asset: {expect: {positive: revenue >= 0}, watermark: day, fresh_within: {days: 1}}
"""
CDC = """
name: silver.orders
source: {kafka_topic: {topic: shop.orders, bootstrap: "broker:9092", options: {sasl.password: $PASSWORD}, max_offsets: null}}
envelope: {canal: {binary: base64, omits_unchanged: true}}
merge: {keys: [id], stored_as_scd_type: 2, track_history_column_list: [state], allowed_lateness: {days: 2}, max_delete_ratio: 0}
schema: {types: {id: bigint}, names: {amt: amount}, on_drift: evolve}
monitor: {database: {url: $SHOP, table: shop.orders}, every: {hours: 6}, limits: {behind: {minutes: 1}}}
storage: {cluster_by: [id], readers: [polars]}
"""
DEBEZIUM = """
name: silver.orders
source: {json_lines: {folder: in}}
envelope: {debezium: {settings: {decimal.handling.mode: string}}}
merge: {keys: [id]}
schema: {read_from: {url: $SHOP, table: shop.orders}}
"""
EVENTS = """
name: game
source: {table_rows: {table: bronze.raw, payload: body}}
type_field: $.header.type
asset: {owner: team:game}
groups:
  - name: shop
    match: shop.*
    contract:
      kinds: freeze
      is_double_first: true
      pins: {/price: double}
    types: {shop.buy: {tables: freeze}}
    columns: {/user/email: email}
    storage: {format: iceberg, write_mode: merge-on-read}
    options: {verify: {days: 1}, description: Buys}
  - name: play
"""
STREAM = event_stream(
    "game",
    source=TableRows("bronze.raw", payload="body"),
    type_field="$.header.type",
    asset=Asset(owner="team:game"),
)
SAME: list[tuple[type[LakePart], str, Any]] = [
    (
        SourceTableComponent,
        SOURCE,
        [
            SourceTable(
                "bronze.orders",
                storage=Storage(
                    partitioned_by={"day": "date", "hour": "int"},
                    location="s3://lake/orders",
                    format="hive",
                ),
                asset=Asset(
                    owner="team:shop",
                    fresh_within=dt.timedelta(hours=2.5),
                    columns={"email": personal("email")},
                    dagster={"metadata": {"runbook": ["one", "two"]}},
                ),
            )
        ],
    ),
    (
        SqlTableComponent,
        SQL,
        [
            sql_table(
                "gold.revenue",
                "SELECT day, SUM(amount) AS revenue FROM bronze.orders JOIN bronze.rates USING "
                "(day) GROUP BY day",
                reads=[SourceTable("bronze.rates").snapshot(on_change="ignore")],
                keys=["day"],
                refresh="affected_keys",
                trigger=SnapshotTrigger(
                    every=every(days=1, start="2026-01-02T03:00", zone="Europe/Paris"),
                    wait_after_last=dt.timedelta(minutes=5),
                    min_time_between=dt.timedelta(minutes=20),
                ),
                storage=Storage(
                    maintenance=Maintenance(
                        every=every(days=1),
                        keep_for=dt.timedelta(days=8),
                        properties={"delta.logRetentionDuration": "interval 60 days"},
                    ),
                    write_as=Account("shop", {"fs.s3a.access.key": "$KEY"}),
                ),
                asset=Asset(
                    expect={"positive": "revenue >= 0"},
                    watermark="day",
                    fresh_within=dt.timedelta(days=1),
                ),
            )
        ],
    ),
    (
        CDCTableComponent,
        CDC,
        [
            cdc_table(
                "silver.orders",
                source=KafkaTopic(
                    "shop.orders",
                    bootstrap="broker:9092",
                    options={"sasl.password": "$PASSWORD"},
                    max_offsets=None,
                ),
                envelope=Canal(binary="base64", omits_unchanged=True),  # type: ignore[arg-type]
                merge=CDCMerge(
                    keys=("id",),
                    stored_as_scd_type=2,
                    track_history_column_list=("state",),
                    allowed_lateness=dt.timedelta(days=2),
                    max_delete_ratio=0,
                ),
                schema=SourceSchema(
                    types={"id": "bigint"}, names={"amt": "amount"}, on_drift="evolve"
                ),
                monitor=Monitor(
                    database=Database("$SHOP", "shop.orders"),
                    every=every(hours=6),
                    limits=Limits(behind=dt.timedelta(minutes=1)),
                ),
                storage=Storage(cluster_by=["id"], readers=["polars"]),
            )
        ],
    ),
    (
        CDCTableComponent,
        DEBEZIUM,
        [
            cdc_table(
                "silver.orders",
                source=JsonLines("in"),
                envelope=Debezium(settings={"decimal.handling.mode": "string"}),
                merge=CDCMerge(keys=("id",)),
                schema=SourceSchema(read_from=Database("$SHOP", "shop.orders")),
            )
        ],
    ),
    (
        EventStreamComponent,
        EVENTS,
        [
            STREAM,
            event_group(
                "shop",
                STREAM,
                match="shop.*",
                contract=Contract(kinds="freeze", is_double_first=True, pins={"/price": "double"}),
                types={"shop.buy": Contract(tables="freeze")},
                columns={"/user/email": personal("email")},
                storage=Storage(format="iceberg", write_mode="merge-on-read"),
                options=GroupOptions(verify=every(days=1), description="Buys"),
            ),
            event_group("play", STREAM),
        ],
    ),
]


@pytest.mark.parametrize(
    ("kind", "text", "declared"), SAME, ids=["source", "sql", "cdc", "debezium", "events"]
)
def test_a_declaration_in_yaml_is_the_one_in_python(
    kind: type[LakePart], text: str, declared: Any
) -> None:
    component = kind.from_attributes_dict(attributes=yaml.safe_load(text))
    assert component.declared({}) == declared


def test_what_holds_for_a_lake_is_as_in_python() -> None:
    attributes = {
        "name": "shop",
        "aliases": {"hive.*": "*"},
        "query_logs": [{"table": "audit.queries", "every": None}],
        "table_format": "iceberg",
    }
    assert LakeComponent.from_attributes_dict(attributes=attributes).options() == {
        "name": "shop",
        "aliases": {"hive.*": "*"},
        "query_logs": (QueryLog("audit.queries", every=None),),
        "table_format": "iceberg",
    }


def test_a_trigger_in_yaml_is_the_one_in_python() -> None:
    hours = {"hours_of": {"tick": "-1d", "zone": "America/New_York"}}
    TriggerComponent.from_attributes_dict(
        attributes={
            "name": "daily",
            "job": "nightly",
            "partitioned": True,
            "default_status": "stopped",
            "trigger": {
                "partition_trigger": {
                    "conditions": [
                        {
                            "table": "bronze.orders",
                            "partitions": {"day": {"tick": "-1d"}, "hour": hours},
                            "levels": {"day": "date", "hour": "int"},
                        },
                        {
                            "table": "bronze.rates",
                            "partitions": {
                                "day": {"tick": {"offset": "-1d", "format": "%Y"}},
                                "kind": ["a", 7],
                            },
                            "tags": {"rows": {">=": 100}},
                        },
                    ],
                    "every": {"days": 1, "start": "2026-01-02"},
                    "tags": {"complete": "true", "cause": {"not in": ["backfill", "replay"]}},
                    "late": "refire",
                    "deadline": {"hours": 6},
                }
            },
        }
    )
    subscription = declared_subscriptions()["daily"]
    assert subscription.job == "nightly"
    assert subscription.target_levels == PartitionLevels.of({"day": "date"})
    orders = {"day": tick("-1d"), "hour": hours_of(tick("-1d"), "America/New_York")}
    assert subscription.trigger == PartitionTrigger(
        [
            PartitionCondition.of(
                "bronze.orders", orders, PartitionLevels.of({"day": "date", "hour": "int"})
            ),
            PartitionCondition.of(
                "bronze.rates", {"day": tick("-1d", "%Y"), "kind": ["a", 7]}
            ).with_tags({"rows": {">=": 100}}),
        ],
        every(days=1, start="2026-01-02"),
        tags={"complete": "true", "cause": {"not in": ["backfill", "replay"]}},
        late="refire",
        deadline=dt.timedelta(hours=6),
    )


def test_a_deadline_in_yaml_is_the_one_in_python() -> None:
    component = DeadlineComponent.from_attributes_dict(
        attributes={"trigger": "daily", "job": "notify", "default_status": "stopped"}
    )
    sensor, same = component.sensor({}), deadline_sensor("daily", "notify")
    assert (sensor.name, sensor.job_name) == (same.name, same.job_name)
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED


def test_a_table_of_a_snapshot_trigger_in_yaml_may_demand_tags() -> None:
    tables = ["a", {"name": "b", "tags": {"rows": {">=": 100}}}]
    TriggerComponent.from_attributes_dict(
        attributes={
            "name": "features",
            "job": "nightly",
            "trigger": {"snapshot_trigger": {"tables": tables, "tags": {"complete": "true"}}},
        }
    )
    assert declared_subscriptions()["features"].trigger == SnapshotTrigger(
        ["a", TableName("b", tags={"rows": {">=": 100}})], tags={"complete": "true"}
    )


@pytest.mark.parametrize(
    ("kind", "attributes", "where", "problem"),
    [
        (
            SourceTableComponent,
            {"name": "a.b", "storage": {"formt": "delta"}},
            ("storage", "formt"),
            "Extra inputs",
        ),
        (
            SourceTableComponent,
            {"name": "a.b", "storage": {"format": "parquet"}},
            ("storage", "format"),
            "'delta', 'iceberg' or 'hive'",
        ),
        (
            EventStreamComponent,
            {"name": "a", "source": {}},
            ("source",),
            "give one of json_lines, kafka_topic, table_rows",
        ),
        (
            CDCTableComponent,
            {"name": "a.b", "merge": {"keys": "id"}},
            ("merge", "keys"),
            "valid list",
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_path(
    kind: type[LakePart], attributes: dict[str, Any], where: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        kind.from_attributes_dict(attributes=attributes)
    found = {
        tuple(one for one in error["loc"] if one != "function-after[_is_one()"): error["msg"]
        for error in refused.value.errors()
    }
    message = next(
        message for position, message in found.items() if position[: len(where)] == where
    )
    assert problem in message


def test_a_value_that_cannot_work_is_refused_as_in_python() -> None:
    attributes = {
        "name": "gold.days",
        "sql": "SELECT day FROM bronze.orders",
        "keys": ["hour"],
        "refresh": "rows",
    }
    with pytest.raises(DeclarationError, match=r"^gold.days, keys: 'hour' is no column of the SQL"):
        SqlTableComponent.from_attributes_dict(attributes=attributes)


DEFINITIONS = """
from pathlib import Path
import dagster as dg

@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project of Dagster as its scaffold makes it; its package can be imported."""
    name = "project_of_components"
    (tmp_path / f"{name}/defs").mkdir(parents=True)
    (tmp_path / f"{name}/__init__.py").touch()
    (tmp_path / f"{name}/defs/__init__.py").touch()
    (tmp_path / f"{name}/definitions.py").write_text(DEFINITIONS)
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{name}"\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LAKECHIME_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(resource, "_LAKES", {})
    yield tmp_path
    for module in [one for one in sys.modules if one.partition(".")[0] == name]:
        del sys.modules[module]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "broker:9092")


def scaffold(project: Path, kind: str, name: str) -> Path:
    """What `dg scaffold defs` writes."""
    from dagster.components.component_scaffolding import scaffold_object

    folder = project / "project_of_components/defs" / name
    scaffold_object(folder, f"lakechime_dagster.{kind}", None, "yaml", project)
    return folder / "defs.yaml"


KINDS = (
    "SourceTableComponent",
    "SqlTableComponent",
    "CDCTableComponent",
    "EventStreamComponent",
    "TriggerComponent",
    "DeadlineComponent",
)
FEATURES = """
import dagster as dg

@dg.asset
def features() -> None: ...

@dg.job
def notify() -> None: ...
"""


def test_examples_of_all_components_are_one_lake_and_each_has_its_assets(project: Path) -> None:
    files = {kind: scaffold(project, kind, kind.lower()) for kind in KINDS}
    (project / "project_of_components/defs/features.py").write_text(FEATURES)
    tree = dg.ComponentTree.for_project(project)
    definitions = tree.build_defs()
    sensors = {sensor.name for sensor in definitions.sensors or ()}
    assert {
        "features",
        "features__deadline",
        "gold_revenue",
        "silver_customers",
        "shop",
        "project_of_components__events",
    } <= sensors
    dg.Definitions.validate_loadable(definitions)
    of_customers = tree.build_defs_at_path(
        files["CDCTableComponent"].parent
    ).resolve_all_asset_keys()
    assert {key.to_user_string() for key in of_customers} >= {
        "silver/customers",
        "silver/customers__changes",
    }
    assert dg.AssetKey(["gold", "revenue"]) not in of_customers
    assert {
        table.name
        for table in only(lake_of_definitions("project_of_components.definitions")).tables
    } >= {"bronze.orders", "gold.revenue", "silver.customers"}


def test_commands_read_the_variables_of_files_from_dot_env(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scaffold(project, "CDCTableComponent", "customers")
    monkeypatch.chdir(project)
    monkeypatch.delenv("KAFKA_BOOTSTRAP")
    assert main(["cdc", "show"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "Error while loading component customers[0]: KafkaTopic, bootstrap: None" in line
    (project / ".env").write_text("KAFKA_BOOTSTRAP=written.example:9092\n")
    monkeypatch.setattr(resource, "_LAKES", {})
    assert main(["cdc", "show"]) == 0
    assert "shop.public.customers at written.example:9092" in " ".join(
        capsys.readouterr().out.split()
    )


def only(lake: Lake | None) -> Lake:
    assert lake is not None
    return lake


def test_conditions_are_typed_by_tables_of_other_files_and_tables_of_python_take_part(
    project: Path,
) -> None:
    scaffold(project, "SourceTableComponent", "orders")
    lake = scaffold(project, "LakeComponent", "lake")
    lake.write_text(
        lake.read_text().replace("# tables: [my_project", "tables: [project_of_components")
    )
    (project / "project_of_components/tables.py").write_text(
        "from lakechime_dagster import SourceTable, Storage, sql_table\n"
        "silver_orders = sql_table('silver.orders', 'SELECT * FROM bronze.orders', "
        "storage=Storage(partitioned_by={'day': 'date'}))\n"
    )
    waits = (
        "every: {days: 1, start: '2026-01-02'}, conditions: [{table: silver.orders, partitions: "
        "{day: {tick: '-1d'}}}]"
    )
    days = scaffold(project, "SqlTableComponent", "days")
    days.write_text(
        "type: lakechime_dagster.SqlTableComponent\n"
        "attributes:\n"
        "  name: gold.days\n"
        "  sql: {path: days.sql}\n"
        f"  trigger: {{partition_trigger: {{{waits}}}}}\n"
    )
    (days.parent / "days.sql").write_text("SELECT day FROM silver.orders")
    found = only(lake_of_definitions("project_of_components.definitions"))
    table = found.table("gold.days")
    assert found.name == "shop"
    assert isinstance(table, LakeTable)
    assert isinstance(table.trigger, PartitionTrigger)
    assert table.trigger.conditions[0].levels == PartitionLevels.of({"day": "date"})


def test_a_table_that_does_not_fit_the_others_is_named_with_its_folder(project: Path) -> None:
    scaffold(project, "CDCTableComponent", "customers")
    folder = scaffold(project, "SqlTableComponent", "revenue").parent
    with pytest.raises(Exception) as refused:  # of Dagster's own class
        lake_of_definitions("project_of_components.definitions")
    assert str(refused.value.__cause__).startswith(
        f"{folder}: gold.revenue, sql: reads bronze.orders, which is not in the lake"
    )


def test_a_project_has_one_lake(project: Path) -> None:
    scaffold(project, "LakeComponent", "one")
    scaffold(project, "LakeComponent", "two")
    with pytest.raises(Exception) as refused:  # of Dagster's own class
        lake_of_definitions("project_of_components.definitions")
    assert "is declared 2 times, and a project has one lake" in str(refused.value.__cause__)


def test_a_lake_of_python_in_the_folder_of_definitions_is_found(project: Path) -> None:
    lake = "from lakechime_dagster import Lake, SourceTable, build_definitions\n"
    lake += "defs = build_definitions(Lake('shop', [SourceTable('bronze.orders')]))\n"
    (project / "project_of_components/defs/shop.py").write_text(lake)
    assert only(lake_of_definitions("project_of_components.definitions")).name == "shop"


def test_a_project_with_a_trigger_alone_has_no_lake(project: Path) -> None:
    scaffold(project, "TriggerComponent", "trigger")
    (project / "project_of_components/defs/features.py").write_text(FEATURES)
    assert lake_of_definitions("project_of_components.definitions") is None
