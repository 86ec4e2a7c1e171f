"""A change is checked as it is made, says in one line of what it is and what it ends, and comes back from its JSON."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.notices.changes import Change, ChangeKind, checked_day
from tests.lineage.notices.changes import make_change

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
def test_what_nobody_could_be_told_is_refused(fields: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidValueError) as raised:
        make_change(**fields)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "columns", "expected"),
    [
        (ChangeKind.DEPRECATION, {"humid", "wind"}, ["a.b.humid", "a.b.wind", "a.c"]),
        (ChangeKind.SCHEMA_CHANGE, {"humid", "wind"}, []), (ChangeKind.SCHEMA_CHANGE, {"humid"}, ["a.b.wind"]),
        (ChangeKind.SCHEMA_CHANGE, set(), ["a.b.humid", "a.b.wind", "a.c"]),
        (ChangeKind.SCHEMA_CHANGE, None, ["a.b.humid", "a.b.wind", "a.c"]),
        (ChangeKind.RETENTION, None, []), (ChangeKind.INCIDENT, None, []), (ChangeKind.BACKFILL, None, []),
    ],
)  # fmt: skip
def test_what_is_deprecated_or_gone_is_read_by_nobody_once_it_is_done(
    kind: ChangeKind, columns: set[str] | None, expected: list[str]
) -> None:  # fmt: skip
    change = make_change("a.b:humid", "a.b:wind", "a.c", kind=kind)
    assert [str(ref) for ref in change.ended(lambda table: columns)] == expected


@pytest.mark.parametrize("kind", ChangeKind)
def test_a_day_is_over_once_it_is_over_everywhere_and_some_kinds_may_have_come(kind: ChangeKind) -> None:
    may = kind in (ChangeKind.INCIDENT, ChangeKind.BACKFILL)
    for change in (make_change(kind=kind, on=dt.date(2026, 5, 27)), make_change(kind=kind, on=None)):
        assert checked_day(change, NOW) == change  # as it is still the 27th where days end last
    over = make_change(kind=kind, on=dt.date(2026, 5, 26))
    if may:
        assert checked_day(over, NOW) == over
    else:
        with pytest.raises(InvalidValueError, match="is over; name a day from 2026-05-27 on: only incident and backfill may have come"):
            checked_day(over, NOW)
