"""Planned changes on the page: looking tells nobody, and sending tells each whom the preview showed, once, through real servers."""

import datetime as dt
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakechime_dagster.api.session import COOKIE, signed
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.notices.changes import ChangeState
from lakechime_dagster.lineage.reads import Consumer, ConsumerKind, Read
from lakechime_dagster.resources.notices.drafting import draft
from lakechime_dagster.resources.notices.sending import notices, outbox
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.interventions import By
from lakechime_dagster.store.lineage.reads import keep_reads
from tests.cli.weather_lake import lake
from tests.lineage.notices.changes import make_change
from tests.support.inboxes import MailServer, Webhook
from tests.support.served import Page, Told, serving_page

TOKEN = "a-token-that-nobody-guesses"
CHANNELS = {"team:bi": "$BI_HOOK", "*@*": "$MAIL", "team:ops": "$OPS_HOOK"}
SOMEDAY = dt.date(2100, 12, 31)
HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture(autouse=True)
def channels(monkeypatch: pytest.MonkeyPatch, mail_server: MailServer, webhook: Webhook) -> None:
    """Real servers behind the channels of all owners."""
    monkeypatch.setenv("LAKECHIME_NOTICE_URLS", json.dumps(CHANNELS))
    monkeypatch.setenv("MAIL", mail_server.url("{owner}"))
    for name in ("BI_HOOK", "OPS_HOOK"):
        monkeypatch.setenv(name, webhook.url)


@pytest.fixture
def page(tmp_path: Path, upgraded_sqlite: Path, channels: None) -> Iterator[Page]:
    with serving_page(tmp_path, upgraded_sqlite, lake) as found:
        draft(found.platform, make_change("bronze.weather", what=f"It goes. {HOSTILE}", sender="team:ops", on=SOMEDAY), "me")
        yield found


def asked(page: Page, path: str = "", **headers: str) -> Told:
    return page.ask(f"/lineage/notices{path}", **{"X_Lakechime": "page"} | headers)


def did(page: Page, verb: str, fields: Any, change: int = 1, **headers: str) -> Told:
    return page.ask(f"/lineage/notices/{change}/{verb}", fields, **{"X_Lakechime": "page", "Content_Type": "application/json"} | headers)


def looked_at(page: Page, who: str = "ann", change: int = 1) -> dict[str, Any]:
    """What a browser sends after a look at the preview."""
    shown = asked(page, f"/{change}/preview?who={who}").json
    return {"version": shown["version"], "mark": shown["mark"], "who": who}


def states(page: Page) -> dict[str, str]:
    return {one["owner"]: one["state"] for one in asked(page, "/1").json["messages"]}


def test_a_preview_shows_whom_it_concerns_why_and_the_text_and_tells_nobody(
    page: Page, mail_server: MailServer, webhook: Webhook
) -> None:  # fmt: skip
    shown = asked(page, "/1/preview?who=ann").json
    assert [(one["owner"], one["channel"], one["reason"], one["problem"], one["goes"]) for one in shown["messages"]] == [
        ("ana@example.com", "$MAIL", "owns silver.flights", "", True),
        ("team:bi", "$BI_HOOK", "owns gold.daily", "", True),
        ("team:ops", "$OPS_HOOK", "sends the change, and nobody owns gold.wet", "", True),
    ]
    assert (shown["recipients"], shown["unowned"], shown["own"], shown["problem"]) == (3, ["gold.wet"], ["bronze.weather"], "")
    text = shown["messages"][0]["body"]
    assert (text.startswith(f"It goes. {HOSTILE}"), "silver.flights" in text, "gold.daily" in text, text.endswith("team:ops, ann.")) == (
        True, True, False, True,
    )  # fmt: skip
    assert (mail_server.mails, webhook.told, outbox(page.platform).of(1)) == ([], [], [])
    assert notices(page.platform).get(1).state is ChangeState.PLANNED


def test_what_was_looked_at_is_sent_once_and_who_sent_it_is_kept(page: Page, mail_server: MailServer, webhook: Webhook) -> None:
    seen = looked_at(page)
    answer = did(page, "send", seen)
    assert (answer.status, [one["state"] for one in answer.json["tried"]], answer.json["state"]) == (200, ["sent"] * 3, "announced")
    assert mail_server.texts[0].replace("\r", "").startswith(outbox(page.platform).of(1)[0].message.body)
    assert ["gold.daily" in body for _, body in webhook.told] == [True, False]
    again = did(page, "send", seen | {"again": True}).json
    assert (again["tried"], len(mail_server.mails), len(webhook.told)) == ([], 1, 2)
    assert [(step["action"], step["who"]) for step in again["steps"]] == [("drafted", "me"), ("announced", "ann")]
    shown = asked(page, "/1/preview").json
    assert (shown["recipients"], {one["state"] for one in shown["messages"]}) == (0, {"sent"})


def test_what_became_another_thing_since_it_was_looked_at_is_not_sent(page: Page, webhook: Webhook) -> None:
    several, seen = notices(page.platform), looked_at(page)
    several.amend(1, replace(several.get(1).change, what="Another thing."), "bob")
    amended = did(page, "send", seen)
    assert (amended.status, amended.json["error"]["type"]) == (409, "ChangeMovedError")
    assert "it is planned at version 2 by now; look at it again" in amended.json["error"]["message"]

    seen = looked_at(page)
    reader = Consumer(ConsumerKind.USER, "", "fay@example.com")
    with writing(page.platform.store.engine) as connection:  # somebody else reads what it reaches
        keep_reads(connection, [Read(consumer=reader, refs=(ColumnRef("gold.daily"),), at_ms=page.platform.store.now())])
    reached = did(page, "send", seen)
    assert (reached.status, "whom it concerns, or what of theirs, is another by now" in reached.text) == (409, True)

    seen = looked_at(page)
    several.withdraw(1, By(who="bob", reason="why"))
    withdrawn = did(page, "send", seen)
    assert (withdrawn.status, "it is withdrawn by now; look at it again" in withdrawn.text) == (409, True)
    assert (webhook.told, outbox(page.platform).of(1)) == ([], [])


def test_a_change_that_is_done_is_not_sent(page: Page, webhook: Webhook) -> None:
    seen = looked_at(page)
    notices(page.platform).announce(notices(page.platform).get(1), [], "bob")
    notices(page.platform).done(1, By(who="bob", reason="it has come"))
    answer = did(page, "send", seen)
    assert (answer.status, "it is done by now" in answer.text, webhook.told) == (409, True, [])
    assert asked(page, "/1/preview").json["messages"] == []


def test_what_cannot_be_sent_is_told_before_and_the_others_are_sent(
    page: Page, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.delenv("BI_HOOK")
    monkeypatch.setenv("MAIL", "nonsense")
    shown = asked(page, "/1/preview").json
    assert [(one["owner"], one["problem"], one["goes"]) for one in shown["messages"]] == [
        ("ana@example.com", "$MAIL: what it holds is no URL that apprise takes; see https://appriseit.com/services/", False),
        ("team:bi", "$BI_HOOK is not in the environment; set it to a URL of apprise for one recipient, as mailto://…", False),
        ("team:ops", "", True),
    ]
    assert shown["recipients"] == 1
    answer = did(page, "send", looked_at(page)).json
    assert [(one["owner"], one["state"]) for one in answer["tried"]] == [
        ("ana@example.com", "waiting"), ("team:bi", "waiting"), ("team:ops", "sent"),
    ]  # fmt: skip
    assert len(webhook.told) == 1


def test_an_owner_without_a_channel_is_shown_and_told_to_whoever_sends(
    tmp_path: Path, upgraded_sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKECHIME_NOTICE_URLS", '{"*@*": "$MAIL"}')
    with serving_page(tmp_path, upgraded_sqlite, lake) as page:
        draft(page.platform, make_change("bronze.weather", on=SOMEDAY), "me")
        shown = {one["owner"]: (one["channel"], one["problem"]) for one in asked(page, "/1/preview").json["messages"]}
        assert shown["team:bi"] == ("", "LAKECHIME_NOTICE_URLS has no channel for team:bi")
        unreached = did(page, "send", looked_at(page)).json["unreached"]
        assert {"owner": "team:bi", "reason": "owns gold.daily"} in unreached


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("LAKECHIME_NOTICE_URLS", "", "no channel is known: set LAKECHIME_NOTICE_URLS"),
        ("LAKECHIME_NOTICE_URLS", '{"team:bi": "slack://hunter2"}', "has for team:bi what is no $NAME"),
        ("LAKECHIME_NOTICE_KEY", "hunter2", "has less than 32 characters"),
    ],
)
def test_where_nothing_can_be_sent_it_is_shown_why_and_nothing_is_announced(
    tmp_path: Path, upgraded_sqlite: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    with serving_page(tmp_path, upgraded_sqlite, lake) as page:
        draft(page.platform, make_change("bronze.weather", on=SOMEDAY), "me")
        shown = asked(page, "/1/preview")
        assert (says in shown.json["problem"], shown.json["recipients"], len(shown.json["messages"]) > 1) == (True, 0, True)
        answer = did(page, "send", looked_at(page))
        assert (answer.status, says in answer.json["error"]["message"], "hunter2" in shown.text + answer.text) == (503, True, False)
        assert notices(page.platform).get(1).state is ChangeState.PLANNED


def test_no_secret_of_a_url_is_in_an_answer_or_a_log(page: Page, webhook: Webhook, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    webhook.closed = True
    answers = [asked(page, "/1/preview"), did(page, "send", looked_at(page)), asked(page, "/1/preview"), asked(page, "/1"), asked(page)]
    assert "json://… did not take it" in answers[1].text
    assert not any("secret-path" in text for text in (*(answer.text for answer in answers), caplog.text))


def test_a_change_is_taken_back_with_a_reason_and_whoever_was_told_is_told_so_by_sending(page: Page, webhook: Webhook) -> None:
    seen = looked_at(page)
    did(page, "send", seen)
    assert (did(page, "withdraw", {"reason": "", "who": "ann"}).status, did(page, "withdraw", {"reason": "why"}).status) == (400, 400)
    answer = did(page, "withdraw", {"reason": "we keep it", "who": "ann"})
    assert (answer.status, answer.json["state"], answer.json["waiting"]) == (200, "withdrawn", 3)
    assert {name: answer.json["steps"][-1][name] for name in ("action", "who", "reason")} == {
        "action": "withdrawn", "who": "ann", "reason": "we keep it",
    }  # fmt: skip
    assert (did(page, "withdraw", {"reason": "again", "who": "ann"}).status, did(page, "send", seen).status) == (409, 409)
    assert len(webhook.told) == 2  # by taking it back alone nobody is told
    shown = asked(page, "/1/preview").json
    assert (shown["recipients"], {one["reason"] for one in shown["messages"]}) == (3, {"was told of it"})
    did(page, "send", looked_at(page))
    assert [title.startswith("Withdrawn: ") for title, _ in webhook.told] == [False, False, True, True]


def test_changes_are_listed_with_how_many_were_told_and_have_seen_them(page: Page) -> None:
    draft(page.platform, make_change("gold.apart", on=SOMEDAY), "me")
    did(page, "send", looked_at(page))
    notices(page.platform).acknowledge(1, "team:bi", "bea", "we moved")
    assert [(one["change"], one["state"], one["told"], one["seen"]) for one in asked(page).json["changes"]] == [
        (2, "planned", 0, 0), (1, "announced", 3, 1),
    ]  # fmt: skip
    shown = asked(page, "/1").json
    assert ([(one["owner"], one["who"], one["note"]) for one in shown["acknowledged"]], shown["unseen"]) == (
        [("team:bi", "bea", "we moved")], ["ana@example.com", "team:ops"],
    )  # fmt: skip
    did(page, "withdraw", {"reason": "why", "who": "ann"}, change=2)
    assert [one["change"] for one in asked(page).json["changes"]] == [1]
    assert [one["change"] for one in asked(page, "?ended=true").json["changes"]] == [2, 1]


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"version": None}, 400, "look at one first"),
        ({"version": "1"}, 400, "look at one first"),
        ({"version": True}, 400, "look at one first"),
        ({"again": "yes"}, 400, "is neither true nor false"),
        ({"mark": ["x"]}, 400, "is no text"),
        ({"mark": ""}, 409, "look at it again"),
        ({"who": ""}, 400, "who"),
        ({"who": "x" * 200}, 400, "who"),
        ({"url": "json://elsewhere"}, 400, "is no field"),
    ],
)
def test_what_is_wrong_in_a_form_is_told_and_nobody_is_told(
    page: Page, webhook: Webhook, fields: dict[str, Any], status: int, says: str
) -> None:  # fmt: skip
    answer = did(page, "send", looked_at(page) | fields)
    assert (answer.status, says in answer.json["error"]["message"], webhook.told) == (status, True, [])


def test_a_change_that_is_not_there_is_told(page: Page) -> None:
    by = {"reason": "why", "who": "ann"}
    answers = [asked(page, "/7"), asked(page, "/7/preview"), did(page, "send", looked_at(page), 7), did(page, "withdraw", by, 7)]
    assert [(answer.status, "there is no change 7" in answer.text) for answer in answers] == [(404, True)] * 4


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Lakechime": ""}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)  # fmt: skip
def test_no_other_site_looks_sends_or_withdraws(page: Page, webhook: Webhook, headers: dict[str, str]) -> None:
    form = looked_at(page)
    answers = [asked(page, path, **headers) for path in ("", "/1", "/1/preview")]
    answers += [did(page, "send", form, 1, **headers), did(page, "withdraw", {"reason": "why", "who": "ann"}, 1, **headers)]
    assert [(answer.status, HOSTILE in answer.text) for answer in answers] == [(403, False)] * 5
    assert did(page, "send", form, Content_Type="text/plain").status == 403
    assert (webhook.told, notices(page.platform).get(1).state) == ([], ChangeState.PLANNED)


def test_off_this_machine_whoever_has_not_shown_the_token_neither_looks_nor_sends(
    tmp_path: Path, upgraded_sqlite: Path, webhook: Webhook
) -> None:  # fmt: skip
    with serving_page(tmp_path, upgraded_sqlite, lake, TOKEN) as page:
        draft(page.platform, make_change("bronze.weather", on=SOMEDAY), "me")
        answers = [asked(page), asked(page, "/1/preview"), did(page, "send", {}), did(page, "withdraw", {})]
        assert [answer.status for answer in answers] == [401] * 4
        cookie = f"{COOKIE}={signed(TOKEN, page.platform.store.now() + 60_000)}"
        shown = asked(page, "/1/preview", Cookie=cookie).json
        form = {"version": 1, "mark": shown["mark"], "who": "ann"}
        assert did(page, "send", form, Cookie=cookie, Sec_Fetch_Site="same-site").status == 403
        assert (did(page, "send", form, Cookie=cookie).status, len(webhook.told)) == (200, 2)
