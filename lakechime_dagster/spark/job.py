"""What a run does with one table, and what it did: plain values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import PartitionEvents, SnapshotId
from lakechime_dagster.dce.partitions import PartitionValue
from lakechime_dagster.dce.snapshots import SnapshotRange, Verdict
from lakechime_dagster.tables.options import ReadMode
from lakechime_dagster.tables.tables import RefreshMode
from lakechime_dagster.triggers.consumers import Checkpoint, Committed, Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakechime_dagster.formats.delta import DeltaLog
    from lakechime_dagster.formats.hive import HiveLog
    from lakechime_dagster.formats.iceberg import IcebergLog

Partition = tuple[PartitionValue, ...]


@dataclass(frozen=True, kw_only=True)
class InputJob:
    """One input of a table's execution.

    `alias` is the name in the table's function, `table` the one in its SQL. It is read by its `log`
    (None: that of a Delta table at the `location`), a Hive table also by the `events` of its range, or
    up to where it is pinned (None: it has none). `switched` are the partition columns of a table that
    became one of another format within the range, of which there are `events` too. `range` is what to
    read since the consumer's checkpoint (None: nothing new), `pinned` the snapshot at which the whole
    table is read then (None: the newest). `key_columns` are the columns of this input that give a
    column of the target (`LakeTable.key_columns`); columns that it does not name are taken by their
    own name where the input has them. `keys` are unique in the input, as its writer guarantees.
    `rejoin` names the alias of the input whose changes, by the columns `on`, make rows of this one
    change.
    """

    alias: str
    table: str
    location: str
    log: "DeltaLog | IcebergLog | HiveLog | None" = field(default=None, repr=False)
    events: PartitionEvents | None = field(default=None, repr=False)
    switched: tuple[str, ...] | None = None
    mode: ReadMode = ReadMode.CHANGES
    range: SnapshotRange | None = None
    pinned: SnapshotId | None = None
    key_columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    rejoin: str | None = None
    on: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TableJob:
    """One execution of a computed table.

    Either `compute`, called with a DataFrame per alias, or `sql`. `partitions` are those to
    recompute in mode PARTITIONS; empty means those that the ranges touched. `expect` maps
    constraint names to SQL conditions that must be true of each row; `personal` are columns without
    statistics in the log. `start` is the checkpoint of the consumer, where it is known.
    `may_complete_empty` is True for a first attempt only: with nothing to do it leaves no commit,
    any later attempt leaves an empty one as a fence. `has_committed`: an earlier execution of the
    consumer left a commit in the target, as the ledger knows. `always_write` replaces a full table
    even when nothing differs. `ordered` are rows of the inputs that are taken as if they had
    changed, for a backfill. The table is written by its `log` (None: that of a Delta table at the
    `location`), an Iceberg table in its `write_mode`.
    """

    name: str
    location: str
    inputs: tuple[InputJob, ...]
    keys: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    refresh: RefreshMode = RefreshMode.ROWS
    compute: Callable[..., Any] | None = None
    sql: str | None = None
    partitions: tuple[Partition, ...] = ()
    expect: Mapping[str, str] = field(default_factory=dict)
    watermark: str | None = None
    personal: tuple[str, ...] = ()
    comment: str = ""
    start: Checkpoint | None = None
    may_complete_empty: bool = True
    has_committed: bool = False
    always_write: bool = False
    ordered: tuple[Span, ...] = ()
    log: "DeltaLog | IcebergLog | HiveLog | None" = field(default=None, repr=False)
    write_mode: str | None = None

    def input(self, alias: str) -> InputJob:
        return next(one for one in self.inputs if one.alias == alias or one.table == alias)


class Outcome(StrEnum):
    """How an attempt ended: its own commit, another attempt's, a fence, or nothing to do and no
    commit.
    """

    COMMITTED = "committed"
    SKIPPED = "skipped"
    FENCED = "fenced"
    NOTHING = "nothing to do"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Rows of one execution; law 17 holds between them (see `is_balanced`).

    `rows_in` is what the function was given of its changed inputs. `returned` counts the rows that
    were computed and the rows of the target that no longer are.
    """

    rows_in: int = 0
    returned: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    deduplicated: int = 0
    quarantined: int = 0

    @property
    def is_balanced(self) -> bool:
        """Law 17: rows returned = inserted + updated + deleted + unchanged + deduplicated +
        quarantined.
        """
        parts = (
            self.inserted,
            self.updated,
            self.deleted,
            self.unchanged,
            self.deduplicated,
            self.quarantined,
        )
        return self.returned == sum(parts)

    @property
    def changed(self) -> int:
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True, kw_only=True)
class SourceResult:
    """How one input was read: method and verdict, the snapshots (start exclusive, end inclusive),
    and what to know of it.

    `data_commits` counts the commits whose rows were read.
    """

    alias: str
    table: str
    method: str
    verdict: Verdict
    start: SnapshotId | None
    end: SnapshotId
    commits: int = 0
    data_commits: int = 0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Executed:
    """Dumps (`lineage.plan_dump`) of what a computation executed on the way to its result, in the
    order in which that ended.
    """

    actions: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Seen(Executed):
    """The same, and the dump of its result."""

    result: Mapping[str, Any]


class Observer(Protocol):
    """Sees what the computation of a table executes, such as to record its lineage."""

    def stand_in(self, frame: "DataFrame", table: str) -> "DataFrame":
        """A frame that the observer knows as a table, however it was read."""
        ...

    def computed(
        self, spark: "SparkSession", compute: "Callable[[], DataFrame]"
    ) -> "tuple[DataFrame, Seen]":
        """What a computation gives, and what was seen of it; what it raises ends the attempt before
        any row is computed.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class TableResult:
    """What an attempt did.

    `committed` is the commit of this execution in the target's log, whoever made it: its end
    becomes the consumer's checkpoint. `replaced`: the whole target was rewritten. `partitions` are
    those that the commit touched. `seconds` holds the time of each phase. `events` counts the
    changes of a database by what became of them (`cdc.merge.ChangeOutcome`). `complete`
    is from when up to when, in milliseconds, no more rows of the table's sources can arrive; `late`
    counts by hour (since
    1970) the changes of hours that were complete before. `seen` is what its function or query was
          seen to compute; None where it has none.
    """

    outcome: Outcome
    committed: Committed | None = None
    replaced: bool = False
    counts: Counts = field(default_factory=Counts)
    sources: tuple[SourceResult, ...] = ()
    partitions: tuple[Partition | None, ...] = ()
    files: int = 0
    bytes: int = 0
    watermark: int | None = None
    schema: tuple[tuple[str, str], ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)
    complete: tuple[int, int] | None = None
    late: Mapping[int, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seen: Seen | None = field(default=None, compare=False, repr=False)

    @property
    def version(self) -> SnapshotId | None:
        return self.committed.version if self.committed else None
