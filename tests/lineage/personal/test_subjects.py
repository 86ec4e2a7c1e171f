"""Subjects as lines of JSON: all of them or none, and no message shows what a line holds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.lineage.personal.subjects import SubjectsRefusedError, read_subjects

CATEGORIES = ("email", "customer")


def test_a_line_has_values_by_category_and_is_known_by_its_number() -> None:
    lines = [b'{"email": "ann@example.com", "customer": 17}\n', b"\n", b'{"customer": "x y"}']
    found = read_subjects(lines, CATEGORIES)
    assert [(one.line, one.values) for one in found] == [
        (1, (("customer", "17"), ("email", "ann@example.com"))), (3, (("customer", "x y"),)),
    ]  # fmt: skip
    assert "ann" not in repr(found)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"SECRET", "is no JSON"),
        (b'"SECRET"', "is no JSON object"),
        (b"{}", "is no JSON object"),
        (b'{"SECRET": "email"}', "has a category of which no column is declared or decided to be; the lake has customer, email"),
        (b'{"email": "SECRET", "email": "b"}', "has a category twice"),
        (b'{"email": ["SECRET"]}', "is neither a text nor a whole number"),
        (b'{"email": 1.5}', "is neither a text nor a whole number"),
        (b'{"email": true}', "is neither a text nor a whole number"),
        (b'{"email": " "}', "has an empty value"),
        (b'{"email": "SECRET\\u0000"}', "a character that no table holds"),
        (b'{"email": "SECRET\\ud800"}', "a character that no table holds"),
        (b'{"email": "SECRET\xff"}', "is no UTF-8"),
        (b'{"email": "' + b"x" * 70_000 + b'"}', "more than 65,536 bytes"),
        (b"[" * 10_000, "is no JSON"),
        (b'{"email": ' + b"1" * 5_000 + b"}", "is no JSON"),
    ],
)
def test_a_line_that_is_no_subject_is_named_by_its_number_and_nobody_is_looked_for(line: bytes, why: str) -> None:
    with pytest.raises(SubjectsRefusedError) as refused:
        read_subjects([b'{"email": "a@b.c"}', line], CATEGORIES)
    assert "line 2 " in str(refused.value)
    assert why in str(refused.value)
    assert "SECRET" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_many_wrong_lines_are_told_by_the_first_ones() -> None:
    with pytest.raises(SubjectsRefusedError, match=r"line 1 is no JSON; .*line 10 is no JSON; and 5 lines more"):
        read_subjects([b"x"] * 15, CATEGORIES)
    with pytest.raises(SubjectsRefusedError, match="no subject came by standard input"):
        read_subjects([b"", b" \n"], CATEGORIES)


@given(st.dictionaries(st.sampled_from(["email", "customer", "fax"]), st.text(min_size=1) | st.integers() | st.floats(), max_size=3))
def test_a_line_gives_just_its_values_or_a_message_without_them(values: dict[str, object]) -> None:
    marked = {name: f"@@{value}" if isinstance(value, str) else value for name, value in values.items()}
    is_subject = bool(values) and "fax" not in values and not any(isinstance(one, float) for one in values.values())
    is_whole = not any(isinstance(one, str) and "\0" in one for one in values.values())
    if is_subject and is_whole:
        (found,) = read_subjects([json.dumps(marked).encode()], CATEGORIES)
        assert dict(found.values) == {name: str(value) for name, value in marked.items()}
        return
    with pytest.raises(SubjectsRefusedError) as refused:
        read_subjects([json.dumps(marked).encode()], CATEGORIES)
    assert "@@" not in str(refused.value)
