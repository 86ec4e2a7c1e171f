"""The columns that a commit changed: told by its commit metadata, kept in a tag, and read from that or not known."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.dce.events import CHANGED_TAG, changed_columns, changed_fact, changed_tag


@given(st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=3))
def test_any_names_survive_the_way_through_a_commit_and_an_event(names: set[str]) -> None:
    facts = json.loads(json.dumps(changed_fact(names, since=4)))
    assert changed_columns(changed_tag(facts, version=5)[CHANGED_TAG]) == {name.casefold() for name in names}


@pytest.mark.parametrize("facts", [{}, {"changed": None}, {"changed": {"since": 4}}, {"changed": {"columns": ["a"], "since": "4"}}])
def test_facts_that_do_not_tell_it_give_no_tag(facts: dict[str, object]) -> None:
    assert changed_tag(facts, version=5) == {}


@pytest.mark.parametrize("version", [4, 6])
def test_a_commit_behind_another_than_it_was_compared_with_does_not_tell_it(version: int) -> None:
    assert changed_tag(changed_fact(["a"], since=4), version) == {}
