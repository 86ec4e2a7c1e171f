"""A browser for tests of pages."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.support.missing import missing

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        missing(
            "Chromium is missing",
            "apt-get install chromium fonts-dejavu-core, or set PATH to where it is",
        )
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        )
        yield running.new_page(viewport={"width": 1400, "height": 900})
        running.close()
