"""Places in feeds, and how consumers keep them."""

import json

import pytest

from lakechime_dagster.dce.events import Position
from lakechime_dagster.triggers.consumers import (
    CommitMetadata,
    ConsumerId,
    FeedPlace,
    FilesPlace,
    KafkaPlace,
    Place,
    TopicPlace,
    spans_between,
)

FILES = FilesPlace({"b.jsonl": 20, "a.jsonl": 10})
TOPICS = KafkaPlace({"k1Ab": TopicPlace("shop.orders", {1: 7, 0: 40})})


@pytest.mark.parametrize("has_more", [False, True])
@pytest.mark.parametrize("feed", [None, FILES, TOPICS])
def test_a_place_survives_its_json(feed: FeedPlace | None, has_more: bool) -> None:
    place = Place(position=Position(0, 3), feed=feed, has_more=has_more)
    assert Place.from_json(json.loads(json.dumps(place.to_json()))) == place


def test_a_commit_records_up_to_where_its_feed_was_read() -> None:
    commit_metadata = CommitMetadata(consumer=ConsumerId("test", "shop.orders__changes"), step=2, attempt=1, end=Place(feed=TOPICS))
    assert CommitMetadata.from_text(commit_metadata.to_text()) == commit_metadata
    assert '"feed":{"topics":{"k1Ab":["shop.orders",{"0":40,"1":7}]}}' in commit_metadata.to_text()


def test_between_two_places_lie_the_bytes_of_files_that_grew_or_came() -> None:
    place = FilesPlace({"a.jsonl": 10, "gone.jsonl": 5, "still.jsonl": 7})
    end = FilesPlace({"still.jsonl": 7, "b.jsonl": 20, "a.jsonl": 12})
    assert list(end.spans_after(place).items()) == [("a.jsonl", (10, 12)), ("b.jsonl", (0, 20))]


def test_between_two_places_lie_the_offsets_of_partitions_also_of_a_topic_that_was_made_anew() -> None:
    end = KafkaPlace({"k1Ab": TopicPlace("shop.orders", {0: 40, 1: 9}), "k2": TopicPlace("shop.orders", {0: 3})})
    assert spans_between(TOPICS, end) == [("shop.orders[1]", (7, 9)), ("shop.orders[0]", (0, 3))]
    assert spans_between(None, FILES) == [("a.jsonl", (0, 10)), ("b.jsonl", (0, 20))]
