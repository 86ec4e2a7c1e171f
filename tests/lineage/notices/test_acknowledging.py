"""A link to acknowledge by is believed only as it was signed, and only in its time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.notices.acknowledging import Acknowledgement, LinkError, signed, verified

KEY = "k" * 32
WHAT = Acknowledgement(deployment="local", change_id=7, version=2, owner="team:ops", until_ms=1000)
URL_SAFE = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


@given(st.text(max_size=20), st.text(max_size=8), st.integers(1, 2**40), st.integers(1, 99))
def test_what_was_signed_is_read_back(owner: str, deployment: str, change_id: int, version: int) -> None:
    what = Acknowledgement(deployment=deployment, change_id=change_id, version=version, owner=owner, until_ms=1000)
    token = signed(what, KEY)
    assert verified(token, KEY, 999) == what
    assert set(token) <= URL_SAFE


@given(st.integers(0, 200), st.sampled_from("AZaz09-_.é="))
def test_no_changed_text_is_believed(at: int, character: str) -> None:
    token = signed(WHAT, KEY)
    at %= len(token)
    changed = token[:at] + character + token[at + 1 :]
    if changed != token:
        with pytest.raises(LinkError, match="not one that was sent"):
            verified(changed, KEY, 0)


def test_a_link_has_one_spelling_alone() -> None:
    token = signed(WHAT, KEY)
    for character in URL_SAFE - {token[-1]}:
        with pytest.raises(LinkError):
            verified(token[:-1] + character, KEY, 0)


@given(st.text(max_size=60))
def test_no_other_text_is_believed(text: str) -> None:
    with pytest.raises(LinkError):
        verified(text, KEY, 0)


def test_no_other_key_signs() -> None:
    with pytest.raises(LinkError):
        verified(signed(WHAT, "x" * 32), KEY, 0)


def test_a_link_ends() -> None:
    token = signed(WHAT, KEY)
    with pytest.raises(LinkError, match="the time of this link is over; acknowledge by `lakechime notice ack 7"):
        verified(token, KEY, 1000)


def test_a_key_that_somebody_may_guess_signs_nothing_and_is_not_shown() -> None:
    with pytest.raises(InvalidValueError, match="LAKECHIME_NOTICE_KEY") as raised:
        signed(WHAT, "hunter2")
    assert "hunter2" not in str(raised.value)
