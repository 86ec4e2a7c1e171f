"""What the page shows beside columns: who reads a table, planned changes, and the token as a
browser's password.
"""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page as Browser

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.governance.notifications import notifications
from lakechime_dagster.lineage.columns import ACTIVE_MS, ColumnRef, Consumer, ConsumerKind, Read
from lakechime_dagster.lineage.recording import SqlLineage, keep_reads, note_way
from lakechime_dagster.triggers.registry import By
from tests.cli.weather_lake import lake
from tests.governance.factories import make_change
from tests.lineage.factories import make_record, make_statement
from tests.support.processes import PATIENCE
from tests.support.served import Page, serving_page

TOKEN = "a-token-that-nobody-guesses"
HOSTILE = '<img src=x onerror="document.title=1">'
MILLISECONDS = 30_000 * PATIENCE


def keep_reading(page: Page) -> None:
    """Two dashboards and a person read the table of days, one of them today, and one with a name
    and a link that mean harm.
    """
    now = page.platform.store.now()
    days, delay, sales = (
        ColumnRef("gold.daily"),
        ColumnRef("gold.daily", "delay"),
        Consumer(ConsumerKind.DASHBOARD, "superset", "Sales"),
    )
    evil = Consumer(ConsumerKind.DASHBOARD, "evil", HOSTILE)
    reads = [
        Read(
            consumer=sales,
            refs=(delay,),
            at_ms=now,
            owners=("team:bi",),
            link="https://x.example/7",
        ),
        Read(consumer=sales, refs=(ColumnRef("gold.daily", "wind"),), at_ms=now - 5),
        Read(consumer=evil, refs=(days,), at_ms=now - 2 * ACTIVE_MS, link="javascript:alert(1)"),
        Read(
            consumer=Consumer(ConsumerKind.USER, "", "ann"), refs=(days,), at_ms=now - 3 * ACTIVE_MS
        ),
    ]
    with writing(page.platform.store.engine) as connection:
        keep_reads(connection, reads)
        note_way(connection, "api")
    statement = make_statement(
        "gold.daily", delay="silver.flights.delay", wind="bronze.weather.wind"
    )
    SqlLineage(page.platform.store.engine).record(
        make_record(statement, namespace="local", job="gold.daily", at=now)
    )


@pytest.fixture
def page(tmp_path: Path, upgraded_sqlite: Path) -> Iterator[Page]:
    with serving_page(tmp_path, upgraded_sqlite, lake) as found:
        keep_reading(found)
        yield found


def test_who_reads_a_table_is_reported_with_when_and_whether_still(page: Page) -> None:
    (daily,) = [
        one
        for one in page.ask("/lineage/around?table=gold.daily").json["tables"]
        if one["table"] == "gold.daily"
    ]
    assert [
        (one["kind"], one["name"], one["active"], one["columns"]) for one in daily["readers"]
    ] == [
        ("dashboard", "Sales", True, ["delay", "wind"]),
        ("dashboard", HOSTILE, False, []),
        ("user", "ann", False, []),
    ]
    assert (daily["readers"][0]["owners"], daily["readers"][0]["link"], daily["more_readers"]) == (
        ["team:bi"],
        "https://x.example/7",
        0,
    )


def test_as_long_as_nobody_reports_who_reads_that_is_not_known(
    tmp_path: Path, upgraded_sqlite: Path, page: Page
) -> None:
    assert page.ask("/lineage/around?table=gold.daily").json["unknown"] == []
    other = tmp_path / "other"
    other.mkdir()
    with serving_page(other, upgraded_sqlite, lake) as silent:
        assert (
            "readers outside this lake, as no audit log is configured"
            in silent.ask("/lineage/around?table=gold.daily").json["unknown"]
        )


def test_a_planned_change_is_on_each_table_that_it_reaches_as_long_as_it_is_open(
    page: Page,
) -> None:
    def planned() -> dict[str, list[tuple[int, bool]]]:
        tables = page.ask("/lineage/around?table=gold.daily&up=2").json["tables"]
        return {
            one["table"]: [(change["change"], change["sure"]) for change in one["planned"]]
            for one in tables
            if one["planned"]
        }

    assert planned() == {}
    kept = notifications(page.platform).draft(
        make_change(refs=(ColumnRef("bronze.weather", "wind"),)), "me"
    )
    assert planned() == {
        "bronze.weather": [(kept.change_id, True)],
        "gold.daily": [(kept.change_id, True)],
        "silver.flights": [(kept.change_id, False)],
    }
    again = make_record(
        make_statement("gold.daily", delay="silver.flights.delay"),
        namespace="local",
        job="gold.daily",
        at=page.platform.store.now(),
        run="run-2",
    )
    SqlLineage(page.platform.store.engine).record(again)  # it does not read the column any more
    for _ in range(20):
        notifications(page.platform).draft(make_change("gold.other"), "me")
    assert planned()["gold.daily"] == [(kept.change_id, False)]
    notifications(page.platform).close(kept.change_id, By(who="me", reason="why"))
    assert planned() == {}


def test_a_person_sees_readers_and_planned_changes(page: Page, browser: Browser) -> None:
    notifications(page.platform).draft(make_change("gold.daily", what=f"It goes. {HOSTILE}"), "ann")
    problems: list[str] = []
    browser.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    browser.on("pageerror", lambda error: problems.append(str(error)))
    browser.goto(f"{page.url}/lineage?table=gold.daily")
    box = browser.locator('g.box[data-table="gold.daily"]')
    box.locator("text.readers").wait_for(timeout=MILLISECONDS)
    box.locator("text.readers").press("Enter")
    reported = browser.locator("#about li").all_text_contents()
    assert reported[0].startswith("dashboard Sales (superset) · read last ")
    assert reported[0].endswith("active · reads delay, wind · team:bi open")
    assert (
        HOSTILE in reported[1],
        browser.locator("#about a").count(),
        browser.locator("#about img").count(),
    ) == (True, 1, 0)
    row = browser.locator("#list tbody tr", has_text="gold.daily").first
    row.locator("summary", has_text="3 read it, 1 active").press("Enter")
    assert (
        row.locator("li").all_text_contents(),
        row.locator("a", has_text="open").get_attribute("href"),
    ) == (reported, "https://x.example/7")

    box.locator("text.planned").click()
    assert HOSTILE in " ".join(browser.locator("#about li").all_text_contents())
    assert ([one for one in problems if "404" not in one], browser.title()) == (
        [],
        "gold.daily · lineage",
    )


def test_a_browser_reads_with_the_token_as_its_password(
    tmp_path: Path, upgraded_sqlite: Path, browser: Browser
) -> None:
    with serving_page(tmp_path, upgraded_sqlite, lake, TOKEN) as page:
        address = page.url.replace("http://", f"http://me:{TOKEN}@")
        browser.goto(f"{address}/lineage?table=gold.daily")
        asked = browser.locator('g.box.asked[data-table="gold.daily"]')
        asked.wait_for(timeout=MILLISECONDS)
        assert asked.count() == 1


def test_a_password_reads_and_sends_nothing(tmp_path: Path, upgraded_sqlite: Path) -> None:
    def ask(password: str, body: object = None) -> int:
        credentials = base64.b64encode(f"me:{password}".encode()).decode()
        return page.ask(
            "/lineage", body, Authorization=f"Basic {credentials}", Content_Type="application/json"
        ).status

    with serving_page(tmp_path, upgraded_sqlite, lake, TOKEN) as page:
        asked = page.ask("/lineage")
        assert (asked.status, asked.headers["www-authenticate"]) == (401, 'Basic realm="lakechime"')
        assert [ask(one) for one in (TOKEN, "", "wrong", TOKEN[:-1], TOKEN + "x", "\u00e4")] == [
            200,
            401,
            401,
            401,
            401,
            401,
        ]
        assert page.ask("/lineage", Authorization="Basic \u00e4\u00e4").status == 401
        assert ask(TOKEN, []) == 401
