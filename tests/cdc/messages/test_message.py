"""A message's schema is read once; what is read is always what the whole message says."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.record import MessageReader
from lakechime_dagster.cdc.values import ConnectSchema
from tests.cdc.factories import encoded, envelope_schema, struct

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(max_size=12)
    | st.sampled_from(['"payload":', '{"payload":1}']),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["payload", "schema", "a", '"payload":']), inner, max_size=3
        )
    ),
    max_leaves=6,
)


class Counting:
    """A reader that counts the schemas that it was shown."""

    def __init__(self) -> None:
        self.shown = 0
        self.reader = MessageReader(self._of_schema)

    def _of_schema(self, schema: ConnectSchema) -> tuple[str, ...]:
        self.shown += 1
        return tuple(name for name, _ in schema.fields)


@given(payloads=st.lists(JSON, min_size=1, max_size=4), default=JSON)
def test_what_is_read_is_what_the_message_says(payloads: list[Any], default: Any) -> None:
    """Also where the schema itself holds what looks like the beginning of a payload."""
    reader = Counting().reader
    schema = struct({"field": "a", "type": "string", "default": default})
    for payload in payloads:
        assert reader.read(encoded(payload, schema)) == (("a",), payload)
        assert reader.read(json.dumps({"payload": payload, "schema": schema}).encode()) == (
            ("a",),
            payload,
        )
        assert reader.read(encoded([payload], None)) == (None, [payload])


def test_a_row_may_have_columns_that_are_named_like_the_parts_of_a_message() -> None:
    reader = Counting().reader
    assert reader.read(b'{"schema": "public", "payload": 1}') == (
        None,
        {"schema": "public", "payload": 1},
    )
    assert reader.read(b'{"schema": null, "payload": 1}') == (None, 1)
    with pytest.raises(ValueError, match="'type' of a schema of Kafka Connect is str"):
        reader.read(b'{"schema": {}, "payload": 1}')


def test_a_schema_that_thousands_bring_is_read_once() -> None:
    counting = Counting()
    for number in range(1000):
        assert counting.reader.read(encoded({"id": number}, envelope_schema())) == (
            ("before", "after", "source", "op"),
            {"id": number},
        )
    assert counting.shown == 1


def test_a_schema_that_changes_is_read_again() -> None:
    counting = Counting()
    for columns in [("a",), ("a", "b"), ("a",)]:
        schema = struct(*((name, "int32", True) for name in columns))
        assert counting.reader.read(encoded({}, schema)) == (columns, {})
    assert counting.shown == 2


def test_more_than_a_payload_is_not_taken_for_one() -> None:
    reader = Counting().reader
    raw = encoded({"a": 1}, struct(("a", "int32", True)))
    assert reader.read(raw)[1] == {"a": 1}
    with pytest.raises(ValueError, match="JSON"):
        reader.read(raw + b"}")
    assert reader.read(raw[:-1] + b', "more": 1}') == (None, json.loads(raw) | {"more": 1})


def test_a_payload_that_stands_before_its_schema_is_no_beginning_of_another_message() -> None:
    reader = Counting().reader
    assert reader.read(
        json.dumps({"payload": 5, "schema": struct(("a", "int32", True))}).encode()
    ) == (("a",), 5)
    assert reader.read(b'{"payload": 5}') == (None, {"payload": 5})


def test_numbers_are_exact_where_that_is_asked_for() -> None:
    raw = b'{"a": 0.1234567890123456789}'
    assert Counting().reader.read(raw, is_exact=True)[1] == {"a": Decimal("0.1234567890123456789")}
    assert Counting().reader.read(raw)[1] == {"a": 0.12345678901234568}
