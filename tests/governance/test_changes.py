"""A change is checked as it is made; each owner gets a message about the own affected tables and
readers, and about nothing else.
"""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.governance.changes import (
    AffectedReader,
    AffectedTable,
    Change,
    ChangeKind,
    checked_day,
    digests_of,
    text_of,
    title_of,
)
from lakechime_dagster.lineage.columns import ColumnRef, ConsumerKind
from tests.governance.factories import NOW_MS, make_affected, make_change, make_reader

NAMES = st.text("abcé._", min_size=1, max_size=6)
NOW = dt.datetime(2026, 5, 28, 11, tzinfo=dt.timezone.utc)
REFS = st.builds(ColumnRef, NAMES, st.none() | NAMES)


@given(st.lists(REFS, min_size=1, max_size=6), st.sampled_from(ChangeKind), st.none() | st.dates())
def test_a_change_comes_back_from_its_json_whatever_the_order_of_what_it_is_of(
    refs: list[ColumnRef], kind: ChangeKind, on: object
) -> None:
    change = make_change(refs=tuple(refs), kind=kind, on=on)
    assert (
        Change.from_json(change.to_json())
        == change
        == make_change(refs=tuple(reversed(refs)), kind=kind, on=on)
    )


def test_a_column_of_a_table_that_is_named_whole_says_nothing_more() -> None:
    assert make_change("a.b:c", "a.b", "a.d:c", "a.d:c").refs == (
        ColumnRef("a.b"),
        ColumnRef("a.d", "c"),
    )


def test_the_title_says_what_of_what_and_when() -> None:
    assert make_change().title == "Deprecation: bronze.weather.humid on 2026-12-31"
    assert (
        make_change("a.b", "a.c", on=None, kind=ChangeKind.SCHEMA_CHANGE).title
        == "Schema change: a.b and 1 more"
    )


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ({"refs": ()}, "refs (): is empty; name a table"),
        ({"what": ""}, "what '': is empty"),
        ({"what": "one\nBcc: all@example.com"}, "holds a control character"),
        ({"action": "x" * 2001}, "has 2001 characters; give at most 2000"),
        ({"refs": (ColumnRef("a.b", ""),)}, "column '': is empty"),
    ],
)
def test_what_cannot_be_sent_is_refused(fields: dict[str, object], reported: str) -> None:
    with pytest.raises(InvalidValueError) as raised:
        make_change(**fields)
    assert reported in str(raised.value)


@pytest.mark.parametrize("kind", ChangeKind)
def test_a_day_is_over_once_it_is_over_everywhere_and_some_kinds_may_have_come(
    kind: ChangeKind,
) -> None:
    may = kind in (ChangeKind.INCIDENT, ChangeKind.BACKFILL)
    for change in (
        make_change(kind=kind, on=dt.date(2026, 5, 27)),
        make_change(kind=kind, on=None),
    ):
        assert checked_day(change, NOW) == change  # as it is still the 27th where days end last
    over = make_change(kind=kind, on=dt.date(2026, 5, 26))
    if may:
        assert checked_day(over, NOW) == over
    else:
        with pytest.raises(
            InvalidValueError,
            match="is over; name a day from 2026-05-27 on, or use incident or backfill",
        ):
            checked_day(over, NOW)


OWNERS = st.sampled_from(["ana", "bo", "team:x", ""])
TABLES = st.lists(
    st.builds(
        lambda number, owners, layer: make_affected(f"t.{number}", *owners, layer=layer),
        st.integers(0, 5),
        st.sets(OWNERS.filter(bool), max_size=2),
        st.integers(0, 3),
    ),
    max_size=5,
    unique_by=lambda one: one.table,
)
READERS = st.lists(
    st.builds(
        make_reader,
        st.sampled_from(["D", "E"]),
        OWNERS,
        st.sampled_from(["r.1", "r.2"]),
        days_ago=st.just(36) | st.just(34),
    )
)


@given(TABLES, READERS, OWNERS)
def test_an_owner_gets_all_that_is_theirs_and_nothing_else(
    tables: list[AffectedTable], readers: list[AffectedReader], sender: str
) -> None:
    change = make_change(sender=sender)
    digests, unowned = digests_of(change, tables, readers, NOW_MS)
    recent = [one for one in readers if one.last_ms > NOW_MS - 35 * 86_400_000]
    expected = {owner for table in tables for owner in table.owners} | {
        owner for one in recent for owner in one.owners
    }
    assert {one.owner for one in digests} == expected - {sender}
    assert set(unowned) == {table.table for table in tables if not table.owners}
    for digest in digests:
        assert {one.table for one in digest.tables} == {
            one.table for one in tables if digest.owner in one.owners
        }
        assert {one.refs for one in digest.readers} == {
            one.refs for one in recent if digest.owner in one.owners
        }
        text = text_of(change, digest, "me")
        assert {one.table for one in tables if one.table in text} == {
            one.table for one in digest.tables
        }


def test_a_message_says_in_plain_text_what_is_affected_and_why() -> None:
    bo = "bo@example.com"
    readers = [
        make_reader("Delays by day", bo, days_ago=2, link="https://bi.example.com/7"),
        make_reader(bo, "", days_ago=3, kind=ConsumerKind.USER),
    ]
    tables = [
        make_affected("gold.daily", bo, layer=2, columns=("mean_humid", "max_humid")),
        make_affected("silver.flights", bo, columns=None, is_sure=False),
        make_affected("gold.count", bo, columns=()),
    ]
    change = make_change(action="Use bronze.climate in its place.", sender="team:ops")
    (digest,), unowned = digests_of(change, tables, readers, NOW_MS)
    assert (title_of(change), unowned) == ("Deprecation: bronze.weather.humid on 2026-12-31", ())
    assert (
        text_of(change, digest, "ana")
        == """\
The station stops measuring it.

What to do: Use bronze.climate in its place.

When: 2026-12-31

What changes: bronze.weather.humid

Your affected tables:
- gold.count (layer 1): which rows it has
- silver.flights (layer 1): columns unknown; not certain, as lineage on the way is unknown
- gold.daily (layer 2): columns mean_humid, max_humid

Dashboards, jobs and people of yours that read affected tables:
- dashboard Delays by day https://bi.example.com/7 reads gold.daily, last on 2026-05-26
- user bo@example.com reads gold.daily, last on 2026-05-25

Sent by team:ops, ana."""
    )
    assert digest.reason.startswith(
        "owns gold.count, silver.flights, gold.daily; has Delays by day, which reads gold.daily"
    )


def test_names_of_others_stay_in_their_line() -> None:
    reader = make_reader(
        "D\r\nBcc: all@example.com\n\nPay here\u202e", "bo", "gold.x\ny", link="https://x\n\u2028"
    )
    change = make_change()
    (digest,), _ = digests_of(change, [make_affected("gold.x\ny", "bo")], [reader], NOW_MS)
    text = text_of(change, digest, "me")
    assert "\nBcc" not in text
    assert "\nPay" not in text
    assert [one for one in text if not one.isprintable() and one != "\n"] == []
    assert "\n" not in title_of(change)
