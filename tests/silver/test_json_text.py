"""JSON is read with nothing lost, by two readers that are one."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakechime_dagster.silver.json import Fields, Fraction, Integer, parsed, parsed_without_calls

NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)
SPACE = st.text(" \t\n\r", max_size=2)
TEXTS = st.recursive(
    st.one_of(
        NUMBERS,
        st.text().map(json.dumps),
        st.text().map(lambda one: json.dumps(one, ensure_ascii=False)),
        st.sampled_from(["true", "false", "null"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner).map(lambda many: f"[{','.join(many)}]"),
        st.lists(st.tuples(SPACE, st.text(max_size=3).map(json.dumps), SPACE, inner)).map(
            lambda many: (
                "{"
                + ",".join(f"{before}{name}{after}:{value}" for before, name, after, value in many)
                + "}"
            )
        ),
    ),
    max_leaves=20,
)
GARBAGE = st.text("{}[]\":,-+.eE0123tfn \\u\t\n'", max_size=12)


def by(read: Any, text: str) -> Any:
    """What a reader makes of a text, types and all; None where it refuses it."""
    try:
        return reported(read(text))
    except ValueError:
        return None


def reported(value: Any) -> Any:
    if isinstance(value, list):
        return type(value), [
            (one[0], reported(one[1])) if isinstance(value, Fields) else reported(one)
            for one in value
        ]
    return type(value), value


@given(TEXTS)
def test_both_readers_read_the_same(text: str) -> None:
    found = by(parsed, text)
    assert found is not None
    assert found == by(parsed_without_calls, text)


@given(TEXTS, st.data())
def test_both_readers_refuse_the_same(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    damaged = text[:at] + data.draw(GARBAGE) + text[data.draw(st.integers(at, len(text))) :]
    assert by(parsed, damaged) == by(parsed_without_calls, damaged)


@given(GARBAGE)
@example('{"a":1} x')
@example('{"a":1,}')
@example("[1,]")
@example("[,1]")
@example('{"a"}')
@example("{1:2}")
@example("01")
@example("1.")
@example("-")
@example("tru")
@example('"\t"')
@example('"\\x41"')
@example('"\\ud800"')
@example("")
def test_both_readers_judge_any_text_alike(text: str) -> None:
    assert by(parsed, text) == by(parsed_without_calls, text)


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "[Infinity]",
        "-Infinity",
        "{'a':1}",
        "\ufeff{}",
        '{"a":1} {"b":2}',
        "+1",
        ".5",
        "1_000",
        "0x1F",
    ],
)
def test_what_only_other_readers_take_is_refused(text: str) -> None:
    assert by(parsed, text) is None


def test_nothing_is_lost() -> None:
    found = parsed('{"a": 1.50, "a": 12345678901234567890123, "b": [1e5, -0, "1"]}')
    assert reported(found) == reported(
        Fields(
            [
                ("a", Fraction("1.50")),
                ("a", Integer("12345678901234567890123")),
                ("b", [Fraction("1e5"), Integer("-0"), "1"]),
            ]
        )
    )


def test_the_deepest_of_texts_is_read() -> None:
    found, depth = parsed('{"a":[' * 50_000 + "1" + "]}" * 50_000), 0
    while isinstance(found, list):
        found, depth = found[0][1] if isinstance(found, Fields) else found[0], depth + 1
    assert (depth, found) == (100_000, "1")
