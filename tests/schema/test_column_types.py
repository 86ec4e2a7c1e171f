"""What columns of a type's table are called by people who know SQL is what Spark calls them."""

import json

from lakechime_dagster.silver.event import JsonEvent, event_of, shape_of, variation_of
from lakechime_dagster.silver.rows import TECHNICAL, payload_type
from lakechime_dagster.silver.schema import KnownType, Prototype, TypeSchema, column_type, learned, table_columns
from lakechime_dagster.tables.events import Contract


def prototype(payload: str) -> Prototype:
    event = event_of(payload)
    assert isinstance(event, JsonEvent)
    one = variation_of(event)
    return Prototype(typed_hash=one.typed_hash, names_hash=one.names_hash, variation=one, shape=shape_of(event), source="a", position=0)


def schema_of(*payloads: str) -> TypeSchema:
    found = [prototype(payload) for payload in payloads]
    learning = learned(KnownType(type="buy", table="buy"), found, Contract())
    assert learning is not None
    return learning.schema


def test_every_kind_of_column_has_the_type_that_spark_gives_it() -> None:
    ids = {str(number): 1 for number in range(300)}
    plain = {"t": "buy", "b": True, "n": 1, "big": 2**70, "huge": 10**50, "x": 1.5, "ids": ids, "o": {"a": [1], "b c": [[{"d": "x"}]]}}
    schema = schema_of(json.dumps(plain), json.dumps({"n": "text", "x": 7}))
    assert {one.name: column_type(one) for one in schema.columns} == {one.name: one.dataType.simpleString() for one in payload_type(schema)}


def test_the_technical_columns_come_first() -> None:
    assert [name for name, _ in table_columns(schema_of('{"n":1}'))] == [*TECHNICAL, "n"]
