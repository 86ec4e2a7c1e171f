"""The values of a row beside those of its event: what it lacks, and what it has of no event."""

import json
from typing import Any

import pytest

from lakechime_dagster.silver.event import JsonEvent, event_of, variation_of
from lakechime_dagster.silver.results import Fault, value_faults
from lakechime_dagster.silver.schema import TypeSchema, next_schema
from lakechime_dagster.silver.shape import shaped
from lakechime_dagster.tables.events import Contract

EVENT = '{"type":"buy","price":3,"item":{"name":"hat","sizes":[1,2]},"more":[[]]}'


def parsed(text: str) -> JsonEvent:
    event = event_of(text)
    assert isinstance(event, JsonEvent)
    return event


def schema_of(text: str) -> TypeSchema:
    return next_schema(TypeSchema(), variation_of(parsed(text)), Contract())


def row_of(text: str, schema: TypeSchema, contract: Contract | None = None) -> dict[str, Any]:
    one = shaped(parsed(text), schema, contract or Contract())
    return {"_src": "a@0", "_rescued": one.rescued_json, **json.loads(one.row)}


def faults(
    text: str, row: dict[str, Any], schema: TypeSchema, contract: Contract | None = None
) -> list[tuple[Fault, str, str]]:
    return [
        (one.fault, one.pointer, one.value)
        for one in value_faults(text, row, "a@0", schema, contract or Contract())
    ]


def test_a_row_has_all_that_its_event_says_in_columns_or_rescued() -> None:
    schema = schema_of('{"type":"x","price":1,"item":{"name":"x"}}')
    assert faults(EVENT, row_of(EVENT, schema), schema) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"price": 4}, [(Fault.LACKS, "/price", "3"), (Fault.DIFFERS, "/price", "4")]),
        ({"price": None}, [(Fault.LACKS, "/price", "3")]),
        (
            {"item": {"name": "hat", "sizes": [2, 1]}},
            [
                (Fault.LACKS, "/item/sizes/0", "1"),
                (Fault.LACKS, "/item/sizes/1", "2"),
                (Fault.DIFFERS, "/item/sizes/0", "2"),
                (Fault.DIFFERS, "/item/sizes/1", "1"),
            ],
        ),
        ({"_rescued": None}, [(Fault.LACKS, "/more/0", "[]")]),
        (
            {"_rescued": "no JSON"},
            [(Fault.DIFFERS, "/_rescued", "Expecting value: line 1 column 1 (char 0)")],
        ),
        (
            {"_rescued": '[{"p":"/more","v":[[]]}]'},
            [(Fault.DIFFERS, "/_rescued", "_rescued has an entry with ['p', 'v'], not p, v and r")],
        ),
    ],
)
def test_what_somebody_changed_is_named_by_its_path(
    change: dict[str, Any], found: list[tuple[Fault, str, str]]
) -> None:
    schema = schema_of(EVENT)
    assert faults(EVENT, row_of(EVENT, schema) | change, schema) == found


def test_values_that_the_contract_leaves_out_are_not_missed_and_what_is_there_beside_is_reported() -> (
    None
):
    schema, contract = schema_of('{"price":1}'), Contract(columns="discard_value")
    row = row_of(EVENT, schema, contract)
    assert faults(EVENT, row, schema, contract) == []
    assert faults(EVENT, row | {"price": 9}, schema, contract) == [(Fault.DIFFERS, "/price", "9")]
