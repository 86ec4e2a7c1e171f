"""`lakechime backfill`: what a change of columns affects is requested, what it does not is
unaffected, and each consumer goes once.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lakechime_dagster.lineage.columns import Kind
from lakechime_dagster.lineage.manifest import Manifest, PlannedColumn, PlannedTable
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.tables.tables import code_digest
from tests.lineage.factories import make_record, make_statement, source
from tests.support.cli import Answer, Cli

pytestmark = pytest.mark.tier2

LAKE = """
from lakechime_dagster import Lake, SourceTable, Storage, spark_table, sql_table
from lakechime_dagster.triggers import PartitionTrigger, SnapshotTrigger, every, tick

weather = SourceTable("bronze.weather", storage=Storage(partitioned_by={"day": "date"}))
silver = spark_table(
    "silver.flights", keys=["id"], reads={"weather": weather.changes()}, trigger=SnapshotTrigger()
)(lambda weather: weather)
daily = sql_table(
    "gold.daily", sql="SELECT day, max(wind) AS wind FROM silver.flights GROUP BY day", keys=["day"], refresh="affected_keys",
    trigger=SnapshotTrigger(),
)
routes = sql_table("gold.routes", sql="SELECT id, day FROM silver.flights", keys=["id"], trigger=SnapshotTrigger())
log = sql_table("gold.log", sql="SELECT wind FROM silver.flights", refresh="rows", trigger=SnapshotTrigger())
days = sql_table(
    "gold.days", sql="SELECT day, max(wind) AS wind FROM bronze.weather GROUP BY day", keys=["day"],
    storage=Storage(partitioned_by={"day": "date"}), refresh="partitions",
    trigger=PartitionTrigger([weather.partitions(day=tick("-1d"))], every(days=1, start="2024-05-02", until="2024-05-05")),
)
lake = Lake("flights", [weather, silver, daily, routes, log, days])
"""
WHY = ("--reason", "the wind was wrong")


@pytest.fixture
def flights(lakechime: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A lake of which each table has run once, and has reported where its columns come from."""
    (tmp_path / "windy_lake.py").write_text(LAKE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "windy_lake", None)
    del sys.modules["windy_lake"]
    monkeypatch.setenv("LAKECHIME_LAKE", "windy_lake:lake")
    from lakechime_dagster.cli.common import declared_subscriptions

    platform = lakechime.platform
    for day in (1, 2, 3):
        assert (
            lakechime(
                "dce",
                "register",
                "--table",
                "bronze.weather",
                "--partition",
                f'["2024-05-0{day}"]',
                "--snapshot-id",
                str(day),
            ).code
            == 0
        )
    assert lakechime("dce", "register", "--table", "silver.flights", "--snapshot-id", "1").code == 0
    for subscription in declared_subscriptions(manual=True).values():
        row = platform.evaluator.activate(subscription)
        for execution in platform.evaluator.fire(
            subscription, row, platform.evaluator.evaluate(subscription, row), lambda consumer: None
        ):
            platform.ledger.complete(execution, None)
    reported = [
        make_statement(
            "silver.flights",
            id="bronze.weather.id",
            day="bronze.weather.day",
            wind="bronze.weather.wind",
        ),
        make_statement(
            "gold.daily",
            day="silver.flights.day",
            wind=source("silver.flights.wind", Kind.AGGREGATION),
        ),
        make_statement("gold.routes", id="silver.flights.id", day="silver.flights.day"),
        make_statement("gold.log", wind="silver.flights.wind"),
        make_statement(
            "gold.days",
            day="bronze.weather.day",
            wind=source("bronze.weather.wind", Kind.AGGREGATION),
        ),
    ]
    SqlLineage(platform.store.engine).record_all(
        make_record(one, namespace="local", job=one.target, run=one.target) for one in reported
    )
    return lakechime


def planned(flights: Cli, *arguments: str) -> Answer:
    return flights("backfill", "run", "--dry-run", *arguments)


def consumers_of(document: dict[str, object]) -> list[tuple[str, str]]:
    return [(order["table"], order["key"]) for order in document["requests"]]  # type: ignore[index, union-attr]


def test_exactly_what_reads_the_column_is_planned_and_what_is_spared_says_why(flights: Cli) -> None:
    plan = planned(
        flights, "--columns", "bronze.weather.wind", "--except", "gold.log", "--json"
    ).json
    assert {table for table, _ in consumers_of(plan)} == {
        "silver.flights",
        "gold.daily",
        "gold.days",
    }
    assert "not wind" in plan["unaffected"]["gold.routes"]
    assert plan["unaffected"]["gold.log"] == "left out, as was asked"
    assert plan["consumers"] < plan["consumers_of_everything"]
    reported = planned(flights, "--columns", "bronze.weather.wind", "--except", "gold.log")
    assert (
        f"{plan['consumers']} consumers of {plan['consumers_of_everything']} downstream"
        in reported.out
    )
    assert "wind comes from bronze.weather.wind (identity)" in reported.out


def test_where_the_manifest_is_of_the_code_of_now_it_reports_what_that_reads_beside_what_older_code_read(
    flights: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakechime_dagster.cli.common import declared_lake

    read = make_statement("gold.routes", id="silver.flights.id", gate="silver.flights.gate")
    reported = make_record(read, namespace="local", job="gold.routes", run="later", at=2_000)
    SqlLineage(flights.platform.store.engine).record(replace(reported, code="what it was"))
    code = code_digest(
        next(
            one
            for one in declared_lake(flights.platform.settings).computed
            if one.name == "gold.routes"
        )
    )
    columns = [
        PlannedColumn(column=name, type="long", sources=(source(f"silver.flights.{name}"),))
        for name in ("id", "day")
    ]
    table = PlannedTable(
        target="gold.routes", code=code, inputs=("silver.flights",), columns=tuple(columns)
    )
    (tmp_path / "lineage.json").write_text(
        Manifest(lake="flights", tables={table.target: table}).to_json()
    )
    monkeypatch.chdir(tmp_path)

    def hit_by(column: str) -> bool:
        plan = planned(
            flights, "--columns", f"silver.flights.{column}", "--except", "gold.log", "--json"
        ).json
        assert plan["unsure"] == []
        return "gold.routes" in {table for table, _ in consumers_of(plan)}

    assert {name: hit_by(name) for name in ("day", "gate", "wind")} == {
        "day": True,
        "gate": True,
        "wind": False,
    }


def test_days_bound_the_keys_and_the_rows(flights: Cli) -> None:
    plan = planned(
        flights,
        "--columns",
        "bronze.weather.wind",
        "--except",
        "gold.log",
        "--since",
        "2024-05-02",
        "--until",
        "2024-05-03",
        "--json",
    ).json
    keys = [order["partition"] for order in plan["requests"] if order["table"] == "gold.days"]
    assert keys == ["2024-05-02"]
    (silver,) = [order for order in plan["requests"] if order["table"] == "silver.flights"]
    assert silver["span"] == {
        "tables": ["bronze.weather"],
        "column": "day",
        "since": "2024-05-02",
        "until": "2024-05-03",
    }


def test_an_append_target_is_refused_with_the_remedy_and_nothing_is_ordered(flights: Cli) -> None:
    refused = flights("backfill", "run", "--columns", "bronze.weather.wind", *WHY)
    assert (refused.code, "gold.log appends" in refused.err, "--except" in refused.err) == (
        1,
        True,
        True,
    )
    assert flights("backfill", "show", "--json").json["backfills"] == []


def test_a_backfill_is_ordered_followed_and_cancelled(flights: Cli) -> None:
    done = flights(
        "backfill",
        "run",
        "--columns",
        "bronze.weather.wind",
        "--except",
        "gold.log",
        *WHY,
        "--json",
    ).json
    backfill = done["backfill"]
    assert "running" in flights("backfill", "show").out
    explained = flights("trigger", "show", "silver.flights")
    assert f"requested by backfill {backfill}" in explained.out
    assert (
        f"backfill {backfill} requested it, after silver.flights"
        in flights("trigger", "show", "gold.daily").out
    )
    cancelled = flights("backfill", "cancel", backfill, "--reason", "not needed")
    assert f"of {backfill} dropped" in cancelled.out
    assert flights("backfill", "show", backfill, "--json").json["is"] == "cancelled"
    assert backfill not in flights("trigger", "show", "silver.flights").out


def test_where_every_table_has_run_nothing_is_unsure(flights: Cli) -> None:
    plan = planned(
        flights, "--columns", "silver.flights.wind", "--except", "gold.log", "--json"
    ).json
    assert plan["unsure"] == []
    assert len(LineageStandings(flights.platform.store.engine).all()) == 5


@pytest.mark.tier2
@pytest.mark.parametrize(
    ("arguments", "code", "reported"),
    [
        ((), 2, "Missing option '--columns'"),
        (("--columns", "bronze.weather.wind", "--since", "yesterday"), 2, "such as 2013-01-02"),
    ],
)
def test_wrong_questions_get_a_plain_answer(
    flights: Cli, arguments: tuple[str, ...], code: int, reported: str
) -> None:
    answer = planned(flights, *arguments)
    assert (answer.code, reported in answer.err) == (code, True), answer.err
