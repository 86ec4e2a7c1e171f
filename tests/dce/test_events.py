"""Events, tags and positions as values."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.dce.events import (
    DataChangeEvent,
    Position,
    TagConditions,
    Tags,
    from_json,
    to_json,
    version_of,
)
from lakechime_dagster.errors import InvalidValueError
from tests.dce.strategies import events, names, positions, texts


@given(events())
def test_an_event_survives_its_json(event: DataChangeEvent) -> None:
    assert from_json(json.loads(json.dumps(to_json(event)))) == event


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
        ({"table": "t", "added_bytes": -1}, "added_bytes"),
        ({"table": "t", "added_bytes": 2**63}, "added_bytes"),
        ({"table": "t", "added_bytes": True}, "added_bytes"),
        ({"table": "t", "added_bytes": "7"}, "added_bytes"),
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


@pytest.mark.parametrize(
    ("snapshot", "version"),
    [
        ("0", 0),
        ("42", 42),
        (None, None),
        ("", None),
        ("\u00b2", None),
        ("\u0663", None),
        ("-1", None),
        ("1" * 19, None),
    ],
)
def test_only_plain_numbers_name_a_version_of_a_delta_table(
    snapshot: str | None, version: int | None
) -> None:
    assert version_of(snapshot) == version


maps = st.dictionaries(names, texts, max_size=4)


@given(maps, maps)
def test_merged_tags_carry_what_was_added_and_what_it_left(
    one: dict[str, str], other: dict[str, str]
) -> None:
    merged = Tags(one).merged(other)

    assert merged.carries(other)
    assert merged.carries({key: value for key, value in one.items() if key not in other})
    assert merged == {**one, **other}


@pytest.mark.parametrize(
    ("condition", "meet_it", "do_not"),
    [
        ("eu", ["eu"], ["us", "EU", None]),
        ({"!=": "backfill"}, ["replay", "", None], ["backfill"]),
        ({"in": ["eu", "us"]}, ["eu", "us"], ["e", None]),
        ({"not in": ["eu", "us"]}, ["e", None], ["eu", "us"]),
        ({"exists": True}, ["", "eu"], [None]),
        ({"exists": False}, [None], ["", "eu"]),
        ({">=": 100}, ["100", "100.0", "1000", "0100"], ["99.9", "-100", None]),
        ({"<": 0.5}, ["0.49999999999999999999", "-1", "0"], ["0.5", "1", None]),
        ({">": "2013-01-02"}, ["2013-01-03", "2014"], ["2013-01-02", "2013-01-01", "1", None]),
        ({">=": 3, "<": 12}, ["3", "11.5"], ["2", "12", None]),
    ],
)
def test_a_condition_holds_of_the_tags_that_meet_it_and_of_no_other(
    condition: Any, meet_it: list[str | None], do_not: list[str | None]
) -> None:
    conditions = TagConditions({"key": condition})

    for value in (*meet_it, *do_not):
        tags = {"other": "x"} | ({} if value is None else {"key": value})
        assert conditions.fit(tags) == (value in meet_it), value


@pytest.mark.parametrize(
    "wrong",
    [True, {}, {"~": "x"}, {"in": "eu"}, {"in": []}, {"<": ["1"]}, {"exists": "yes"}, {"=": None}],
)
def test_a_condition_that_is_none_is_refused_naming_the_tag(wrong: Any) -> None:
    with pytest.raises(InvalidValueError, match="tags"):
        TagConditions({"rows": wrong})


def test_conditions_are_what_they_were_declared_as() -> None:
    declared = {"complete": "true", "rows": {">=": "3", "<": "12"}, "late": {"exists": False}}
    conditions = TagConditions(declared)

    assert dict(conditions) == declared
    assert conditions == TagConditions(conditions) == pickle.loads(pickle.dumps(conditions))
    assert hash(conditions) == hash(TagConditions(dict(reversed(declared.items()))))


@given(maps)
def test_merging_again_changes_nothing(tags: dict[str, str]) -> None:
    assert Tags(tags).merged(tags) == Tags(tags)


@given(maps)
def test_equal_tags_hash_alike_in_any_order_and_survive_pickling(tags: dict[str, str]) -> None:
    backwards = Tags(dict(reversed(tags.items())))

    assert backwards == Tags(tags)
    assert hash(backwards) == hash(Tags(tags)) == hash(pickle.loads(pickle.dumps(backwards)))


@pytest.mark.parametrize(
    "tags", [{"k" * 129: "v"}, {"k": "v" * 4097}, {"k": 1}, {1: "v"}, {"k": "a\x00"}, "text"]
)
def test_tags_that_a_store_cannot_hold_are_refused(tags: object) -> None:
    with pytest.raises(InvalidValueError, match="tags"):
        Tags(tags)  # type: ignore[arg-type]


@given(positions)
def test_a_position_survives_its_text(position: Position) -> None:
    assert Position.parse(str(position)) == position


@given(positions, positions)
def test_positions_are_ordered_by_transaction_then_sequence(one: Position, other: Position) -> None:
    assert (one < other) == ((one.tx_id, one.seq) < (other.tx_id, other.seq))
    assert one >= Position.ORIGIN


@pytest.mark.parametrize(
    "text",
    ["", "5", "-5", "5-", "a-b", "1-2-3", "1--2", "1 - 2", "٥-٥", f"1-{2**63}", f"{2**63}-1", None],
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="position"):
        Position.parse(text)
