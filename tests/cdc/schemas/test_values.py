"""Values of messages become values of the lake exactly, by the name of their schema."""

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
    (described("boolean"), True, "boolean", True),
    (described("int8"), -128, "tinyint", -128),
    (described("int16"), 32767, "smallint", 32767),
    (described("int32"), -(2**31), "int", -(2**31)),
    (described("int64"), 2**63 - 1, "bigint", 2**63 - 1),
    (described("float"), 1.5, "float", 1.5),
    (described("double"), 3, "double", 3.0),
    (described("double"), "Infinity", "double", math.inf),
    (described("string"), "Ünïcode", "string", "Ünïcode"),
    (described("bytes"), "AP8=", "binary", b"\x00\xff"),
    (
        described("bytes", DECIMAL, parameters={"scale": 2, "connect.decimal.precision": 10}),
        unscaled(-5),
        "decimal(10,2)",
        Decimal("-0.05"),
    ),
    (
        described("bytes", DECIMAL, parameters={"scale": 0}),
        unscaled(2**64 - 1),
        "decimal(38,0)",
        Decimal(2**64 - 1),
    ),
    (
        described("bytes", DECIMAL, parameters={"scale": 2}),
        Decimal("12.34"),
        "decimal(38,2)",
        Decimal("12.34"),
    ),
    (described("bytes", DECIMAL, parameters={"scale": 2}), 12, "decimal(38,2)", Decimal("12.00")),
    (
        described("bytes", DECIMAL, parameters={"scale": 50}),
        unscaled(10**50 + 1),
        "string",
        "1." + "0" * 49 + "1",
    ),
    (
        described("struct", "io.debezium.data.VariableScaleDecimal"),
        {"scale": 3, "value": unscaled(-1)},
        "string",
        "-0.001",
    ),
    (
        described("struct", "io.debezium.data.VariableScaleDecimal"),
        {"scale": -2, "value": unscaled(7)},
        "string",
        "700",
    ),
    (
        described("bytes", "io.debezium.data.Bits", parameters={"length": 10}),
        "AQI=",
        "string",
        "1000000001",
    ),
    (described("int32", "io.debezium.time.Date"), 19782, "date", datetime.date(2024, 2, 29)),
    (described("int32", "io.debezium.time.Date"), -719162, "date", datetime.date.min),
    (described("int32", "io.debezium.time.Date"), -2147472692, "date", datetime.date.max),
    (described("int32", "io.debezium.time.Date"), -2147472691, "date", datetime.date.min),
    (described("string", "io.debezium.time.IsoDate"), "-5877611-06-21Z", "date", datetime.date.max),
    (
        described("string", "io.debezium.time.IsoTimestamp"),
        "-290308-12-21T19:59:27.6Z",
        "timestamp_ntz",
        FIRST,
    ),
    (
        described("string", "io.debezium.time.IsoDate"),
        "2024-02-29Z",
        "date",
        datetime.date(2024, 2, 29),
    ),
    (described("int32", "io.debezium.time.Time"), 3_723_004, "string", "01:02:03.004"),
    (
        described("int64", "io.debezium.time.MicroTime"),
        -45_296_789_000,
        "string",
        "-12:34:56.789000",
    ),
    (
        described("int64", "io.debezium.time.MicroTime"),
        3_020_399_000_000,
        "string",
        "838:59:59.000000",
    ),
    (described("int64", "io.debezium.time.NanoTime"), 1, "string", "00:00:00.000000001"),
    (
        described("int64", "io.debezium.time.Timestamp"),
        -1,
        "timestamp_ntz",
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
    ),
    (
        described("int64", "io.debezium.time.MicroTimestamp"),
        1,
        "timestamp_ntz",
        datetime.datetime(1970, 1, 1, 0, 0, 0, 1),
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
        described("string", "io.debezium.time.ZonedTimestamp"),
        "infinity",
        "timestamp",
        LAST.replace(tzinfo=UTC),
    ),
    (
        described("string", "io.debezium.time.IsoTimestamp"),
        "2024-02-29T01:02:03.5Z",
        "timestamp_ntz",
        datetime.datetime(2024, 2, 29, 1, 2, 3, 500000),
    ),
    (described("string", "io.debezium.data.Enum"), "with\\, comma", "string", "with, comma"),
    (described("string", "io.debezium.data.Json"), '{"a":1}', "string", '{"a":1}'),
    (described("int32", "io.debezium.time.Year"), 2024, "int", 2024),
    (described("array", items=described("int32")), [1, None], "array<int>", [1, None]),
    (
        described("array", items=described("bytes", DECIMAL, parameters={"scale": 1})),
        [unscaled(15)],
        "array<decimal(38,1)>",
        [Decimal("1.5")],
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
