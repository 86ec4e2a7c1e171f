"""A change is checked as it is made, has a title of one line, and comes back from its JSON."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.governance.changes import MAX_REFS, MAX_TEXT, Change, ChangeKind, automatic_change, checked_day, source_key
from lakechime_dagster.lineage.columns import ColumnRef
from tests.lineage.notifications.changes import make_change

LONG = "struct<" + ", ".join(f"a_field_with_a_long_name_{number}: decimal(38,18)" for number in range(60)) + ">"
NAMES = st.text("abcé._", min_size=1, max_size=6)
NOW = dt.datetime(2026, 5, 28, 11, tzinfo=dt.timezone.utc)
REFS = st.builds(ColumnRef, NAMES, st.none() | NAMES)


@given(st.lists(REFS, min_size=1, max_size=6), st.sampled_from(ChangeKind), st.none() | st.dates())
def test_a_change_comes_back_from_its_json_whatever_the_order_of_what_it_is_of(refs: list[ColumnRef], kind: ChangeKind, on: object) -> None:
    change = make_change(refs=tuple(refs), kind=kind, on=on)
    assert Change.from_json(change.to_json()) == change == make_change(refs=tuple(reversed(refs)), kind=kind, on=on)


def test_a_column_of_a_table_that_is_named_whole_says_nothing_more() -> None:
    assert make_change("a.b:c", "a.b", "a.d:c", "a.d:c").refs == (ColumnRef("a.b"), ColumnRef("a.d", "c"))


def test_the_title_says_what_of_what_and_when() -> None:
    assert make_change().title == "Deprecation: bronze.weather.humid on 2026-12-31"
    assert make_change("a.b", "a.c", on=None, kind=ChangeKind.SCHEMA_CHANGE).title == "Schema change: a.b and 1 more"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"refs": ()}, "refs (): is empty; name a table"),
        ({"what": ""}, "what '': is empty"),
        ({"what": "one\nBcc: all@example.com"}, "holds a control character"),
        ({"action": "x" * 2001}, "has 2001 characters; give at most 2000"),
        ({"refs": (ColumnRef("a.b", ""),)}, "column '': is empty"),
    ],
)
def test_what_cannot_be_sent_is_refused(fields: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidValueError) as raised:
        make_change(**fields)
    assert told in str(raised.value)


@pytest.mark.parametrize("kind", ChangeKind)
def test_a_day_is_over_once_it_is_over_everywhere_and_some_kinds_may_have_come(kind: ChangeKind) -> None:
    may = kind in (ChangeKind.INCIDENT, ChangeKind.BACKFILL)
    for change in (make_change(kind=kind, on=dt.date(2026, 5, 27)), make_change(kind=kind, on=None)):
        assert checked_day(change, NOW) == change  # as it is still the 27th where days end last
    over = make_change(kind=kind, on=dt.date(2026, 5, 26))
    if may:
        assert checked_day(over, NOW) == over
    else:
        with pytest.raises(InvalidValueError, match="is over; name a day from 2026-05-27 on, or use incident or backfill"):
            checked_day(over, NOW)


def test_texts_of_an_automatic_change_are_cut() -> None:
    change = automatic_change(ChangeKind.SCHEMA_CHANGE, LONG, [ColumnRef("bronze.orders", "customer")], "adapt")
    assert (len(change.what), change.what[:7], change.what[-1]) == (MAX_TEXT, "struct<", "…")
    assert (change.refs, change.action) == ((ColumnRef("bronze.orders", "customer"),), "adapt")


@pytest.mark.parametrize("name", ["a\nb", "a\0", " a", "", "\ud800", "a" * 513])
def test_a_column_whose_name_cannot_be_stored_counts_as_its_table(name: str) -> None:
    change = automatic_change(ChangeKind.SCHEMA_CHANGE, f"bronze.orders.{name} is gone", [ColumnRef("bronze.orders", name)])
    assert change.refs == (ColumnRef("bronze.orders"),)


def test_too_many_columns_count_as_their_tables() -> None:
    refs = [ColumnRef(f"bronze.t{number % 2}", f"c{number}") for number in range(MAX_REFS + 1)]
    assert automatic_change(ChangeKind.BACKFILL, "again", refs).refs == (ColumnRef("bronze.t0"), ColumnRef("bronze.t1"))


def test_each_source_has_a_key_of_its_own() -> None:
    assert source_key("gate/silver.paid") == "gate/silver.paid"
    keys = {source_key(source) for source in ("x" * 512, "x" * 513, "x" * 514, "x\0", "x\1", "\ud800")}
    assert (len(keys), max(map(len, keys)) <= 512) == (6, True)
