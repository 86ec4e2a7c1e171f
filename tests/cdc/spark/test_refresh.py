"""A table that follows a database is what the database was, whatever comes in which execution."""

import datetime as dt
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.change import Change, order_text
from lakechime_dagster.cdc.debezium import DebeziumReader
from lakechime_dagster.cdc.record import Record
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.spark.job import Outcome
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.names import END_AT, END_SEQ, START_AT, START_SEQ
from tests.cdc.captures import captures
from tests.cdc.factories import make_record
from tests.cdc.merge.lake import changes_in, changes_made
from tests.cdc.oracle import histories_of, rows_of
from tests.cdc.order_messages import KEYS, messages
from tests.cdc.test_captures import TABLES, UNREPORTED, differences, label
from tests.support.orders import deletion, order
from tests.support.replica import Replica, read

pytestmark = pytest.mark.spark
CAPTURES = {capture.name: capture for capture in captures()}
SHARDS = 150
# of what was recorded, a table for each kind of value or of execution; the plain fold is held against
# all
ON_SPARK = (
    "mariadb-types.numbers",
    "mariadb-types.moments",
    "postgres-types.texts",
    "postgres-toast.documents",
    "postgres-key_change.ranks",
    "mariadb-truncate.staging",
    "mariadb-flattened_defaults.orders",
    "postgres-defaults.stock",
)


# None is a Delta table, the others are Iceberg tables
WRITE_MODES = [None, pytest.param("copy-on-write", marks=pytest.mark.tier2), "merge-on-read"]


@pytest.mark.parametrize("write_mode", WRITE_MODES)
def test_any_order_and_any_split_gives_the_table_of_the_oracle(
    spark: SparkSession, tmp_path: Path, write_mode: str | None
) -> None:
    """Of many histories, each a shard of one table, with some messages that come again."""
    dice = random.Random(5)
    records = [
        record
        for shard in range(SHARDS)
        for record in messages(shard_history(dice, str(shard)), f"shard{shard}")
    ]
    reported = [*records, *dice.sample(records, 100)]
    dice.shuffle(reported)
    table = Replica(spark, tmp_path, KEYS, write_mode=write_mode)
    for part in range(4):
        table.send(reported[part::4])
        result = table.run()
        assert result.counts.is_balanced
        assert sum(result.events.values()) == len(reported[part::4])
        assert "quarantined" not in result.events
    changes = changes_in(DebeziumReader(Debezium(), KEYS), records)
    assert {(row["shard"], row["id"]): row for row in table.rows} == rows_of(
        changes, (*KEYS, "a", "b")
    )


@pytest.mark.parametrize("write_mode", [None, "copy-on-write"])
def test_any_order_and_any_split_gives_the_histories_of_the_oracle(
    spark: SparkSession, tmp_path: Path, write_mode: str | None
) -> None:
    dice = random.Random(6)
    records = [
        record
        for shard in range(SHARDS)
        for record in messages(shard_history(dice, str(shard)), f"shard{shard}")
    ]
    reported = dice.sample(records, len(records))
    table = Replica(
        spark,
        tmp_path,
        KEYS,
        merge={"stored_as_scd_type": 2, "track_history_except_column_list": ("b",)},
        write_mode=write_mode,
    )
    for part in range(3):
        table.send(reported[part::3])
        assert table.run().counts.is_balanced
    changes = changes_in(DebeziumReader(Debezium(), KEYS), records)
    columns = (*KEYS, "a", "b")
    expected = {
        (*key, order_text(row.start_seq)): (
            dict(row.columns),
            row.start_at,
            row.end_seq and order_text(row.end_seq),
            row.end_at,
        )
        for key, rows in histories_of(changes, columns, [*KEYS, "a"]).items()
        for row in rows
    }
    assert {
        (row["shard"], row["id"], row[START_SEQ]): reported_span(row, columns)
        for row in table.stored
    } == expected


def reported_span(
    row: Mapping[str, Any], columns: Sequence[str]
) -> tuple[dict[str, Any], int | None, str | None, int | None]:
    start_at, end_at = (
        row[name] and round(row[name].timestamp() * 1000) for name in (START_AT, END_AT)
    )
    return {name: row[name] for name in columns}, start_at, row[END_SEQ], end_at


def shard_history(dice: random.Random, shard: str) -> list[Change]:
    """What a database does to a few rows of a shard; each of its sources is a shard of its own."""

    def own(change: Change) -> Change:
        key, continues = (
            (f"{shard}{one[0]}", one[1]) if one else one for one in (change.key, change.continues)
        )
        return replace(change, source=f"{shard}{change.source}", key=key or (), continues=continues)

    return [own(change) for change in changes_made(dice, dice.randint(1, 12))]


@pytest.mark.parametrize("write_mode", [None, "copy-on-write"])
def test_an_attempt_that_dies_between_its_commits_leaves_the_next_one_the_same_work(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_mode: str | None
) -> None:
    """Though more has come meanwhile: what was remembered decides the range of the execution."""
    table = Replica(spark, tmp_path, ("id",), write_mode=write_mode)
    table.send([order(1, at=1), order(2, at=2)])
    table.run()
    table.send([order(1, at=3, name="Bob"), deletion(2, at=4)])
    end = table.end()
    with monkeypatch.context() as dying:
        dying.setattr("lakechime_dagster.cdc.spark_refresh.write_rows", interrupt)
        with pytest.raises(KeyboardInterrupt):
            table.attempt(2)
    table.send([order(1, at=5, name="Cid"), order(3, at=6)])
    assert [row["name"] for row in table.rows] == ["Ann", "Ann"]
    second = table.attempt(2, attempt=2)
    assert second.committed is not None
    assert second.committed.commit_metadata.end.sources == end.sources
    assert (second.counts.updated, second.counts.deleted) == (1, 1)
    assert [row["name"] for row in table.rows] == ["Bob"]
    # the first one, if it was not dead
    assert table.attempt(2, attempt=1).outcome is Outcome.SKIPPED
    table.number, table.checkpoint = 2, end.sources["orders__changes"]
    table.run()
    assert [(row["id"], row["name"]) for row in table.rows] == [(1, "Cid"), (3, "Ann")]


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("write_mode", [None, "copy-on-write"])
def test_an_execution_without_a_difference_commits_nothing_and_a_later_attempt_a_fence(
    spark: SparkSession, tmp_path: Path, write_mode: str | None
) -> None:
    table = Replica(spark, tmp_path, ("id",), write_mode=write_mode)
    table.send([order(1, at=2)])
    table.run()
    table.send([replace(order(1, at=2), offset=7), order(1, at=1)])
    again = table.attempt(2)
    assert again.outcome is Outcome.NOTHING
    assert again.events == {"delivered again": 1, "stale": 1}
    assert table.attempt(2, attempt=2).outcome is Outcome.FENCED
    table.checkpoint, table.number = table.end().sources["orders__changes"], 2
    assert table.attempt(3).outcome is Outcome.NOTHING
    assert table.attempt(3, attempt=2).outcome is Outcome.FENCED


def test_a_consumer_whose_ledger_was_lost_does_its_executions_again_by_what_was_remembered(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its place is known from the table then, in which the last three executions left no commit:
    two had no difference, one died.
    """
    table = Replica(spark, tmp_path, ("id",))
    table.send([order(1, at=1), order(2, at=2)])
    table.run()
    position, before = table.checkpoint, tmp_path / "before"
    shutil.copytree(table.location, before)
    for again in ([replace(order(1, at=1), offset=3)], [heartbeat()], [order(1, at=4, name="Bob")]):
        table.send(again)
        table.run()
    shutil.rmtree(table.location)
    before.rename(table.location)
    remembered, table.checkpoint = table.remembered, position
    results = [table.attempt(number, attempt=2) for number in (2, 3, 4)]
    assert [one.outcome for one in results] == [Outcome.FENCED, Outcome.FENCED, Outcome.COMMITTED]
    assert [row["name"] for row in table.rows] == ["Bob", "Ann"]
    assert table.remembered == remembered


def heartbeat() -> Record:
    return make_record({"ts_ms": 5}, key=None, offset=3)


@pytest.mark.tier2
@pytest.mark.parametrize("write_mode", [None, "merge-on-read"])
def test_a_table_is_rebuilt_from_its_bronze_table(
    spark: SparkSession, tmp_path: Path, write_mode: str | None
) -> None:
    table = Replica(spark, tmp_path, ("id",), write_mode=write_mode)
    table.send([order(1, at=1), order(2, at=2), deletion(2, at=3)])
    table.run()
    table.damage()
    table.checkpoint = SnapshotCheckpoint()
    table.run()
    assert [(row["id"], row["name"]) for row in table.rows] == [(1, "Ann")]
    table.send([order(1, at=4, name="Bob")])
    table.run()
    assert [(row["id"], row["name"]) for row in table.rows] == [(1, "Bob")]


@pytest.mark.parametrize(
    ("name", "topic"),
    [one for one in TABLES if label(*one) in ON_SPARK],
    ids=lambda one: one.rpartition(".")[2],
)
def test_what_real_databases_said_gives_their_rows(
    spark: SparkSession, tmp_path: Path, name: str, topic: str
) -> None:
    capture = CAPTURES[name]
    envelope = Debezium(tombstones_delete=name.endswith("flattened_defaults"))
    table = Replica(spark, tmp_path, capture.keys[topic], envelope)
    records = list(capture.of(topic))
    for part in range(2):
        table.send(records[part::2])
        table.run()
    assert differences(table.rows, capture.rows[topic], capture.keys[topic]) <= UNREPORTED.get(
        label(name, topic), set()
    )


def test_what_is_remembered_does_not_grow_with_the_age_of_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Replica(
        spark,
        tmp_path,
        ("id",),
        options={"allowed_lateness": dt.timedelta(milliseconds=5), "collects_above": 4},
    )
    table.send([order(9, at=1, ts_ms=1), deletion(9, at=2, ts_ms=2)])
    table.run()
    for at in (10, 20, 30):
        table.send([order(1 + i, at=at + i, ts_ms=at + i) for i in range(4)])
        table.run()
    assert {row["key"] for row in table.remembered if row["role"] in ("change", "base")} == {
        f"[{number}]" for number in (1, 2, 3, 4)
    }
    assert len(table.remembered) < 16
    late = [order(9, at=1, name="late", ts_ms=1), order(2, at=25, name="late", ts_ms=25)]
    table.send([replace(one, partition=1) for one in late])
    # nobody knows any more that the one was deleted
    assert table.run().events == {"stale": 1, "quarantined": 1}
    assert [row["id"] for row in table.rows] == [1, 2, 3, 4]


def test_nothing_is_forgotten_while_the_source_holds_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As what lies in another partition may be older by far."""
    table = Replica(
        spark,
        tmp_path,
        ("id",),
        options={"allowed_lateness": dt.timedelta(milliseconds=5), "collects_above": 4},
    )
    table.send([order(9, at=1, ts_ms=1), deletion(9, at=2, ts_ms=2)], has_more=True)
    table.run()
    for at in (10, 20, 30):
        table.send([order(1 + i, at=at + i, ts_ms=at + i) for i in range(4)], has_more=True)
        table.run()
    table.send([replace(order(9, at=1, name="late", ts_ms=1), partition=1)], has_more=True)
    assert table.run().events == {"stale": 1}
    remembered = len(table.remembered)
    table.send([order(1, at=40, ts_ms=40)])
    table.run()
    assert len(table.remembered) < remembered
    assert [row["id"] for row in table.rows] == [1, 2, 3, 4]


def test_a_table_that_follows_no_database_is_not_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Replica(spark, tmp_path, ("id",))
    write_deltalake(table.location, pa.table({"id": [7]}))
    table.send([order(1, at=1)])
    with pytest.raises(
        ConsumerBlockedError,
        match=r"there is a table at .* that replicates no database; move it away",
    ):
        table.attempt(1)
    assert read(table.location) == [{"id": 7}]


def test_a_table_gets_another_format_by_a_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    table = Replica(spark, tmp_path, ("id",), options={"has_committed": True})
    table.send([order(1, at=1), order(2, at=2)])
    table.run()
    table.spark, table.write_mode = spark.newSession(), "copy-on-write"
    table.send([order(1, at=3, name="Bob")])
    with pytest.raises(
        ConsumerBlockedError,
        match=r"not in the format that is declared; `lakechime trigger seek orders --to beginning`",
    ):
        table.attempt(2)
    table.checkpoint = SnapshotCheckpoint()
    table.run()
    assert [(row["id"], row["name"]) for row in table.rows] == [(1, "Bob"), (2, "Ann")]


def test_messages_that_were_recreated_replace_no_table_unasked(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Replica(spark, tmp_path, ("id",))
    table.send([order(1, at=1), order(2, at=2)])
    table.run()
    shutil.rmtree(table.bronze)
    table.send([order(3, at=3)])
    with pytest.raises(
        ConsumerBlockedError,
        match=r"RECREATED.*`lakechime trigger seek orders --to beginning` rebuilds the table",
    ):
        table.attempt(2)
    assert [row["id"] for row in table.rows] == [1, 2]
