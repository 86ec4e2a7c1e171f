"""Values of messages become values of the lake exactly, by the name of their schema: here those
that no recorded database sent, for which see `test_captures`.
"""

import datetime
import json
import math
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.values import InexactNumberError, connect_schema, unavailable, value_type

DECIMAL = "org.apache.kafka.connect.data.Decimal"
UTC = datetime.timezone.utc
FIRST, LAST = datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)


def described(kind: str, name: str | None = None, **others: Any) -> dict[str, Any]:
    parameters = {
        key.replace("_", "."): str(value) for key, value in others.pop("parameters", {}).items()
    }
    return {"type": kind, "name": name, "parameters": parameters, **others}


def unscaled(number: int) -> str:
    return b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


VALUES = [
    (described("int8"), -128, "tinyint", -128),
    (described("double"), 3, "double", 3.0),
    (described("double"), "Infinity", "double", math.inf),
    (
        described("bytes", DECIMAL, parameters={"scale": 2}),
        Decimal("12.34"),
        "decimal(38,2)",
        Decimal("12.34"),
    ),
    (described("bytes", DECIMAL, parameters={"scale": 2}), 12, "decimal(38,2)", Decimal("12.00")),
    (
        described("struct", "io.debezium.data.VariableScaleDecimal"),
        {"scale": -2, "value": unscaled(7)},
        "string",
        "700",
    ),
    (described("int32", "io.debezium.time.Date"), -719162, "date", datetime.date.min),
    (described("int64", "io.debezium.time.NanoTime"), 1, "string", "00:00:00.000000001"),
    (
        described("int64", "io.debezium.time.Timestamp"),
        -1,
        "timestamp_ntz",
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
    ),
    (
        described("int64", "io.debezium.time.NanoTimestamp"),
        1_999,
        "timestamp_ntz",
        datetime.datetime(1970, 1, 1, 0, 0, 0, 1),
    ),
    (
        described("int64", "io.debezium.time.MicroTimestamp"),
        9223372036825200000,
        "timestamp_ntz",
        LAST,
    ),
    (described("int64", "io.debezium.time.Timestamp"), -9223372036832400, "timestamp_ntz", FIRST),
    (
        described("string", "io.debezium.time.ZonedTimestamp"),
        "2024-02-29T01:02:03+02:00",
        "timestamp",
        datetime.datetime(2024, 2, 28, 23, 2, 3, tzinfo=UTC),
    ),
    (
        described("map", values=described("string"), keys=described("string")),
        {"a": None},
        "map<string,string>",
        {"a": None},
    ),
    (
        described(
            "struct", fields=[{"field": "x", "type": "double"}, {"field": "srid", "type": "int32"}]
        ),
        {"x": 1.0, "srid": None},
        "struct<`x`:double,`srid`:int>",
        {"x": 1.0, "srid": None},
    ),
]
IMPOSSIBLE = [
    (described("int8"), 128),
    (described("int32"), "5"),
    (described("int32"), True),
    (described("boolean"), 1),
    (described("string"), 5),
    (described("bytes"), "no base64!"),
    (described("bytes", DECIMAL, parameters={"scale": 2}), "no base64!"),
    (described("bytes", DECIMAL, parameters={"scale": 2}), Decimal("0.001")),
    (described("bytes", DECIMAL, parameters={"scale": 2}), True),
    (described("int32", "io.debezium.time.Date"), 3_000_000),
    (described("int64", "io.debezium.time.MicroTimestamp"), 9_000_000_000_000_000_000),
    (described("string", "io.debezium.time.ZonedTimestamp"), "2024-02-29T01:02:03"),
    (described("array", items=described("int32")), {"a": 1}),
    (described("struct", "io.debezium.data.VariableScaleDecimal"), {"scale": 3}),
]


@pytest.mark.parametrize(
    ("schema", "sent", "ddl", "value"), VALUES, ids=lambda one: json.dumps(one, default=str)[:60]
)
def test_a_value_is_read_by_the_name_of_its_schema(
    schema: dict[str, Any], sent: Any, ddl: str, value: Any
) -> None:
    found = value_type(connect_schema(schema))
    assert (found.ddl, found.decode(sent)) == (ddl, value)
    assert type(found.decode(sent)) is type(value)


@pytest.mark.parametrize(
    ("schema", "sent"), IMPOSSIBLE, ids=lambda one: json.dumps(one, default=str)[:60]
)
def test_a_value_that_its_schema_does_not_allow_is_none(schema: dict[str, Any], sent: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, ArithmeticError)):
        value_type(connect_schema(schema)).decode(sent)


@given(
    number=st.decimals(
        allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=6
    )
)
def test_any_decimal_number_comes_back_exactly(number: Decimal) -> None:
    found = value_type(connect_schema(described("bytes", DECIMAL, parameters={"scale": 6})))
    digits = int(str(number).replace(".", ""))
    assert found.decode(unscaled(digits)) == found.decode(number) == number
    assert str(found.decode(unscaled(digits))) == str(found.decode(number))


@given(moment=st.datetimes())
def test_any_wall_clock_comes_back_exactly(moment: datetime.datetime) -> None:
    micros = (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    assert (
        value_type(connect_schema(described("int64", "io.debezium.time.MicroTimestamp"))).decode(
            micros
        )
        == moment
    )


def test_a_binary_fraction_is_no_decimal_number_yet() -> None:
    with pytest.raises(InexactNumberError):
        value_type(connect_schema(described("bytes", DECIMAL, parameters={"scale": 2}))).decode(
            12.34
        )


def test_a_schema_of_no_known_type_is_refused() -> None:
    with pytest.raises(ValueError, match="'int128' is no type of Kafka Connect"):
        value_type(connect_schema(described("int128")))
    with pytest.raises(ValueError, match="does not say what it holds"):
        value_type(connect_schema(described("array")))


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        (described("string"), "__debezium_unavailable_value"),
        (described("bytes"), b64encode(b"__debezium_unavailable_value").decode()),
        (described("array", items=described("string")), ["__debezium_unavailable_value"]),
        (described("array", items=described("int32")), list(b"__debezium_unavailable_value")),
        (described("array", items=described("int64")), list(b"__debezium_unavailable_value")),
        (
            described("map", values=described("string")),
            {"__debezium_unavailable_value": "__debezium_unavailable_value"},
        ),
        (described("int32"), None),
    ],
)
def test_what_the_database_did_not_send_is_reported_in_the_way_of_its_type(
    schema: dict[str, Any], sent: Any
) -> None:
    assert unavailable(connect_schema(schema)) == sent
