"""Reads an exact range of Kafka topics in batch: what was committed between two places, each message once."""

import json
from collections.abc import Mapping
from itertools import chain
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.errors import FeedUnreadableError
from lakechime_dagster.lake.feeds import KafkaTopic
from lakechime_dagster.lake.kafka import java_settings, without_secrets
from lakechime_dagster.spark.drivers.failures import description
from lakechime_dagster.triggers.feeds import KafkaPlace, Span

EARLIEST = -2  # Spark's word for the first offset that is there
ROWS = 500_000  # offsets that one task reads
MILLISECONDS = 15_000  # that a cluster has to answer
_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")


def read_topics(
    spark: SparkSession, feed: KafkaTopic, start: KafkaPlace, end: KafkaPlace, environment: Mapping[str, str]
) -> DataFrame | None:
    """The messages between two places, as topic, topic_id, partition, offset, timestamp, key, value, headers; None without an offset.

    What an aborted transaction wrote, and the marks that end transactions, are offsets without a row: rows are counted, never
    subtracted from offsets. A partition that the start does not know is read from the first offset that is there. Offsets
    that are gone by the time of reading end the read: nothing is left out.

    Raises:
        FeedUnreadableError: The cluster cannot be asked, or a topic is not there any more, or another one of its name.
        InvalidValueError: An option is not in the environment.
    """
    spans = spans_after(start, end)
    if not spans:
        return None
    settings = java_settings(feed, environment)
    ids = {end.topics[topic_id].name: topic_id for topic_id in spans}
    _expect_ids(spark, feed, settings, ids, environment)
    named = {name: spans[topic_id] for name, topic_id in ids.items()}
    options = {f"kafka.{name}": value for name, value in settings.items()} | {
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps({name: list(partitions) for name, partitions in named.items()}),
        "startingOffsets": json.dumps({name: {str(number): span[0] for number, span in of.items()} for name, of in named.items()}),
        "endingOffsets": json.dumps({name: {str(number): span[1] for number, span in of.items()} for name, of in named.items()}),
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxRecordsPerPartition": str(ROWS),
    }
    frame = spark.read.format("kafka").options(**options).load()
    topic_ids = F.create_map(*map(F.lit, chain.from_iterable(ids.items())))
    return frame.select("topic", topic_ids[F.col("topic")].alias("topic_id"), *_COLUMNS)


def spans_after(start: KafkaPlace, end: KafkaPlace) -> dict[str, dict[int, Span]]:
    """What lies between two places, by the topic's id and partition."""
    spans: dict[str, dict[int, Span]] = {}
    for topic_id, topic in sorted(end.topics.items()):
        known = start.topics[topic_id].offsets if topic_id in start.topics else {}
        found = {number: (known.get(number, EARLIEST), stop) for number, stop in sorted(topic.offsets.items())}
        grown = {number: (first, stop) for number, (first, stop) in found.items() if max(first, 0) < stop}
        spans |= {topic_id: grown} if grown else {}
    return spans


def _expect_ids(
    spark: SparkSession, feed: KafkaTopic, settings: Mapping[str, str], ids: Mapping[str, str], environment: Mapping[str, str]
) -> None:
    """Refuses to read a topic by its name that is not the one of the place."""
    jvm: Any = spark.sparkContext._jvm
    properties = jvm.java.util.Properties()
    for name, value in {**settings, "default.api.timeout.ms": str(MILLISECONDS), "request.timeout.ms": str(MILLISECONDS)}.items():
        properties.setProperty(name, value)
    try:
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        try:
            described = client.describeTopics(list(ids)).allTopicNames().get()
            found = {name: described[name].topicId().toString() for name in ids}
        finally:
            client.close()
    except Py4JJavaError as error:
        raise FeedUnreadableError(f"{feed} cannot be read: {without_secrets(description(error), feed, environment)}") from error
    for name, topic_id in ids.items():
        if topic_id not in (found[name], name):  # its name where the cluster had no ids
            raise FeedUnreadableError(f"{name} is to be read with id {topic_id}, and has id {found[name]} now: it was made anew")
