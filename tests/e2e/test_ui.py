"""What a person sees: the UI in headless Chromium. LAKECHIME_TEST_SCREENSHOTS names a folder for
the pictures.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright
from playwright.sync_api import TimeoutError as NeverCame

from lakechime_dagster.dce.engine import open_engine, writing
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind, Read
from lakechime_dagster.lineage.external import reload_outside
from lakechime_dagster.lineage.recording import keep_reads
from tests.support.dagster_dev import DagsterDev
from tests.support.missing import missing
from tests.support.processes import PATIENCE, REPOSITORY, Service, await_found, program

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

MILLISECONDS = 60_000 * PATIENCE
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        missing(
            "Chromium is missing",
            "apt-get install chromium fonts-dejavu-core, or set PATH to where it is",
        )
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser, args=QUIET)
        yield running.new_page(viewport={"width": 1600, "height": 1000})
        running.close()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(
        os.environ.get("LAKECHIME_TEST_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots")
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def unseen(page: Page, url: str, *texts: str, picture: Path, opens: str = "") -> list[str]:
    """Open a page, and a dialog on it, wait for each text, keep a picture; the texts that did not
    come.
    """
    page.goto(url)
    if opens:
        page.get_by_role("button", name=opens).first.click(timeout=MILLISECONDS)
    absent = [text for text in texts if not comes(page, text)]
    page.screenshot(path=picture)
    return absent


def comes(page: Page, text: str) -> bool:
    """Whether a text is seen before the patience is over."""
    try:
        page.get_by_text(text).first.wait_for(state="visible", timeout=MILLISECONDS)
    except NeverCame:
        return False
    return True


def keep_read(shop: DagsterDev, dashboard: str, column: ColumnRef) -> None:
    """A dashboard has just read a column."""
    engine = open_engine(f"sqlite:///{shop.home / 'dce.sqlite'}")
    who = Consumer(ConsumerKind.DASHBOARD, "superset", dashboard)
    with writing(engine) as connection:
        keep_reads(
            connection,
            [Read(consumer=who, refs=(column,), at_ms=DCEStore(engine).now(), owners=("team:bi",))],
        )
    engine.dispose()


@contextmanager
def page_of_lineage(shop: DagsterDev) -> Iterator[str]:
    """`lakechime serve` where the assets link to."""
    env = shop.service.env
    port = int(env["LAKECHIME_LINEAGE_URL"].rpartition(":")[2])
    command = [*program("lakechime"), "serve", "--port", str(port)]
    served = Service(
        "lineage-page",
        command,
        cwd=REPOSITORY,
        env=env,
        port=port,
        log=shop.home / "lineage-page.log",
    )
    served.start()
    try:
        await_found(lambda: served.is_ready, "the page of lineage is served", 60)
        yield env["LAKECHIME_LINEAGE_URL"]
    finally:
        served.end()


def test_the_page_of_an_asset_says_what_it_waits_for_and_what_its_last_run_did(
    shop: DagsterDev, orders: dict[str, Any], page: Page, pictures: Path
) -> None:
    url = f"{shop.url}/assets/silver/orders"
    texts = ("waits for", "a change of bronze.orders", "rows inserted", "rows quarantined")
    assert unseen(page, url, *texts, picture=pictures / "asset.png") == []


def test_the_page_of_a_sensor_says_why_it_launches_nothing(
    shop: DagsterDev, orders: dict[str, Any], page: Page, pictures: Path
) -> None:
    url = f"{shop.url}/locations/lakechime_dagster/sensors/gold_orders_of_day"
    texts = ("Launches when all of these are there", "lacks tag complete=true")
    assert (
        unseen(page, url, *texts, picture=pictures / "sensor.png", opens="0 runs requested") == []
    )


def test_the_page_of_a_source_shows_its_commits_and_who_wrote_them(
    shop: DagsterDev, orders: dict[str, Any], page: Page, pictures: Path
) -> None:
    url = f"{shop.url}/assets/bronze/orders?view=events"
    assert (
        unseen(
            page, url, "written by", "delta-rs", "registered by", picture=pictures / "source.png"
        )
        == []
    )


def test_a_dashboard_stands_behind_the_table_that_it_reads(
    shop: DagsterDev, page: Page, pictures: Path
) -> None:
    keep_read(shop, "Orders_a_day", ColumnRef("gold.orders_of_day", "orders"))
    reload_outside(shop.url)
    nodes = shop.graphql(
        "{ assetNodes { assetKey { path } dependencyKeys { path } dependedByKeys { path } "
        "isExecutable } }"
    )["assetNodes"]
    keys = {"/".join(node["assetKey"]["path"]): node for node in nodes}
    dashboard, table = keys["dashboards/superset/Orders_a_day"], keys["gold/orders_of_day"]
    assert (dashboard["isExecutable"], dashboard["dependencyKeys"]) == (False, [table["assetKey"]])
    assert dashboard["assetKey"] in table["dependedByKeys"]
    url = f"{shop.url}/assets/gold/orders_of_day?view=lineage"
    assert unseen(page, url, "Orders_a_day", picture=pictures / "outside.png") == []


def test_two_clicks_from_an_asset_show_where_a_column_comes_from_and_who_reads_it(
    shop: DagsterDev, orders: dict[str, Any], page: Page, pictures: Path
) -> None:
    keep_read(shop, "Revenue", ColumnRef("silver.orders", "amount"))
    with page_of_lineage(shop) as url:
        page.goto(f"{shop.url}/assets/silver/orders")
        with page.context.expect_page(timeout=MILLISECONDS) as opened:
            page.locator(f'a[href="{url}/lineage?table=silver.orders"]').first.click(
                timeout=MILLISECONDS
            )
        opened.value.locator("g.box.asked text.column", has_text="amount").click(
            timeout=MILLISECONDS
        )
        reported = opened.value.locator("#about li").all_text_contents()
        opened.value.screenshot(path=pictures / "lineage.png")
        opened.value.close()
    assert reported[0] == "comes from bronze.orders.amount (identity)"
    assert [text.split(" · read last ")[0] for text in reported if "reads amount" in text] == [
        "dashboard Revenue (superset)"
    ]
