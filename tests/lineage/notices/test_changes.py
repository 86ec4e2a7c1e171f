"""A change is checked as it is made, says in one line of what it is, and comes back from its JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.notices.changes import Change, ChangeKind
from tests.lineage.notices.changes import make_change

NAMES = st.text("abcé._", min_size=1, max_size=6)
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
