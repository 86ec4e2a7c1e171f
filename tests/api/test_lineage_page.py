"""The page of lineage in a real browser, and the answers that it asks for; hostile names are text,
and nothing comes from elsewhere.
"""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from lakechime_dagster.api.app import Served, build_app
from lakechime_dagster.api.lineage_page import FILES, lineage_page
from lakechime_dagster.cli.serve import bound, build_server
from lakechime_dagster.lineage.columns import Kind, LineageRecord
from lakechime_dagster.lineage.ingest import LineageIngest
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.lineage.service import AskedLineage
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.settings import load_settings
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset, personal
from lakechime_dagster.tables.tables import SourceTable
from tests.lineage.factories import make_record, make_statement, source
from tests.support.processes import PATIENCE

MILLISECONDS = 30_000 * PATIENCE
HOSTILE = '<img src=x onerror="document.title=1">'


def make_writes(target: str, **sources: Any) -> LineageRecord:
    return make_record(
        make_statement(target, **sources),
        namespace="local",
        job=target,
        run=target,
        owners=(f"team:{target.split('.')[0]}",),
    )


HOUR = source("bronze.weather.hour", Kind.JOIN)
RECORDS = [
    make_writes(
        "silver.flights",
        delay="bronze.flights.dep_delay",
        wind="bronze.weather.wind",
        indirect=(HOUR,),
    ),
    make_writes("gold.daily", delay=source("silver.flights.delay", Kind.AGGREGATION)),
    make_writes("gold.other", wind="silver.flights.wind"),
    make_writes(f"evil.{HOSTILE}", **{HOSTILE: "silver.flights.delay"}),
    *(make_writes(f"many.t{number}", x="hub.all.x") for number in range(200)),
    make_writes("wide.copy", **{f"c{number:02}": f"wide.all.c{number:02}" for number in range(30)}),
    make_record(make_statement("late.daily", amount="late.new.amount"), job="late"),
    make_record(
        make_statement("late.guess", amount="late.daily.amount", opaque={"risk": "rows of an RDD"}),
        job="guess",
    ),
    make_record(
        make_statement(
            "late.blind",
            inputs=("late.daily",),
            opaque={f"x{number:02}": "an RDD" for number in range(22)},
        ),
        job="b",
    ),
]


OVER_THE_EDGE = """() => [...document.querySelectorAll("g.box")].flatMap((box) => {
  const edge = box.querySelector("rect").getBoundingClientRect().right;
  return [...box.querySelectorAll("text")].filter((label) => label.getBoundingClientRect().right > edge).map((label) => label.textContent);
})"""
"""The labels that are wider than their box."""


@pytest.fixture
def address(tmp_path: Path, upgraded_sqlite: Path) -> Iterator[str]:
    """Where a server with lineage is."""
    (tmp_path / "dce.sqlite").write_bytes(upgraded_sqlite.read_bytes())
    platform = open_platform(load_settings(home=tmp_path, store_url=""))
    lake = Lake(
        "flights",
        [
            SourceTable(
                "bronze.flights",
                asset=Asset(owner="team:ops", columns={"dep_delay": personal("crew")}),
            )
        ],
    )
    SqlLineage(platform.store.engine).record_all(RECORDS)
    page = lineage_page(lambda: AskedLineage(platform, lake))
    server = build_server(build_app(Served(ingest=LineageIngest(platform, lake), routers=(page,))))
    with bound("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(30)


def got(url: str) -> tuple[int, Any, dict[str, str]]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


def document(url: str) -> Any:
    status, body, _ = got(url)
    assert status == 200, body
    return json.loads(body)


def test_what_is_around_a_table_is_reported_with_layers_owners_and_kinds(address: str) -> None:
    reported = document(f"{address}/lineage/around?table=silver.flights")
    assert {one["table"]: one["layer"] for one in reported["tables"]} == {
        "silver.flights": 0,
        "bronze.flights": -1,
        "bronze.weather": -1,
        "gold.daily": 1,
        "gold.other": 1,
        f"evil.{HOSTILE}": 1,
    }
    assert {one["table"]: one["owners"] for one in reported["tables"]}["gold.daily"] == [
        "team:gold"
    ]
    links = {(*one["source"], *one["target"]): one["kinds"] for one in reported["links"]}
    assert links["silver.flights", "delay", "gold.daily", "delay"] == ["aggregation"]
    assert links["bronze.weather", "hour", "silver.flights", None] == ["join"]


def test_each_table_of_which_not_all_is_known_says_why(address: str) -> None:
    def reported(question: str) -> dict[str, Any]:
        return {
            one["table"]: one["gap"]
            for one in document(f"{address}/lineage/around?table={question}")["tables"]
        }

    blind = [f"late.blind.x{number:02}: an RDD" for number in range(20)]
    assert reported("late.daily") == {
        "late.daily": None,
        "late.new": {
            "kind": "not known",
            "reasons": ["no run that wrote late.new has recorded lineage"],
            "more": 0,
        },
        "late.guess": {
            "kind": "not known in part",
            "reasons": ["late.guess.risk: rows of an RDD"],
            "more": 0,
        },
        "late.blind": {"kind": "not known", "reasons": blind, "more": 2},
    }
    assert reported("silver.flights")["bronze.flights"] == {
        "kind": "written externally",
        "reasons": ["bronze.flights is written externally, and its sources are not recorded"],
        "more": 0,
    }


def test_a_way_and_names_are_reported(address: str) -> None:
    way = document(f"{address}/lineage/way?source=bronze.flights.dep_delay&target=gold.daily.delay")
    assert [edge["target"] for edge in way["edges"]] == [
        ["silver.flights", "delay"],
        ["gold.daily", "delay"],
    ]
    assert (
        document(f"{address}/lineage/way?source=gold.daily.delay&target=bronze.flights")["edges"]
        is None
    )
    assert document(f"{address}/lineage/names?like=FLIGHTS")["names"] == [
        "bronze.flights",
        "silver.flights",
    ]
    assert document(f"{address}/lineage/names?like=late.guess.")["names"] == [
        "late.guess.amount",
        "late.guess.risk",
    ]
    assert document(f"{address}/lineage/names?like=late.guess.RI")["names"] == ["late.guess.risk"]


def test_everything_is_of_our_own_and_the_policy_says_so(address: str) -> None:
    _, body, headers = got(f"{address}/lineage")
    assert "default-src 'none'" in headers["content-security-policy"]
    assert b"http" not in body
    for name in FILES:
        assert got(f"{address}/lineage/page/{name}")[0] == 200


def test_a_person_looks_around_with_mouse_and_keys(address: str, browser: Page) -> None:
    problems: list[str] = []
    browser.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    browser.on("pageerror", lambda error: problems.append(str(error)))
    browser.goto(f"{address}/lineage?table=silver.flights")
    browser.locator("g.box.asked").wait_for(timeout=MILLISECONDS)
    assert browser.locator("g.box").count() == 6
    assert browser.locator("#list tbody tr").count() == 6
    assert f"evil.{HOSTILE}" in browser.locator("#list a").all_text_contents()
    assert browser.locator("img").count() == 0
    assert browser.evaluate(OVER_THE_EDGE) == []
    assert sorted(browser.locator("g.box text.personal").all_text_contents())[1:] == [
        "◆ delaydelay: crew",
        "◆ delaydelay: crew, derived",
        "◆ dep_delaydep_delay: crew",
    ]
    assert "dep_delay (crew)" in browser.locator("#list tbody tr td:last-child").all_text_contents()

    browser.locator("g.box.asked text.column", has_text="delay").press("Enter")
    assert browser.locator("path.edge.lit").count() == 3
    browser.select_option("#kind", "indirect")
    assert browser.locator("#edges tbody tr").all_text_contents() == [
        "bronze.weather.hoursilver.flightsjoin"
    ]

    browser.select_option("#kind", "")
    browser.locator("g.box text.title", has_text="gold.daily").click()
    browser.wait_for_url("**table=gold.daily**", timeout=MILLISECONDS)
    browser.locator('g.box.asked[data-table="gold.daily"]').wait_for(timeout=MILLISECONDS)
    browser.locator("g.box text.more", has_text="tables").first.press("Enter")
    browser.locator('g.box[data-table="bronze.flights"]').wait_for(timeout=MILLISECONDS)
    browser.go_back()
    browser.go_back()
    browser.locator('g.box.asked[data-table="silver.flights"]').wait_for(timeout=MILLISECONDS)
    assert problems == []
    browser.fill("#name", "nobody.knows")
    browser.locator("#asked button").click()
    browser.get_by_text("lineage knows no data set").wait_for(timeout=MILLISECONDS)
    assert [one for one in problems if "404" not in one] == []
    assert browser.title() != "1"


def test_a_person_asks_for_executions_and_a_way(address: str, browser: Page) -> None:
    def fields() -> list[str]:
        return [browser.input_value(f"#{name}") for name in ("name", "up", "down")]

    browser.goto(f"{address}/lineage?table=late.daily")
    browser.locator('g.box.asked[data-table="late.daily"]').wait_for(timeout=MILLISECONDS)
    browser.fill("#up", "2")
    browser.locator("#asked button").click()
    browser.locator('#list a[href*="up=2"]', has_text="late.guess").first.click()
    browser.locator('g.box.asked[data-table="late.guess"]').wait_for(timeout=MILLISECONDS)
    assert fields() == ["late.guess", "2", "1"]
    browser.go_back()
    browser.locator('g.box.asked[data-table="late.daily"]').wait_for(timeout=MILLISECONDS)
    assert fields() == ["late.daily", "2", "1"]

    def look_for_a_way(start: str, end: str, reported: str) -> None:
        browser.fill("#name", start)
        browser.fill("#to", end)
        browser.locator("#way button").click()
        expect(browser.locator("#about")).to_have_text(reported, timeout=MILLISECONDS)

    look_for_a_way("gold.daily.delay", "bronze.flights.dep_delay", "no way is known")
    way = (
        "bronze.flights.dep_delay → silver.flights.delay (identity); silver.flights.delay → "
        "gold.daily.delay (aggregation)"
    )
    look_for_a_way("bronze.flights.dep_delay", "gold.daily.delay", way)


def test_a_person_sees_what_is_not_known_and_is_helped_with_names(
    address: str, browser: Page
) -> None:
    browser.goto(f"{address}/lineage?table=late.daily")
    graph = browser.get_by_role("group", name="lineage graph")
    graph.get_by_role("button", name="late.guess.risk: rows of an RDD").press("Enter")
    assert (
        browser.locator("#about").text_content()
        == "late.guess is not known in partnot known: late.guess.risk: rows of an RDD"
    )
    row = browser.locator("#list tbody tr", has_text="late.blind").first
    row.locator("summary", has_text="not known").press("Enter")
    reasons = [line.text_content() for line in row.get_by_role("listitem").all()]
    assert (len(reasons), reasons[0], reasons[-1]) == (
        21,
        "not known: late.blind.x00: an RDD",
        "and 2 more that is not known",
    )

    browser.locator('g.box[data-table="late.guess"] text.column', has_text="amount").click()
    assert browser.locator("#about h2").text_content() == "late.guess.amount"
    assert (
        browser.locator("#about li").all_text_contents()[0]
        == "comes from late.daily.amount (identity)"
    )
    browser.locator('g.box[data-table="late.guess"] text.column', has_text="amount").click()
    assert browser.locator("#about").text_content() == ""

    names = browser.locator("#names option")
    browser.fill("#to", "gold.da")
    expect(names).to_have_count(1, timeout=MILLISECONDS)
    browser.fill("#to", "late.guess.")
    expect(names).to_have_count(2, timeout=MILLISECONDS)
    assert [one.get_attribute("value") for one in names.all()] == [
        "late.guess.amount",
        "late.guess.risk",
    ]
