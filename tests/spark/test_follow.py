"""A table that follows a database is what the database was, whatever comes in which step."""

import datetime as dt
import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.change import Change
from lakechime_dagster.cdc.debezium import DebeziumReader
from lakechime_dagster.cdc.record import Changes, Record
from lakechime_dagster.cdc.wire import order_text
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.errors import LaneHeldError
from lakechime_dagster.lake.envelopes import PLACEHOLDER, Debezium
from lakechime_dagster.spark.change_rows import END_AT, END_SEQ, START_AT, START_SEQ
from lakechime_dagster.spark.job import Outcome
from tests.cdc.captures import captures
from tests.cdc.factories import BINLOG, envelope_schema, make_payload, make_record
from tests.cdc.messages import KEYS, messages
from tests.cdc.oracle import histories_of, rows_of
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
    "mariadb-flattened_defaults.orders",
    "postgres-defaults.stock",
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


def test_any_order_and_any_split_gives_the_histories_of_the_oracle(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(6)
    records = [record for shard in range(SHARDS) for record in messages(shard_history(dice, str(shard)), f"shard{shard}")]
    told = dice.sample(records, len(records))
    table = Followed(spark, tmp_path, KEYS, merge={"stored_as_scd_type": 2, "track_history_except_column_list": ("b",)})
    for part in range(3):
        table.tell(told[part::3])
        assert table.run().counts.is_balanced
    reader = DebeziumReader(Debezium(), KEYS)
    changes = [change for record in records if isinstance(found := reader.read(record), Changes) for change in found.changes]
    columns = (*KEYS, "a", "b")
    expected = {
        (*key, order_text(row.start_seq)): (dict(row.columns), row.start_at, row.end_seq and order_text(row.end_seq), row.end_at)
        for key, rows in histories_of(changes, columns, [*KEYS, "a"]).items()
        for row in rows
    }
    assert {(row["shard"], row["id"], row[START_SEQ]): told_span(row, columns) for row in read(table.location)} == expected


def told_span(row: Mapping[str, Any], columns: Sequence[str]) -> tuple[dict[str, Any], int | None, str | None, int | None]:
    start_at, end_at = (row[name] and round(row[name].timestamp() * 1000) for name in (START_AT, END_AT))
    return {name: row[name] for name in columns}, start_at, row[END_SEQ], end_at


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
        dying.setattr("lakechime_dagster.spark.follow.write_rows", interrupt)
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


def interrupt(*_: object, **__: object) -> None:
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
    table.place, table.step = table.end().sources["orders__changes"], 2
    assert table.attempt(3).outcome is Outcome.NOTHING
    assert table.attempt(3, attempt=2).outcome is Outcome.FENCED


def test_a_lane_whose_ledger_was_lost_does_its_steps_again_by_what_was_remembered(spark: SparkSession, tmp_path: Path) -> None:
    """Its place is known from the table then, in which the last three steps left no commit: two had no difference, one died."""
    table = Followed(spark, tmp_path, ("id",))
    table.tell([order(1, at=1), order(2, at=2)])
    table.run()
    place, before = table.place, tmp_path / "before"
    shutil.copytree(table.location, before)
    for again in ([replace(order(1, at=1), offset=3)], [heartbeat()], [order(1, at=4, name="Bob")]):
        table.tell(again)
        table.run()
    shutil.rmtree(table.location)
    before.rename(table.location)
    remembered, table.place = table.remembered, place
    results = [table.attempt(step, attempt=2) for step in (2, 3, 4)]
    assert [one.outcome for one in results] == [Outcome.FENCED, Outcome.FENCED, Outcome.COMMITTED]
    assert [row["name"] for row in table.rows] == ["Bob", "Ann"]
    assert table.remembered == remembered


def heartbeat() -> Record:
    return make_record({"ts_ms": 5}, key=None, offset=3)


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


def test_a_column_that_is_added_with_a_default_gives_it_to_the_rows_that_are_there(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",))
    table.tell([order(1, at=1), order(2, at=2)])
    table.run()
    table.tell([levelled(3, at=5, level=1)])
    result = table.run()
    assert levels(table) == {1: 7, 2: 7, 3: 1}
    assert (result.counts.inserted, result.counts.updated) == (1, 2)
    table.tell([levelled(2, at=6, level=None), order(4, at=3)])
    assert table.run().counts.changed == 2
    assert levels(table) == {1: 7, 2: None, 3: 1, 4: 7}  # the fourth came late: it was there when the column came
    table.tell([order(5, at=7)])  # when the column was dropped again
    table.run()
    assert levels(table) == {1: 7, 2: None, 3: 1, 4: 7, 5: None}


def test_a_history_has_the_default_of_an_added_column_where_its_row_was_there(spark: SparkSession, tmp_path: Path) -> None:
    records = [order(1, at=1), order(1, at=2, name="Bob"), order(2, at=3), levelled(2, at=5, level=7), levelled(1, at=6, level=8)]
    for folder, parts in (("at_once", [records]), ("one_by_one", [[one] for one in records])):
        table = Followed(spark, tmp_path / folder, ("id",), merge={"stored_as_scd_type": 2})
        for part in parts:
            table.tell(part)
            table.run()
        found = sorted((row["id"], row["name"], row["level"]) for row in table.rows if row["id"] == 1)
        assert found == [(1, "Ann", None), (1, "Bob", 7), (1, "Bob", 8)]


def test_what_cannot_be_read_or_does_not_fit_is_quarantined_with_its_place_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",))
    table.tell([order(1, at=1)])
    table.run()
    text = [("id", "int32", False), ("name", "string", True), ("amount", "string", True)]
    other = make_record(make_payload(source=at_position(3), after={"id": 3, "name": "Eve", "amount": "x"}), schema=envelope_schema(*text))
    table.tell([replace(order(1, at=2), value=b"no JSON", offset=2), replace(other, offset=3), order(2, at=4)])
    result = table.run()
    assert result.events == {"applied": 1, "quarantined": 2}
    assert [row["id"] for row in table.rows] == [1, 2]
    refused = {one["offset"]: row["reason"] for row in read(f"{table.location}__quarantine") if (one := json.loads(row["row"]))}
    assert "is no JSON" in refused[2]
    assert "of types that the table cannot hold" in refused[3]


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
    envelope = Debezium(tombstones_delete=name.endswith("flattened_defaults"))
    table = Followed(spark, tmp_path, capture.keys[topic], envelope)
    records = list(capture.of(topic))
    for part in range(2):
        table.tell(records[part::2])
        table.run()
    assert differences(table.rows, capture.rows[topic], capture.keys[topic]) <= UNTOLD.get(label(name, topic), set())


def order(number: int, *, at: int, name: str = "Ann", amount: int = 5, ts_ms: int = 0) -> Record:
    """An order as it was at a position."""
    row = {"id": number, "name": name, "amount": amount}
    payload = make_payload("u", source=at_position(at, ts_ms), after=row)
    return make_record(payload, schema=envelope_schema(), key={"id": number}, offset=at)


def levelled(number: int, *, at: int, level: int | None) -> Record:
    """An order after a column was added with the default 7."""
    level_field = {"field": "level", "type": "int32", "optional": True, "default": 7}
    schema = envelope_schema(("id", "int32", False), ("name", "string", True), ("amount", "int64", True), level_field)
    payload = make_payload("u", source=at_position(at), after={"id": number, "name": "Bob", "amount": 5, "level": level})
    return make_record(payload, schema=schema, key={"id": number}, offset=at)


def levels(table: Followed) -> dict[int, int | None]:
    return {row["id"]: row["level"] for row in table.rows}


def deletion(number: int, *, at: int, ts_ms: int = 0) -> Record:
    payload = make_payload("d", source=at_position(at, ts_ms), before={"id": number, "name": None, "amount": None})
    return make_record(payload, schema=envelope_schema(), key={"id": number}, offset=at)


def truncation(*, at: int) -> Record:
    return make_record(make_payload("t", source=at_position(at)), schema=envelope_schema(), key=None, offset=at)


def at_position(at: int, ts_ms: int = 0) -> dict[str, object]:
    return {**BINLOG, "pos": at, "ts_ms": ts_ms}


def test_positions_that_begin_anew_hold_the_lane_until_somebody_says_that_they_may(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",))
    table.tell([order(1, at=10, name="old"), order(2, at=20)])
    table.run()
    table.tell([replace(order(1, at=4, name="new"), offset=21), replace(order(3, at=6), offset=22)])
    with pytest.raises(
        LaneHeldError, match=r"goes back from \[3, 20, 0\] to \[3, 4, 0\] at offset 21.*lakechime cdc epoch orders --confirm"
    ):
        table.attempt(2)
    table.confirm_epoch("m.shop.orders", 1)
    table.run()
    assert [(row["id"], row["name"]) for row in table.rows] == [(1, "new"), (2, "Ann"), (3, "Ann")]
    table.tell([replace(order(3, at=8, name="newer"), offset=23)])
    table.run()
    assert [(row["id"], row["name"]) for row in table.rows] == [(1, "new"), (2, "Ann"), (3, "newer")]


def test_a_whole_snapshot_after_positions_began_anew_speaks_for_its_source(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",), options={"max_delete_ratio": 0.5})
    table.tell([order(1, at=10), order(2, at=20)])
    table.run()
    table.tell(
        [
            replace(snapshot_row(2, at=4, mark="first"), offset=21),
            replace(snapshot_row(3, at=4, mark="last"), offset=22),
            replace(order(3, at=5, name="Bob"), offset=23),
        ]
    )
    table.run()
    assert [(row["id"], row["name"]) for row in table.rows] == [(2, "Ann"), (3, "Bob")]


def test_messages_that_come_again_further_on_in_their_topic_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """As a connector sends them that was killed before it could say how far it was."""
    records = [order(1, at=10), order(2, at=11), order(1, at=12, name="Bob")]
    table = Followed(spark, tmp_path, ("id",))
    table.tell(records)
    table.run()
    table.tell([replace(one, offset=offset) for offset, one in enumerate([*records[1:], order(3, at=13)], start=20)])
    assert table.run().events == {"delivered again": 2, "applied": 1}
    assert [(row["id"], row["name"]) for row in table.rows] == [(1, "Bob"), (2, "Ann"), (3, "Ann")]


def test_what_is_remembered_does_not_grow_with_the_age_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",), options={"allowed_lateness": dt.timedelta(milliseconds=5), "collects_above": 4})
    table.tell([order(9, at=1, ts_ms=1), deletion(9, at=2, ts_ms=2)])
    table.run()
    for at in (10, 20, 30):
        table.tell([order(1 + i, at=at + i, ts_ms=at + i) for i in range(4)])
        table.run()
    assert {row["key"] for row in table.remembered if row["role"] in ("change", "base")} == {f"[{number}]" for number in (1, 2, 3, 4)}
    assert len(table.remembered) < 16
    late = [order(9, at=1, name="late", ts_ms=1), order(2, at=25, name="late", ts_ms=25)]
    table.tell([replace(one, partition=1) for one in late])
    assert table.run().events == {"stale": 1, "quarantined": 1}  # nobody knows any more that the one was deleted
    assert [row["id"] for row in table.rows] == [1, 2, 3, 4]


def snapshot_row(number: int, *, at: int, mark: str) -> Record:
    payload = make_payload("r", source={**at_position(at), "snapshot": mark}, after={"id": number, "name": "Ann", "amount": 5})
    return make_record(payload, schema=envelope_schema(), key={"id": number}, offset=at)


def test_columns_are_chosen_and_named_as_is_declared(spark: SparkSession, tmp_path: Path) -> None:
    names = {"id": "order_id", "amount": "amt"}
    table = Followed(spark, tmp_path, ("order_id",), merge={"except_column_list": ("name",)}, options={"names": names})
    table.tell([order(1, at=1), order(2, at=2)])
    table.run()
    table.tell([order(1, at=3, amount=9), deletion(2, at=4)])
    table.run()
    assert table.rows == [{"order_id": 1, "amt": 9}]


def test_a_snapshot_that_lacks_too_many_rows_holds_the_lane(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",))
    table.tell([order(number, at=number) for number in range(1, 21)])
    table.run()
    table.tell([snapshot_row(1, at=30, mark="first"), replace(snapshot_row(2, at=30, mark="last"), offset=31)])
    with pytest.raises(LaneHeldError, match=r"lacks 18 of 20 rows, more than max_delete_ratio=0\.1"):
        table.attempt(2)
    assert len(table.rows) == 20
    table.options = {"max_delete_ratio": 0.9}
    table.run()
    assert [row["id"] for row in table.rows] == [1, 2]


def test_a_table_is_laid_out_for_those_who_read_it(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",), options={"cluster_by": ("id",), "has_deletion_vectors": False})
    table.tell([order(1, at=1), order(2, at=2)])
    table.run()
    table.tell([order(1, at=3, name="Bob")])
    table.run()
    details = DeltaTable(table.location)
    assert details.metadata().configuration["delta.enableDeletionVectors"] == "false"
    assert "clustering" in (details.protocol().writer_features or [])
    assert sorted(details.to_pyarrow_table(columns=["name"])["name"].to_pylist()) == ["Ann", "Bob"]  # by a reader without them


def test_an_hour_is_complete_when_every_source_has_told_of_later_than_its_end(spark: SparkSession, tmp_path: Path) -> None:
    hour, minute = 3_600_000, 60_000
    table = Followed(spark, tmp_path, ("id",), options={"max_transaction": dt.timedelta(minutes=1)})
    table.tell([order(1, at=1, ts_ms=5 * hour)])
    assert table.run().complete == (5 * hour - minute, 5 * hour - minute)
    shard = {**at_position(1, 5 * hour + minute), "db": "shard"}
    table.tell([
        order(1, at=2, ts_ms=7 * hour + 2 * minute),
        make_record(make_payload("c", source=shard, after={"id": 2, "name": "Ann", "amount": 5}), schema=envelope_schema()),
    ])  # fmt: skip
    second = table.run()
    assert second.complete == (5 * hour - minute, 5 * hour)
    assert second.committed is not None
    assert (second.committed.stamp.watermark, second.committed.stamp.facts) == (5 * hour, {"complete": [5 * hour - minute, 5 * hour]})
    table.tell([make_record(make_payload("d", source={**shard, "pos": 2, "ts_ms": 8 * hour}, before={"id": 9}), schema=envelope_schema())])
    third = table.attempt(3)
    assert (third.outcome, third.complete) == (Outcome.NOTHING, (5 * hour, 7 * hour + minute))


def test_rows_of_many_shards_are_one_table_by_the_names_of_their_topics(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("shard", "id"), topics={"shards": r"(?P<shard>\w+)\.orders"})
    table.tell([of_shard("eu", order(1, at=1)), of_shard("us", order(1, at=1, name="Bob")), of_shard("us", order(2, at=2))])
    table.run()
    gone = make_record(make_payload("t", source=at_shard("us", at_position(3)), after=None), schema=envelope_schema(), offset=3)
    table.tell([replace(gone, topic="us.orders"), of_shard("eu", order(2, at=4, name="Eve"))])
    table.run()
    assert [(row["shard"], row["id"], row["name"]) for row in table.rows] == [("eu", 1, "Ann"), ("eu", 2, "Eve")]


def of_shard(shard: str, record: Record) -> Record:
    """A message of the table's topic, as the database of a shard tells it."""
    value = json.loads(record.value or b"")
    value["payload"]["source"] = at_shard(shard, value["payload"]["source"])
    return replace(record, topic=f"{shard}.orders", value=json.dumps(value).encode())


def at_shard(shard: str, source: Mapping[str, Any]) -> dict[str, Any]:
    return {**source, "name": shard}


def test_a_heartbeat_completes_the_hours_of_a_quiet_table_with_the_next_step(spark: SparkSession, tmp_path: Path) -> None:
    """As what came before it may lie in a partition that was asked before it was read."""
    hour, minute = 3_600_000, 60_000
    options, topics = {"max_transaction": dt.timedelta(minutes=1)}, {"heartbeats": "demo.*.heartbeat"}
    table = Followed(spark, tmp_path, ("id",), options=options, topics=topics)
    table.tell([order(1, at=1, ts_ms=5 * hour)])
    table.run()
    ends = []
    for at in (7, 8):
        table.tell([beat(at * hour, at)])
        ends.append(table.run().complete)
    assert ends == [(5 * hour - minute, 5 * hour - minute), (5 * hour - minute, 7 * hour - minute)]
    assert [row["id"] for row in table.rows] == [1]


def beat(ts_ms: int, at: int) -> Record:
    source = {**at_position(at, ts_ms), "table": "heartbeat"}
    payload = make_payload("u", source=source, after={"name": "lake", "at": ts_ms})
    return replace(make_record(payload, key=None, offset=at), topic="demo.shop.heartbeat")


def test_a_table_that_follows_no_database_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",))
    write_deltalake(table.location, pa.table({"id": [7]}))
    table.tell([order(1, at=1)])
    with pytest.raises(LaneHeldError, match=r"there is a table at .* that follows no database; move it away"):
        table.attempt(1)
    assert read(table.location) == [{"id": 7}]


def test_messages_that_were_made_anew_replace_no_table_unasked(spark: SparkSession, tmp_path: Path) -> None:
    table = Followed(spark, tmp_path, ("id",))
    table.tell([order(1, at=1), order(2, at=2)])
    table.run()
    shutil.rmtree(table.bronze)
    table.tell([order(3, at=3)])
    with pytest.raises(LaneHeldError, match=r"RECREATED.*`lakechime cdc rebuild orders` makes the table anew"):
        table.attempt(2)
    assert [row["id"] for row in table.rows] == [1, 2]
