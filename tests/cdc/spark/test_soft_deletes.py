"""A table that follows a database and keeps deleted rows: each with its last values, and when the
database deleted it.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.debezium import DebeziumReader
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.spark.job import Outcome
from lakechime_dagster.tables.cdc import Deletes
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.names import DELETED_AT
from tests.cdc.factories import envelope_schema, make_payload, make_record
from tests.cdc.merge.lake import changes_in
from tests.cdc.oracle import kept_rows_of
from tests.cdc.order_messages import KEYS, messages
from tests.cdc.spark.test_refresh import SHARDS, shard_history
from tests.support.orders import at_position, deletion, order
from tests.support.replica import Replica

pytestmark = pytest.mark.spark


def soft(spark: SparkSession, folder: Path, **options: object) -> Replica:
    return Replica(spark, folder, ("id",), options={"deletes": Deletes.SOFT, **options})


def reported(row: Mapping[str, Any]) -> tuple[int, str, int | None]:
    """A row by its key, its name, and when it was deleted."""
    return row["id"], row["name"], deleted_ms(row)


def deleted_ms(row: Mapping[str, Any]) -> int | None:
    return row[DELETED_AT] and round(row[DELETED_AT].timestamp() * 1000)


@pytest.mark.parametrize("write_mode", [None, "merge-on-read"])
def test_any_order_and_any_split_gives_the_table_of_the_oracle(
    spark: SparkSession, tmp_path: Path, write_mode: str | None
) -> None:
    dice = random.Random(7)
    records = [
        record
        for shard in range(SHARDS)
        for record in messages(shard_history(dice, str(shard)), f"shard{shard}")
    ]
    some = [*records, *dice.sample(records, 100)]
    dice.shuffle(some)
    table = Replica(spark, tmp_path, KEYS, options={"deletes": Deletes.SOFT}, write_mode=write_mode)
    for part in range(3):
        table.send(some[part::3])
        assert table.run().counts.is_balanced
    changes = changes_in(DebeziumReader(Debezium(), KEYS), records)
    columns = (*KEYS, "a", "b")
    found = {
        (row["shard"], row["id"]): ({name: row[name] for name in columns}, deleted_ms(row))
        for row in table.rows
    }
    assert found == kept_rows_of(changes, columns)


def test_a_table_that_is_widened_keeps_when_its_rows_were_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = soft(spark, tmp_path)
    table.send([order(1, at=1), order(2, at=2), deletion(2, at=3, ts_ms=30)])
    table.run()
    wide = [("id", "int64", False), ("name", "string", True), ("amount", "int64", True)]
    row = {"id": 2**40, "name": "Eve", "amount": 7}
    table.send(
        [
            make_record(
                make_payload(source=at_position(4), after=row),
                schema=envelope_schema(*wide),
                key={"id": 2**40},
            )
        ]
    )
    assert dict(table.run().schema) == {"id": "bigint", "name": "string", "amount": "bigint"}
    assert [reported(row) for row in table.rows] == [
        (1, "Ann", None),
        (2, "Ann", 30),
        (2**40, "Eve", None),
    ]


@pytest.mark.parametrize("write_mode", [None, "copy-on-write"])
def test_a_table_begins_to_keep_deleted_rows_with_the_execution_after_it_is_declared(
    spark: SparkSession, tmp_path: Path, write_mode: str | None
) -> None:
    table = Replica(spark, tmp_path, ("id",), write_mode=write_mode)
    table.send([order(1, at=1), order(2, at=2), order(3, at=3), deletion(3, at=4)])
    table.run()
    table.options = {"deletes": Deletes.SOFT}
    table.send([replace(order(1, at=1), offset=5)])
    begun = table.run()
    assert (begun.outcome, begun.notes) == (
        Outcome.COMMITTED,
        ("column __DELETED_AT was added, as timestamp",),
    )
    assert [reported(row) for row in table.rows] == [(1, "Ann", None), (2, "Ann", None)]
    table.send([deletion(2, at=6, ts_ms=60)])
    assert table.run().notes == ()
    assert [reported(row) for row in table.rows] == [(1, "Ann", None), (2, "Ann", 60)]


def test_a_table_that_is_to_keep_no_deleted_rows_any_more_is_blocked_until_it_is_recreated(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = soft(spark, tmp_path)
    table.send([order(1, at=1), order(2, at=2), deletion(2, at=3)])
    table.run()
    table.options = {}
    table.send([order(1, at=4, name="Bob")])
    with pytest.raises(
        ConsumerBlockedError,
        match=(
            r"holds rows that were deleted, and is not declared so any more; .* trigger seek "
            r"orders --to beginning"
        ),
    ):
        table.attempt(2)
    table.merge = {"stored_as_scd_type": 2}
    with pytest.raises(ConsumerBlockedError, match=r"holds rows that were deleted"):
        table.attempt(2)
    table.merge = {}
    table.checkpoint = SnapshotCheckpoint()
    table.run()
    assert table.rows == [{"id": 1, "name": "Bob", "amount": 5}]


def test_a_column_of_the_database_with_the_name_of_one_of_its_own_is_not_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = [("id", "int32", False), ("name", "string", True), ("__deleted_at", "string", True)]
    row = {"id": 1, "name": "Ann", "__deleted_at": "never"}
    table = soft(spark, tmp_path)
    table.send(
        [
            make_record(
                make_payload(source=at_position(1), after=row), schema=envelope_schema(*columns)
            )
        ]
    )
    reported = (
        "CDC tables have columns of that name themselves; give it another name by "
        "names={'__deleted_at': …}"
    )
    assert f"column __deleted_at is not taken: {reported}" in table.run().notes
    assert table.rows == [{"id": 1, "name": "Ann", DELETED_AT: None}]
