"""The newest messages of real topics, for a look."""

import pytest

from lakechime_dagster.cdc.kafka import newest_messages
from tests.support.topics import ENVIRONMENT, Topics

pytestmark = pytest.mark.services


def test_the_newest_committed_messages_of_all_partitions_are_given(topics: Topics) -> None:
    topics.create("orders", partitions=2)
    topics.send("orders", "a", "b", "c", key="k")
    topics.send("orders", "d", None, partition=1)
    topics.aborted("orders", "e")
    found = newest_messages(topics.feed(), ENVIRONMENT, 4)
    assert sorted((one.partition, one.value or b"") for one in found) == [(0, b"b"), (0, b"c"), (1, b""), (1, b"d")]
    last = found[1]
    assert (last.key, last.topic, last.headers["origin"]) == (b"k", topics.named("orders"), b"test")
    assert last.topic_id not in ("", last.topic)


def test_messages_of_transactions_are_among_them(topics: Topics) -> None:
    topics.create("orders")
    topics.create("transaction")
    topics.create("other")
    topics.send("orders", "a")
    topics.send("transaction", "END")
    topics.send("other", "no")
    found = newest_messages(topics.feed("orders", transactions=topics.named("trans*")), ENVIRONMENT, 9)
    assert [(one.topic, one.value) for one in found] == [(topics.named("orders"), b"a"), (topics.named("transaction"), b"END")]


def test_topics_that_hold_nothing_give_nothing(topics: Topics) -> None:
    topics.create("orders")
    assert newest_messages(topics.feed(), ENVIRONMENT, 4) == []
