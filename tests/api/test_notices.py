"""The form by which an owner says to have seen a change: a link that is opened says nothing, and only its own form is believed."""

import re
from html import unescape
from urllib.parse import urlencode

import pytest
from sqlalchemy import Engine

from lakechime_dagster.api.notices import PATH, acknowledge_router
from lakechime_dagster.lineage.notices.acknowledging import Acknowledgement, signed
from lakechime_dagster.lineage.notices.occasions import ANNOUNCED
from lakechime_dagster.store.notices.changes import Notices
from lakechime_dagster.store.notices.outbox import Message
from tests.api.test_app import TOKEN, Answer, Client, serving
from tests.lineage.notices.changes import make_change

KEY = "k" * 32
HOSTILE = '<script>alert(1)</script>"&'
FORM = "application/x-www-form-urlencoded"


def link(owner: str = HOSTILE, **fields: object) -> str:
    known = {"deployment": "test", "change_id": 1, "version": 1, "owner": owner, "until_ms": 2_000}
    return signed(Acknowledgement(**known | fields), KEY)  # type: ignore[arg-type]


def announced(engine: Engine) -> Notices:
    notices = Notices(engine, "test")
    message = Message(occasion=ANNOUNCED, owner=HOSTILE, channel="$A", title="t", body="b")
    notices.announce(notices.draft(make_change(what=HOSTILE), "me"), [message], "me")
    return notices


def opened(client: Client, token: str) -> Answer:
    return client.send(b"", method="GET", path=f"{PATH}?{urlencode({'token': token})}")


def confirmed(client: Client, **fields: str) -> Answer:
    return client.send(urlencode(fields).encode(), path=PATH, kind=FORM)


@pytest.mark.several_connections
def test_opening_a_link_says_nothing_and_sending_its_form_does(sqlite_engine: Engine) -> None:
    notices = announced(sqlite_engine)
    with serving(sqlite_engine, TOKEN, (acknowledge_router(notices, KEY, lambda: 1_000),)) as client:
        page = opened(client, link())
        assert (page.status, notices.acknowledged(1, 1)) == (200, [])
        assert "<script" not in page.document
        (token,) = re.findall(r'name="token" value="([^"]*)"', page.document)
        thanks = confirmed(client, token=unescape(token), who="Bea", note="we moved")
        assert (thanks.status, "<script" in thanks.document) == (200, False)
        assert confirmed(client, token=link(), who="Another", note="").status == 200
        (seen,) = notices.acknowledged(1, 1)
        assert (seen.owner, seen.who, seen.note) == (HOSTILE, "Bea", "we moved")
        assert client.send(b"{}").status == 401  # everything else asks for the token


@pytest.mark.several_connections
def test_no_other_link_is_believed(sqlite_engine: Engine) -> None:
    notices = announced(sqlite_engine)
    with serving(sqlite_engine, TOKEN, (acknowledge_router(notices, KEY, lambda: 1_000),)) as client:
        for token, told in (
            ("", "not one that was sent"),
            (link() + "x", "not one that was sent"),
            (link(until_ms=1_000), "the time of this link is over"),
            (link(deployment="other"), "of another deployment"),
            (link(change_id=7), "there is no change 7"),
        ):
            answers = [opened(client, token), confirmed(client, token=token, who="Bea")]
            assert [(answer.status, told in answer.document) for answer in answers] == [(403, True)] * 2, told
        assert confirmed(client, token=link("bo"), who="Bea").status == 403
        assert confirmed(client, token=link(), who="").status == 400
        assert confirmed(client, token=link(), who="x" * 30_000).status == 413
        assert notices.acknowledged(1, 1) == []
