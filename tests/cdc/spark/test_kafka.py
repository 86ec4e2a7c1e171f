"""Exact ranges of a real Kafka's topics, read by Spark with a login."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.cdc.job import BronzeJob, MessageFormat
from lakechime_dagster.cdc.spark_bronze import ingest
from lakechime_dagster.sources.kafka import KafkaSource
from lakechime_dagster.sources.spark import read_topics
from lakechime_dagster.spark.driver import SparkFailedError, described
from lakechime_dagster.spark.job import Outcome, TableResult
from lakechime_dagster.tables.databases import Maxwell
from lakechime_dagster.tables.sources import KafkaTopic, java_settings
from lakechime_dagster.triggers.consumers import (
    Checkpoint,
    CommitMetadata,
    ConsumerId,
    KafkaOffsets,
)
from tests.support.refreshes import open_log
from tests.support.replica import read
from tests.support.topics import ENVIRONMENT, Topics


@dataclass
class Reading:
    """What Spark reads of a test's topics between looks at them."""

    spark: SparkSession
    topics: Topics
    checkpoint: KafkaOffsets

    def look(self) -> KafkaOffsets:
        end = (
            KafkaSource(self.topics.source(), ENVIRONMENT, is_ordered_by_position=True)
            .poll(self.checkpoint)
            .end
        )
        assert isinstance(end, KafkaOffsets)
        return end

    def frame(
        self, end: KafkaOffsets | None = None, environment: dict[str, str] = ENVIRONMENT
    ) -> DataFrame | None:
        return read_topics(
            self.spark, self.topics.source(), self.checkpoint, end or self.look(), environment
        )

    def values(self, end: KafkaOffsets | None = None) -> Sequence[tuple[str, int, int, str]]:
        """Topic, partition, offset and value of each message."""
        frame = self.frame(end)
        assert frame is not None
        rows = frame.selectExpr("topic", "partition", "offset", "cast(value AS string)").collect()
        return sorted((row[0].partition(".")[2], *row[1:]) for row in rows)


@pytest.fixture
def reading(spark: SparkSession, topics: Topics) -> Reading:
    return Reading(spark, topics, KafkaOffsets())


@pytest.mark.spark
@pytest.mark.services
def test_a_message_is_read_with_all_its_parts_and_the_id_of_its_topic(reading: Reading) -> None:
    reading.topics.create("orders")
    reading.topics.send("orders", "a", key="k")
    reading.topics.send("orders", None)
    frame = reading.frame()
    assert frame is not None
    first, tombstone = sorted(
        (row.asDict(recursive=True) for row in frame.collect()), key=lambda row: row["offset"]
    )
    assert first.pop("timestamp").year > 2000
    (topic_id,) = reading.look().topics
    assert first == {
        "topic": reading.topics.named("orders"),
        "topic_id": topic_id,
        "partition": 0,
        "offset": 0,
        "key": b"k",
        "value": b"a",
        "headers": [{"key": "origin", "value": b"test"}],
    }
    assert (tombstone["key"], tombstone["value"]) == (None, None)


@pytest.mark.spark
@pytest.mark.services
def test_ranges_that_follow_each_other_give_each_committed_message_once(reading: Reading) -> None:
    reading.topics.create("orders")
    reading.topics.send("orders", "a")
    reading.topics.aborted("orders", "no", "no")
    reading.topics.committed("orders", "b")
    end = reading.look()
    with reading.topics.transaction("orders", "late") as producer:
        reading.topics.send("orders", "c")
        open_end = reading.look()
        first = reading.values(open_end)
        producer.commit_transaction(30)
    reading.checkpoint = open_end
    reading.topics.create("orders_2", 2)
    reading.topics.send("orders_2", "d", partition=1)
    reading.topics.grow("orders", 2)
    reading.topics.send("orders", "e", partition=1)
    second = reading.values()
    assert open_end == end
    assert first == [("orders", 0, 0, "a"), ("orders", 0, 4, "b")]
    assert second == [
        ("orders", 0, 6, "late"),
        ("orders", 0, 7, "c"),
        ("orders", 1, 0, "e"),
        ("orders_2", 1, 0, "d"),
    ]


@pytest.mark.spark
@pytest.mark.services
def test_executions_of_a_limit_give_each_message_once_and_those_of_heartbeats_last(
    reading: Reading,
) -> None:
    reading.topics.create("orders", 3)
    reading.topics.create("beats")
    reading.topics.send("beats", "beat")
    for partition, count in enumerate((9, 4)):
        reading.topics.send(
            "orders", *(f"{partition}-{number}" for number in range(count)), partition=partition
        )
    reading.topics.aborted("orders", "no", "no")
    topic = reading.topics.source(
        "orders*", heartbeats=reading.topics.named("beats"), max_offsets=5
    )
    source, has_more = KafkaSource(topic, ENVIRONMENT, is_ordered_by_position=True), True
    executions: list[list[tuple[str, int, int, str]]] = []
    while has_more:
        poll = source.poll(reading.checkpoint)
        end, has_more = poll.limited_end or poll.end, poll.limited_end is not None
        assert isinstance(end, KafkaOffsets)
        frame = reading.frame(end)
        executions.append(sorted(reading.values(end)) if frame is not None else [])
        reading.checkpoint = end
    read_ = sorted(message for number in executions for message in number)
    assert read_ == [
        ("beats", 0, 0, "beat"),
        *(("orders", 0, number, f"0-{number}") for number in range(9)),
        *(("orders", 1, number, f"1-{number}") for number in range(4)),
    ]
    assert all(len(number) <= 5 for number in executions)
    assert ("beats", 0, 0, "beat") in executions[-1]
    assert len(executions) == 4


@pytest.mark.spark
@pytest.mark.services
def test_offsets_that_are_gone_when_they_are_read_end_the_read(reading: Reading) -> None:
    reading.topics.create("orders")
    reading.topics.send("orders", "a")
    reading.checkpoint = reading.look()
    reading.topics.send("orders", "b", "c", "d")
    end = reading.look()
    reading.topics.cut("orders", 3)
    with (
        pytest.raises(
            SparkFailedError, match=r"offset=1, .* is out of range for partition \S+orders-0"
        ),
        described(),
    ):
        reading.values(end)


@pytest.mark.spark
@pytest.mark.services
def test_messages_become_rows_once_and_offsets_without_a_message_no_commit(
    reading: Reading, tmp_path: Path
) -> None:
    job = BronzeJob(
        name="shop.orders__changes",
        location=str(tmp_path / "table"),
        source=reading.topics.source(),
        environment=ENVIRONMENT,
        format=MessageFormat(envelope=Maxwell(), keys=("id",), types={"id": "bigint"}),
    )

    def attempt(number: int, nth: int, start: KafkaOffsets, end: KafkaOffsets) -> TableResult:
        commit_metadata = CommitMetadata(
            consumer=ConsumerId("test", job.name),
            number=number,
            attempt=nth,
            execution_id=f"e{number}",
            end=Checkpoint(offsets=end),
        )
        return ingest(
            reading.spark,
            replace(job, start=Checkpoint(offsets=start), may_complete_empty=nth == 1),
            commit_metadata,
            open_log,
        )

    reading.topics.create("orders", 2)
    reported = (
        '{"database": "shop", "table": "orders", "type": "insert", "ts": 1, "data": {"id": 7}}'
    )
    reading.topics.send("orders", reported, b"\xff\x00", None, key="k", partition=1)
    first = reading.look()
    result = attempt(1, 1, reading.checkpoint, first)
    assert (result.outcome, result.counts.rows_in, result.events) == (
        Outcome.COMMITTED,
        3,
        {"change": 1, "tombstone": 1, "unreadable": 1},
    )
    reading.topics.aborted("orders", "no")
    second = reading.look()
    assert attempt(1, 2, reading.checkpoint, second).outcome is Outcome.SKIPPED
    assert attempt(2, 1, first, second).outcome is Outcome.NOTHING
    change, unreadable, tombstone = sorted(read(job.location), key=lambda row: row["offset"])
    (topic_id,) = first.topics
    assert (change["topic"], change["topic_id"], change["partition"]) == (
        reading.topics.named("orders"),
        topic_id,
        1,
    )
    assert (change["kind"], change["row_key"], change["value"], change["key"]) == (
        "change",
        "[7]",
        reported,
        "k",
    )
    assert (change["headers"], change["timestamp"].year > 2000) == (
        [{"key": "origin", "value": b"test"}],
        True,
    )
    assert (unreadable["kind"], unreadable["value"], unreadable["value_bytes"]) == (
        "unreadable",
        None,
        b"\xff\x00",
    )
    assert (tombstone["kind"], tombstone["value"], tombstone["value_bytes"]) == (
        "tombstone",
        None,
        None,
    )


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")],
)
def test_a_login_and_certificates_are_put_as_javas_client_takes_them(
    mechanism: str, module: str
) -> None:
    options = {
        "sasl.mechanisms": mechanism,
        "sasl.username": "lake",
        "sasl.password": "$PASSWORD",
        "ssl.ca.location": "/etc/ca.pem",
    }
    settings: dict[str, Any] = java_settings(
        KafkaTopic("orders", bootstrap="broker:9092", options=options), {"PASSWORD": 'a"b\\c'}
    )
    assert settings == {
        "bootstrap.servers": "broker:9092",
        "sasl.mechanism": mechanism,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/ca.pem",
        "sasl.jaas.config": (
            f'org.apache.kafka.common.security.{module} required username="lake" '
            f'password="a\\"b\\\\c";'
        ),
    }
