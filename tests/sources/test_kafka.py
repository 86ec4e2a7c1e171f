"""Kafka topics as a source: offsets, findings, limits of an execution."""

import gc
from collections.abc import Iterator, Mapping

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import InvalidValueError, MessagesUnreadableError
from lakechime_dagster.sources.files import Poll
from lakechime_dagster.sources.kafka import KafkaSource, TopicState, polled, shares
from lakechime_dagster.tables.sources import KafkaTopic
from lakechime_dagster.triggers.consumers import (
    KafkaOffsets,
    MessageSpan,
    TopicOffsets,
    source_offsets,
)
from tests.support.kafka import PASSWORD
from tests.support.processes import free_port
from tests.support.topics import ENVIRONMENT, LOGIN, Topics

FEED = KafkaTopic("orders", bootstrap="broker:9092")


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What nothing refers to but a cycle stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.services
def test_the_end_is_the_last_stable_offset_while_a_transaction_is_open(topics: Topics) -> None:
    topics.create("orders")
    topics.send("orders", "a")
    with topics.transaction("orders", "b") as producer:
        topics.send("orders", "c")
        poll = look_at(topics)
        assert offsets(poll) == {"orders": {0: 1}}
        assert poll.rest == (
            f"{topics.named('orders')}[0] ends at offset 3, and is read up to 1, where a "
            f"transaction is open"
        )
        producer.abort_transaction(30)
    poll = look_at(topics)
    # with the mark that ends the transaction
    assert (offsets(poll), poll.rest) == ({"orders": {0: 4}}, "")


@pytest.mark.services
def test_a_new_topic_that_matches_and_a_new_partition_are_read_from_their_beginning(
    topics: Topics,
) -> None:
    topics.create("orders")
    topics.send("orders", "a")
    first = look_at(topics)
    topics.create("orders_2")
    topics.send("orders_2", "b", "c")
    topics.grow("orders", 2)
    topics.send("orders", "d", partition=1)
    second = look_at(topics, first)
    assert offsets(second) == {"orders": {0: 1, 1: 1}, "orders_2": {0: 2}}
    assert (second.news, second.problems) == (f"2 partitions grew of {topics.source()}", ())


@pytest.mark.services
def test_partitions_that_grew_are_a_finding_where_messages_report_no_position(
    topics: Topics,
) -> None:
    topics.create("orders")
    first = look_at(topics)
    topics.grow("orders", 3)
    (problem,) = look_at(topics, first, is_ordered_by_position=False).problems
    assert problem.startswith(
        f"{topics.named('orders')} was read with 1 partitions, and has 3 now: its messages hold no "
        f"position"
    )


@pytest.mark.services
def test_what_was_deleted_above_the_checkpoint_is_a_finding_with_both_offsets_and_the_choices(
    topics: Topics,
) -> None:
    topics.create("orders")
    topics.send("orders", "a")
    first = look_at(topics)
    topics.send("orders", "b", "c", "d")
    topics.cut("orders", 3)
    (problem,) = look_at(topics, first).problems
    assert problem.startswith(
        f"{topics.named('orders')}[0] was truncated: it was read up to offset 1, and begins at 3 "
        f"now"
    )
    assert "`trigger resume` continues with what exists and gives up what is gone" in problem


@pytest.mark.services
def test_a_topic_that_was_deleted_and_recreated_is_a_finding_with_both_ids(topics: Topics) -> None:
    topics.create("orders")
    topics.create("planes")
    topics.send("orders", "a", "b")
    first = look_at(topics)
    topics.delete("orders")
    between = look_at(topics, first)
    assert between == Poll(end=first.end)
    topics.create("orders")
    topics.send("orders", "c")
    (problem,) = look_at(topics, between).problems
    (now,) = (
        topic_id
        for topic_id, topic in checkpoint_of(look_at(topics)).topics.items()
        if topic.name == topics.named("orders")
    )
    (before,) = (
        topic_id
        for topic_id, topic in checkpoint_of(first).topics.items()
        if topic.name == topics.named("orders")
    )
    assert problem.startswith(
        f"{topics.named('orders')} was created again: it was read with id {before} up to [0]@2, "
        f"and has id {now} now"
    )


@pytest.mark.services
def test_an_execution_takes_of_each_partition_by_what_it_holds(topics: Topics) -> None:
    topics.create("orders", 2)
    topics.send("orders", *"abcdefgh")
    topics.send("orders", *"ij", partition=1)
    poll = KafkaSource(topics.source(max_offsets=5), ENVIRONMENT, is_ordered_by_position=True).poll(
        None
    )
    assert isinstance(poll.limited_end, KafkaOffsets)
    assert [dict(topic.offsets) for topic in poll.limited_end.topics.values()] == [{0: 3, 1: 1}]
    assert poll.left == "an execution reads at most 5 offsets, so that 6 are left to the next ones"


@pytest.mark.services
def test_a_wrong_password_is_said_without_it(topics: Topics) -> None:
    source = KafkaSource(
        topics.source(), {"KAFKA_PASSWORD": "not-s3cret"}, is_ordered_by_position=True, seconds=1
    )
    with pytest.raises(
        MessagesUnreadableError, match="Authentication failed: Invalid username or password"
    ) as raised:
        source.poll(None)
    assert "s3cret" not in f"{raised.value!r} {source!r}"


def test_a_broker_that_does_not_answer_is_said_with_its_address_and_without_a_password() -> None:
    address = f"127.0.0.1:{free_port()}"
    source = KafkaSource(
        KafkaTopic("orders", bootstrap=address, options=LOGIN),
        ENVIRONMENT,
        is_ordered_by_position=True,
        seconds=1,
    )
    with pytest.raises(
        MessagesUnreadableError, match=rf"orders at {address} cannot be asked: .*Connection refused"
    ) as raised:
        source.poll(None)
    assert PASSWORD not in str(raised.value)


def test_a_cluster_that_was_asked_in_vain_leaves_nothing_to_the_garbage_collector(
    no_collection: None,
) -> None:
    before = threads()
    source = KafkaSource(
        KafkaTopic("orders", bootstrap=f"127.0.0.1:{free_port()}"),
        {},
        is_ordered_by_position=True,
        seconds=0.1,
    )
    with pytest.raises(MessagesUnreadableError):
        source.poll(None)
    assert threads() <= before


def test_an_option_that_the_environment_does_not_have_is_named() -> None:
    source = KafkaSource(
        KafkaTopic("orders", bootstrap="broker:9092", options=LOGIN),
        {},
        is_ordered_by_position=True,
    )
    with pytest.raises(
        InvalidValueError,
        match=r"options\['sasl.password'\] '\$KAFKA_PASSWORD': is not in the environment",
    ):
        source.poll(None)


def test_a_topic_seen_for_the_first_time_is_read_from_the_first_offset_that_is_there() -> None:
    poll = polled(
        FEED,
        KafkaOffsets(),
        [TopicState(topic_id="A", name="orders", spans={0: (5, 9)})],
        is_ordered_by_position=True,
    )
    assert poll == Poll(
        end=KafkaOffsets({"A": TopicOffsets("orders", {0: 9})}),
        news="orders[0]: new offsets 5 to 9",
    )


def test_a_person_may_give_up_what_is_gone_and_read_all_that_is_there() -> None:
    checkpoint = KafkaOffsets(
        {
            "A": TopicOffsets("orders", {0: 7, 1: 2, 2: 9}),
            "B": TopicOffsets("planes", {0: 4}),
            "C": TopicOffsets("deleted", {0: 1}),
        }
    )
    topics = [
        TopicState(topic_id="A", name="orders", spans={0: (0, 5), 1: (3, 8), 2: (0, 9), 3: (1, 2)}),
        TopicState(topic_id="D", name="planes", spans={0: (2, 6)}),
    ]
    poll = polled(FEED, checkpoint, topics, is_ordered_by_position=False)
    assert len(poll.problems) == 5
    assert poll.kept == KafkaOffsets(
        {
            "A": TopicOffsets("orders", {0: 5, 1: 3, 2: 9, 3: 1}),
            "C": TopicOffsets("deleted", {0: 1}),
        }
    )
    assert isinstance(poll.kept, KafkaOffsets)
    goes_on = polled(FEED, poll.kept, topics, is_ordered_by_position=False)
    assert (goes_on.problems, goes_on.kept, goes_on.news) == (
        (),
        None,
        "3 partitions grew of orders at broker:9092",
    )


def look_at(
    topics: Topics, before: Poll | None = None, *, is_ordered_by_position: bool = True
) -> Poll:
    """A look at a test's topics after another one, whose end went through its JSON."""
    checkpoint = before and source_offsets(checkpoint_of(before).to_json())
    return KafkaSource(
        topics.source(), ENVIRONMENT, is_ordered_by_position=is_ordered_by_position
    ).poll(checkpoint)


def checkpoint_of(poll: Poll) -> KafkaOffsets:
    assert isinstance(poll.end, KafkaOffsets)
    return poll.end


def offsets(poll: Poll) -> dict[str, dict[int, int]]:
    """By the topic's name in the test."""
    return {
        topic.name.partition(".")[2]: dict(topic.offsets)
        for topic in checkpoint_of(poll).topics.values()
    }


def threads() -> set[int]:
    """Of this process; a client has some of its own until it ends."""
    return {thread.id for thread in psutil.Process().threads()}


Ends = Mapping[str, Mapping[int, int]]  # by topic and partition


def looked(checkpoint: KafkaOffsets, ends: Ends, limit: int | None, *, first: int = 0) -> Poll:
    """What an execution finds of topics that hold the offsets from `first` to their ends."""
    source = KafkaTopic("orders.*", bootstrap="broker:9092", heartbeats="beats", max_offsets=limit)
    spans = {
        name: {number: (first, end) for number, end in parts.items()}
        for name, parts in ends.items()
    }
    topics = [
        TopicState(topic_id=name[0], name=name, spans=of_topic) for name, of_topic in spans.items()
    ]
    return polled(source, checkpoint, topics, is_ordered_by_position=True)


def step_end_of(poll: Poll) -> KafkaOffsets:
    assert isinstance(poll.limited_end, KafkaOffsets)
    return poll.limited_end


def test_a_source_that_a_person_must_look_at_is_not_cut() -> None:
    poll = looked(
        KafkaOffsets({"o": TopicOffsets("orders", {0: 20})}),
        {"orders": {0: 10}, "planes": {0: 9}},
        3,
    )
    assert (len(poll.problems), poll.limited_end) == (1, None)


BLOCKED = st.dictionaries(st.integers(0, 5), st.integers(1, 40), min_size=1)


@given(BLOCKED, st.integers(1, 100))
def test_shares_are_within_a_limit_and_each_has_one_at_least(
    held: dict[int, int], limit: int
) -> None:
    found = shares(held, limit)
    assert found.keys() == held.keys()
    assert all(1 <= count <= held[one] for one, count in found.items())
    assert sum(found.values()) <= max(limit, len(held))


GROWTH = st.lists(
    st.tuples(
        st.sampled_from([("orders", 0), ("orders", 1), ("planes", 0), ("beats", 0)]),
        st.integers(0, 30),
    ),
    max_size=12,
)


@given(GROWTH, st.integers(1, 40))
def test_executions_of_any_limit_give_each_offset_once_and_heartbeats_last(
    growth: list[tuple[tuple[str, int], int]], limit: int
) -> None:
    ends: dict[tuple[str, int], int] = {}
    checkpoint, read = KafkaOffsets(), dict[tuple[str, int], list[MessageSpan]]()
    for (topic, partition), count in [*growth, *[(("orders", 0), 0)] * 400]:
        ends[topic, partition] = ends.get((topic, partition), 0) + count
        by_topic: dict[str, dict[int, int]] = {}
        for (name, number), end in ends.items():
            by_topic.setdefault(name, {})[number] = end
        poll = looked(checkpoint, by_topic, limit)
        end = poll.limited_end or poll.end
        assert isinstance(end, KafkaOffsets)
        spans = {
            (end.topics[one].name, number): span
            for (one, number), span in end.spans_after(checkpoint).items()
        }
        assert sum(stop - start for start, stop in spans.values()) <= max(limit, len(ends))
        if ("beats", 0) in spans:
            offsets = {topic.name: topic.offsets for topic in end.topics.values()}
            assert all(
                offsets[name][number] == stop
                for (name, number), stop in ends.items()
                if name != "beats"
            )
        for one, span in spans.items():
            read.setdefault(one, []).append(span)
        checkpoint = end
    for one, stop in ends.items():
        spans_of_one = read.get(one, [])
        assert [start for start, _ in spans_of_one] == [0, *(end for _, end in spans_of_one)][
            : len(spans_of_one)
        ]
        assert (spans_of_one[-1][1] if spans_of_one else 0) == stop
