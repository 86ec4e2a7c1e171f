"""A notice that is drafted on the page: kept as a draft, told to nobody, and taken from no other site."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakechime_dagster.lineage.notices.changes import ChangeKind, ChangeState
from lakechime_dagster.resources.notices.sending import notices, outbox
from tests.cli.weather_lake import lake
from tests.support.served import Page, Told, serving_page

FORM = {
    "of": ["bronze.weather"],
    "kind": "deprecation",
    "what": "It goes.",
    "action": "Look.",
    "on": "2100-12-31",
    "sender": "team:ops",
    "who": "ann",
}
OURS = {"X_Lakechime": "page", "Content_Type": "application/json"}


@pytest.fixture
def page(tmp_path: Path, upgraded_sqlite: Path) -> Iterator[Page]:
    with serving_page(tmp_path, upgraded_sqlite, lake, hosts=("lake.example",)) as found:
        yield found


def send(page: Page, form: Any = FORM, **headers: str) -> Told:
    return page.ask("/lineage/notices", form, **OURS | headers)


def test_a_form_becomes_a_draft_that_nobody_is_told_of(page: Page) -> None:
    answer = send(page)
    assert (answer.status, answer.json["title"]) == (201, "Deprecation: bronze.weather on 2100-12-31")
    (kept,) = notices(page.platform).changes()
    assert (kept.state, kept.who, kept.change.kind, kept.change.action, kept.change.sender) == (
        ChangeState.PLANNED, "ann", ChangeKind.DEPRECATION, "Look.", "team:ops",
    )  # fmt: skip
    assert outbox(page.platform).of(kept.change_id) == []


@pytest.mark.parametrize(
    ("changed", "status", "says"),
    [
        ({"what": ""}, 400, "what"),
        ({"who": " "}, 400, "who"),
        ({"kind": "party"}, 400, "deprecation"),
        ({"on": "soon"}, 400, "2026-12-31"),
        ({"on": "2020-01-01"}, 400, "is over"),
        ({"of": ["bronze.wether"]}, 404, "bronze.weather"),
        ({"of": []}, 400, "refs"),
        ({"what": "x" * 3_000}, 400, "what"),
        ({"what": ["x"]}, 400, "is no text"),
        ({"what": "x" * 30_000}, 413, "too long"),
        ({"state": "announced"}, 400, "is no field"),
    ],
)
def test_what_is_wrong_in_a_form_is_told_and_nothing_is_kept(page: Page, changed: dict[str, Any], status: int, says: str) -> None:
    answer = send(page, FORM | changed)
    assert (answer.status, says in answer.json["error"]["message"]) == (status, True)
    assert notices(page.platform).changes() == []


@pytest.mark.parametrize("body", [b"{", b"[]", b"[" * 10_000, b"\xff"])
def test_what_is_no_form_is_told(page: Page, body: bytes) -> None:
    assert send(page, body).status == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Lakechime": ""}, {"Content_Type": "text/plain"}, {"Content_Type": "application/x-www-form-urlencoded"},
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)  # fmt: skip
def test_no_other_site_drafts_a_notice_not_even_by_a_name_that_leads_here(page: Page, headers: dict[str, str]) -> None:
    assert send(page, **headers).status == 403
    assert notices(page.platform).changes() == []


def test_people_come_by_the_name_that_settings_say(page: Page) -> None:
    assert send(page, Host="lake.example", Origin="https://lake.example").status == 201
    assert send(page, Host=f"localhost:{page.port}", Origin=f"http://localhost:{page.port}").status == 201
