"""What contracts do to schemas and rows, and why a value has no column."""

import json

import pytest

from lakechime_dagster.silver.schema import TypeSchema
from lakechime_dagster.tables.events import Contract, Mode
from tests.silver.test_schema import columns_of, reported, schema_of, shape


def test_a_frozen_column_is_no_matter_of_what_becomes_of_kinds() -> None:
    contract = Contract(columns="freeze", kinds="discard_row")
    one = shape('{"a":1,"b":1}', schema_of('{"a":1}', contract=contract), contract)
    assert (one.is_discarded, reported(one)) == (False, [("/b", "1", "frozen")])


def test_an_object_that_may_come_is_born_with_its_fields() -> None:
    variant = schema_of(
        '{"a":1}', '{"a":{"x":1}}', '{"a":{"y":1}}', contract=Contract(columns="freeze")
    )
    assert columns_of(variant) == {"a": "long", "a__v_object": {"x": "long"}}


@pytest.mark.parametrize(
    ("known", "value", "reason"),
    [
        ("1", "12345678901234567890", "overflow"),
        ("1", "1E400", "overflow"),
        ("12345678901234567890", "9" * 40, "overflow"),
        ("1.5", "1E400", "overflow"),
        ("1.5", "9" * 40, "mismatch"),
        ("1.5", "1", "mismatch"),
        ("1", "1.5", "mismatch"),
        ("1", '"x"', "mismatch"),
        ('"x"', "9" * 40, "mismatch"),
    ],
)
@pytest.mark.parametrize("mode", [Mode.RESCUE, Mode.FREEZE])
def test_a_number_larger_than_its_column_overflows(
    known: str, value: str, reason: str, mode: Mode
) -> None:
    contract = Contract(kinds=mode)
    schema, text = schema_of(f'{{"a":{known}}}', contract=contract), f'{{"a":{value}}}'
    is_frozen = reason == "mismatch" and mode is Mode.FREEZE
    assert reported(shape(text, schema, contract)) == [
        ("/a", value, "frozen" if is_frozen else reason)
    ]


def test_what_has_no_column_as_the_table_is_full_is_reported_so() -> None:
    wide = json.dumps({f"f{number:04}": number for number in range(500)})
    schema = schema_of(wide, '{"g":1}', '{"f0000":"x"}')
    assert reported(shape('{"g":1,"h":{"i":[2]},"f0000":"x","j":{},"k":{"l":[null]}}', schema)) == [
        ("/g", "1", "cap"),
        ("/h", '{"i":[2]}', "cap"),
        ("/f0000", '"x"', "cap"),
        ("/k", '{"l":[null]}', "cap"),
    ]
    frozen = Contract(columns="freeze", kinds="rescue")
    assert [reason for *_, reason in reported(shape('{"g":1,"f0000":"x"}', schema, frozen))] == [
        "frozen",
        "mismatch",
    ]


def test_a_field_of_an_object_whose_fields_are_ids_is_reported_so() -> None:
    contract, many = (
        Contract(kinds="rescue"),
        json.dumps({"by_id": {str(number): 1 for number in range(201)}}),
    )
    schema = schema_of('{"by_id":{"7":1}}', many, contract=contract)
    assert columns_of(schema) == {"by_id": {"7": "long"}}
    assert TypeSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    assert reported(shape('{"by_id":{"7":1,"8":2}}', schema, contract)) == [
        ("/by_id/8", "2", "map")
    ]
