"""`lakechime lineage`: what leads to columns and what they lead to, of the flights lake, from
records that runs left or that are taken as JSON lines.
"""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.demo.flights import lake
from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind, Kind, Read
from lakechime_dagster.lineage.manifest import Manifest, PlannedColumn, PlannedTable
from lakechime_dagster.lineage.recording import SqlLineage, keep_reads, note_way
from lakechime_dagster.lineage.store import LineageStandings, SqlReads
from lakechime_dagster.tables.tables import code_digest
from tests.lineage.factories import make_record, make_statement, source
from tests.lineage.ingest.factories import dataset, make_document, make_event
from tests.lineage.sql.shapes import line
from tests.support.cli import Cli

SILVER = make_statement(
    "silver.flights",
    dep_delay="bronze.flights.dep_delay",
    wind="bronze.weather.wind_speed",
    temp="bronze.weather.temp",
    indirect=(source("bronze.weather.time_hour", Kind.JOIN),),
)
ROUTES = make_statement(
    "gold.route_hour",
    avg=source("silver.flights.dep_delay", Kind.AGGREGATION),
    flights=source("silver.flights.", Kind.AGGREGATION),
)
GUESS = make_statement(
    "lab.guess", inputs=("silver.flights",), opaque={"risk": "rows of an RDD"}, constant=()
)
FIXED = make_statement("lab.fixed", constant=())
DAY = 1_700_000_000_000


@pytest.fixture
def recorded(lakechime: Cli) -> Cli:
    """A store in which four runs left what they did."""
    several = [
        (SILVER, "silver.flights", ("team:ops",)),
        (ROUTES, "gold.route_hour", ()),
        (GUESS, "guess", ("team:lab",)),
        (FIXED, "fixed", ()),
    ]
    records = [
        make_record(one, namespace="local", job=job, at=DAY, owners=owners)
        for one, job, owners in several
    ]
    SqlLineage(lakechime.platform.store.engine).record_all(records)
    return lakechime


def test_before_any_run_declared_reads_are_reported_and_that_nothing_more_is_known(
    lakechime: Cli,
) -> None:
    reported = lakechime("lineage", "impact", "bronze.weather", "--json").json
    assert [(hit["layer"], hit["table"], hit["kind"]) for hit in reported["tables"]] == [
        (1, "gold.daily_delays", "unsure"),
        (1, "silver.flights", "unsure"),
        (2, "gold.airline_scorecard", "unsure"),
        (2, "gold.route_hour", "unsure"),
    ]
    assert reported["tables"][1]["owners"] == ["team:ops"]
    assert reported["unknown"] == ["no run has recorded lineage yet: only declared reads are known"]


def test_what_a_column_leads_to_is_reported_with_kind_columns_owners_and_way(recorded: Cli) -> None:
    reported = recorded("lineage", "impact", "bronze.flights.dep_delay", "--json").json
    assert [
        (
            hit["layer"],
            hit["table"],
            hit["kind"],
            [one["name"] for one in hit["columns"]],
            hit["owners"],
        )
        for hit in reported["tables"]
    ] == [
        (1, "gold.daily_delays", "unsure", [], ["team:analytics"]),
        (1, "silver.flights", "direct", ["dep_delay"], ["team:ops"]),
        (2, "gold.airline_scorecard", "unsure", [], ["team:analytics"]),
        (2, "gold.route_hour", "direct", ["avg"], ["team:analytics"]),
        (2, "lab.guess", "unsure", ["risk"], ["team:lab"]),
    ]
    assert reported["tables"][3]["path"] == [
        {
            "source": "bronze.flights.dep_delay",
            "kinds": ["identity"],
            "target": "silver.flights.dep_delay",
        },
        {
            "source": "silver.flights.dep_delay",
            "kinds": ["aggregation"],
            "target": "gold.route_hour.avg",
        },
    ]
    assert reported["tables"][1]["last_seen_ts"] == reported["recorded_since_ts"] == DAY
    assert reported["unknown"] == []
    first = recorded("lineage", "impact", "bronze.flights.dep_delay", "--limit", "2", "--json").json
    assert (first["tables"], first["more"]) == (reported["tables"][:2], 3)


def test_impact_reports_who_is_not_hit_and_why(recorded: Cli) -> None:
    reported = recorded("lineage", "impact", "bronze.weather.wind_speed", "--json").json
    assert ("silver.flights", "direct") in [
        (hit["table"], hit["kind"]) for hit in reported["tables"]
    ]
    unaffected = {one["table"]: one["reason"] for one in reported["unaffected"]}
    assert unaffected["gold.route_hour"] == "of silver.flights it reads dep_delay, not wind"
    narrow = recorded(
        "lineage",
        "impact",
        "bronze.weather.wind_speed",
        "--kind",
        "direct",
        "--depth",
        "1",
        "--json",
    ).json
    assert [hit["table"] for hit in narrow["tables"]] == ["silver.flights"]
    assert narrow["unaffected"] == reported["unaffected"]
    assert "further down" in recorded("lineage", "impact", "bronze.weather.wind_speed").out


def test_nothing_and_not_known_are_different_answers(recorded: Cli) -> None:
    nothing = recorded("lineage", "upstream", "lab.fixed.constant")
    assert (nothing.out, nothing.err) == (
        "lab.fixed.constant is computed from nothing: its values are constants\n",
        "",
    )
    opaque = recorded("lineage", "upstream", "lab.guess.risk")
    assert "silver.flights" in opaque.out
    assert opaque.err == "unknown: lab.guess.risk: rows of an RDD\n"
    elsewhere = recorded("lineage", "upstream", "bronze.weather")
    assert (
        elsewhere.err
        == "unknown: bronze.weather is written externally, and its sources are not recorded\n"
    )
    assert (
        "nothing reads lab.guess, as far as runs recorded since 2023-11-14"
        in recorded("lineage", "impact", "lab.guess").out
    )


def test_a_wrong_name_is_answered_by_what_is_near_to_it(recorded: Cli) -> None:
    table = recorded("lineage", "impact", "silver.flghts")
    assert (table.code, table.err) == (
        3,
        "error: lineage knows no data set 'silver.flghts'; did you mean silver.flights?\n",
    )
    column = recorded("lineage", "upstream", "silver.flights.winds")
    assert (
        column.err
        == "error: silver.flights has no column 'winds' that is known; did you mean wind?\n"
    )


def test_a_path_reports_each_execution_and_that_there_is_none(recorded: Cli) -> None:
    reported = recorded(
        "lineage", "upstream", "--from", "bronze.flights.dep_delay", "gold.route_hour.avg", "--json"
    ).json
    assert [edge["kinds"] for edge in reported["path"]] == [["identity"], ["aggregation"]]
    rows = recorded(
        "lineage", "upstream", "--from", "bronze.weather.time_hour", "gold.route_hour", "--json"
    ).json
    assert [edge["target"] for edge in rows["path"]] == ["silver.flights", "gold.route_hour"]
    sure = make_statement(
        "lab.both", inputs=("lab.far",), of_it="lab.far.of_it", guess="lab.far.of_it"
    )
    far = make_statement("lab.far", inputs=("silver.flights",), of_it="silver.flights.dep_delay")
    short = make_statement(
        "lab.both", inputs=("bronze.flights",), opaque={"guess": "rows of an RDD"}, constant=()
    )
    records = [
        make_record(one, namespace="local", job=job, at=DAY)
        for job, one in (("far", far), ("both", sure), ("short", short))
    ]
    SqlLineage(recorded.platform.store.engine).record_all(records)
    both = recorded(
        "lineage", "upstream", "--from", "bronze.flights.dep_delay", "lab.both.guess", "--json"
    ).json
    assert [edge["kinds"] for edge in both["path"]] == [["identity"]] * 3
    none = recorded("lineage", "upstream", "--from", "gold.route_hour", "bronze.flights")
    assert (none.code, none.err) == (
        3,
        "error: no path leads from gold.route_hour to bronze.flights, as far as is known\n",
    )
    assert (
        recorded("lineage", "upstream", "--from", "silver.flights", "silver.flights.wind").code == 2
    )


def test_what_runs_reported_is_written_as_events_of_openlineage(recorded: Cli) -> None:
    events = {event["job"]["name"]: event for event in recorded("lineage", "export").json["events"]}
    assert set(events) == {"silver.flights", "gold.route_hour", "guess", "fixed"}
    (output,) = events["silver.flights"]["outputs"]
    warehouse = str(recorded.home / "warehouse")
    assert (output["namespace"], output["name"]) == ("file", f"{warehouse}/silver/flights")
    assert output["facets"]["symlinks"]["identifiers"] == [
        {"namespace": "lakechime", "name": "silver.flights", "type": "TABLE"}
    ]
    facet = output["facets"]["columnLineage"]
    weather = {"namespace": "file", "name": f"{warehouse}/bronze/weather"}
    assert facet["fields"]["temp"]["inputFields"] == [
        {
            **weather,
            "field": "temp",
            "transformations": [
                {"type": "DIRECT", "subtype": "IDENTITY", "description": "", "masking": False}
            ],
        }
    ]
    assert facet["dataset"][0]["transformations"][0] == {
        "type": "INDIRECT",
        "subtype": "JOIN",
        "description": "",
        "masking": False,
    }
    assert events["silver.flights"]["job"]["facets"]["ownership"]["owners"] == [
        {"name": "team:ops"}
    ]
    around = recorded("lineage", "export", "gold.route_hour", "--depth", "1").json["events"]
    assert {event["job"]["name"] for event in around} == {"gold.route_hour", "silver.flights"}


def test_before_any_run_what_is_planned_is_reported_of_columns(
    lakechime: Cli, tmp_path: Path
) -> None:
    column = PlannedColumn(
        column="avg", type="double", sources=(source("silver.flights.dep_delay", Kind.AGGREGATION),)
    )
    code = code_digest(next(one for one in lake.computed if one.name == "gold.route_hour"))
    table = PlannedTable(
        target="gold.route_hour", columns=(column,), inputs=("silver.flights",), code=code
    )
    older = Manifest(lake="flights", tables={table.target: replace(table, code="another")})
    (tmp_path / "lineage.json").write_text(older.to_json())
    assert (
        "silver.flights.dep_delay"
        not in lakechime("lineage", "upstream", "gold.route_hour.avg").out
    )
    (tmp_path / "lineage.json").write_text(
        Manifest(lake="flights", tables={table.target: table}).to_json()
    )
    reported = lakechime("lineage", "impact", "silver.flights.dep_delay", "--json").json
    assert [(hit["table"], hit["kind"]) for hit in reported["tables"]] == [
        ("gold.airline_scorecard", "unsure"),
        ("gold.route_hour", "direct"),
    ]
    above = lakechime("lineage", "upstream", "gold.route_hour.avg")
    assert "dep_delay" in above.out
    assert above.err == (
        "unknown: no run that wrote gold.route_hour has recorded lineage yet: only what is "
        "planned is known\n"
    )


def test_dashboards_that_read_what_is_hit_are_reported_with_owner_and_when(recorded: Cli) -> None:
    assert (
        "readers outside this lake are unknown"
        in recorded("lineage", "impact", "bronze.weather.wind_speed").err
    )
    engine = recorded.platform.store.engine
    dashboard = Consumer(ConsumerKind.DASHBOARD, "bi", "Delays")
    read = Read(
        consumer=dashboard,
        refs=(ColumnRef("gold.route_hour", "avg"),),
        at_ms=DAY,
        owners=("ann@x",),
        link="https://bi/1",
    )
    with writing(engine) as connection:
        keep_reads(connection, [read])
        note_way(connection, "audit")
    (reported,) = recorded("lineage", "impact", "bronze.flights.dep_delay", "--json").json[
        "consumers"
    ]
    assert reported == {
        "consumer": "dashboard",
        "namespace": "bi",
        "name": "Delays",
        "kind": "direct",
        "columns": ["gold.route_hour.avg"],
        "last_read_ts": DAY,
        "active": False,
        "owners": ["ann@x"],
        "link": "https://bi/1",
    }
    assert (
        recorded("lineage", "impact", "bronze.weather.wind_speed", "--json").json["consumers"] == []
    )
    for more in (("--depth", "2"), ("--kind", "indirect")):
        narrow = recorded("lineage", "impact", "bronze.flights.dep_delay", *more, "--json").json
        assert narrow["consumers"] == []
    readers = recorded("lineage", "impact", "gold.route_hour.avg", "--depth", "1")
    assert "Delays" in readers.out
    assert "Reads of other programs are recorded by audit since" in readers.out


def rows(recorded: Cli) -> set[tuple[str, str | None, str, str | None, int, str]]:
    table = DeltaTable(
        str(recorded.home / "warehouse" / "lakechime" / "lineage_flat")
    ).to_pyarrow_table()
    return {tuple(row.values()) for row in table.to_pylist()}


def test_tables_and_columns_are_reported_with_layer_and_kind(recorded: Cli) -> None:
    reported = recorded("lineage", "export", "--format", "table", "--json").json
    found = rows(recorded)
    assert (reported["written"], reported["tables"] + reported["columns"], reported["refused"]) == (
        True,
        len(found),
        "",
    )
    assert {
        ("bronze.weather", None, "gold.route_hour", None, 2, "direct"),
        ("bronze.weather", None, "gold.airline_scorecard", None, 2, "unsure"),
        ("bronze.flights", "dep_delay", "gold.route_hour", "avg", 2, "direct"),
        ("bronze.weather", "time_hour", "silver.flights", None, 1, "indirect"),
        ("silver.flights", "wind", "lab.guess", "risk", 1, "unsure"),
    } <= found
    assert recorded("dce", "list", "--table", "lakechime.lineage_flat", "--json").json["events"]


def test_nothing_is_written_while_nothing_has_changed(recorded: Cli) -> None:
    recorded("lineage", "export", "--format", "table")
    assert recorded("lineage", "export", "--format", "table", "--json").json["written"] is False
    assert "is up to date" in recorded("lineage", "export", "--format", "table").out
    more = make_statement("lab.more", a="silver.flights.wind")
    SqlLineage(recorded.platform.store.engine).record(make_record(more, job="more"))
    assert recorded("lineage", "export", "--format", "table", "--json").json["written"] is True
    assert ("silver.flights", "wind", "lab.more", "a", 1, "direct") in rows(recorded)


def test_columns_above_the_budget_are_refused_aloud_and_tables_are_reported(recorded: Cli) -> None:
    answer = recorded("lineage", "export", "--format", "table", "--column-rows", "3")
    assert answer.err == (
        "warning: lakechime.lineage_flat has no columns: their pairs are more than 3; raise "
        "--column-rows, or ask `lakechime lineage`\n"
    )
    assert {row[1] for row in rows(recorded)} == {None}


LAKE = """
from lakechime_dagster import Lake, SourceTable
lake = Lake("shop", [SourceTable("shop.orders"), SourceTable("gold.days")], aliases={"hive.*": "*"})
"""


@pytest.fixture
def shop(lakechime: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A lake of two tables, of which one is there."""
    Path("lineage_shop.py").write_text(LAKE)
    monkeypatch.setenv("LAKECHIME_LAKE", "lineage_shop:lake")
    monkeypatch.syspath_prepend(".")
    folder = lakechime.home / "warehouse" / "shop" / "orders"
    folder.mkdir(parents=True)
    write_deltalake(str(folder), pa.table({"id": [1], "amount": [2]}))
    return lakechime


def lines(*documents: object) -> str:
    return "\n".join(one if isinstance(one, str) else json.dumps(one) for one in documents)


def test_lines_are_taken_with_the_columns_of_the_lakes_tables(shop: Cli) -> None:
    documents = lines(
        make_document("INSERT INTO hive.gold.days SELECT * FROM hive.shop.orders", dialect="trino"),
        make_document("SELECT amount FROM shop.orders", dashboard="Sales"),
        make_event(
            inputs=(dataset("hive", "hive.shop.orders"),),
            outputs=(dataset("s3://out", "elsewhere"),),
        ),
    )
    answer = shop("lineage", "ingest", "-", stdin=documents)
    assert (answer.code, answer.out) == (
        0,
        "-: 3 documents read, 0 without anything new; 2 writes and 1 read recorded\n",
    )
    assert "not in the lake: s3://out/elsewhere" in answer.err
    engine = shop.platform.store.engine
    (found,) = LineageStandings(engine).of_targets(["gold.days"])
    assert line(found.statement).startswith(
        "gold.days: amount = identity shop.orders.amount, id = identity shop.orders.id"
    )
    (reader,) = SqlReads(engine).of_tables(["shop.orders"])
    assert (reader.consumer.name, str(*reader.refs)) == ("Sales", "shop.orders.amount")


def test_a_line_that_cannot_be_read_loses_no_other(shop: Cli) -> None:
    documents = lines(
        make_document(),
        "",
        "{",
        make_document(sql="SELECT {{ x }}"),
        make_document(task="other"),
        "[]",
    )
    answer = shop("lineage", "ingest", "-", "--json", stdin=documents)
    assert answer.code == 1
    assert (answer.json["documents"], answer.json["records"]) == (2, 2)
    assert [one["number"] for one in answer.json["refused"]] == [3, 4, 6]
    (way,) = SqlReads(shop.platform.store.engine).ways()
    assert way.name == "file"
