"""Consumers and what advances them: executions, attempts, checkpoints, backfill requests."""

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import Position, SnapshotId, TableUid
from lakechime_dagster.dce.partitions import canonical_json
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, SnapshotRange


class RequestState(StrEnum):
    """WAITING and TAKEN are open. A SKIPPED one ended with an execution that a person gave up, a
    CANCELLED one was never taken.

    LATER is of a key whose partitions are not all there: it holds the key like a waiting one, but
    nobody waits for it, as it may never fire, and it is void once no request of its backfill is
    open.
    """

    LATER = "LATER"
    WAITING = "WAITING"
    TAKEN = "TAKEN"
    DONE = "DONE"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, kw_only=True)
class Span:
    """Which rows of its inputs a consumer without a partition key is to take as if they had
    changed.

    Those of `tables` whose `column` is at or after `since` and before `until`, ISO dates or times,
    of which None is no bound; all rows of a table that has no such column.
    """

    tables: tuple[str, ...]
    column: str | None = None
    since: str | None = None
    until: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> "Span":
        return cls(**{**wire, "tables": tuple(wire["tables"])})

    def __str__(self) -> str:
        bounds = [
            f"{sign} {bound}"
            for sign, bound in ((">=", self.since), ("<", self.until))
            if bound is not None
        ]
        which = (
            f" with {self.column} {' and '.join(bounds)}"
            if self.column is not None and bounds
            else ""
        )
        return f"rows of {', '.join(self.tables)}{which}"


@dataclass(frozen=True, kw_only=True)
class BackfillRequest:
    """What one consumer is to do for a backfill.

    Attributes:
        number: Its number within the backfill; inputs come before their readers.
        key: The consumer's, "" for that of a snapshot trigger.
        waits_for: The numbers of the requests of its inputs.
        span: What to do again; None for a partition key, whose partition is done whole.
        why: What it reads of what changed, in words.
    """

    number: int
    subscription: str
    key: str = ""
    waits_for: tuple[int, ...] = ()
    span: Span | None = None
    why: str = ""
    state: RequestState = RequestState.WAITING
    execution_id: str | None = None

    @property
    def is_open(self) -> bool:
        return self.state in (RequestState.WAITING, RequestState.TAKEN)


@dataclass(frozen=True, kw_only=True)
class ConsumerRequests:
    """The requests that wait for a consumer's next claim: their ids, and why they may not be taken
    now, "" where they may.
    """

    ids: tuple[int, ...] = ()
    backfills: tuple[str, ...] = ()
    waiting_for: str = ""

    @property
    def sentence(self) -> str:
        """Why the consumer is to run; empty where nothing is requested, or is held back."""
        several = len(self.backfills) > 1
        return (
            f"requested by backfill{'s' if several else ''} {', '.join(self.backfills)}"
            if self.ids and not self.waiting_for
            else ""
        )


def first_day_after(moment: dt.datetime) -> dt.date:
    """The first day of which nothing is before a moment: a day of which a part is, is all of it."""
    return moment.date() + dt.timedelta(days=int(moment.time() != dt.time()))


NO_REQUESTS = ConsumerRequests()


MessageSpan = tuple[int, int]  # start inclusive, end exclusive


class DeclaredSource(Protocol):
    """A source as a subscription names it; its kinds are declared in `tables.sources`, and polled
    in `sources`.
    """

    def __str__(self) -> str:
        """What it is, for people; without a secret."""
        ...


@dataclass(frozen=True)
class FileOffsets:
    """Up to where the files of a folder are read.

    Attributes:
        files: By the file's name below the folder, with `/` between its parts: the bytes that were
            read, all of whole lines.
    """

    files: Mapping[str, int] = field(default_factory=dict)

    def spans_after(self, checkpoint: "FileOffsets") -> dict[str, MessageSpan]:
        """What lies between a checkpoint and this one, by file, in the order of their names."""
        spans = {
            name: (checkpoint.files.get(name, 0), end) for name, end in sorted(self.files.items())
        }
        return {name: (start, end) for name, (start, end) in spans.items() if start < end}

    def to_json(self) -> dict[str, Any]:
        return {"files": dict(sorted(self.files.items()))}

    def __str__(self) -> str:
        return (
            f"{sum(self.files.values()):,} bytes of {len(self.files)} "
            f"file{'' if len(self.files) == 1 else 's'}"
        )


@dataclass(frozen=True)
class TopicOffsets:
    """Up to where a topic is read: its name, and by partition the next offset to read."""

    name: str
    offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KafkaOffsets:
    """Up to where topics are read, by their ids: a topic that was created again under its name is
    another one.
    """

    topics: Mapping[str, TopicOffsets] = field(default_factory=dict)

    def spans_after(self, checkpoint: "KafkaOffsets") -> dict[tuple[str, int], MessageSpan]:
        """What lies between a checkpoint and this one, by topic id and partition, in the order of
        the topics' names.
        """
        read = {topic_id: topic.offsets for topic_id, topic in checkpoint.topics.items()}
        spans = {
            (topic_id, partition): (read.get(topic_id, {}).get(partition, 0), end)
            for topic_id, topic in sorted(
                self.topics.items(), key=lambda one: (one[1].name, one[0])
            )
            for partition, end in sorted(topic.offsets.items())
        }
        return {where: (start, end) for where, (start, end) in spans.items() if start < end}

    def to_json(self) -> dict[str, Any]:
        topics = {
            topic_id: [
                topic.name,
                {str(partition): offset for partition, offset in sorted(topic.offsets.items())},
            ]
            for topic_id, topic in sorted(self.topics.items())
        }
        return {"topics": topics}

    def __str__(self) -> str:
        checkpoints = (
            (topic.name, *checkpoint)
            for _, topic in sorted(self.topics.items())
            for checkpoint in sorted(topic.offsets.items())
        )
        return ", ".join(f"{name}[{partition}]@{offset}" for name, partition, offset in checkpoints)


SourceOffsets = FileOffsets | KafkaOffsets


def spans_between(start: SourceOffsets | None, end: SourceOffsets) -> list[tuple[str, MessageSpan]]:
    """What lies between two checkpoints, by file, or by topic and partition."""
    if isinstance(end, FileOffsets):
        return list(
            end.spans_after(start if isinstance(start, FileOffsets) else FileOffsets()).items()
        )
    spans = end.spans_after(start if isinstance(start, KafkaOffsets) else KafkaOffsets())
    return [
        (f"{end.topics[topic_id].name}[{partition}]", span)
        for (topic_id, partition), span in spans.items()
    ]


@dataclass(frozen=True, kw_only=True)
class SourceLag:
    """What a source held beyond the checkpoint of its consumer at the last poll.

    Attributes:
        unread: Offsets of topics, or bytes of files.
        unit: `events` of topics, `bytes` of files.
        since_ms: When something unread was seen first, in milliseconds of the store's clock; None
            where there is nothing.
        completed: How many executions of the consumer were complete then.
    """

    unread: int
    unit: str
    since_ms: int | None
    completed: int

    @classmethod
    def seen(
        cls,
        start: SourceOffsets | None,
        end: SourceOffsets,
        *,
        completed: int,
        now_ms: int,
        before: "SourceLag | None",
        has_more: bool,
    ) -> "SourceLag":
        """What a poll of the source found, given the last one.

        Args:
            start: The checkpoint.
            end: Up to where the source can be read.
            completed: How many executions are complete.
            now_ms: The time of the poll.
            before: What the last poll found; None where there was none.
            has_more: The last execution left something of what was there, which has waited since
                then.
        """
        unread = sum(stop - first for _, (first, stop) in spans_between(start, end))
        unit = "bytes" if isinstance(end, FileOffsets) else "events"
        since_ms = now_ms if unread else None
        if (
            unread
            and before is not None
            and before.since_ms is not None
            and (before.completed == completed or has_more)
        ):
            since_ms = before.since_ms
        return cls(unread=unread, unit=unit, since_ms=since_ms, completed=completed)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> "SourceLag":
        return cls(**wire)


def source_offsets(wire: Mapping[str, Any]) -> SourceOffsets:
    """The checkpoint that `to_json` wrote.

    Raises:
        ValueError: It is of a kind that a newer program wrote.
    """
    match wire:
        case {"files": files}:
            return FileOffsets(dict(files))
        case {"topics": topics}:
            return KafkaOffsets(
                {
                    topic_id: TopicOffsets(
                        name, {int(partition): offset for partition, offset in offsets.items()}
                    )
                    for topic_id, (name, offsets) in topics.items()
                }
            )
    raise ValueError(
        f"a checkpoint in a source is of files or of topics, not of {', '.join(wire)}; a newer "
        f"program wrote it"
    )


COMMIT_METADATA_FORMAT = 1
# among the facts of commit metadata: from when up to when (milliseconds) nothing of a source can
# arrive any more
COMPLETE = "complete"
# among its facts: [hour since 1970, changes] for each hour that was complete before, and that the
# commit changes
LATE = "late"
HOUR_MS = 3_600_000
# what the name ends with of the table whose partitions are the hours that are complete in another
# one
HOURS = "__hours"


class ConsumerState(StrEnum):
    """Whether a consumer may claim: BLOCKED waits for a person, ENDED was that of a replay."""

    ACTIVE = "ACTIVE"
    BLOCKED = "BLOCKED"
    ENDED = "ENDED"


class Cause(StrEnum):
    """Why an execution was claimed."""

    TRIGGER = "trigger"
    MANUAL = "manual"
    REPLAY = "replay"


class ExecutionState(StrEnum):
    """OPEN holds its consumer; the others are final."""

    OPEN = "OPEN"
    COMPLETED = "COMPLETED"
    SKIPPED = "SKIPPED"


class Action(StrEnum):
    """What a person does to a subscription or consumer."""

    PAUSE = "pause"
    RESUME = "resume"
    SEEK = "seek"
    REPLAY = "replay"
    SKIP = "skip"
    RETRY = "retry"
    FORGET = "forget"
    BACKFILL = "backfill"
    CANCEL = "cancel"


@dataclass(frozen=True)
class ConsumerId:
    """The name of a consumer: deployment, subscription, and the partition key. A snapshot trigger
    has the key "", and another of each replay.
    """

    deployment: str
    subscription: str
    key: str = ""

    def __str__(self) -> str:
        """The text that names the consumer in a target's transaction id (`txnAppId`) and in run
        tags.
        """
        return canonical_json([self.deployment, self.subscription, self.key])

    @classmethod
    def parse(cls, text: str) -> "ConsumerId":
        deployment, subscription, key = json.loads(text)
        return cls(deployment, subscription, key)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Up to where a consumer has consumed: a store position, and a snapshot per source table, or
    offsets in a source.

    The position decides whether to run, the snapshots what is read; of a subscription that reads a
    source its offsets decide both. All move together, at completing only. The source of one that
    `has_more` held more: the limit of an execution ended there.
    """

    position: Position = Position.ORIGIN
    sources: Mapping[str, SnapshotCheckpoint] = field(default_factory=dict)
    offsets: SourceOffsets | None = None
    has_more: bool = False

    def to_json(self) -> dict[str, Any]:
        sources = {
            name: [checkpoint.table_uid, checkpoint.snapshot_id]
            for name, checkpoint in sorted(self.sources.items())
        }
        wire: dict[str, Any] = {"position": str(self.position), "sources": sources}
        wire |= {} if self.offsets is None else {"offsets": self.offsets.to_json()}
        return wire | {"more": True} if self.has_more else wire

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> "Checkpoint":
        sources = {
            name: SnapshotCheckpoint(
                table_uid=uid and TableUid(uid), snapshot_id=snapshot and SnapshotId(snapshot)
            )
            for name, (uid, snapshot) in wire["sources"].items()
        }
        offsets = source_offsets(wire["offsets"]) if "offsets" in wire else None
        return cls(
            position=Position.parse(wire["position"]),
            sources=sources,
            offsets=offsets,
            has_more=wire.get("more", False),
        )


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The n-th execution of a consumer: the frozen range (start, end] and which run works on it.

    `attempt` counts its Dagster runs from 1. `run_id` is the run that began the newest attempt.
    `backfill` names those whose requests it took, with commas between. `dagster_backfill` is the
    backfill of Dagster that a run of it was launched for. Times are milliseconds of the store's
    clock.
    """

    execution_id: str
    consumer: ConsumerId
    number: int
    state: ExecutionState
    cause: Cause
    start: Checkpoint
    end: Checkpoint
    attempt: int = 1
    run_id: str | None = None
    partition_key: str | None = None
    claimed_ts: int = 0
    lease_until: int | None = None
    next_attempt_ts: int | None = None
    completed_ts: int | None = None
    version: str | None = None
    reason: str = ""
    backfill: str = ""
    dagster_backfill: str = ""

    def is_at(self, attempt: int) -> bool:
        """Whether it is open at this attempt."""
        return self.state is ExecutionState.OPEN and self.attempt == attempt

    @property
    def named(self) -> str:
        """What sentences call it."""
        key = f" for {self.consumer.key}" if self.consumer.key else ""
        return f"execution {self.number}{key}"

    @property
    def run_key(self) -> str:
        """Dagster's deduplication key: one run per attempt."""
        return f"{self.execution_id}:{self.attempt}"

    @property
    def job_tag(self) -> str:
        """The tag of this attempt's Spark jobs, by which they can be cancelled."""
        return self._job_tag(self.attempt)

    @property
    def earlier_job_tags(self) -> tuple[str, ...]:
        """The tags of the attempts before this one."""
        return tuple(self._job_tag(number) for number in range(1, self.attempt))

    def _job_tag(self, attempt: int) -> str:
        return f"lakechime-{self.execution_id}-{attempt}"

    def ranges(self) -> dict[str, SnapshotRange]:
        """Per source table, the snapshots to read; a source without a new snapshot is not in it."""
        return ranges_between(self.start, self.end)


def ranges_between(start: Checkpoint, end: Checkpoint) -> dict[str, SnapshotRange]:
    """Per source table the snapshots between two checkpoints; a source without a new snapshot is
    not in it.
    """
    ranges: dict[str, SnapshotRange] = {}
    for table, until in end.sources.items():
        begun = start.sources.get(table, SnapshotCheckpoint())
        if until.snapshot_id is None or until == begun:
            continue
        ranges[table] = SnapshotRange(
            table=table,
            table_uid=until.table_uid,
            start=begun.snapshot_id,
            end=until.snapshot_id,
            start_uid=begun.table_uid,
        )
    return ranges


COMMIT_METADATA_KEY = "userMetadata"  # where commits have it, which Delta's writers call so


def source_name(table: tuple[str, str], own: str) -> str:
    """What a subscription calls a table, given by cluster and name: by its name if it is of the
    subscription's own cluster, else `cluster:name`.
    """
    cluster, name = table
    return name if cluster == own else f"{cluster}:{name}"


@dataclass(frozen=True, kw_only=True)
class CommitMetadata:
    """What every commit of a target says about the attempt that wrote it (Delta: `userMetadata`).

    The end recorded in the commit that the target holds of an execution becomes the checkpoint of
    its consumer, whoever wrote it. `watermark` is event time in milliseconds: everything below it
    has been seen.
    """

    consumer: ConsumerId
    number: int
    attempt: int
    end: Checkpoint
    execution_id: str = ""
    watermark: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def txn_app_id(self) -> str:
        return str(self.consumer)

    def to_text(self) -> str:
        """One line of JSON under the key `lakechime`."""
        return canonical_json(
            {
                "lakechime": COMMIT_METADATA_FORMAT,
                "consumer": str(self.consumer),
                "number": self.number,
                "attempt": self.attempt,
                "end": self.end.to_json(),
                "execution": self.execution_id,
                "watermark": self.watermark,
                "tags": dict(self.tags),
                "facts": dict(self.facts),
            }
        )

    @classmethod
    def from_text(cls, text: str | None) -> "CommitMetadata | None":
        """The commit metadata of a commit, or None for a commit of somebody else."""
        try:
            wire = json.loads(text) if text else None
        except ValueError:
            return None
        if not isinstance(wire, dict) or wire.get("lakechime") != COMMIT_METADATA_FORMAT:
            return None
        return cls(
            consumer=ConsumerId.parse(wire["consumer"]),
            number=wire["number"],
            attempt=wire["attempt"],
            end=Checkpoint.from_json(wire["end"]),
            execution_id=wire["execution"],
            watermark=wire["watermark"],
            tags=wire["tags"],
            facts=wire["facts"],
        )


@dataclass(frozen=True, kw_only=True)
class Committed:
    """A commit of an execution found in its target's log: the version it made and the commit
    metadata it carries.

    `is_commit_metadata_lost`: the table's state says that the execution committed, but its log no
    longer holds the commit. Then the metadata names consumer and number only (attempt 0, empty
    end): the ledger's own end of the execution stands.
    """

    version: SnapshotId
    commit_metadata: CommitMetadata
    is_commit_metadata_lost: bool = False
