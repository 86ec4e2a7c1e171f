"""Tags are an immutable map that merges and matches."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.dce.events import Tags
from lakechime_dagster.errors import InvalidValueError
from tests.dce.strategies import names, texts

maps = st.dictionaries(names, texts, max_size=4)


@given(maps, maps)
def test_merged_tags_carry_what_was_added_and_what_it_left(one: dict[str, str], other: dict[str, str]) -> None:
    merged = Tags(one).merged(other)

    assert merged.carries(other)
    assert merged.carries({key: value for key, value in one.items() if key not in other})
    assert merged == {**one, **other}


@given(maps)
def test_merging_again_changes_nothing(tags: dict[str, str]) -> None:
    assert Tags(tags).merged(tags) == Tags(tags)


@given(maps)
def test_equal_tags_hash_alike_in_any_order_and_survive_pickling(tags: dict[str, str]) -> None:
    backwards = Tags(dict(reversed(tags.items())))

    assert backwards == Tags(tags)
    assert hash(backwards) == hash(Tags(tags)) == hash(pickle.loads(pickle.dumps(backwards)))


@pytest.mark.parametrize("tags", [{"k" * 129: "v"}, {"k": "v" * 4097}, {"k": 1}, {1: "v"}, {"k": "a\x00"}, "text"])
def test_tags_that_a_store_cannot_hold_are_refused(tags: object) -> None:
    with pytest.raises(InvalidValueError, match="tags"):
        Tags(tags)  # type: ignore[arg-type]
