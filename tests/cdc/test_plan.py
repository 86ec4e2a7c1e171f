"""What a sample of messages shows of how their connector is set up."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.plan import Finding, Sample, Weight, findings
from lakechime_dagster.cdc.record import Record, TableFilter
from lakechime_dagster.tables.databases import Canal, Debezium, Dms, Envelope, Maxwell
from tests.cdc.factories import BINLOG, envelope_schema, make_payload, make_record

SCHEMA = envelope_schema()
TYPES = {"id": "bigint", "name": "string"}


def found(
    *records: Record,
    envelope: Envelope | None = None,
    keys: Sequence[str] = ("id",),
    only: TableFilter | None = None,
) -> dict[str, Finding]:
    """What is found, by what it is about."""
    envelope = envelope or Debezium()
    reader = MessageFormat(
        envelope=envelope, keys=tuple(keys), types=TYPES, only=only or TableFilter()
    ).reader()
    return {one.about: one for one in findings(Sample.read(envelope, keys, records, reader))}


def update(**others: Any) -> Record:
    row = {"id": 1, "name": "Ann", "amount": 5}
    return make_record(make_payload("u", **{"before": row, **others}), schema=SCHEMA)


def maxwell(
    partition: int = 0,
    key: bytes | None = b'{"database":"shop","table":"orders","pk.id":1}',
    **others: Any,
) -> Record:
    message = {
        "database": "shop",
        "table": "orders",
        "type": "insert",
        "ts": 1,
        "data": {"id": 1, "name": "Ann"},
        **others,
    }
    return Record(topic="shop", partition=partition, value=json.dumps(message).encode(), key=key)


def test_nothing_is_found_of_a_connector_that_is_set_up_well() -> None:
    assert found(update(), Record(topic="__debezium-heartbeat.m", value=b'{"ts_ms": 1}')) == {}
    assert found(maxwell(position="binlog.000001:4"), envelope=Maxwell()) == {}


def test_messages_that_cannot_be_read_are_found_with_the_setting_that_helps() -> None:
    assert "value.converter.schemas.enable=true" in found(make_record())["types"].remedy
    assert (
        "types={…}"
        in found(maxwell(data={"id": 1, "colour": "red"}), envelope=Maxwell())["types"].remedy
    )
    damaged = found(Record(topic="t", value=b"{damaged"))["messages"]
    assert (damaged.weight, "is no JSON" in damaged.problem) == (Weight.ERROR, True)


@pytest.mark.parametrize("envelope", [Debezium(), Canal(), Maxwell(), Dms()])
def test_any_message_can_be_sampled(envelope: Envelope) -> None:
    odd = [
        None,
        1,
        "x",
        [],
        [1],
        {},
        {"fields": 5},
        {"fields": [1, {"field": "after", "fields": [2]}]},
    ]
    values = [
        json.dumps({part: one, "metadata": {"operation": "update"}})
        for part in ("schema", "payload", "source", "data")
        for one in odd
    ]
    wrapped = [json.dumps({"schema": one, "payload": two}) for one in odd for two in odd]
    records = [
        Record(topic="t", value=value.encode(), key=value.encode())
        for value in [*values, *wrapped, "[" * 10_000]
    ]
    assert (
        found(*records, Record(topic="t", value=None), envelope=envelope)["messages"].weight
        is Weight.ERROR
    )


def test_keys_of_messages_are_held_against_the_declared_key() -> None:
    more = found(make_record(make_payload(), schema=SCHEMA, key={"shard": 1, "id": 1}))["keys"]
    assert (more.weight, "declare keys=('shard', 'id')" in more.remedy) == (Weight.ERROR, True)
    less = found(update(), keys=("id", "name"))["keys"]
    assert (less.weight, "message.key.columns" in less.remedy) == (Weight.WARNING, True)
    assert (
        "1 of 1 messages have no key"
        in found(make_record(make_payload(), schema=SCHEMA, key=None))["keys"].problem
    )
    assert (
        "producer_partition_by=column"
        in found(maxwell(key=None), envelope=Maxwell())["keys"].remedy
    )


def test_changes_without_a_position_are_found() -> None:
    alone = found(maxwell(), envelope=Maxwell())["position"]
    assert (alone.weight, "output_binlog_position=true" in alone.remedy) == (Weight.WARNING, True)
    assert (
        found(maxwell(), maxwell(partition=1), envelope=Maxwell())["position"].weight
        is Weight.ERROR
    )
    nowhere = BINLOG | {"file": "", "pos": 0}
    assert found(update(), update(source=nowhere))["position"].weight is Weight.ERROR
    snapshot = make_record(make_payload("r", source=nowhere), schema=SCHEMA)
    assert "position" not in found(update(), snapshot)


def test_updates_without_the_row_before_them_are_found() -> None:
    finding = found(update(), update(before=None))["row before"]
    assert ("1 of 2 updates" in finding.problem, "REPLICA IDENTITY FULL" in finding.remedy) == (
        True,
        True,
    )


def test_columns_whose_null_may_have_become_a_default_are_found() -> None:
    price = {"field": "price", "type": "double", "optional": True, "default": 1.5}
    schema = envelope_schema(("id", "int32", False), price)
    finding = found(make_record(make_payload(after={"id": 1, "price": 2.5}), schema=schema))[
        "nulls"
    ]
    assert finding.problem.startswith("price have a default")


def test_messages_of_several_tables_or_of_none_that_the_filter_accepts_are_found() -> None:
    assert (
        "2 sources (m.shop.items, m.shop.orders)"
        in found(update(), update(source={**BINLOG, "table": "items"}))["sources"].problem
    )
    others = found(
        maxwell(), maxwell(table="people"), envelope=Maxwell(), only=TableFilter("shop", "order")
    )["table filter"]
    assert (others.weight, "shop.orders, shop.people" in others.problem) == (Weight.ERROR, True)
