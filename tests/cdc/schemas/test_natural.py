"""Values of tools without schemas become values of the lake exactly, by the type that is declared
for them.
"""

import datetime
import math
import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.values import InexactNumberError, NaturalColumns, natural_type
from lakechime_dagster.tables.databases import BinaryText

UTC = datetime.timezone.utc
LEAP = datetime.datetime(2024, 2, 29, 1, 2, 3, 456789)

VALUES = [
    ("boolean", True, True),
    ("boolean", 0, False),
    ("boolean", "1", True),
    ("boolean", "false", False),
    ("tinyint", -128, -128),
    ("smallint", "32767", 32767),
    ("int", "-007", -7),
    ("bigint", 2**63 - 1, 2**63 - 1),
    ("bigint", "-9223372036854775808", -(2**63)),
    ("float", "1.5", 1.5),
    ("double", 3, 3.0),
    ("double", Decimal("0.1"), 0.1),
    ("double", "-1.5E-3", -0.0015),
    ("double", "-Infinity", -math.inf),
    ("decimal(10,2)", "-0.05", Decimal("-0.05")),
    ("decimal(10,2)", 12, Decimal("12.00")),
    ("decimal(10,2)", Decimal("12.3400"), Decimal("12.34")),
    ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
    ("Decimal(38, 38)", "0." + "9" * 38, Decimal("0." + "9" * 38)),
    ("decimal(20,0)", "18446744073709551615", Decimal(2**64 - 1)),
    ("decimal(10,2)", "1.5e3", Decimal("1500.00")),
    ("string", "Ünïcode", "Ünïcode"),
    ("STRING", "", ""),
    ("string", 2**64, "18446744073709551616"),
    ("string", Decimal("1.50"), "1.50"),
    ("string", True, "true"),
    ("string", ["a", "ü"], '["a","ü"]'),
    ("string", {"a": Decimal("1.5"), "b": None}, '{"a":1.5,"b":null}'),
    ("date", "2024-02-29", datetime.date(2024, 2, 29)),
    ("date", "0000-00-00", None),
    ("timestamp_ntz", "2024-02-29 01:02:03.456789", LEAP),
    ("timestamp_ntz", "2024-02-29T01:02:03.456789123Z", LEAP),
    ("timestamp_ntz", "2024-02-29 01:02:03", LEAP.replace(microsecond=0)),
    ("timestamp_ntz", "2024-02-29 01:02:03.4", LEAP.replace(microsecond=400_000)),
    ("timestamp_ntz", "0000-00-00 00:00:00.000000", None),
    ("timestamp", "2024-02-29 01:02:03.456789", LEAP.replace(tzinfo=UTC)),
    ("timestamp", "2024-02-29T01:02:03.456789Z", LEAP.replace(tzinfo=UTC)),
    (
        "timestamp",
        "2024-02-29 01:02:03.456789+02",
        datetime.datetime(2024, 2, 28, 23, 2, 3, 456789, UTC),
    ),
    ("timestamp", "0000-00-00T00:00:00Z", None),
    ("binary", "AP8=", b"\x00\xff"),
]
IMPOSSIBLE = [
    ("boolean", 2, "one is written as 1, 0, true, false"),
    ("boolean", 1.0, "one is written as 1, 0, true, false"),
    ("boolean", "yes", "one is written as 1, 0, true, false"),
    ("boolean", Decimal(1), "one is written as 1, 0, true, false"),
    ("tinyint", "-129", "it is from -128 to 127"),
    ("tinyint", "128", "it is from -128 to 127"),
    ("bigint", 2**63, "it is from -9223372036854775808 to 9223372036854775807"),
    ("int", True, "it is a whole number"),
    ("int", 1.0, "it is a whole number"),
    ("int", "1_000", "it is a whole number"),
    ("int", "", "it is a whole number"),
    ("int", "٣", "it is a whole number"),
    ("double", False, "it is a number"),
    ("double", "1_0", "it is a number"),
    ("double", "inf", "it is a number"),
    ("double", "1e999", "it is too large"),
    ("double", 10**400, "it is too large"),
    ("decimal(10,2)", "NaN", "it is a number"),
    ("decimal(10,2)", True, "it is a number"),
    ("decimal(10,2)", "0.001", "it has at most 8 digits before the point and 2 after it"),
    ("decimal(10,2)", "100000000", "it has at most 8 digits before the point and 2 after it"),
    ("decimal(10,2)", "1e999", "it has at most 8 digits before the point and 2 after it"),
    ("decimal(38,0)", -(10**38), "it has at most 38 digits before the point and 0 after it"),
    ("date", "20240229", "one is written as 2024-02-29"),
    ("date", "2024-02-29 00:00:00", "one is written as 2024-02-29"),
    ("date", "2023-02-29", "day"),
    ("date", "2024-00-00", "month must be in 1..12"),
    ("date", 19782, "it is text"),
    ("timestamp", 1_700_000_000, "it is text"),
    ("timestamp", "2024-02-29", "one is written as 2024-02-29 01:02:03.456789"),
    ("timestamp", "0001-01-01 00:00:00+02", "it is from the year 1 to 9999"),
    ("timestamp_ntz", "2024-02-29 25:02:03", "hour must be in 0..23"),
    ("timestamp_ntz", "2024-02-29 01:02:03+02:00", "it has no zone"),
    ("binary", "no base64!", "Only base64 data is allowed"),
    ("binary", [1], "it is text"),
]


@pytest.mark.parametrize(("ddl", "sent", "value"), VALUES, ids=lambda one: repr(one)[:40])
def test_a_value_is_read_by_the_declared_type_of_its_column(
    ddl: str, sent: Any, value: Any
) -> None:
    found = natural_type(ddl).decode(sent)
    assert (found, type(found)) == (value, type(value))
    assert str(found) == str(value)


@pytest.mark.parametrize(("ddl", "sent", "said"), IMPOSSIBLE, ids=lambda one: repr(one)[:40])
def test_a_value_that_is_none_of_its_type_says_what_one_is(ddl: str, sent: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError)) as refused:
        natural_type(ddl).decode(sent)
    assert said in str(refused.value)


def test_a_moment_without_a_zone_is_utcs_wherever_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        found = natural_type("timestamp").decode("2024-02-29 01:02:03.456789")
    time.tzset()
    assert found == LEAP.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("binary", "sent"),
    [
        (BinaryText.BASE64, "AMO/"),
        (BinaryText.HEX, "00c3bf"),
        (BinaryText.HEX, "0x00C3BF"),
        (BinaryText.LATIN_1, "\x00Ã¿"),
    ],
)
def test_bytes_are_written_in_the_way_of_the_tool(binary: BinaryText, sent: str) -> None:
    assert natural_type("binary", binary).decode(sent) == b"\x00\xc3\xbf"


@pytest.mark.parametrize(
    ("binary", "sent"),
    [(BinaryText.HEX, "0x0"), (BinaryText.HEX, "00 ff"), (BinaryText.LATIN_1, "€")],
)
def test_text_that_is_no_bytes_is_refused(binary: BinaryText, sent: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        natural_type("binary", binary).decode(sent)


@pytest.mark.parametrize("ddl", ["decimal(10,2)", "string"])
def test_a_binary_fraction_is_no_exact_number_yet(ddl: str) -> None:
    with pytest.raises(InexactNumberError):
        natural_type(ddl).decode(12.34)


@pytest.mark.parametrize(
    "ddl", ["varchar(10)", "decimal", "decimal(39,0)", "decimal(2,3)", "array<int>", ""]
)
def test_a_type_of_which_such_tools_write_no_values_is_refused(ddl: str) -> None:
    with pytest.raises(
        ValueError, match=r"is none of boolean, tinyint, .*, timestamp_ntz, binary, decimal\(p,s\)"
    ):
        natural_type(ddl)
    with pytest.raises(ValueError, match="types: the type of colour: "):
        NaturalColumns({"colour": ddl})


@given(
    number=st.decimals(
        allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=6
    )
)
def test_any_decimal_number_comes_back_exactly(number: Decimal) -> None:
    found = natural_type("decimal(38,6)")
    assert str(found.decode(str(number))) == str(found.decode(number)) == str(number)


@given(moment=st.datetimes(), separator=st.sampled_from(" T"))
def test_any_wall_clock_comes_back_exactly(moment: datetime.datetime, separator: str) -> None:
    written = moment.isoformat(separator)
    assert natural_type("timestamp_ntz").decode(written) == moment
    assert natural_type("timestamp").decode(written) == moment.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "x"}, "data.id: 'x' is no int: it is a whole number"),
        ({"colour": "red"}, "data.colour: no type is declared for this column; name it in types="),
    ],
)
def test_a_row_that_is_not_of_its_types_says_where(row: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        NaturalColumns({"id": "int"}).read(row, "data")
    assert str(refused.value) == said
