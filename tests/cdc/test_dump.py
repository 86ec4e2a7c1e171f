"""Rows of a dump mean, beside the messages that were streamed, just the rows that the recorded
databases held at the end.
"""

import datetime
import json
import random
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakechime_dagster.cdc.change import (
    BinlogPosition,
    Change,
    Position,
    StatedPosition,
    WalPosition,
    stated_position,
)
from lakechime_dagster.cdc.debezium import DebeziumReader
from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.load import (
    Dump,
    DumpColumn,
    DumpError,
    DumpWriter,
    Form,
    dump_position,
    form_of,
    writer_of,
)
from lakechime_dagster.cdc.merge import Kept
from lakechime_dagster.cdc.record import Changes, Record
from lakechime_dagster.cdc.state import Defaults, Schema, StateRow
from lakechime_dagster.cdc.values import ConnectSchema
from lakechime_dagster.tables.databases import Debezium
from tests.cdc.factories import BINLOG, WAL, envelope_schema, make_payload, make_record
from tests.cdc.merge.lake import Lake, changes_in
from tests.cdc.test_captures import (
    CAPTURES,
    TABLES,
    UNREPORTED,
    changes_of,
    differences,
    label,
    row_of,
)

# arrays
UNWRITTEN = {
    "postgres-toast.documents",
    "postgres-toast.documents_full",
    "postgres-types.texts",
    "postgres-types_text.texts",
}
# captures without a schema, or an envelope, or with positions that restart
REFUSED = ("schemaless", "flattened", "failover")
DECIMAL = {
    "field": "amount",
    "type": "bytes",
    "optional": True,
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "2", "connect.decimal.precision": "10"},
}
AT = {
    "field": "at",
    "type": "int64",
    "optional": True,
    "name": "io.debezium.time.Timestamp",
    "version": 1,
}
SCHEMA = envelope_schema(
    ("id", "int32", False), DECIMAL, AT, ("note", "string", True), ("small", "int16", True)
)
ORDERS = MessageFormat(envelope=Debezium(), keys=("id",))
DUMPED = Record(topic="dump", topic_id="lakechime-repair/load/1", value=None)
ROW = {
    "id": 1,
    "amount": Decimal("1.50"),
    "at": datetime.datetime(2024, 2, 29, 12),
    "note": "it",
    "small": 7,
}


def streamed(name: str, topic: str) -> list[tuple[Position, Record]]:
    """The messages of changes of a table with their positions, but for rows that a snapshot read;
    none where none is written.
    """
    if any(part in name for part in REFUSED):
        return []
    reader = DebeziumReader(Debezium(), CAPTURES[name].keys[topic])
    readings = [(record, reader.read(record)) for record in CAPTURES[name].of(topic)]
    reported = [
        (reading.changes[-1], record)
        for record, reading in readings
        if isinstance(reading, Changes) and reading.changes
    ]
    return [
        (change.order.position, record) for change, record in reported if change.snapshot is None
    ]


def place_at(position: Position) -> StatedPosition:
    return BinlogPosition(position[:2]) if len(position) == 3 else WalPosition(position[0])


def is_in(position: Position, log_position: StatedPosition) -> bool:
    """Whether a dump that was taken at the place of one of the streamed changes has a change."""
    return position[: len(log_position.position)] < log_position.position


def written_at(name: str, topic: str, log_position: StatedPosition) -> DumpWriter:
    """What writes a dump of that place, with the columns that the table had then."""
    reported, messages = (
        streamed(name, topic),
        MessageFormat(envelope=Debezium(), keys=CAPTURES[name].keys[topic]),
    )
    position, newest = max(
        (one for one in reported if one[0][: len(log_position.position)] <= log_position.position),
        key=lambda one: one[0],
    )
    now, then = (
        form_of(topic, record, messages, 1_700_000_000_000) for record in (reported[-1][1], newest)
    )
    return writer_of(
        now, then, dump_position(now, log_position, position), messages.keys, list(then.types)
    )


def dumped(folder: Path, rows: Sequence[Mapping[str, Any]], dice: random.Random) -> Dump:
    """The rows in files of either kind."""
    folder.mkdir()
    half = len(rows) // 2
    if rows[:half]:
        pq.write_table(
            pa.Table.from_pylist([dict(row) for row in rows[:half]]), folder / "a.parquet"
        )
    lines = [
        json.dumps(row, default=as_json, ensure_ascii=dice.random() < 0.5) for row in rows[half:]
    ]
    (folder / "b.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return Dump(folder)


def as_json(value: Any) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def rows_after(
    changes: Sequence[Change], defaults: Defaults, columns: Sequence[str]
) -> list[Mapping[str, Any]]:
    """The rows of the table after these changes, which come in two parts."""
    lake = Lake().execute(changes[::2]).execute(changes[1::2])
    kept = Kept(windows=lake.known(), truncated=lake.truncated)
    rows = (row_of(kept, key, defaults, columns) for key in kept.windows)
    return [row for row in rows if row is not None]


def schemas_of(name: str, topic: str, records: Iterable[Record]) -> list[tuple[Position, StateRow]]:
    """Since when messages reported of columns."""
    reader = MessageFormat(envelope=Debezium(), keys=CAPTURES[name].keys[topic]).reader()
    readings = [
        reading for record in records if isinstance(reading := reader.read(record), Changes)
    ]
    reported = [(one, change) for one in readings for change in one.changes]
    return [
        (change.order.position, Schema(one.types, one.defaults).row(change.source, change.order))
        for one, change in reported
    ]


@pytest.mark.parametrize(
    ("name", "topic"), TABLES, ids=[label(name, topic) for name, topic in TABLES]
)
def test_a_dump_and_the_stream_in_any_order_are_the_table_of_the_database(
    name: str, topic: str, tmp_path: Path
) -> None:
    """Wherever the dump was taken, and however far below it the stream begins."""
    reported = streamed(name, topic)
    reader = MessageFormat(envelope=Debezium(), keys=CAPTURES[name].keys[topic]).reader()
    truth, keys, dice = (
        CAPTURES[name].rows[topic],
        CAPTURES[name].keys[topic],
        random.Random(label(name, topic)),
    )
    schemas = schemas_of(name, topic, CAPTURES[name].of(topic))
    changes = sorted(changes_of(name, topic)[0], key=lambda one: one.order)
    for number, (position, _) in enumerate(dice.sample(reported, min(3, len(reported)))):
        log_position = place_at(position)
        writer = written_at(name, topic, log_position)
        if label(name, topic) in UNWRITTEN:
            with pytest.raises(
                DumpError,
                match=(
                    r"column \w+, .* cannot be loaded: .*; let the connector read the table by a "
                    r"snapshot"
                ),
            ):
                _ = writer.columns
            continue
        below = [one for one in changes if is_in(one.order.position, log_position)]
        known = Defaults.of(
            row for at, row in schemas if at[: len(log_position.position)] <= log_position.position
        )
        folder = tmp_path / str(number)
        dump = dumped(folder, rows_after(below, known, list(writer.columns)), dice)
        records = [
            writer.record(replace(DUMPED, offset=offset), row)[1]
            for offset, (_, row) in enumerate(dump.rows())
        ]
        mixed = [*changes_in(reader, records), *changes[dice.randint(0, len(below)) :]]
        dice.shuffle(mixed)
        known = Defaults.of(row for _, row in [*schemas, *schemas_of(name, topic, records)])
        rows = rows_after(mixed, known, list(truth[0]) if truth else keys)
        assert differences(rows, truth, keys) <= UNREPORTED.get(label(name, topic), set())


def form(**source: Any) -> Form:
    message = make_record(make_payload(after={"id": 1}, source={**BINLOG, **source}), schema=SCHEMA)
    return form_of("shop.orders", message, ORDERS, 1_700_000_000_000)


def writer(columns: Sequence[str] = tuple(ROW), then: Form | None = None) -> DumpWriter:
    now = form()
    return writer_of(
        now, then or now, dump_position(now, BinlogPosition((3, 1234)), ()), ("id",), columns
    )


def reported(row: Mapping[str, Any], by: DumpWriter | None = None) -> Change:
    """The change that a row of a dump becomes."""
    by = by or writer(tuple(row))
    reading = ORDERS.reader().read(by.record(DUMPED, row)[1])
    assert isinstance(reading, Changes)
    return reading.changes[0]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("id", None, "id: None is null, and a column of the key has a value in each row"),
        ("id", 2**31, "id: 2147483648 is no int: it is from"),
        ("id", True, "id: True is no int"),
        ("small", 40_000, "small: 40000 is no smallint"),
        (
            "amount",
            1.5,
            (
                "amount: 1.5 is a binary fraction, which is no exact decimal(10,2); dump decimals as "
                "such"
            ),
        ),
        (
            "amount",
            Decimal("1.234"),
            (
                "amount: Decimal('1.234') is no decimal(10,2): it has at most 8 digits before the "
                "point and 2 after"
            ),
        ),
        ("amount", "123456789", "amount: '123456789' is no decimal(10,2)"),
        ("at", "2024-02-30 00:00:00", "at: '2024-02-30 00:00:00' is no timestamp_ntz"),
        ("at", datetime.date(2024, 2, 29), "at: '2024-02-29' is no timestamp_ntz"),
        ("note", 5, "note: 5 is no string: it is text"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_its_column(
    name: str, value: Any, problem: str
) -> None:
    with pytest.raises(ValueError) as refused:
        reported({**ROW, name: value})
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"id": 1}, "it has the columns id, and the first row id, amount, at, note, small"),
        ({**ROW, "extra": 1}, "it has the columns id, amount, at, note, small, extra"),
        (
            {**{name: ROW[name] for name in ("id", "amount", "at", "note")}, "extra": 1},
            "it has the columns id, amount, at, note, extra",
        ),
    ],
)
def test_a_row_with_other_columns_than_the_first_is_refused(
    row: Mapping[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        reported(row, writer())


def test_a_dump_without_the_key_or_a_column_of_its_time_is_refused() -> None:
    with pytest.raises(
        DumpError,
        match=r"shop\.orders: the dump has no column id of the key, only amount, note; dump it too",
    ):
        writer(("amount", "note"))
    with pytest.raises(
        DumpError, match="the dump has no column at, small, which messages had below its position"
    ):
        writer(("id", "amount", "note"))


def test_of_a_column_that_came_later_no_row_of_the_dump_reports_and_of_one_that_went_all_do() -> (
    None
):
    then = replace(form(), types={"id": "int", "gone": "string"}, schemas={})
    by = writer(("id", "gone", "never"), then)
    change = reported({"id": 1, "gone": "still there", "never": 0}, by)
    assert (change.columns, change.omitted, by.left_out) == (
        {"id": 1, "gone": "still there"},
        (),
        ("never",),
    )


def test_bytes_and_texts_are_spelled_as_messages_spell_them() -> None:
    names = {
        "n": "io.debezium.data.VariableScaleDecimal",
        "u": "io.debezium.data.Uuid",
        "t": "io.debezium.time.MicroTime",
    }
    schemas = {name: ConnectSchema("string", schema) for name, schema in names.items()}
    known = replace(
        form(), types={"b": "binary", **dict.fromkeys(names, "string")}, schemas=schemas
    )
    columns = {name: DumpColumn.of(known, name) for name in known.types}
    assert columns["b"].value(b"\x00\xff") == columns["b"].value("AP8=") == b"\x00\xff"
    assert [columns["n"].value(value) for value in (Decimal("1.50"), "1E+2", 3)] == [
        "1.5",
        "100",
        "3",
    ]
    assert (
        columns["u"].value("ABC"),
        columns["t"].value(datetime.time(12, 30)),
        columns["t"].value(None),
    ) == ("abc", "12:30:00.000000", None)


def test_a_position_is_of_the_log_of_the_tables_database() -> None:
    of_wal = form_of(
        "shop.orders",
        make_record(make_payload(after={"id": 1}, source=WAL), schema=SCHEMA),
        ORDERS,
        None,
    )
    with pytest.raises(
        DumpError,
        match=(
            "as_of log 0/16B3748 is no position of mariadb; state one of a binary log, such as "
            "mysql-bin"
        ),
    ):
        dump_position(form(), stated_position("0/16B3748"), ())
    with pytest.raises(
        DumpError,
        match=(
            "as_of binlog 3:1234 is no position of postgresql; state one of PostgreSQL, such as "
            "0/16B3748"
        ),
    ):
        dump_position(of_wal, stated_position("mysql-bin.000003:1234"), ())
    assert dump_position(of_wal, WalPosition(95), (90, 100)) == (90, 0)
