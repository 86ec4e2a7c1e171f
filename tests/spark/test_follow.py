"""A table that follows a database is what the database was, whatever comes in which step."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.change import Change
from lakechime_dagster.cdc.debezium import DebeziumReader
from lakechime_dagster.cdc.record import Changes, Record
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.lake.envelopes import PLACEHOLDER, Debezium
from lakechime_dagster.spark.follow import Step
from lakechime_dagster.spark.job import Outcome
from tests.cdc.captures import captures
from tests.cdc.factories import BINLOG, envelope_schema, make_payload, make_record
from tests.cdc.messages import KEYS, messages
from tests.cdc.oracle import rows_of
from tests.cdc.test_captures import TABLES, UNTOLD, differences, label
from tests.cdc.test_fold import history
from tests.support.follows import Followed, read

pytestmark = pytest.mark.spark
CAPTURES = {capture.name: capture for capture in captures()}
SHARDS = 150
ON_SPARK = (  # of what was recorded, a table for each kind of value or of step; the plain fold is held against all
    "mariadb-types.numbers",
    "mariadb-types.moments",
    "postgres-types.texts",
    "postgres-toast.documents",
    "postgres-key_change.ranks",
    "mariadb-truncate.staging",
)


def test_any_order_and_any_split_gives_the_table_of_the_oracle(spark: SparkSession, tmp_path: Path) -> None:
    """Of many histories, each a shard of one table, with some messages that come again."""
    dice = random.Random(5)
    records = [record for shard in range(SHARDS) for record in messages(shard_history(dice, str(shard)), f"shard{shard}")]
    told = [*records, *dice.sample(records, 100)]
    dice.shuffle(told)
    table = Followed(spark, tmp_path, KEYS)
    for part in range(4):
        table.tell(told[part::4])
        result = table.run()
        assert result.counts.is_balanced
        assert sum(result.events.values()) == len(told[part::4])
        assert "quarantined" not in result.events
    reader = DebeziumReader(Debezium(), KEYS)
    changes = [change for record in records if isinstance(found := reader.read(record), Changes) for change in found.changes]
    assert {(row["shard"], row["id"]): row for row in table.rows} == rows_of(changes, (*KEYS, "a", "b"))


def shard_history(dice: random.Random, shard: str) -> list[Change]:
    """What a database does to a few rows of a shard; each of its sources is a shard of its own."""

    def own(change: Change) -> Change:
        key, continues = ((f"{shard}{one[0]}", one[1]) if one else one for one in (change.key, change.continues))
        return replace(change, source=f"{shard}{change.source}", key=key or (), continues=continues)

    return [own(change) for change in history(dice, dice.randint(1, 12))]


def test_an_attempt_that_dies_between_its_commits_leaves_the_next_one_the_same_work(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though more has come meanwhile: what was remembered decides the range of the step."""
    table = Followed(spark, tmp_path, ("id",))
    table.tell([order(1, at=1), order(2, at=2)])
    table.run()
    table.tell([order(1, at=3, name="Bob"), deletion(2, at=4)])
    end = table.end()
    with monkeypatch.context() as dying:
        dying.setattr(Step, "_write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            table.attempt(2)
    table.tell([order(1, at=5, name="Cid"), order(3, at=6)])
    assert [row["name"] for row in table.rows] == ["Ann", "Ann"]
    second = table.attempt(2, attempt=2)
    assert second.committed is not None
    assert second.committed.stamp.end.sources == end.sources
    assert (second.counts.updated, second.counts.deleted) == (1, 1)
    assert [row["name"] for row in table.rows] == ["Bob"]
    assert table.attempt(2, attempt=1).outcome is Outcome.SKIPPED  # the first one, if it was not dead
    table.step, table.place = 2, end.sources["orders__changes"]
    table.run()
    assert [(row["id"], row["name"]) for row in table.rows] == [(1, "Cid"), (3, "Ann")]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_step_without_a_difference_commits_nothing_and_a_later_attempt_a_fence(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",))
    table.tell([order(1, at=2)])
    table.run()
    table.tell([replace(order(1, at=2), offset=7), order(1, at=1)])
    again = table.attempt(2)
    assert again.outcome is Outcome.NOTHING
    assert again.events == {"delivered again": 1, "stale": 1}
    assert table.attempt(2, attempt=2).outcome is Outcome.FENCED


def test_a_table_is_rebuilt_from_its_bronze_table(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",))
    table.tell([order(1, at=1), order(2, at=2), deletion(2, at=3)])
    table.run()
    DeltaTable(table.location).update(updates={"name": "'damaged'"})
    table.place = SnapshotPlace()
    table.run()
    assert [(row["id"], row["name"]) for row in table.rows] == [(1, "Ann")]
    table.tell([order(1, at=4, name="Bob")])
    table.run()
    assert [(row["id"], row["name"]) for row in table.rows] == [(1, "Bob")]


def test_columns_are_added_and_widened_as_messages_bring_them(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",))
    table.tell([order(1, at=1), order(2, at=2)])
    table.run()
    columns = [("id", "int64", False), ("name", "string", True), ("amount", "int64", True), ("note", "string", True)]
    row = {"id": 2**40, "name": "Eve", "amount": 7, "note": "new"}
    table.tell([make_record(make_payload(source=at_position(3), after=row), schema=envelope_schema(*columns), key={"id": 2**40})])
    result = table.run()
    assert dict(result.schema) == {"id": "bigint", "name": "string", "amount": "bigint", "note": "string"}
    assert [(one["id"], one["note"]) for one in table.rows] == [(1, None), (2, None), (2**40, "new")]
    table.tell([order(1, at=4, name="Bob")])  # with the older schema still, which some other shard may have
    table.run()
    assert [(one["id"], one["name"]) for one in table.rows] == [(1, "Bob"), (2, "Ann"), (2**40, "Eve")]


def test_what_cannot_be_read_or_does_not_fit_is_quarantined_with_its_place_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",))
    table.tell([order(1, at=1)])
    table.run()
    text = [("id", "int32", False), ("name", "string", True), ("amount", "string", True)]
    other = make_record(make_payload(source=at_position(3), after={"id": 3, "name": "Eve", "amount": "x"}), schema=envelope_schema(*text))
    table.tell([replace(order(1, at=2), value=b"no JSON", offset=70), replace(other, offset=71), order(2, at=4)])
    result = table.run()
    assert result.events == {"applied": 1, "quarantined": 2}
    assert [row["id"] for row in table.rows] == [1, 2]
    refused = {one["offset"]: row["reason"] for row in read(f"{table.location}__quarantine") if (one := json.loads(row["row"]))}
    assert "is no JSON" in refused[70]
    assert "of types that the table cannot hold" in refused[71]


def test_a_truncation_takes_all_rows_of_its_source_unless_it_is_declared_to_be_ignored(spark: SparkSession, tmp_path: Path) -> None:
    records = [order(1, at=1), order(2, at=2), truncation(at=3), order(2, at=4, name="Bob")]
    for folder, merge, rows in (("all", {}, [(2, "Bob")]), ("none", {"apply_as_truncates": False}, [(1, "Ann"), (2, "Bob")])):
        table = Followed(spark, tmp_path / folder, ("id",), merge=merge)
        for part in (records[:2], records[2:]):
            table.tell(part)
            table.run()
        assert [(row["id"], row["name"]) for row in table.rows] == rows


def test_a_row_waits_outside_of_the_table_for_a_column_that_nobody_sent(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",))
    table.tell([order(1, at=2, name=PLACEHOLDER), order(2, at=3)])
    assert table.run().events == {"waiting": 1, "applied": 1}
    assert [row["id"] for row in table.rows] == [2]
    table.tell([order(1, at=1, amount=6)])
    table.run()
    assert table.rows[0] == {"id": 1, "name": "Ann", "amount": 5}


@pytest.mark.parametrize(("name", "topic"), [one for one in TABLES if label(*one) in ON_SPARK], ids=lambda one: one.rpartition(".")[2])
def test_what_real_databases_said_gives_their_rows(spark: SparkSession, tmp_path: Path, name: str, topic: str) -> None:
    capture = CAPTURES[name]
    table = Followed(spark, tmp_path, capture.keys[topic])
    records = list(capture.of(topic))
    for part in range(2):
        table.tell(records[part::2])
        table.run()
    assert differences(table.rows, capture.rows[topic], capture.keys[topic]) <= UNTOLD.get(label(name, topic), set())


def order(number: int, *, at: int, name: str = "Ann", amount: int = 5) -> Record:
    """An order as it was at a position."""
    row = {"id": number, "name": name, "amount": amount}
    payload = make_payload("u", source=at_position(at), after=row)
    return make_record(payload, schema=envelope_schema(), key={"id": number}, offset=at)


def deletion(number: int, *, at: int) -> Record:
    payload = make_payload("d", source=at_position(at), before={"id": number, "name": None, "amount": None})
    return make_record(payload, schema=envelope_schema(), key={"id": number}, offset=at)


def truncation(*, at: int) -> Record:
    return make_record(make_payload("t", source=at_position(at)), schema=envelope_schema(), key=None, offset=at)


def at_position(at: int) -> dict[str, object]:
    return {**BINLOG, "pos": at}
