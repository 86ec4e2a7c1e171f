"""For how long real topics keep what was not read."""

import time

import pytest

from lakechime_dagster.cdc.kafka import times_left
from lakechime_dagster.sources.kafka_client import ask_topics
from lakechime_dagster.triggers.consumers import KafkaPlace, TopicPlace
from tests.support.topics import ENVIRONMENT, Topics

pytestmark = pytest.mark.services

HOUR = 3_600_000


def test_what_was_not_read_stays_as_long_as_it_is_newer_than_the_oldest_message(topics: Topics) -> None:
    now = int(time.time() * 1000)
    topics.create("orders", partitions=3)
    for partition in (0, 1):
        for hours in (4, 3, 2, 1):
            topics.send("orders", "a", partition=partition, at_ms=now - hours * HOUR)
    (topic,) = ask_topics(topics.feed(), ENVIRONMENT, 10)

    def left(**offsets: int) -> dict[str, float | None]:
        read = {int(name.removeprefix("p")): offset for name, offset in offsets.items()}
        place = KafkaPlace({topic.topic_id: TopicPlace(topic.name, read)})
        return {one.where.removeprefix(topic.name): one.seconds for one in times_left(topics.feed(), ENVIRONMENT, place)}

    assert left(p0=2, p1=0, p2=0) == {"[0]": None, "[1]": None}, "a topic that has dropped nothing does not tell how old messages grow"
    for partition in (0, 1):
        topics.cut("orders", before=1, partition=partition)
    assert left(p0=2, p1=4, p2=0) == {"[0]": 3600.0}
    assert left(p0=3, p1=1, p2=0) == {"[0]": 7200.0, "[1]": None}
    topics.cut("orders", before=3)
    assert left(p0=2, p1=4, p2=0) == {"[0]": 0}
    assert times_left(topics.feed(), ENVIRONMENT, KafkaPlace()) == []
