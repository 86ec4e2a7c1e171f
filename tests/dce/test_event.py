"""Events are validated once, travel as JSON, and are known again by their identity."""

import json

import pytest
from hypothesis import given

from lakechime_dagster.dce.events import DataChangeEvent, Position, RegisteredEvent, from_json, to_json, version_of
from lakechime_dagster.dce.partitions import PartitionLevels, canonical_partition
from lakechime_dagster.errors import InvalidValueError
from tests.dce.strategies import events
from tests.factories import make_event


@given(events())
def test_an_event_survives_its_json(event: DataChangeEvent) -> None:
    assert from_json(json.loads(json.dumps(to_json(event)))) == event


def test_a_registered_event_shows_where_and_when_and_is_accepted_back() -> None:
    event = make_event(partition=["a"], snapshot_id="1")
    registered = RegisteredEvent(event=event, event_ts=5, position=Position(3, 4), canonical='["a"]', amends=Position(1, 2))

    wire = to_json(registered)

    assert (wire["event_ts"], wire["position"], wire["amends"]) == (5, "3-4", "1-2")
    assert from_json(wire) == event


@pytest.mark.parametrize(
    ("wire", "named"),
    [
        ("text", "event"),
        ({}, "table"),
        ({"table": ""}, "table"),
        ({"table": " padded"}, "table"),
        ({"table": "t" * 513}, "table"),
        ({"table": "a\x00b"}, "table"),
        ({"table": "\ud800"}, "table"),
        ({"table": 5}, "table"),
        ({"table": "t", "colour": "red"}, "colour"),
        ({"table": "t", "table_format": "PARQUET"}, "table_format"),
        ({"table": "t", "operation_type": "MERGE"}, "operation_type"),
        ({"table": "t", "partition": "2013"}, "partition"),
        ({"table": "t", "partition": []}, "partition"),
        ({"table": "t", "partition": ["x" * 600]}, "partition"),
        ({"table": "t", "partition": [float("nan")]}, "partition"),
        ({"table": "t", "partition": [{"a": float("inf")}]}, "partition"),
        ({"table": "t", "partition": [{"a": "\ud800"}]}, "partition"),
        ({"table": "t", "partition": [{"a": object()}]}, "partition"),
        ({"table": "t", "partition": [10**5000]}, "partition"),
        ({"table": "t", "snapshot_id": 5}, "snapshot_id"),
        ({"table": "t", "snapshot_ts": "now"}, "snapshot_ts"),
        ({"table": "t", "snapshot_ts": -1}, "snapshot_ts"),
        ({"table": "t", "prev_snapshot_id": "1"}, "prev_snapshot_id"),
        ({"table": "t", "snapshot_id": "1", "prev_snapshot_id": "1"}, "prev_snapshot_id"),
        ({"table": "t", "tags": ["a"]}, "tags"),
        ({"table": "t", "tags": {"a": 1}}, "tags"),
        ({"table": "t", "tags": {"": "1"}}, "tags"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_the_name_of_its_field(wire: object, named: str) -> None:
    with pytest.raises(InvalidValueError, match=named):
        from_json(wire)


def test_the_identity_compares_partitions_by_their_levels() -> None:
    levels = PartitionLevels.of({"hour": "int"})
    five, padded = (make_event(partition=[hour], snapshot_id="1") for hour in (5, "05"))

    assert five.identity(levels) == padded.identity(levels)
    assert five.identity() != padded.identity()
    assert five.identity(levels) == five.identity_at(canonical_partition((5,), levels))


@pytest.mark.parametrize(
    ("snapshot", "version"),
    [("0", 0), ("42", 42), (None, None), ("", None), ("\u00b2", None), ("\u0663", None), ("-1", None), ("1" * 19, None)],
)
def test_only_plain_numbers_name_a_version_of_a_delta_table(snapshot: str | None, version: int | None) -> None:
    assert version_of(snapshot) == version
