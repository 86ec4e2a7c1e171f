"""What the log of a table is asked for its data change events, whatever the table's format.

A format has a module whose log implements `ChangeLog`: `delta`, `iceberg`, `hive`.
"""

import json
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from lakechime_dagster.dce.events import (
    DataChangeEvent,
    OperationType,
    Seen,
    SnapshotId,
    TableFormat,
    TableUid,
    Tags,
)
from lakechime_dagster.dce.partitions import PartitionLevels, PartitionValue, checked_partition
from lakechime_dagster.dce.snapshots import VERDICT_TAG, Verdict
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.triggers.consumers import CommitMetadata

TAGS_KEY = "lakechime.tags"  # of a producer's commit: a JSON object of tags
BASELINE_TAG = "baseline"

Partition = tuple[PartitionValue, ...] | None
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Captured:
    """What a poll of a table's log found: events in commit order, and the snapshot up to which it
    is captured now.

    `seen` is registered in the same transaction as the events.
    """

    events: tuple[DataChangeEvent, ...]
    seen: Seen


class ChangeLog(Protocol):
    """The log of one table of a format, which no Spark is needed to read.

    Raises (every method):
        TableAbsentError: the table does not exist.
        TableUnreadableError: nothing readable is there, or its catalog is out of reach.
    """

    @property
    def table(self) -> str:
        """The name that its events carry."""
        ...

    @property
    def table_format(self) -> TableFormat: ...

    @property
    def cluster(self) -> str:
        """The data platform that its events carry."""
        ...

    @property
    def shown_location(self) -> str:
        """Where the log is, as messages may show it, without what is secret in it."""
        ...

    @property
    def uid(self) -> TableUid: ...

    @property
    def newest(self) -> SnapshotId:
        """The snapshot that the table has now."""
        ...

    def levels(self) -> PartitionLevels:
        """The partition levels that the table has now."""
        ...

    def changes_after(self, seen: Seen | None, pushed: Collection[SnapshotId] = ()) -> Captured:
        """The events since the last poll.

        A first poll of a table with history registers its state as one commit (`baseline=true`).
        So does a poll that cannot join what was seen, and names the reason in the tag
        `lakechime/verdict`: EXPIRED, the log was cleaned up past it; RECREATED, the table was
        replaced; ROLLBACK, it was put back to an older state; BRANCHED, its history no longer
        holds what was seen. Where the snapshots of `pushed` were registered by their writers before
        the first poll, the baseline is the state before the oldest of them, and the later ones
        follow one by one.
        """
        ...


@dataclass(frozen=True)
class SideLog:
    """The log of the side of a table that its name does not stand for while it is migrated: its
    events carry the name of that side.
    """

    log: ChangeLog
    table: str

    @property
    def table_format(self) -> TableFormat:
        return self.log.table_format

    @property
    def cluster(self) -> str:
        return self.log.cluster

    @property
    def shown_location(self) -> str:
        return self.log.shown_location

    @property
    def uid(self) -> TableUid:
        return self.log.uid

    @property
    def newest(self) -> SnapshotId:
        return self.log.newest

    def levels(self) -> PartitionLevels:
        return self.log.levels()

    def changes_after(self, seen: Seen | None, pushed: Collection[SnapshotId] = ()) -> Captured:
        own = None if seen is None else replace(seen, table=self.log.table)
        captured = self.log.changes_after(own, pushed)
        return Captured(
            events=tuple(replace(one, table=self.table) for one in captured.events),
            seen=replace(captured.seen, table=self.table),
        )


def named_partitions(
    table: str, snapshot: object, partitions: Mapping[Partition, int]
) -> dict[Partition, int]:
    """The partitions of the events of a commit in a stable order, each with the bytes that were
    added to it, and one None for all that no event can name, such as too long ones.
    """
    named = Counter[Partition]()
    unnamed = unnamed_bytes = 0
    for partition in sorted(partitions, key=lambda values: json.dumps(values)):
        try:
            named[checked_partition(partition)] += partitions[partition]
        except InvalidValueError:
            unnamed += 1
            unnamed_bytes += partitions[partition]
    if unnamed:
        what = (
            "%s: commit %s has %s among its partitions that no event can name, too long or no "
            "text; registered without a partition"
        )
        _logger.warning(what, table, snapshot, unnamed)
        named[None] += unnamed_bytes
    return named


def operations_of(
    added: set[Partition], removed: set[Partition], left: set[Partition]
) -> dict[Partition, OperationType]:
    """What a commit did to each partition that it changed: only DELETE promises that nothing of the
    partition is left, and a removal of some of its files is an UPDATE.

    Args:
        added: Partitions with files that the commit added.
        removed: Partitions with rows that it removed.
        left: Of those that it only removed rows from, the ones that still have files.
    """
    operations = {
        partition: OperationType.UPDATE if partition in left else OperationType.DELETE
        for partition in removed - added
    }
    return operations | {
        partition: OperationType.UPDATE if partition in removed else OperationType.APPEND
        for partition in added
    }


def producer_tags(text: object) -> dict[str, str]:
    """The tags of a commit's metadata; what is not a JSON object is no tags, since a commit cannot
    be refused any more.
    """
    try:
        tags = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    if not isinstance(tags, Mapping):
        return {}
    return {
        str(key): value if isinstance(value, str) else json.dumps(value)
        for key, value in tags.items()
    }


def tags_of(tags: Mapping[str, str], user_metadata: str | None) -> Tags:
    """The tags of a producer's commit, and those of our commit metadata; ones that no store can
    hold are left out.
    """
    commit_metadata = CommitMetadata.from_text(user_metadata)
    found = Tags()
    for key, value in {**tags, **(commit_metadata.tags if commit_metadata else {})}.items():
        try:
            found = found.merged({key: value})
        except InvalidValueError:
            continue
    return found


def baseline_tags(tags: Tags, verdict: Verdict | None) -> Tags:
    """The tags of the events by which the whole state of a table is registered."""
    return tags.merged({BASELINE_TAG: "true"} | ({VERDICT_TAG: verdict.value} if verdict else {}))
