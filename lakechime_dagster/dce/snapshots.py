"""Chained snapshots of a table: the commits that its log holds, and the range from a checkpoint to
the newest one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import SnapshotId, TableUid
from lakechime_dagster.dce.partitions import PartitionLevels, PartitionValue


class Verdict(StrEnum):
    """How a range of snapshots hangs together; only the first two may be read incrementally."""

    CONTIGUOUS = "CONTIGUOUS"
    GAP_FILLED = "GAP_FILLED"
    ROLLBACK = "ROLLBACK"
    EXPIRED = "EXPIRED"
    RECREATED = "RECREATED"
    BRANCHED = "BRANCHED"

    @property
    def is_incremental(self) -> bool:
        return self in (Verdict.CONTIGUOUS, Verdict.GAP_FILLED)


VERDICT_TAG = "lakechime/verdict"  # of events that register a table again: why
NO_SNAPSHOT = SnapshotId("-1")  # of an Iceberg table without one, as its metadata write it
_GENERATION = "~"


def own_uid(uid: TableUid) -> TableUid:
    """The id that the table itself has, whatever generation of it is meant."""
    return TableUid(uid.partition(_GENERATION)[0])


def next_generation(uid: TableUid) -> TableUid:
    """The uid of a table whose log was put back: its snapshot ids are used again for other
    snapshots.
    """
    own, _, generation = uid.partition(_GENERATION)
    return TableUid(f"{own}{_GENERATION}{int(generation or 0) + 1}")


def meant_uid(named: TableUid | None, current: TableUid | None) -> TableUid | None:
    """The uid that an event means: the table's current one, also where it names the table's own id
    without the generation.
    """
    return (
        current if named is None or (current is not None and own_uid(current) == named) else named
    )


@dataclass(frozen=True, kw_only=True)
class SnapshotCheckpoint:
    """Up to where a consumer has read one source: a table (by uid) and a snapshot of it; no
    snapshot = nothing yet.
    """

    table_uid: TableUid | None = None
    snapshot_id: SnapshotId | None = None


@dataclass(frozen=True, kw_only=True)
class SnapshotRange:
    """The snapshots of one table to read: `start` exclusive (None: from nothing), `end` inclusive."""

    table: str
    table_uid: TableUid | None
    start: SnapshotId | None
    end: SnapshotId
    start_uid: TableUid | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the range begins at nothing, so that the pinned snapshot is read whole."""
        return self.start is None

    @property
    def is_recreated(self) -> bool:
        """Whether the table was dropped and created again, or its log put back, since the start."""
        return (
            self.start is not None
            and self.start_uid is not None
            and self.table_uid is not None
            and self.start_uid != self.table_uid
        )


@dataclass(frozen=True, kw_only=True)
class FileAction:
    """A data file that a commit added or removed.

    `path` is as in the log (URL-encoded, relative to the table or absolute); `partition` holds
    typed values by level, None for an unpartitioned table; `rows` is None where the writer kept no
    statistics, and `nulls` of which columns he kept them: how many of these rows have none there;
    `vector` names the deletion vector. One that `is_foreign` is partitioned by other columns than
    the table is, and its partition is unknown.
    """

    path: str
    partition: tuple[PartitionValue, ...] | None = None
    size: int = 0
    rows: int | None = None
    nulls: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    vector: str | None = None
    entry: str = field(default="", repr=False, compare=False)
    is_foreign: bool = False

    @property
    def identity(self) -> tuple[str, str | None]:
        """What identifies a state of a file: its path and its deletion vector."""
        return self.path, self.vector


@dataclass(frozen=True, kw_only=True)
class TableCommit:
    """One commit: what it says about itself (`engine`: the program that wrote it), and the
    data-changing files it added and removed.

    `timestamp` is in milliseconds. Files rewritten without a change of data (OPTIMIZE) are in
    `moved_in` and `moved_out`. `table_uid`, `properties` and `columns` are set by a commit that
    wrote the table's metadata.
    """

    version: int
    timestamp: int | None = None
    operation: str = ""
    engine: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    user_metadata: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    added: tuple[FileAction, ...] = ()
    removed: tuple[FileAction, ...] = ()
    moved_in: tuple[FileAction, ...] = ()
    moved_out: tuple[FileAction, ...] = ()
    change_files: tuple[str, ...] = ()
    table_uid: TableUid | None = None
    properties: Mapping[str, str] | None = None
    columns: tuple[str, ...] | None = None

    @property
    def changes_data(self) -> bool:
        return bool(self.added or self.removed)

    @property
    def only_appends(self) -> bool:
        """Whether the commit added whole files and removed none."""
        return not self.removed and all(file.vector is None for file in self.added)

    @property
    def has_foreign_files(self) -> bool:
        """Whether the table was partitioned otherwise, by this commit or since it."""
        return any(file.is_foreign for file in (*self.added, *self.removed))

    @property
    def partitions(self) -> tuple[tuple[PartitionValue, ...] | None, ...]:
        """The touched partitions in a stable order; `(None,)` for an unpartitioned table."""
        return tuple(self.added_bytes)

    @property
    def added_bytes(self) -> dict[tuple[PartitionValue, ...] | None, int]:
        """Of each of `partitions` the size of the files that were added to it."""
        own = {file.partition for file in (*self.added, *self.removed) if not file.is_foreign}
        found = dict.fromkeys(sorted(own, key=lambda values: json.dumps(values)), 0)
        for file in self.added:
            if not file.is_foreign:
                found[file.partition] += file.size
        return found


@dataclass(frozen=True, kw_only=True)
class TableSize:
    """What files hold: rows, None where a writer kept no statistics, and bytes as they lie
    there.
    """

    rows: int | None
    bytes: int

    @classmethod
    def of(cls, files: Sequence[FileAction]) -> "TableSize":
        rows = [file.rows for file in files]
        return cls(
            rows=None if None in rows else sum(filter(None, rows)),
            bytes=sum(file.size for file in files),
        )

    def __le__(self, other: "TableSize") -> bool:
        """Whether neither is more; False where it is not known."""
        return (
            self.rows is not None
            and other.rows is not None
            and self.rows <= other.rows
            and self.bytes <= other.bytes
        )


def since_first_change(commits: Sequence[TableCommit]) -> Sequence[TableCommit]:
    """What a reader needs of commits that it has not read: those before the first change of data
    left its rows as they were.
    """
    first = next((at for at, commit in enumerate(commits) if commit.changes_data), len(commits))
    return commits[first:]


class CommitsMissingError(LookupError):
    """The log no longer holds a commit of the range; `version` is the first one missing."""

    def __init__(self, version: int) -> None:
        self.version = version
        super().__init__(f"commit {version} is no longer in the log")


class TableLog(Protocol):
    """The log of one table; each answer is fresh."""

    @property
    def location(self) -> str: ...

    @property
    def shown_location(self) -> str:
        """The location as messages show it, without a password."""
        ...

    @property
    def uid(self) -> TableUid: ...

    @property
    def version(self) -> int: ...

    def exists(self) -> bool:
        """Whether a table is there.

        Raises:
            TableUnreadableError: for a checkpoint out of reach, of which that is unknown.
        """
        ...

    def levels(self) -> PartitionLevels: ...

    def properties(self, version: int | None = None) -> Mapping[str, str]:
        """The table's properties at a version, by default the newest."""
        ...

    def size(self, version: int) -> TableSize:
        """What the files of a snapshot hold."""
        ...

    def commits(self, after: int, through: int) -> Sequence[TableCommit]:
        """The commits of a range, `after` exclusive, `through` inclusive.

        Raises:
            CommitsMissingError: when the log was cleaned up past a commit of the range.
        """
        ...
