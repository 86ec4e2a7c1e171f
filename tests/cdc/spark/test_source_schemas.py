"""A table that follows a database whose messages bring no schema: its columns are read in the
database.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.change import Order, position_of
from lakechime_dagster.cdc.record import Record
from lakechime_dagster.cdc.state import TableSchema
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from tests.cdc.factories import make_payload, make_record
from tests.cdc.test_captures import CAPTURES, differences
from tests.support.orders import at_position
from tests.support.replica import Replica, read

pytestmark = pytest.mark.spark

CENTS, MILLS = "Aeg=", "E4g="  # 4.88 with two digits, 5.000 with three


def amount(number: int, written: str, *, at: int) -> Record:
    row = {"id": number, "amount": written}
    return make_record(
        make_payload("u", source=at_position(at), after=row), key={"id": number}, offset=at
    )


def reading(scale: int, *, at: int) -> TableSchema:
    """What the columns were when they were read at a place."""
    order, columns = Order(position=(3, at)), {"id": "int(11)", "amount": f"decimal(10,{scale})"}
    return TableSchema(table="shop.orders", order=order, columns=columns, dialect=Dialect.MYSQL)


def schemaless(spark: SparkSession, folder: Path, keys: Sequence[str] = ("id",)) -> Replica:
    return Replica(spark, folder, tuple(keys), topics={"is_typed_externally": True})


def amounts(table: Replica) -> dict[int, str]:
    return {row["id"]: str(row["amount"]) for row in table.rows}


def in_parts(records: Sequence[Record], ends: Sequence[int]) -> Iterator[list[Record]]:
    """Messages, by how far the log was when they were written; what reports no place comes with the
    first.
    """
    positions = [
        (() if one.value is None else position_of(json.loads(one.value)["source"]), one)
        for one in records
    ]
    bounds = [0, *ends, 2**62]
    for low, high in pairwise(bounds):
        yield [
            one
            for position, one in positions
            if low
            <= (position[-2] if len(position) == 3 else position[-1] if position else 0)
            < high
        ]


def test_readings_report_the_columns_between_them(spark: SparkSession, tmp_path: Path) -> None:
    capture = CAPTURES["postgres-schemaless_drift"]
    topic = next(one for one in capture.keys if one.endswith(".prices"))
    readings = sorted(
        (one for one in capture.readings if one.table == "shop.prices"), key=lambda one: one.order
    )
    table = schemaless(spark, tmp_path, capture.keys[topic])
    parts = in_parts(list(capture.of(topic)), [one.order.position[0] for one in readings])
    for part, one in zip(
        parts, [*readings, replace(readings[-1], order=Order(position=(2**60,)))], strict=True
    ):
        table.options = {"reading": one}
        # one that comes again: each reading goes with an execution
        table.send(part or list(capture.of(topic))[:1])
        assert "quarantined" not in table.run().events
    assert differences(table.rows, capture.rows[topic], capture.keys[topic]) == set()


def test_a_later_attempt_reads_the_messages_by_what_the_first_one_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the columns changed meanwhile, and are read otherwise now."""
    table = schemaless(spark, tmp_path)
    table.options = {"reading": reading(2, at=10)}
    table.send([amount(1, CENTS, at=5)])
    with monkeypatch.context() as dying:
        dying.setattr("lakechime_dagster.cdc.spark_refresh.write_rows", interrupt)
        with pytest.raises(KeyboardInterrupt):
            table.attempt(1)
    table.options = {"reading": reading(3, at=20)}
    table.attempt(1, attempt=2)
    assert amounts(table) == {1: "4.88"}


def test_a_table_that_is_recreated_reads_each_message_as_its_columns_were_read_then(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = schemaless(spark, tmp_path)
    for message, reported in (
        (amount(1, CENTS, at=5), reading(2, at=10)),
        (amount(2, MILLS, at=25), reading(3, at=20)),
    ):
        table.options = {"reading": reported}
        table.send([message])
        table.run()
    assert amounts(table) == {1: "4.880", 2: "5.000"}
    table.checkpoint = SnapshotCheckpoint()
    table.options = {"reading": reading(3, at=30)}
    table.run()
    assert amounts(table) == {1: "4.880", 2: "5.000"}


def test_without_columns_from_anywhere_the_messages_are_kept_and_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = schemaless(spark, tmp_path)
    table.send([amount(1, CENTS, at=5)])
    assert table.run().events == {"quarantined": 1}
    assert read(f"{table.location}__quarantine")[0]["reason"].startswith(
        "schema: the message brings none, and the columns of shop.orders were not read in the "
        "database"
    )


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
