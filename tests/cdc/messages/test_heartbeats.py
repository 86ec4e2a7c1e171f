"""Changes of a heartbeat table report how far the log of its database was read."""

from dataclasses import replace
from typing import Any

import pytest

from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.record import Beat, Control, Record, Unreadable
from lakechime_dagster.tables.databases import Debezium
from tests.cdc.factories import BINLOG, make_payload, make_record

READER = MessageFormat(envelope=Debezium(), keys=("id",), heartbeats="*.heartbeat").reader()


def beat(value: Any) -> Record:
    return replace(make_record(value, key=None), topic="demo.heartbeat")


@pytest.mark.parametrize("op", ["c", "u", "d"])
def test_a_change_reports_the_time_to_which_its_log_was_read(op: str) -> None:
    row_state = {"before": {"at": 1}} if op == "d" else {"after": {"at": 1}}
    assert READER.read(beat(make_payload(op, source={**BINLOG, "ts_ms": 7}, **row_state))) == Beat(
        "m", 7
    )


@pytest.mark.parametrize(
    "value",
    [
        make_payload("r", source={**BINLOG, "ts_ms": 7}, after={"at": 1}),
        make_payload("u", source={}, after={}),
        {"ts_ms": 7},
        None,
    ],
)
def test_what_was_not_read_of_the_log_reports_no_time(value: Any) -> None:
    assert READER.read(beat(value)) is Control.HEARTBEAT


def test_what_cannot_be_read_says_why() -> None:
    reading = READER.read(replace(beat({}), value=b"{"))
    assert isinstance(reading, Unreadable)
    assert reading.reason.startswith("value: b'{' is no JSON")


@pytest.mark.parametrize(
    ("source", "is_of"), [("m.shop.orders", True), ("m2.shop.orders", False), ("m", False)]
)
def test_a_heartbeat_is_of_the_tables_of_its_server(source: str, is_of: bool) -> None:
    assert Beat("m", 7).is_of(source) is is_of
