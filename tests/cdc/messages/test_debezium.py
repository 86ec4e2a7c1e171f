"""Every form of Debezium's messages becomes the same change; one that cannot be read says which
field is wrong.
"""

from dataclasses import replace
from typing import Any

import pytest

from lakechime_dagster.cdc.change import DELETE, READ, UPSERT, Change, Operation, Order
from lakechime_dagster.cdc.debezium import DebeziumReader
from lakechime_dagster.cdc.record import (
    Changes,
    Control,
    OtherTable,
    Record,
    TableFilter,
    Tombstone,
    Unreadable,
)
from lakechime_dagster.tables.databases import Debezium
from tests.cdc.factories import (
    BINLOG,
    TOPIC,
    WAL,
    envelope_schema,
    make_payload,
    make_record,
    reported_once,
    struct,
)

ANN = {"id": 1, "name": "Ann", "amount": 5}


def changes_of(record: Record, keys: tuple[str, ...] = ("id",)) -> tuple[Change, ...]:
    found = DebeziumReader(Debezium(), keys, reported_once()).read(record)
    assert isinstance(found, Changes), found
    return found.changes


def reason(record: Record, keys: tuple[str, ...] = ("id",)) -> str:
    found = DebeziumReader(Debezium(), keys, reported_once()).read(record)
    assert isinstance(found, Unreadable), found
    return found.reason


@pytest.mark.parametrize("schema", [envelope_schema(), None], ids=["with schema", "without"])
@pytest.mark.parametrize(
    ("op", "rank", "columns"),
    [("r", READ, ANN), ("c", UPSERT, ANN), ("u", UPSERT, ANN), ("d", DELETE, {})],
)
def test_an_envelope_is_one_change(
    schema: dict[str, Any] | None, op: str, rank: int, columns: dict[str, Any]
) -> None:
    (change,) = changes_of(make_record(make_payload(op), schema=schema, offset=7))
    order = Order(position=(3, 120, 0), rank=rank, topic=TOPIC, partition=0, offset=7)
    assert change == Change(
        source="m.shop.orders",
        operation=Operation(op),
        order=order,
        key=(1,),
        columns=columns,
        event_ms=BINLOG["ts_ms"],
    )


def test_a_flattened_row_is_the_same_change_where_it_reports_as_much() -> None:
    beside = {
        "__op": "u",
        "__source_file": "mysql-bin.000003",
        "__source_pos": 120,
        "__source_row": 0,
        "__source_db": "shop",
        "__source_table": "orders",
        "__source_name": "m",
        "__source_ts_ms": BINLOG["ts_ms"],
    }
    flattened = make_record(
        ANN | beside,
        schema=struct(("id", "int32", False), ("name", "string", True), ("amount", "int64", True)),
    )
    assert changes_of(flattened) == changes_of(make_record(make_payload("u")))


@pytest.mark.parametrize(
    "beside", [{"__deleted": "true"}, {"__op": "d"}, {"__deleted": "true", "__op": "d"}]
)
def test_a_flattened_row_that_is_marked_is_a_deletion(beside: dict[str, str]) -> None:
    (change,) = changes_of(make_record(ANN | beside))
    assert (change.operation, change.key, change.columns) == (Operation.DELETE, (1,), {})


def test_a_row_alone_is_an_upsert_in_the_order_of_its_topic() -> None:
    """`__deleted` is `false`, and no field reports a position."""
    (change,) = changes_of(make_record(ANN | {"__deleted": "false"}, offset=7))
    assert (change.operation, change.columns) == (Operation.UPDATE, ANN)
    assert change.order == Order(topic=TOPIC, partition=0, offset=7)


def test_a_row_may_have_columns_that_are_named_like_parts_of_an_envelope() -> None:
    columns = (
        ("id", "int32", False),
        ("op", "string", True),
        ("before", "string", True),
        ("after", "string", True),
    )
    row = {"id": 1, "op": "x", "before": "y", "after": "z"}
    found = DebeziumReader(Debezium(), ("id",)).read(make_record(row, schema=struct(*columns)))
    assert isinstance(found, Changes)
    assert found.changes[0].columns == row


def test_changes_of_postgresql_are_in_the_order_of_their_commits() -> None:
    """The one whose transaction was committed later is later, though its place in the log is
    earlier.
    """
    sent = [
        make_payload("u", source=WAL | {"sequence": f'["{committed}","{position}"]'})
        for committed, position in [(200, 150), (90, 160)]
    ]
    late, early = (changes_of(make_record(one))[0].order for one in sent)
    assert early < late
    (first,) = changes_of(make_record(make_payload("u", source=WAL | {"sequence": '[null,"10"]'})))
    assert first.order < early


def test_a_source_is_a_table_of_a_connector_whatever_topic_it_is_routed_to() -> None:
    sources = [
        BINLOG,
        WAL,
        WAL | {"schema": "other"},
        {"connector": "mariadb", "file": "b.1", "pos": 1},
    ]
    found = [
        changes_of(make_record(make_payload("u", source=source)))[0].source for source in sources
    ]
    assert found == ["m.shop.orders", "p.shop.orders", "p.other.orders", TOPIC]


def test_a_truncation_is_one_of_its_whole_source() -> None:
    (change,) = changes_of(
        make_record({"op": "t", "source": BINLOG, "before": None, "after": None}, key=None)
    )
    assert (change.operation, change.key, change.source) == (
        Operation.TRUNCATE,
        (),
        "m.shop.orders",
    )


def test_a_new_key_goes_on_with_the_row_of_the_old_one() -> None:
    """Its deletion is a message of its own, at the same position."""
    header = [("__debezium.oldkey", {"id": 9})]
    (change,) = changes_of(make_record(make_payload("c"), headers=header))
    assert (change.key, change.continues) == ((1,), (9,))
    (deleted,) = changes_of(make_record(make_payload("d")))
    assert deleted.order < change.order


def test_an_update_of_a_declared_key_is_the_end_of_the_old_one_and_goes_on_with_its_row() -> None:
    """Of a key that is not the message's: the connector sends it as any update."""
    update = make_payload("u", before={"id": 1, "name": "Bob", "amount": 5})
    old, new = changes_of(make_record(update), keys=("name",))
    assert (old.operation, old.key, new.key, new.continues) == (
        Operation.DELETE,
        ("Bob",),
        ("Ann",),
        ("Bob",),
    )
    assert (old.columns, old.continues) == ({}, None)
    assert (old.order.rank, new.order.rank) == (DELETE, UPSERT)
    flat = make_record(update | {"source": {"name": "shop"}})
    old, new = changes_of(flat, keys=("name",))
    assert old.order < new.order


def test_a_column_that_the_database_did_not_send_is_not_carried() -> None:
    (change,) = changes_of(
        make_record(
            make_payload("u", after={"id": 1, "name": "__debezium_unavailable_value", "amount": 6})
        )
    )
    assert change.columns == {"id": 1, "amount": 6}
    own = DebeziumReader(Debezium(unavailable="gone"), ("id",), reported_once(unavailable="gone"))
    found = own.read(make_record(make_payload("u", after={"id": 1, "name": "gone", "amount": 6})))
    assert isinstance(found, Changes)
    assert found.changes[0].columns == {"id": 1, "amount": 6}


@pytest.mark.parametrize("keys", [("ID",), ("İd", "NAME")])
def test_the_key_is_declared_in_letters_of_whatever_case(keys: tuple[str, ...]) -> None:
    for op in "cud":
        assert changes_of(make_record(make_payload(op)), keys)[0].key == (1, "Ann")[: len(keys)]
    deletion, upsert = changes_of(make_record(make_payload("u", before=ANN | {"id": 2})), keys)
    assert (deletion.key, upsert.continues) == ((2, "Ann")[: len(keys)],) * 2
    assert changes_of(make_record(make_payload("d", before=None)), ("ID",))[0].key == (1,)


def test_a_deletion_that_reports_no_row_has_the_key_of_its_message() -> None:
    """As PostgreSQL's do without REPLICA IDENTITY FULL."""
    for before in (None, {"id": None, "name": None}):
        (change,) = changes_of(make_record(make_payload("d", before=before), key={"id": 4}))
        assert change.key == (4,)


def test_a_key_without_a_value_is_a_tombstone() -> None:
    reader = DebeziumReader(Debezium(), ("id",), reported_once())
    order = Order(topic=TOPIC, partition=0, offset=7)
    assert reader.read(make_record(None, offset=7)) == Tombstone((1,), order)
    assert reader.read(
        Record(topic=TOPIC, key=b'{"id": 1}', value=b'{"schema": null, "payload": null}', offset=7)
    ) == Tombstone((1,), order)
    assert reader.read(make_record(None, key=None, offset=7)) == Tombstone(None, order)


def test_a_tombstone_is_a_deletion_where_nothing_else_reports_one() -> None:
    order = Order(topic=TOPIC, partition=0, offset=7)
    assert Tombstone((1,), order).deletion("shop") == Change(
        source="shop", operation=Operation.DELETE, order=order, key=(1,)
    )
    assert Tombstone(None, order).deletion("shop") is None


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"ts_ms": 1}, Control.HEARTBEAT),
        (
            {
                "status": "BEGIN",
                "id": "1:2",
                "ts_ms": 1,
                "event_count": None,
                "data_collections": None,
            },
            Control.TRANSACTION,
        ),
        (
            {
                "source": BINLOG,
                "ts_ms": 1,
                "databaseName": "shop",
                "ddl": "DROP TABLE a",
                "tableChanges": [],
            },
            Control.SCHEMA_CHANGE,
        ),
        (
            {"op": "m", "source": WAL, "message": {"prefix": "p", "content": "YQ=="}},
            Control.MESSAGE,
        ),
    ],
)
def test_what_concerns_no_row_is_distinguished(payload: dict[str, Any], kind: Control) -> None:
    assert DebeziumReader(Debezium(), ("id",), reported_once()).read(make_record(payload)) is kind


@pytest.mark.parametrize(
    ("snapshot", "mark"),
    [
        ("first", "first"),
        ("last", "last"),
        ("incremental", "incremental"),
        (True, "true"),
        ("false", None),
        (False, None),
        (None, None),
    ],
)
def test_a_row_that_a_snapshot_read_says_which_one_of_it(
    snapshot: object, mark: str | None
) -> None:
    (change,) = changes_of(make_record(make_payload("r", source=BINLOG | {"snapshot": snapshot})))
    assert change.snapshot == mark


def test_a_row_whose_columns_are_named_like_those_of_a_control_message_is_a_row() -> None:
    schema = struct(("id", "int32", False), ("status", "string", True), ("ddl", "string", True))
    found = DebeziumReader(Debezium(), ("id",)).read(
        make_record({"id": 1, "status": "END", "ddl": "x"}, schema=schema)
    )
    assert isinstance(found, Changes)


UNREADABLE = [
    (make_record([1, 2]), "value: a message of Debezium is an object, not [1, 2]"),
    (Record(topic=TOPIC, value=b"{"), "value: b'{' is no JSON: unexpected end of data"),
    (Record(topic=TOPIC, value=b"\xff\xfe"), "value: b'\\xff\\xfe' is no JSON"),
    (Record(topic=TOPIC, value=None, key=b"{"), "key: b'{' is no JSON"),
    (make_record(make_payload("x")), "op: a message of Debezium has one of r, c, u, d, t, not 'x'"),
    (
        make_record(make_payload("c") | {"op": []}),
        "op: a message of Debezium has one of r, c, u, d, t, not []",
    ),
    (make_record(make_payload("c", after=None)), "after: it is an object, not None"),
    (
        make_record(make_payload("c", after={"id": None})),
        "after.id: a column of the key has a value in each row, this one has None",
    ),
    (
        make_record(make_payload("c", after={"name": "x"})),
        "after.id: a column of the key has a value in each row, this one has None",
    ),
    (
        make_record(make_payload("u", after={"id": 1, "colour": "red"})),
        "colour: the schema of the message has no such column",
    ),
    (make_record(make_payload("u", after={"id": "1"})), "id: '1' is no int"),
    (
        make_record(make_payload("d", before=None), key=None),
        "before: a deletion has id there or in its key; this one has None",
    ),
    (
        make_record(make_payload("d", before=None), key={"other": 1}),
        "other: the schema of the message has no such column",
    ),
    (
        make_record(make_payload("c", source=BINLOG | {"file": "binlog"})),
        "the name of a binlog file ends with its number",
    ),
    (
        make_record(make_payload("c", source={"connector": "mariadb", "file": "binlog.1"})),
        "no position of mariadb",
    ),
    (make_record(make_payload("c", source=WAL | {"sequence": "[1]"})), "no position of postgresql"),
    (
        make_record({"schema": {"fields": []}, "payload": {}}),
        "schema: 'type' of a schema of Kafka Connect is str, not None",
    ),
]


@pytest.mark.parametrize(("record", "said"), UNREADABLE, ids=[said[:50] for _, said in UNREADABLE])
def test_what_cannot_be_read_says_why_and_does_not_end_the_reading(
    record: Record, said: str
) -> None:
    assert said in reason(record)


def test_a_message_without_a_schema_needs_one_from_elsewhere() -> None:
    found = DebeziumReader(Debezium(), ("id",)).read(make_record(make_payload("c")))
    assert isinstance(found, Unreadable)
    assert found.reason.startswith(
        "schema: the message has none; set value.converter.schemas.enable=true in the connector, "
        "or declare"
    )


def test_only_the_messages_of_accepted_tables_are_read() -> None:
    """Of another table neither columns nor key are looked at; a message that names none is of the
    table that its topic is named after.
    """
    reader = DebeziumReader(Debezium(), ("id",), reported_once(), TableFilter("shop*", "orders"))
    other = make_record(make_payload("c", source=BINLOG | {"table": "people"}, after={"ssn": 1}))
    assert reader.read(other) == OtherTable("shop.people")
    assert reader.read(
        make_record(make_payload("c", source=WAL | {"schema": "public"}))
    ) == OtherTable("public.orders")
    assert isinstance(reader.read(make_record(make_payload("c"))), Changes)
    assert reader.read(make_record(ANN)) == OtherTable("public.orders")
    assert isinstance(reader.read(replace(make_record(ANN), topic="m.shop.orders")), Changes)
    assert reader.read(replace(make_record(None), topic="m.shop.people")) == OtherTable(
        "shop.people"
    )


@pytest.mark.parametrize(
    "source",
    [
        # a row that Flink CDC, or a connector of MySQL, read in a snapshot
        BINLOG | {"file": "", "pos": 0},
        WAL | {"sequence": None, "lsn": None},
        WAL | {"sequence": "[null,null]", "lsn": None},
        {"connector": "sqlserver", "commit_lsn": None, "change_lsn": None},
    ],
)
def test_a_row_that_a_snapshot_read_without_a_position_is_older_than_all_that_have_one(
    source: dict[str, Any],
) -> None:
    (read,) = changes_of(make_record(make_payload("r", source=source), offset=9))
    assert read.order == Order(topic=TOPIC, partition=0, offset=9)
    (streamed,) = changes_of(make_record(make_payload("u"), offset=3))
    assert read.order < streamed.order


@pytest.mark.parametrize("has_schema", [True, False])
@pytest.mark.parametrize(("op", "columns"), [("c", ANN), ("u", ANN), ("d", {}), ("t", {})])
def test_an_envelope_without_a_source_is_ordered_by_its_topic(
    has_schema: bool, op: str, columns: dict[str, Any]
) -> None:
    """As Flink writes it; a schema may lack the block too."""
    payload = {name: value for name, value in make_payload(op).items() if name != "source"}
    schema = envelope_schema()
    schema |= {"fields": [one for one in schema["fields"] if one["field"] != "source"]}
    (change,) = changes_of(make_record(payload, schema=schema if has_schema else None, offset=7))
    assert (change.operation, change.key, change.columns, change.source) == (
        Operation(op),
        () if op == "t" else (1,),
        columns,
        TOPIC,
    )
    assert change.order == Order(topic=TOPIC, partition=0, offset=7)


def test_a_payload_without_a_schema_beside_it_is_read() -> None:
    assert changes_of(make_record({"payload": make_payload("u")})) == changes_of(
        make_record(make_payload("u"))
    )
    assert changes_of(make_record({"payload": ANN})) == changes_of(make_record(ANN))
    deletion = make_record({"payload": make_payload("d", before=None)}, key={"payload": {"id": 4}})
    assert changes_of(deletion)[0].key == (4,)
    row = {"id": 1, "payload": {"op": "c"}}
    schema = struct(("id", "int32", False), {**struct(("op", "string", True)), "field": "payload"})
    found = DebeziumReader(Debezium(), ("id",)).read(make_record(row, schema=schema))
    assert isinstance(found, Changes)
    assert found.changes[0].columns == row
