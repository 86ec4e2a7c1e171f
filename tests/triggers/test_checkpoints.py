"""Checkpoints in sources, and how consumers keep them."""

import json

import pytest

from lakechime_dagster.dce.events import Position
from lakechime_dagster.triggers.consumers import (
    Checkpoint,
    CommitMetadata,
    ConsumerId,
    FileOffsets,
    KafkaOffsets,
    SourceOffsets,
    TopicOffsets,
    spans_between,
)

FILES = FileOffsets({"b.jsonl": 20, "a.jsonl": 10})
TOPICS = KafkaOffsets({"k1Ab": TopicOffsets("shop.orders", {1: 7, 0: 40})})


@pytest.mark.parametrize("has_more", [False, True])
@pytest.mark.parametrize("offsets", [None, FILES, TOPICS])
def test_a_checkpoint_survives_its_json(offsets: SourceOffsets | None, has_more: bool) -> None:
    checkpoint = Checkpoint(position=Position(0, 3), offsets=offsets, has_more=has_more)
    assert Checkpoint.from_json(json.loads(json.dumps(checkpoint.to_json()))) == checkpoint


def test_a_commit_records_up_to_where_its_source_was_read() -> None:
    commit_metadata = CommitMetadata(
        consumer=ConsumerId("test", "shop.orders__changes"),
        number=2,
        attempt=1,
        end=Checkpoint(offsets=TOPICS),
    )
    assert CommitMetadata.from_text(commit_metadata.to_text()) == commit_metadata
    assert (
        '"offsets":{"topics":{"k1Ab":["shop.orders",{"0":40,"1":7}]}}' in commit_metadata.to_text()
    )


def test_between_two_checkpoints_lie_the_bytes_of_files_that_grew_or_came() -> None:
    checkpoint = FileOffsets({"a.jsonl": 10, "gone.jsonl": 5, "still.jsonl": 7})
    end = FileOffsets({"still.jsonl": 7, "b.jsonl": 20, "a.jsonl": 12})
    assert list(end.spans_after(checkpoint).items()) == [
        ("a.jsonl", (10, 12)),
        ("b.jsonl", (0, 20)),
    ]


def test_between_two_checkpoints_lie_the_offsets_of_partitions_also_of_a_topic_that_was_recreated() -> (
    None
):
    end = KafkaOffsets(
        {
            "k1Ab": TopicOffsets("shop.orders", {0: 40, 1: 9}),
            "k2": TopicOffsets("shop.orders", {0: 3}),
        }
    )
    assert spans_between(TOPICS, end) == [("shop.orders[1]", (7, 9)), ("shop.orders[0]", (0, 3))]
    assert spans_between(None, FILES) == [("a.jsonl", (0, 10)), ("b.jsonl", (0, 20))]
