"""What columns of a type's table are called by people who know SQL is what Spark calls them."""

import json

from lakechime_dagster.silver.rows import TECHNICAL, payload_type
from lakechime_dagster.silver.schema import column_type, table_columns
from tests.silver.test_schema import schema_of


def test_every_kind_of_column_has_the_type_that_spark_gives_it() -> None:
    ids = {str(number): 1 for number in range(300)}
    plain = {
        "t": "buy",
        "b": True,
        "n": 1,
        "big": 2**70,
        "huge": 10**50,
        "x": 1.5,
        "ids": ids,
        "o": {"a": [1], "b c": [[{"d": "x"}]]},
    }
    schema = schema_of(json.dumps(plain), json.dumps({"n": "text", "x": 7}))
    assert {one.name: column_type(one) for one in schema.columns} == {
        one.name: one.dataType.simpleString() for one in payload_type(schema)
    }


def test_the_technical_columns_come_first() -> None:
    assert [name for name, _ in table_columns(schema_of('{"n":1}'))] == [*TECHNICAL, "n"]
