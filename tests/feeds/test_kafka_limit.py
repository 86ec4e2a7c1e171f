"""How much of topics one step reads: whatever they hold and however they grow, each offset once, heartbeats after all else."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.sources.files import Look
from lakechime_dagster.sources.kafka import TopicState, judged, shares
from lakechime_dagster.tables.sources import KafkaTopic
from lakechime_dagster.triggers.consumers import KafkaOffsets, MessageSpan, TopicOffsets

Ends = Mapping[str, Mapping[int, int]]  # by topic and partition


def looked(checkpoint: KafkaOffsets, ends: Ends, limit: int | None, *, first: int = 0) -> Look:
    """What a step finds of topics that hold the offsets from `first` to their ends."""
    feed = KafkaTopic("orders.*", bootstrap="broker:9092", heartbeats="beats", max_offsets=limit)
    spans = {name: {number: (first, end) for number, end in parts.items()} for name, parts in ends.items()}
    topics = [TopicState(topic_id=name[0], name=name, spans=of_topic) for name, of_topic in spans.items()]
    return judged(feed, checkpoint, topics, is_ordered_by_position=True)


def step_end_of(look: Look) -> KafkaOffsets:
    assert isinstance(look.step_end, KafkaOffsets)
    return look.step_end


def test_a_feed_that_a_person_must_look_at_is_not_cut() -> None:
    look = looked(KafkaOffsets({"o": TopicOffsets("orders", {0: 20})}), {"orders": {0: 10}, "planes": {0: 9}}, 3)
    assert (len(look.problems), look.step_end) == (1, None)


BLOCKED = st.dictionaries(st.integers(0, 5), st.integers(1, 40), min_size=1)


@given(BLOCKED, st.integers(1, 100))
def test_shares_are_within_a_limit_and_each_has_one_at_least(held: dict[int, int], limit: int) -> None:
    found = shares(held, limit)
    assert found.keys() == held.keys()
    assert all(1 <= count <= held[one] for one, count in found.items())
    assert sum(found.values()) <= max(limit, len(held))


GROWTH = st.lists(st.tuples(st.sampled_from([("orders", 0), ("orders", 1), ("planes", 0), ("beats", 0)]), st.integers(0, 30)), max_size=12)


@given(GROWTH, st.integers(1, 40))
def test_steps_of_any_limit_give_each_offset_once_and_heartbeats_last(growth: list[tuple[tuple[str, int], int]], limit: int) -> None:
    ends: dict[tuple[str, int], int] = {}
    checkpoint, read = KafkaOffsets(), dict[tuple[str, int], list[MessageSpan]]()
    for (topic, partition), count in [*growth, *[(("orders", 0), 0)] * 400]:
        ends[topic, partition] = ends.get((topic, partition), 0) + count
        by_topic: dict[str, dict[int, int]] = {}
        for (name, number), end in ends.items():
            by_topic.setdefault(name, {})[number] = end
        look = looked(checkpoint, by_topic, limit)
        end = look.step_end or look.end
        assert isinstance(end, KafkaOffsets)
        spans = {(end.topics[one].name, number): span for (one, number), span in end.spans_after(checkpoint).items()}
        assert sum(stop - start for start, stop in spans.values()) <= max(limit, len(ends))
        if ("beats", 0) in spans:
            offsets = {topic.name: topic.offsets for topic in end.topics.values()}
            assert all(offsets[name][number] == stop for (name, number), stop in ends.items() if name != "beats")
        for one, span in spans.items():
            read.setdefault(one, []).append(span)
        checkpoint = end
    for one, stop in ends.items():
        spans_of_one = read.get(one, [])
        assert [start for start, _ in spans_of_one] == [0, *(end for _, end in spans_of_one)][: len(spans_of_one)]
        assert (spans_of_one[-1][1] if spans_of_one else 0) == stop
