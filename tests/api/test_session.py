"""A browser shows the token once, in a form; its cookie lets it read the page, draft notices and send them, and nothing else."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from lakechime_dagster.api.session import COOKIE, is_logged_in, signed
from tests.cli.weather_lake import lake
from tests.support.served import Page, serving_page

TOKEN = "a-token-that-nobody-guesses"
HOUR = 3_600_000


@pytest.fixture
def page(tmp_path: Path, upgraded_sqlite: Path) -> Iterator[Page]:
    with serving_page(tmp_path, upgraded_sqlite, lake, TOKEN) as found:
        yield found


def log_in(page: Page, token: str, to: str = "/lineage?table=gold.daily", **headers: str):
    body = urlencode({"token": token, "to": to}).encode()
    return page.ask("/lineage/login", body, Content_Type="application/x-www-form-urlencoded", **headers)


def test_whoever_opens_the_page_is_asked_for_the_token_and_then_goes_on_where_they_wanted(page: Page) -> None:
    asked = page.ask("/lineage?table=gold.daily")
    assert (asked.status, 'value="/lineage?table=gold.daily"' in asked.text, "<script" in asked.text) == (401, True, False)
    answer = log_in(page, TOKEN)
    assert (answer.status, answer.headers["location"]) == (303, "/lineage?table=gold.daily")
    cookie = answer.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"))
    assert TOKEN not in cookie and TOKEN not in answer.text  # noqa: PT018
    assert page.ask("/lineage/around?table=gold.daily", Cookie=cookie.partition(";")[0]).status == 200


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", "ä", "x" * 30_000])
def test_another_token_logs_nobody_in(page: Page, token: str) -> None:
    answer = log_in(page, token)
    assert (answer.status, "set-cookie" in answer.headers, TOKEN in answer.text) == (401, False, False)


@pytest.mark.parametrize(
    "to", ["https://evil.example", "//evil.example/lineage", "/lineage?x\r\nSet-Cookie: a=b", "javascript:alert(1)", ""]
)
def test_nobody_is_sent_elsewhere(page: Page, to: str) -> None:
    assert log_in(page, TOKEN, to).headers["location"] == "/lineage"


def test_a_form_of_another_site_logs_nobody_in(page: Page) -> None:
    assert log_in(page, TOKEN, Origin="https://evil.example").status == 403
    assert log_in(page, TOKEN, Sec_Fetch_Site="cross-site").status == 403
    assert log_in(page, TOKEN, Origin=page.url).status == 303


def test_the_cookie_sends_no_lineage_and_opens_nothing_but_the_page(page: Page) -> None:
    cookie = f"{COOKIE}={signed(TOKEN, page.platform.store.now() + HOUR)}"
    assert page.ask("/lineage", Cookie=cookie).status == 200
    assert page.ask("/lineage", [], Cookie=cookie, Content_Type="application/json").status == 401
    assert page.ask("/other", Cookie=cookie).status == 401
    assert page.ask("/lineage/around?table=gold.daily").status == 401


def test_only_a_cookie_that_the_token_signed_and_that_has_not_ended_counts() -> None:
    good = signed(TOKEN, 100)
    assert is_logged_in(good, TOKEN, 99)
    assert not is_logged_in(good, TOKEN, 100)
    for other in (
        "",
        ".",
        "100.",
        f"200.{good.partition('.')[2]}",
        good + "0",
        "１００." + good[4:],
        "9" * 5_000,
        signed("other" * 4, 100),
    ):
        assert not is_logged_in(other, TOKEN, 99)


def test_without_a_token_there_is_nothing_to_log_in_to(tmp_path: Path, upgraded_sqlite: Path) -> None:
    with serving_page(tmp_path, upgraded_sqlite, lake) as page:
        assert page.ask("/lineage").status == 200
        assert log_in(page, "").status == 404
