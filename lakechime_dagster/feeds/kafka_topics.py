"""The topics of a cluster as it tells them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakechime_dagster.triggers.feeds import Span


@dataclass(frozen=True, kw_only=True)
class TopicState:
    """A topic as it is.

    Attributes:
        topic_id: What tells it from one that is made under its name later; its name where the cluster has no ids.
        spans: By partition, the first offset that is there, and the last stable one, before which every transaction has ended.
        ends: By partition, the offset that the next message will get.
    """

    topic_id: str
    name: str
    spans: Mapping[int, Span]
    ends: Mapping[int, int] = field(default_factory=dict)
