"""Messages that put rows right say of every type what the recorded database says, at the place of the cut."""

import dataclasses
import json
from typing import Any

import pytest

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.comparing.checksum import ColumnPair, Comparison
from lakechime_dagster.cdc.comparing.log_place import BinlogPlace, WalPlace
from lakechime_dagster.cdc.comparing.repair import Texts, UnrepairableError, Words, check_message, left_out, repair_message, words_of
from lakechime_dagster.cdc.comparing.told_place import cut_at
from lakechime_dagster.cdc.messages.readers import MessageFormat
from lakechime_dagster.cdc.messages.record import Changes, Record
from lakechime_dagster.cdc.order import DELETE, READ
from lakechime_dagster.cdc.schemas.connect import ConnectSchema
from lakechime_dagster.lake.envelopes import Debezium
from tests.cdc.checksums import CAPTURES, TABLES, comparison, lake_rows, told, topic_of
from tests.cdc.factories import WAL, envelope_schema, make_payload, make_record

CUT = BinlogPlace((12, 345))
OF_MARIADB = [(name, table) for name, table in TABLES if name.startswith("mariadb")]


def words(name: str, table: str) -> Words:
    first = next(record for record in CAPTURES[name].of(topic_of(name, table)) if record.value is not None)
    return words_of(table, first, 1_700_000_000_000)


def texts(compared: Comparison, row: Any) -> Texts:
    return {name: None if row[name] is None else one.twin(row[name]) for name, (_, one) in compared.columns.items()}


def place_in(of: Words) -> dict[str, Any]:
    return cut_at(of, WalPlace(346) if of.source["connector"] == "postgresql" else CUT, 12)


def message(of: Words, key: Texts, row: Texts | None) -> Record:
    return Record(topic="t", topic_id="lakechime-repair/t", value=repair_message(of, place_in(of), key, row))


@pytest.mark.parametrize(("name", "table"), TABLES)
def test_a_message_that_is_written_says_what_the_database_says(name: str, table: str):
    compared, of = comparison(name, table, told(name, table).types), words(name, table)
    reader = MessageFormat(envelope=Debezium(), keys=compared.keys).reader()
    for row in lake_rows(name, table):
        whole = texts(compared, row)
        key = {one: whole[one] for one in compared.keys}
        upsert, deletion = message(of, key, whole), message(of, key, None)
        check_message(upsert, reader, compared, key, whole)
        check_message(deletion, reader, compared, key, None)
        orders = [one.order for record in (upsert, deletion) if isinstance(found := reader.read(record), Changes) for one in found.changes]
        place = (12, 345, 0) if (name, table) in OF_MARIADB else (12, 345)
        assert [(one.position, one.rank) for one in orders] == [(place, READ), (place, DELETE)]


def test_a_message_that_would_say_something_else_is_refused():
    name, table = "mariadb-types", "numbers"
    compared, of = comparison(name, table, told(name, table).types), words(name, table)
    reader = MessageFormat(envelope=Debezium(), keys=compared.keys).reader()
    row = texts(compared, lake_rows(name, table)[0])
    key = {one: row[one] for one in compared.keys}
    column = next(one for one, schema in of.columns.items() if schema.type.startswith("int") and one not in key and row.get(one))
    other = message(of, key, {**row, column: "7"})
    with pytest.raises(UnrepairableError, match=f"column {column} would become 7, and the database has it as"):
        check_message(other, reader, compared, key, row)


def test_a_value_that_has_no_form_is_refused_by_its_column():
    name, table = "mariadb-types", "numbers"
    of = words(name, table)
    column = next(one for one, schema in of.columns.items() if schema.type == "int64")
    odd = dataclasses.replace(of, columns={column: dataclasses.replace(of.columns[column], type="struct", name=None)})
    with pytest.raises(UnrepairableError, match=f"numbers: column {column}, '1', has no form as struct: such values are not written yet"):
        repair_message(odd, place_in(odd), {column: "1"}, None)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (make_record(), "bring no schema, or are flattened"),
        (make_record({"id": 1}, schema=envelope_schema()), "bring no schema, or are flattened"),
        (
            make_record(make_payload(source={**WAL, "connector": "sqlserver"}), schema=envelope_schema()),
            "a place of sqlserver cannot be written yet, only those of MariaDB and PostgreSQL",
        ),
    ],
)
def test_a_table_in_whose_words_nothing_can_be_written_is_refused(record: Record, problem: str):
    with pytest.raises(UnrepairableError, match=f"shop.orders: .*{problem}"):
        words_of("shop.orders", record, None)


def test_the_file_of_the_log_is_named_as_the_connector_names_it():
    name, table = OF_MARIADB[0]
    of = words(name, table)
    payload = json.loads(repair_message(of, place_in(of), {}, None))["payload"]
    source = payload["source"]
    assert (source["file"], source["pos"], source["row"], source["snapshot"]) == ("mysql-bin.000012", 345, 0, "false")
    assert (source["ts_ms"], payload["op"], source["gtid"]) == (1_700_000_000_000, "d", None)


@pytest.mark.parametrize(
    ("source", "told", "lake", "lacking"),
    [
        (["id", "b"], ["id", "b"], ["id", "a", "b"], []),  # a was dropped, or b was a before
        (["id", "amount"], ["id", "amount"], ["id", "amt"], ["amt"]),  # it may be amount by another name
        (["id", "a"], ["id"], ["id", "a"], ["a"]),  # no message of it yet
        (["id"], ["id", "a"], ["id", "a"], ["a"]),  # dropped, and the messages do not know that yet
    ],
)
def test_a_column_that_is_gone_need_not_be_carried(source: list[str], told: list[str], lake: list[str], lacking: list[str]) -> None:
    words = Words(table="shop.orders", newest_ms=None, schema={}, source={}, columns=dict.fromkeys(told, ConnectSchema("int32")))
    pairs = [ColumnPair(name=name, source_type="int", lake_type="int") for name in source if name in lake]
    assert left_out(words, source, lake, Comparison.of(Dialect.MYSQL, pairs, ["id"])) == lacking
