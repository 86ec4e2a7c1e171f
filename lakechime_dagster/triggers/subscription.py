"""Subscriptions: a trigger with the tables that it reads and what it launches."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lakechime_dagster.dce.events import TableFormat, TagConditions, Tags
from lakechime_dagster.dce.partitions import LevelType, PartitionLevels, checked_text, typed_value
from lakechime_dagster.triggers.consumers import DeclaredSource, source_name
from lakechime_dagster.triggers.decision import Firing
from lakechime_dagster.triggers.triggers import (
    Late,
    PartitionKey,
    PartitionTrigger,
    TagsFrom,
    Trigger,
)

if TYPE_CHECKING:
    from lakechime_dagster.triggers.ledger import Ledger


class Requested(NamedTuple):
    """What a subscription is to do although nothing new arrived, in sentences: now, and later."""

    due: tuple[str, ...] = ()
    later: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """A trigger + target, named for ever by `name` (not by file, sensor or code location).

    `reads` are the tables whose snapshots are pinned at the claim, those of the trigger among them.
    `target` is the lake table of a `target_format` that the subscription writes (at `location`,
    where that is not the warehouse's own), None for a subscription without one: it completes by run success and is
    at-least-once. `asset_keys` (as user strings) and `job` let a manual run find its subscription.
    A table that the trigger waits for is one of the subscription's `cluster`, unless it names
    another. A subscription with a `source` reads it, and no table: its trigger only
    says how often the source is polled. `is_ordered_by_position` says that the source's messages
    carry their order, wherever they lie in it. A retry of a trigger that `is_bounded` takes what was
    claimed, and all that arrived when a person resumes a BLOCKED consumer. One that `is_stream` appends each message
    of its source, or row of its table, once: it can be moved past what arrived, never back.
    `requests` returns what it is to do although nothing new arrived, such as what a person asked
    for; without any it fires by events alone.
    """

    name: str
    trigger: Trigger
    reads: tuple[str, ...] = ()
    target: str | None = None
    target_levels: PartitionLevels = field(default_factory=PartitionLevels)
    target_format: TableFormat = TableFormat.DELTA
    asset_keys: tuple[str, ...] = ()
    job: str | None = None
    cluster: str = ""
    location: str | None = None
    source: DeclaredSource | None = None
    is_ordered_by_position: bool = False
    is_stream: bool = False
    requests: Callable[["Ledger"], Requested] | None = field(
        default=None, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        checked_text("subscription name", self.name, limit=128)
        checked_text("cluster", self.cluster, limit=128, empty=True)
        if isinstance(self.trigger, PartitionTrigger):
            object.__setattr__(self, "trigger", self.trigger.in_cluster(self.cluster))

    @property
    def condition(self) -> str:
        """What the subscription waits for, in words."""
        if self.source is None or isinstance(self.trigger, PartitionTrigger):
            return str(self.trigger)
        pace = f", {self.trigger.every}" if self.trigger.every else ", as they come"
        return f"messages of {self.source}{pace}"

    @property
    def is_partitioned(self) -> bool:
        return isinstance(self.trigger, PartitionTrigger)

    @property
    def tags_from(self) -> TagsFrom:
        """Which tags its conditions are compared with."""
        trigger = self.trigger
        return trigger.tags_from if isinstance(trigger, PartitionTrigger) else TagsFrom.EVENT

    @property
    def refires(self) -> bool:
        """Whether a late change fires a key again."""
        return isinstance(self.trigger, PartitionTrigger) and self.trigger.late is Late.REFIRE

    @property
    def sources(self) -> dict[str, tuple[str, str]]:
        """Every table whose snapshot a claim freezes, cluster and name by `source_name`."""
        return {source_name(table, self.cluster): table for table in self.watched}

    @property
    def pinned(self) -> tuple[str, ...]:
        """What every table whose snapshot a claim freezes is called."""
        return tuple(self.sources)

    @property
    def wanted(self) -> tuple[tuple[tuple[str, str], TagConditions], ...]:
        """Cluster and name of every table of the trigger, with what it demands of the tags of their
        events.
        """
        return tuple(
            ((one.cluster or self.cluster, one.name), TagConditions(one.tags))
            for one in self.trigger.watched
        )

    @property
    def woken_by(self) -> tuple[tuple[str, str], ...]:
        """Cluster and name of every table of the trigger."""
        return tuple(dict.fromkeys(table for table, _ in self.wanted))

    @property
    def watched(self) -> tuple[tuple[str, str], ...]:
        """The same of every table whose events the subscription must look at."""
        return tuple(
            dict.fromkeys((*self.woken_by, *((self.cluster, table) for table in self.reads)))
        )

    @property
    def commit_tags(self) -> Tags:
        """The tags of its commits: what a partition trigger demanded of its inputs holds for its
        output.
        """
        return self.trigger.tags.equal if self.is_partitioned else Tags()

    def wakes(self, other: "Subscription", cluster: str) -> bool:
        """Whether each commit of its target, a table of that cluster, fires another subscription,
        or lets a fired key of that fire again.
        """
        return (other.refires or not other.is_partitioned) and any(
            table == (cluster, self.target) and tags.fit(self.commit_tags)
            for table, tags in other.wanted
        )

    def partition_of(self, key: PartitionKey) -> tuple[object, ...] | None:
        """The target's partition that a partition key stands for, None when the key does not name
        all its levels.
        """
        return partition_of(self.target_levels, key)

    def key_of(self, firing: Firing) -> str | None:
        """The Dagster partition key that a firing stands for, None when it stands for none."""
        return self.dagster_key(firing.partition) if firing.partition else None

    def dagster_key(self, key: PartitionKey) -> str | None:
        """The Dagster partition key that a partition key stands for, None when it stands for none."""
        partition = self.partition_of(key)
        return None if partition is None else partition_key(self.target_levels, partition)


def partition_of(levels: PartitionLevels, key: PartitionKey) -> tuple[object, ...] | None:
    """The partition of a table with these levels that a partition key stands for, None when the key
    does not name them all.
    """
    values = dict(key.values)
    if not levels or any(name not in values for name in levels.names):
        return None
    return tuple(
        typed_value(name, values[name], kind)
        for name, kind in zip(levels.names, levels.types, strict=True)
    )


def partition_key(levels: PartitionLevels, partition: tuple[object, ...]) -> str:
    """The Dagster partition key of a partition.

    `2013-01-01` for one level, `2013-01-01-05` for a date and an hour, `a=…/b=…` for other levels.
    """
    if len(levels) == 1:
        return str(partition[0])
    if is_hourly(levels):
        return f"{partition[0]}-{partition[1]:02d}"
    return "/".join(f"{name}={value}" for name, value in zip(levels.names, partition, strict=True))


def is_hourly(levels: PartitionLevels) -> bool:
    """Whether the levels are a date and the hour of the day."""
    return levels.types == (LevelType.DATE, LevelType.INT) and levels.names[1] in (
        "hour",
        "hr",
        "hh",
    )
