"""How long a table keeps its history is raised while a consumer needs it, and is afterwards what it was."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.tables.maintenance import BEFORE, DEFAULTS, FILES, LOG, duration, kept, lowered, raised

DAY = dt.timedelta(days=1)
PROPERTIES = st.dictionaries(st.sampled_from([LOG, FILES]), st.integers(1, 90).map(lambda days: f"interval {days} days"))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("interval 1 week", 7 * DAY),
        ("interval 30 days", 30 * DAY),
        ("INTERVAL 1 day 12 hours", 1.5 * DAY),
        ("168 hours", 7 * DAY),
        ("interval 1 month", None),
        ("", None),
    ],
)
def test_intervals_of_delta_are_read(text: str, meant: dt.timedelta | None) -> None:
    assert duration(text) == meant


def test_only_what_is_kept_too_short_is_raised_and_for_longer_than_needed() -> None:
    assert raised({}, 2 * DAY, 7 * DAY) == {FILES: "interval 16 days", BEFORE + FILES: ""}
    assert raised({FILES: "interval 16 days", BEFORE + FILES: ""}, 8 * DAY, 7 * DAY) == {}
    assert raised({FILES: "interval 16 days", BEFORE + FILES: ""}, 10 * DAY, 7 * DAY) == {FILES: "interval 24 days"}


@given(PROPERTIES, st.lists(st.integers(0, 100), min_size=1, max_size=4).map(sorted), st.integers(7, 30))
def test_raised_as_often_as_may_be_it_keeps_enough_and_is_lowered_to_what_it_was(
    given: dict[str, str], ages: list[int], ahead: int
) -> None:
    now = dict(given)
    for age in ages:
        now |= {name: value for name, value in raised(now, age * DAY, ahead * DAY).items() if value is not None}
        assert all(kept(now, name) >= (age + ahead) * DAY for name in DEFAULTS)
        assert raised(now, age * DAY, ahead * DAY) == {}
    after = {name: value for name, value in {**now, **lowered(now)}.items() if value is not None}
    assert after == given
