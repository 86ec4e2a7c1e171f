"""What a look at messages finds of how their connector is set up."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lakechime_dagster.cdc.findings import Finding, Sample, Weight, findings, untaken
from lakechime_dagster.cdc.readers import MessageFormat
from lakechime_dagster.cdc.record import Record, TableFilter
from lakechime_dagster.tables.databases import Canal, Debezium, Dms, Envelope, Maxwell
from tests.cdc.factories import BINLOG, envelope_schema, make_payload, make_record, struct

SCHEMA = envelope_schema()
TYPES = {"id": "bigint", "name": "string"}


def found(*records: Record, envelope: Envelope | None = None, keys: Sequence[str] = ("id",)) -> dict[str, Finding]:
    """What is found, by what it is about."""
    envelope = envelope or Debezium()
    sample = Sample.read(envelope, keys, records, MessageFormat(envelope=envelope, keys=tuple(keys), types=TYPES).reader())
    return {one.about: one for one in findings(sample)}


def update(**others: Any) -> Record:
    row = {"id": 1, "name": "Ann", "amount": 5}
    return make_record(make_payload("u", **{"before": row, **others}), schema=SCHEMA)


def maxwell(**others: Any) -> Record:
    told = {"database": "shop", "table": "orders", "type": "insert", "ts": 1, "data": {"id": 1, "name": "Ann"}, **others}
    return Record(topic="shop", value=json.dumps(told).encode(), key=b'{"database":"shop","table":"orders","pk.id":1}')


def test_a_connector_that_is_set_up_well_is_told_what_no_message_tells() -> None:
    heartbeat = Record(topic="__debezium-heartbeat.m", value=b'{"ts_ms": 1}')
    told = found(update(), make_record(make_payload("t", before=None, after=None), schema=SCHEMA), heartbeat)
    assert {(one.about, one.weight) for one in told.values()} == {("nulls", Weight.NOTE)}


def test_what_no_message_tells_is_said_to_be_unknown() -> None:
    told = found(update())
    assert {about for about, one in told.items() if one.weight is Weight.NOTE} == {"nulls", "heartbeat", "truncations"}
    assert "replace.null.with.default=false" in told["nulls"].remedy


def test_messages_without_types_are_told_with_the_setting_that_brings_them() -> None:
    told = found(make_record())
    assert told["types"].weight is Weight.ERROR
    assert "1 of 1 messages bring no types of their columns" in told["types"].problem
    assert "value.converter.schemas.enable=true" in told["types"].remedy
    assert "types={…}" in found(maxwell(data={"id": 1, "colour": "red"}), envelope=Maxwell())["types"].remedy


def test_messages_of_another_tool_cannot_be_read() -> None:
    told = found(Record(topic="t", value=b"{damaged"))
    assert (told["messages"].weight, "is no JSON" in told["messages"].problem) == (Weight.ERROR, True)


@pytest.mark.parametrize("envelope", [Debezium(), Canal(), Maxwell(), Dms()])
def test_whatever_messages_are_they_are_looked_at(envelope: Envelope) -> None:
    odd = [None, 1, "x", [], [1], {}, {"fields": 5}, {"fields": [1, {"field": "after", "fields": [2]}]}]
    values = [
        json.dumps({part: one, "metadata": {"operation": "update"}}) for part in ("schema", "payload", "source", "data") for one in odd
    ]
    wrapped = [json.dumps({"schema": one, "payload": two}) for one in odd for two in odd]
    records = [Record(topic="t", value=value.encode(), key=value.encode()) for value in [*values, *wrapped, "[" * 10_000]]
    assert found(*records, Record(topic="t", value=None), envelope=envelope)["messages"].weight is Weight.ERROR


def test_a_key_that_the_declared_one_lacks_would_make_two_rows_one() -> None:
    record = make_record(make_payload(), schema=SCHEMA, key={"shard": 1, "id": 1})
    told = found(record)["keys"]
    assert (told.weight, "has shard, which the declared key lacks" in told.problem) == (Weight.ERROR, True)
    assert "declare keys=('shard', 'id')" in told.remedy


def test_a_declared_column_that_is_not_in_the_key_of_messages_is_told() -> None:
    told = found(update(), keys=("id", "name"))["keys"]
    assert (told.weight, "lacks name of the declared key" in told.problem) == (Weight.WARNING, True)
    assert "message.key.columns" in told.remedy


def test_messages_without_a_key_are_told() -> None:
    told = found(make_record(make_payload(), schema=SCHEMA, key=None))["keys"]
    assert "1 of 1 messages have no key" in told.problem


def test_the_key_of_maxwell_is_known_by_its_columns() -> None:
    record = maxwell(position="binlog.000001:4")
    assert "keys" not in found(record, envelope=Maxwell())
    without = Record(topic="shop", value=record.value, key=b'{"database":"shop","table":"orders","_uuid":"a"}')
    assert "keys" not in found(without, envelope=Maxwell())


def test_each_finding_of_maxwell_names_a_setting_of_maxwell() -> None:
    record = maxwell(data={"id": 1, "name": "Ann", "colour": "red"})
    bare = Record(topic="shop", value=maxwell().value)
    told = found(maxwell(), record, bare, envelope=Maxwell(), keys=("id", "name")).values()
    assert {one.about for one in told} == {"keys", "position", "types"}
    assert not any("message.key.columns" in one.remedy or "connector" in one.remedy for one in told)


def test_changes_without_a_position_are_ordered_by_their_topic_alone() -> None:
    told = found(maxwell(), envelope=Maxwell())["position"]
    assert (told.weight, "output_binlog_position=true" in told.remedy) == (Weight.WARNING, True)
    other = Record(topic="shop", partition=1, value=maxwell().value)
    told = found(maxwell(), other, envelope=Maxwell())["position"]
    assert (told.weight, "in 2 partitions" in told.problem) == (Weight.ERROR, True)
    unknown = update(source={**BINLOG, "connector": "oracle"})
    assert "keep all messages of the table in one partition" in found(unknown)["position"].remedy


def test_updates_that_do_not_tell_what_was_before_are_told() -> None:
    told = found(update(), update(before=None))["before image"]
    assert "1 of 2 updates do not tell the row before them" in told.problem
    assert "REPLICA IDENTITY FULL" in told.remedy
    row = {
        "data": {"id": 1, "name": "Ann"},
        "metadata": {"record-type": "data", "operation": "update", "schema-name": "shop", "table-name": "o"},
    }
    assert "BeforeImageSettings" in found(Record(topic="t", value=json.dumps(row).encode()), envelope=Dms())["before image"].remedy
    image = row | {"before-image": {"id": 1}}
    assert "before image" not in found(Record(topic="t", value=json.dumps(image).encode()), envelope=Dms())


def test_binary_numbers_and_defaults_in_schemas_are_told() -> None:
    price = {"field": "price", "type": "double", "optional": True, "default": 1.5}
    schema = envelope_schema(("id", "int32", False), price)
    told = found(make_record(make_payload(after={"id": 1, "price": 2.5}), schema=schema))
    assert "price come as binary numbers" in told["decimals"].problem
    assert "decimal.handling.mode=precise" in told["decimals"].remedy
    assert (told["nulls"].weight, "price have a default" in told["nulls"].problem) == (Weight.WARNING, True)


def test_messages_of_two_tables_are_told() -> None:
    told = found(update(), update(source={**BINLOG, "table": "items"}))["sources"]
    assert "2 sources (m.shop.items, m.shop.orders)" in told.problem


def test_a_table_filter_that_accepts_no_message_is_an_error_that_names_the_tables() -> None:
    messages = MessageFormat(envelope=Maxwell(), keys=("id",), types=TYPES, only=TableFilter("shop", "order"))
    (finding,) = findings(Sample.read(Maxwell(), ("id",), [maxwell(), maxwell(table="people")], messages.reader()))
    assert (finding.weight, finding.about) == (Weight.ERROR, "table filter")
    assert "shop.orders, shop.people" in finding.problem


def test_rows_without_a_position_beside_changes_that_have_one_are_told() -> None:
    """Snapshot rows are the older ones rightly; a streamed change is not."""
    nowhere = BINLOG | {"file": "", "pos": 0}
    read = make_record(make_payload("r", source=nowhere), schema=SCHEMA)
    assert found(update(), read)["snapshot"].weight is Weight.NOTE
    again = found(update(), replace(read, offset=8))["snapshot"]
    assert (again.weight, "1 of them follow such changes" in again.problem, "cdc load" in again.remedy) == (Weight.WARNING, True, True)
    assert "position" not in found(update(), read)
    told = found(update(), update(source=nowhere))["position"]
    assert (told.weight, "source.file,source.pos" in told.remedy) == (Weight.ERROR, True)


def test_columns_that_a_table_cannot_have_are_named_with_the_remedy() -> None:
    names = ("filePath", "_CHANGE_TYPE", "a b", "__cdc", "renamed,", "ignored,", "ok")
    nested = {"field": "nested", **struct(("x;y", "int32", True))}
    schema = envelope_schema(("id", "int32", False), *((name, "string", True) for name in names), nested)
    record = make_record(make_payload(after={"id": 1, **dict.fromkeys(names, "x"), "nested": {"x;y": 1}}), schema=schema)
    sample = Sample.read(Debezium(), ("id",), [record], MessageFormat(envelope=Debezium(), keys=("id",)).reader())
    (finding,) = untaken(sample, {"renamed,": "renamed"}, lambda name: name != "ignored,")
    assert finding.weight is Weight.ERROR
    assert finding.problem == (
        "'filePath' is left out: Delta has columns of that name; '_CHANGE_TYPE' is left out: Delta has columns of that name; "
        "'a b' is left out: Delta takes no ' ' in names; '__cdc' is left out: CDC tables have columns of that name themselves; "
        "'nested' is left out: of a field in it: Delta takes no ';' in names"
    )
    assert finding.remedy.startswith("give another name by names={'filePath': …, '_CHANGE_TYPE': …, 'a b': …, '__cdc': …, 'nested': …}")
