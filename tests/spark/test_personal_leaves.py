"""The values in JSON texts at places that patterns report."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from lakechime_dagster.governance.spark_search import UNREADABLE, Leaves, leaves, pattern_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def found(row: Any, *names: str, texts: tuple[str, ...] = ()) -> set[tuple[int, str]]:
    """What stands at places of a row, by the place's number."""
    text = row if isinstance(row, str) else json.dumps(row)
    batch = pa.RecordBatch.from_pydict({"id": [7], "searched": [text], "row": ["{}"]})
    schema = StructType(
        [StructField(name, StringType()) for name in (row if isinstance(row, dict) else ())]
    )
    several = Leaves(tuple(pattern_of(name, schema) for name in names), texts)(iter([batch]))
    return {(one["at"], one["value"]) for batch in several for one in batch.to_pylist()}


def test_paths_are_fields_elements_and_texts_within_texts() -> None:
    reported = {
        "to": [{"email": "a"}, {"email": "b"}],
        "from": {"email": "c"},
        "n": 12345678901234567890,
        "ok": True,
    }
    row = {
        "payload": json.dumps(reported),
        "Deep": {"text": json.dumps({"x": json.dumps(reported)})},
        "email": "d",
        "gone": None,
    }
    assert (
        found(row, "payload:$.to[].email")
        == found(row, "payload:$.to[*].email")
        == {(0, "a"), (0, "b")}
    )
    assert found(row, "payload:$..email") == {(0, "a"), (0, "b"), (0, "c")}
    assert found(row, "deep.text:$.x.from.email", "email") == {(0, "c"), (1, "d")}
    assert found(row, "payload:$.n", "payload:$.ok", "gone") == {
        (0, "12345678901234567890"),
        (1, "true"),
    }
    assert found({"payload": '{"n": 17.00}'}, "payload:$.n") == {(0, "17.00")}
    assert found(row, "payload:$.to") == {(0, "a"), (0, "b"), (0, "email")}
    assert found(row, "payload:$.t") == set()


def test_a_name_of_a_field_may_be_a_value() -> None:
    assert found({"payload": '{"by": {"a@b.c": {"n": 1}}}'}, "payload:$.by") == {
        (0, "a@b.c"),
        (0, "n"),
        (0, "1"),
    }


def test_names_with_signs_of_their_own_are_found() -> None:
    row = {"a.b": "x", "c/d": json.dumps({"e~/f[": "y"})}
    assert found(row, "a.b", "c/d:$.e~/f[") == {(0, "x"), (1, "y")}


def test_a_text_that_cannot_be_read_is_reported_and_nothing_of_it() -> None:
    assert found({"value": "{half", "email": "a"}, "email", texts=("value",)) == {
        (0, "a"),
        (UNREADABLE, ""),
    }
    assert found({"value": None, "value_bytes": "AA=="}, "value:$.x", texts=("value",)) == {
        (UNREADABLE, "")
    }
    assert found({"value": None}, "value:$.x", texts=("value",)) == set()
    assert found({"value": "null"}, "value:$.x", texts=("value",)) == set()
    assert found("no row", "value") == {(UNREADABLE, "")}


def test_nothing_that_stands_in_a_text_raises() -> None:
    deep = json.dumps({"x": "[" * 3_000 + "]" * 3_000})
    assert found(deep, "x")
    assert found('{"x": "\\ud800"}', "x") == {(0, "?")}
    assert found('{"x": NaN}', "x") == {(0, "nan")}
    assert found('{"x": ' + "1" * 5_000 + "}", "x") == {(0, "1" * 5_000)}


@given(VALUES)
def test_all_single_values_are_found_however_often_they_are_wrapped(value: Any) -> None:
    def plain(one: Any) -> set[str]:
        if isinstance(one, dict):
            return {text for inner in one.values() for text in plain(inner)}
        if isinstance(one, list):
            return {text for inner in one for text in plain(inner)}
        return set() if one is None else {str(one).lower() if isinstance(one, bool) else str(one)}

    once, twice = (
        {"x": json.dumps({"y": value})},
        {"x": json.dumps({"y": json.dumps({"z": value})})},
    )
    expected = plain(value)
    assert expected <= {text for _, text in leaves({"x": value})}
    assert expected <= {text for _, text in found(once, "x:$.y")}
    assert expected <= {text for _, text in found(twice, "x:$.y.z")}
