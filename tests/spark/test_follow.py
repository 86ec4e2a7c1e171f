"""A table that follows a database is what the database was, whatever comes in which step."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.change import Change
from lakechime_dagster.cdc.debezium import DebeziumReader
from lakechime_dagster.cdc.record import Changes
from lakechime_dagster.lake.envelopes import Debezium
from tests.cdc.captures import captures
from tests.cdc.messages import KEYS, messages
from tests.cdc.oracle import rows_of
from tests.cdc.test_fold import history
from tests.support.follows import Followed

pytestmark = pytest.mark.spark
CAPTURES = {capture.name: capture for capture in captures()}
SHARDS = 150


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
