"""What a file's footer tells of its rows is never narrower than they are."""

import datetime as dt
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.formats.delta import LAST, MAX_TEXT, statistics_of

KINDS = {
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "part": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(max_size=40) | st.text("aé" + LAST, min_size=30, max_size=36)),
    "at": (pa.timestamp("us", tz="UTC"), st.datetimes(dt.datetime(1, 1, 2), timezones=st.just(dt.timezone.utc))),
    "local": (pa.timestamp("us"), st.datetimes()),
    "day": (pa.date32(), st.dates()),
}


def written(table: pa.Table, rows_of_a_group: int = 2) -> dict[str, Any]:
    """The statistics of a file with these rows."""
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows_of_a_group)
    return statistics_of(pq.read_metadata(sink))


def read_back(bound: Any, kind: str) -> Any:
    """A bound as a value."""
    if kind == "day":
        return dt.date.fromisoformat(bound)
    return datetime_of_iso(bound) if kind in ("at", "local") else bound


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_lies_within_the_bounds_and_nulls_are_counted(kind: str) -> None:
    type_, values = KINDS[kind]

    @given(st.lists(st.none() | values, min_size=1, max_size=9))
    def holds(rows: list[Any]) -> None:
        told = written(pa.table({kind: pa.array(rows, type_)}))
        assert (told["numRecords"], told["nullCount"]) == (len(rows), {kind: rows.count(None)})
        present = [one for one in rows if one is not None]
        if kind in told["minValues"]:
            assert present
            assert read_back(told["minValues"][kind], kind) <= min(present)
        if kind in told["maxValues"]:
            assert present
            assert read_back(told["maxValues"][kind], kind) >= max(present)

    holds()


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_json_holds_have_bounds(kind: str) -> None:
    value = {
        "whole": 7,
        "part": 0.5,
        "text": "x" * 50,
        "at": dt.datetime(2013, 1, 1, tzinfo=dt.timezone.utc),
        "local": dt.datetime(2013, 1, 1),
    }.get(kind, dt.date(2013, 1, 1))
    told = written(pa.table({kind: pa.array([value], KINDS[kind][0])}))
    assert kind in told["minValues"]
    assert kind in told["maxValues"]


def test_a_text_is_cut_to_a_bound_that_still_holds_it() -> None:
    told = written(pa.table({"t": ["b" * 100, "a" * 100]}))
    assert (told["minValues"], told["maxValues"]) == ({"t": "a" * MAX_TEXT}, {"t": "b" * MAX_TEXT + LAST})
    assert written(pa.table({"t": [LAST * 100]}))["maxValues"] == {}


def test_fields_of_structs_are_told_by_their_structs_and_what_repeats_is_not() -> None:
    table = pa.table({"s": [{"a": 1, "in": {"b": "x"}}, {"a": None, "in": None}], "many": [[1], [2, 3]], "is": [True, False]})
    assert written(table) == {
        "numRecords": 2,
        "nullCount": {"s": {"a": 1, "in": {"b": 1}}, "is": 0},
        "minValues": {"s": {"a": 1, "in": {"b": "x"}}},
        "maxValues": {"s": {"a": 1, "in": {"b": "x"}}},
    }
