"""Events are known by what they are made of."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.silver.event import JsonEvent, Kind, Variation, event_of, variation_of

VECTORS = json.loads((Path(__file__).parent / "variations.json").read_text(encoding="utf-8"))
NAMES = st.text(max_size=3)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)


def of(text: str) -> Variation:
    event = event_of(text)
    assert isinstance(event, JsonEvent), event
    return variation_of(event)


def shuffled(value: Any, random: Random) -> Any:
    """The same with fields in another order, and elements of arrays in another order, some of them
    again.
    """
    if isinstance(value, dict):
        return dict(
            random.sample(
                [(name, shuffled(one, random)) for name, one in value.items()], len(value)
            )
        )
    if isinstance(value, list):
        again = [*value, *random.sample(value, random.randint(0, len(value)))]
        return random.sample([shuffled(one, random) for one in again], len(again))
    return value


@given(OBJECTS, st.randoms(use_true_random=False))
def test_neither_the_order_of_fields_nor_the_elements_of_arrays_make_another_variation(
    value: dict[str, Any], random: Random
) -> None:
    one, other = of(json.dumps(value)), of(json.dumps(shuffled(value, random)))
    assert (one, one.typed_hash) == (other, other.typed_hash)


@given(OBJECTS, OBJECTS)
def test_only_events_of_one_set_of_paths_and_kinds_have_one_hash(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    a, b = of(json.dumps(one)), of(json.dumps(other))
    assert (a.typed_hash == b.typed_hash) == (a.kinds == b.kinds)


@pytest.mark.parametrize(
    ("spelled", "kind"),
    [
        ("null", Kind.NULL),
        ("false", Kind.BOOL),
        ("-0", Kind.LONG),
        ("9223372036854775807", Kind.LONG),
        ("-9223372036854775808", Kind.LONG),
        ("9223372036854775808", Kind.BIGINT),
        ("-9223372036854775809", Kind.BIGINT),
        ("-" + "9" * 38, Kind.BIGINT),
        ("1" + "0" * 38, Kind.HUGE),
        ("9" * 1000, Kind.HUGE),
        ("1.0", Kind.FRACTION),
        ("1e5", Kind.FRACTION),
        ("1.7976931348623157e308", Kind.FRACTION),
        ("1.7976931348623159e308", Kind.HUGE),
        ("-1e400", Kind.HUGE),
        ("1e-400", Kind.FRACTION),
        ('"1"', Kind.STRING),
        ("{}", Kind.EMPTY_OBJECT),
        ("[]", Kind.EMPTY_ARRAY),
    ],
)
def test_a_kind_is_reported_by_the_spelling(spelled: str, kind: Kind) -> None:
    assert of(f'{{"a":{spelled}}}').kinds == {("", Kind.OBJECT), ("/a", kind)}


def test_paths_name_fields_and_elements() -> None:
    found = of('{"legs":[{"from":"EWR"},{"from":null}],"a/b":{"~":[[]]},"x[]":1,"":true}')
    assert {path for path, _ in found.kinds} == {
        "",
        "/legs",
        "/legs[]",
        "/legs[]/from",
        "/a~1b",
        "/a~1b/~0",
        "/a~1b/~0[]",
        "/x~2]",
        "/",
    }


def test_names_that_look_like_paths_are_not_taken_for_them() -> None:
    reported = [
        '{"a":{"b":1}}',
        '{"a/b":1}',
        '{"a":[1]}',
        '{"a[]":1}',
        '{"a~1b":1}',
        '{"a":{"":1}}',
        '{"a/":1}',
    ]
    assert len({frozenset(path for path, _ in of(text).kinds) for text in reported}) == len(
        reported
    )


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["event"][:40])
def test_golden_vectors(vector: dict[str, Any]) -> None:
    """Whatever reads events gives these, in whatever language it is written; the hashes stand in
    tables.
    """
    found = of(vector["event"])
    assert sorted([path, kind.value] for path, kind in found.kinds) == vector["kinds"]
    assert found.typed_hash == vector["typed_hash"]
