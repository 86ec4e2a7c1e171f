"""Asks a Kafka cluster: topics, partitions, offsets, and when unread messages expire."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # pyright: ignore[reportPrivateImportUsage]
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from lakechime_dagster.errors import MessagesUnreadableError
from lakechime_dagster.sources.kafka import TopicState
from lakechime_dagster.tables.sources import KafkaTopic, librdkafka_settings, without_secrets

# of topics being made
_PASSING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
_AS_KAFKA = str.maketrans("+/", "-_")  # Kafka's own tools write ids in base64 for URLs
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of brokers before 2.8


def ask_topics(
    source: KafkaTopic, environment: Mapping[str, str], seconds: float
) -> list[TopicState]:
    """The topics of a source; the cluster has so long for each answer.

    Raises:
        MessagesUnreadableError: The cluster cannot be asked, or has none.
        InvalidValueError: An option is not in the environment.
    """
    errors: list[str] = []
    settings: dict[str, Any] = {
        "log_level": 0,
        "error_cb": lambda error: errors.append(error.str()),
    }
    retrying = Retrying(
        retry=retry_if_exception(_is_passing),
        stop=stop_after_delay(seconds),
        wait=wait_fixed(0.2),
        reraise=True,
    )
    try:
        with _client(settings | librdkafka_settings(source, environment)) as client:
            return retrying(_ask, source, client, seconds)
    except KafkaException as error:
        reason = without_secrets(
            "; ".join(dict.fromkeys((error.args[0].str(), *errors))), source, environment
        )
        raise MessagesUnreadableError(
            f"{source} cannot be asked: {reason}; check its bootstrap and options"
        ) from error


@contextmanager
def _client(settings: dict[str, Any]) -> Iterator[AdminClient]:
    """A client that ends here, whatever still refers to it.

    Left to the garbage collector it may be ended by a thread of another client, at which the
    library aborts the process.
    """
    with AdminClient(settings) as client:
        try:
            yield client
        finally:
            client.poll(0)  # calls `error_cb`


class _ChangingError(MessagesUnreadableError):
    """Topics were made or deleted between two questions."""


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, _ChangingError) or (
        isinstance(error, KafkaException) and error.args[0].code() in _PASSING
    )


def _ask(source: KafkaTopic, client: AdminClient, seconds: float) -> list[TopicState]:
    globs = (source.topic, source.heartbeats, source.transactions)
    names = [
        name
        for name in client.list_topics(timeout=seconds).topics
        if any(fnmatchcase(name, glob) for glob in globs)
    ]
    described = _described(client, names, seconds)
    if not any(fnmatchcase(name, source.topic) for name in described):
        raise MessagesUnreadableError(
            f"{source} is no topic, or not yet: the cluster has none of that name"
        )
    asked = [
        TopicPartition(name, number)
        for name, (_, partitions) in described.items()
        for number in partitions
    ]
    earliest = _offsets(
        client, asked, OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED, seconds
    )
    # The ends first: messages in between must not look as if a transaction held them back.
    ends = _offsets(client, asked, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED, seconds)
    stable = _offsets(client, asked, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED, seconds)
    if _described(client, names, seconds) != described:
        raise _ChangingError(f"{source} changes while it is asked; it is asked again")
    return [
        TopicState(
            topic_id=topic_id,
            name=name,
            spans={number: (earliest[name, number], stable[name, number]) for number in partitions},
            ends={number: ends[name, number] for number in partitions},
        )
        for name, (topic_id, partitions) in sorted(described.items())
    ]


def _described(
    client: AdminClient, names: Iterable[str], seconds: float
) -> dict[str, tuple[str, list[int]]]:
    """By name, id and partitions; Kafka's own topics, and those that were deleted meanwhile, are
    not there.
    """
    described = {}
    for name, answer in client.describe_topics(
        TopicCollection(list(names)), request_timeout=seconds
    ).items():
        try:
            topic = answer.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            raise
        if not topic.is_internal:
            topic_id = str(topic.topic_id).translate(_AS_KAFKA)
            described[name] = (
                name if topic_id == _NO_ID else topic_id,
                sorted(partition.id for partition in topic.partitions),
            )
    return described


def _offsets(
    client: AdminClient,
    asked: Iterable[TopicPartition],
    spec: Any,
    level: IsolationLevel,
    seconds: float,
) -> dict[tuple[str, int], int]:
    specs: dict[TopicPartition, Any] = dict.fromkeys(asked, spec)
    answers = client.list_offsets(specs, isolation_level=level, request_timeout=seconds)
    return {(one.topic, one.partition): answer.result().offset for one, answer in answers.items()}
