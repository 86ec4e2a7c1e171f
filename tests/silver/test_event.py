"""What is taken as an event, and why the rest is not."""

import json

import pytest

from lakechime_dagster.silver import event
from lakechime_dagster.silver.event import (
    MAX_DEPTH,
    MAX_NAME,
    MAX_NUMBER,
    Flag,
    JsonEvent,
    Refusal,
    event_of,
)
from lakechime_dagster.silver.json import Fields, Integer

LONG_NAME, LONG_NUMBER = "n" * (MAX_NAME + 1), "1" * (MAX_NUMBER + 1)


def nested(depth: int) -> str:
    """An object in which arrays are within each other, all in all so many."""
    return f'{{"a":{"[" * (depth - 1)}{"]" * (depth - 1)}}}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a":"\xff"}', Refusal.NOT_UTF8),
        (b"\xed\xa0\x80", Refusal.NOT_UTF8),
        ("", Refusal.NOT_JSON),
        ("{'a':1}", Refusal.NOT_JSON),
        ('{"a":1} x', Refusal.NOT_JSON),
        ('{"a":NaN}', Refusal.NOT_JSON),
        ('\ufeff{"a":1}', Refusal.NOT_JSON),
        (b'\xef\xbb\xbf{"a":1}', Refusal.NOT_JSON),
        ("[1]", Refusal.NOT_OBJECT),
        ("null", Refusal.NOT_OBJECT),
        ('"text"', Refusal.NOT_OBJECT),
        (nested(MAX_DEPTH + 1), Refusal.TOO_DEEP),
        (nested(100_000), Refusal.TOO_DEEP),
        (f'{{"{LONG_NAME}":1}}', Refusal.NAME_TOO_LONG),
        ('{"' + "ä" * (MAX_NAME // 2 + 1) + '":1}', Refusal.NAME_TOO_LONG),
        (f'{{"a":{LONG_NUMBER}}}', Refusal.NUMBER_TOO_LONG),
        (f'{{"a":[1.{LONG_NUMBER}]}}', Refusal.NUMBER_TOO_LONG),
    ],
)
def test_what_is_no_event_has_a_reason(text: str | bytes, reason: Refusal) -> None:
    assert event_of(text) is reason


def test_the_paths_of_an_event_have_a_bound_each_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = '{"ab":{"c":1,"c":2},"ä":[1,[]],"ab":null}'  # /ab, /ab/c, /ä and /ä[]
    monkeypatch.setattr(event, "MAX_PATHS", 3 + 5 + 3 + 5)
    assert isinstance(event_of(text), JsonEvent)
    monkeypatch.setattr(event, "MAX_PATHS", 3 + 5 + 3 + 4)
    assert event_of(text) is Refusal.PATHS_TOO_LONG


def test_of_several_reasons_it_is_the_first_of_the_list_wherever_it_stands() -> None:
    number, name, deep = f'"x":{LONG_NUMBER}', f'"{LONG_NAME}":1', f'"d":{nested(MAX_DEPTH)}'
    assert event_of(f"{{{number},{name}}}") is Refusal.NAME_TOO_LONG
    assert event_of(f"{{{number},{name},{deep}}}") is Refusal.TOO_DEEP
    assert event_of(f"[{{{number},{name},{deep}}}]") is Refusal.NOT_OBJECT
    assert event_of(f"{{{number},{name},{deep}}}x") is Refusal.NOT_JSON


def test_what_is_just_within_the_bounds_is_taken() -> None:
    for text in (
        nested(MAX_DEPTH),
        f'{{"{LONG_NAME[1:]}":1}}',
        f'{{"a":{LONG_NUMBER[1:]}}}',
        f'{{"a":{json.dumps(LONG_NUMBER)}}}',
        "{}",
    ):
        assert isinstance(event_of(text), JsonEvent)


def test_what_is_odd_is_taken_and_flagged() -> None:
    assert event_of('{"a":1,"b":{"c":1,"c":2}}') == JsonEvent(
        Fields([("a", Integer("1")), ("b", Fields([("c", Integer("1")), ("c", Integer("2"))]))]),
        frozenset({Flag.DUPLICATE}),
    )
    for text in (r'{"a":"\ud800"}', r'{"\udfff":1}', r'{"a":[{"b":["x\udc00y"]}]}'):
        found = event_of(text)
        assert isinstance(found, JsonEvent)
        assert found.flags == {Flag.SURROGATE}


def test_a_whole_pair_of_surrogates_and_one_name_in_two_objects_are_not_odd() -> None:
    found = event_of(r'{"a":"\ud83d\ude00","b":[{"a":1},{"a":2}]}')
    assert isinstance(found, JsonEvent)
    assert not found.flags
