"""An Iceberg table without Spark: the snapshots of its main branch as data change events.

The history of a table is the chain of parents of the snapshot that `main` points to. Its snapshot
log is none: after `fast_forward` it lacks the snapshots between.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache, reduce
from threading import RLock
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    ResolveError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, NotNull
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    MonthTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakechime_dagster.dce.events import (
    DataChangeEvent,
    OperationType,
    Seen,
    SnapshotId,
    TableFormat,
    TableUid,
)
from lakechime_dagster.dce.partitions import LevelType, PartitionLevels, PartitionValue
from lakechime_dagster.dce.snapshots import (
    NO_SNAPSHOT,
    SnapshotRange,
    TableSize,
    Verdict,
    next_generation,
    own_uid,
)
from lakechime_dagster.errors import (
    ConcurrentWriteError,
    DeclarationError,
    LakeChimeError,
    TableAbsentError,
    TableUnreadableError,
    without_password,
)
from lakechime_dagster.formats.changes import (
    TAGS_KEY,
    Captured,
    Partition,
    baseline_tags,
    named_partitions,
    operations_of,
    producer_tags,
    tags_of,
)
from lakechime_dagster.formats.files import is_stored
from lakechime_dagster.triggers.consumers import (
    COMMIT_METADATA_KEY,
    CommitMetadata,
    Committed,
    ConsumerId,
)

NEWEST = "lakechime.committed."  # before a consumer, the property of its newest commit
STAGED = "__staged_"  # in the name of a column until the rows that replace the table are current
# of catalogs and tables that threads may make at the same time, which a SQL catalog does not endure
OPENING = RLock()
EPOCH = datetime(1970, 1, 1)  # Iceberg's times of partitions have no zone
LEVELS = {
    BooleanType: LevelType.BOOLEAN,
    DateType: LevelType.DATE,
    DecimalType: LevelType.DECIMAL,
    IntegerType: LevelType.INT,
    LongType: LevelType.INT,
    TimestampType: LevelType.TIMESTAMP,
    TimestamptzType: LevelType.TIMESTAMP,
}


@dataclass(frozen=True)
class IcebergLog:
    """The snapshots of one Iceberg table.

    A partition level has the name of a field of the table's partition spec. One of `days`, `months`
    or `years` is a date, the first of its period, one of `hours` a timestamp. Where another spec of
    the table lacks a level, the events of its files name no partition.

    Args:
        catalog: The properties of its catalog, as pyiceberg takes them.
        table: The name in the catalog, which its events carry.
        cluster: The data platform that its events carry.
        named: The levels by which events name partitions; those of the current spec by default.

    Raises (every method):
        TableAbsentError: the catalog has no such table.
        TableUnreadableError: the catalog is out of reach, or the table's metadata are not readable.
    """

    catalog: Mapping[str, str] = field(repr=False, hash=False)
    table: str
    cluster: str = ""
    named: PartitionLevels | None = None

    @property
    def table_format(self) -> Literal[TableFormat.ICEBERG]:
        return TableFormat.ICEBERG

    @property
    def uid(self) -> TableUid:
        return TableUid(str(self._load().metadata.table_uuid))

    @property
    def shown_location(self) -> str:
        """The catalog as messages may show it."""
        return without_password(self.catalog.get("uri", self.catalog.get("type", "")))

    @property
    def metadata(self) -> str:
        """The location of the table's metadata file now."""
        return self._load().metadata_location

    @property
    def newest(self) -> SnapshotId:
        """Its current snapshot on `main`; `-1` where it has none yet."""
        return _id(self._load().current_snapshot())

    def levels(self) -> PartitionLevels:
        return self._levels_of(self._load()).levels

    def changes_after(self, seen: Seen | None, pushed: Collection[SnapshotId] = ()) -> Captured:
        """The events since the last poll, as `ChangeLog` has it.

        A snapshot of `replace` (compaction) changes no data. A table that was put back, or replaced
        under its own id, begins a new generation of its `table_uid`.
        """
        state = self._load()
        uid = TableUid(str(state.metadata.table_uuid))
        head = state.current_snapshot()
        if seen is not None and own_uid(seen.table_uid) != uid:
            return self._baseline(state, head, uid, Verdict.RECREATED)
        if seen is None:
            return self._first_poll(state, head, uid, pushed)
        chain, is_whole = _chain(state, head, seen.snapshot_id)
        if is_whole:
            return self._captured(state, seen.table_uid, chain)
        verdict = _verdict(state, head, chain, seen.snapshot_id)
        if verdict is Verdict.EXPIRED:
            return self._baseline(state, head, seen.table_uid, verdict)
        return self._baseline(state, head, next_generation(seen.table_uid), verdict)

    def pinned(self, at: SnapshotId | None) -> tuple[str, SnapshotId]:
        """The table's metadata file now, and the snapshot to read of it: the given one, by default
        the current one.

        Raises:
            TableUnreadableError: the table has no such snapshot any more.
        """
        state = self._load()
        snapshot = _id(state.current_snapshot()) if at is None else at
        if snapshot == NO_SNAPSHOT or state.snapshot_by_id(int(snapshot)) is None:
            what = "has no snapshot yet" if at is None else f"no longer has snapshot {snapshot}"
            raise TableUnreadableError(
                f"{self.table}: it {what}; the next attempt reads up to a newer one"
            )
        return state.metadata_location, snapshot

    def judge(self, range_: SnapshotRange) -> "IcebergRange":
        """How a range can be read, by the chain of snapshots that leads to its end.

        Raises:
            TableUnreadableError: the table has no snapshot.
        """
        state = self._load()
        uid, own = TableUid(str(state.metadata.table_uuid)), range_.table_uid
        end = state.snapshot_by_id(int(range_.end)) if range_.end != NO_SNAPSHOT else None
        if end is None or (own is not None and own_uid(own) != uid):
            is_other = own is not None and own_uid(own) != uid
            metadata, newest = self.pinned(None)
            what = "the table was replaced" if is_other else f"snapshot {range_.end} was expired"
            return IcebergRange(
                metadata=metadata,
                snapshot=newest,
                verdict=Verdict.RECREATED if is_other else Verdict.EXPIRED,
                note=f"{what} after this execution was claimed; its newest snapshot is read",
            )
        read = IcebergRange(
            metadata=state.metadata_location, snapshot=range_.end, verdict=Verdict.CONTIGUOUS
        )
        if range_.start is None or (range_.start == NO_SNAPSHOT and not range_.is_recreated):
            return read
        chain, is_whole = _chain(state, end, range_.start)
        if not is_whole or range_.is_recreated:
            verdict = _verdict(state, end, chain, range_.start) if chain else Verdict.ROLLBACK
            if range_.is_recreated and own_uid(range_.start_uid or uid) != uid:
                verdict = Verdict.RECREATED
            return replace(read, verdict=verdict, note=NOTES[verdict])
        begun = state.snapshot_by_id(int(range_.start))
        if not _keeps_columns(state, begun, end):
            note = "columns were renamed, dropped or given another type since"
            return replace(read, verdict=Verdict.EXPIRED, note=note)
        data = [one for one in chain if _operation(one) is not Operation.REPLACE]
        return replace(
            read,
            start=range_.start,
            verdict=Verdict.CONTIGUOUS if len(data) == len(chain) else Verdict.GAP_FILLED,
            commits=len(chain),
            data_commits=len(data),
            only_appends=all(_operation(one) is Operation.APPEND for one in data),
            has_delete_files=any(map(_may_delete, (begun, *chain))),
        )

    def names(self, snapshot: SnapshotId) -> dict[str, str] | None:
        """By the name of each column of a snapshot the one by which it is read, in the table's order;
        None where all have the snapshot's own names and order. Others are of rows that replaced the
        table and were staged under other names.
        """
        state = self._load()
        found = state.snapshot_by_id(int(snapshot))
        schema, read = _schema_at(state, found), _columns_at(state, found)
        if schema is None or read is None:
            return None
        now = [one.field_id for one in state.schema().fields if one.field_id in read]
        shown = [read[one] for one in dict.fromkeys([*now, *read])]
        if schema.fields == (*shown,):
            return None
        names = {one.field_id: one.name for one in schema.fields}
        return {names[one.field_id]: one.name for one in shown}

    def columns(self) -> tuple[tuple[str, Any, bool], ...]:
        """Name, type and whether it may be null of each column, the type as Spark writes it in
        JSON; none of a table that is not there.
        """
        try:
            fields = self._load().schema().fields
        except TableAbsentError:
            return ()
        return tuple((one.name, _spark_type(one.field_type), not one.required) for one in fields)

    def exists(self) -> bool:
        """Whether the catalog has the table."""
        with self._reading():
            return self._has_catalog and self._catalog.table_exists(self.table)

    def committed(self, consumer: ConsumerId, number: int) -> Committed | None:
        """The commit of this execution of the consumer on `main`; None where it has none, or its
        snapshot was expired and it is not the consumer's newest that a property keeps.
        """
        commits = (one for one in self._commits() if one.commit_metadata.consumer == consumer)
        found = next((one for one in commits if one.commit_metadata.number == number), None)
        newest = None if found else self._newest(consumer)
        return newest if newest and newest.commit_metadata.number == number else found

    def last_committed(self, consumer: ConsumerId) -> Committed | None:
        """The newest commit of a consumer on `main` whose snapshot is there, or that a property
        keeps.
        """
        commits = (one for one in self._commits() if one.commit_metadata.consumer == consumer)
        return next(commits, None) or self._newest(consumer)

    def _newest(self, consumer: ConsumerId) -> Committed | None:
        """What a property keeps of the newest commit of a consumer."""
        try:
            text = self._load().properties.get(NEWEST + str(consumer))
        except TableAbsentError:
            return None
        if text is None:
            return None
        snapshot, metadata = json.loads(text)
        found = CommitMetadata.from_text(metadata)
        return found and Committed(version=SnapshotId(snapshot), commit_metadata=found)

    def watermark(self) -> int | None:
        """The watermark of the newest commit that has one, in milliseconds of event time."""
        found = (one.commit_metadata.watermark for one in self._commits())
        return next((one for one in found if one is not None), None)

    def events_of(self, committed: Committed) -> list[DataChangeEvent]:
        """The events of a commit of an execution."""
        state = self._load()
        snapshot = state.snapshot_by_id(int(committed.version))
        if snapshot is None:
            return []
        uid = TableUid(str(state.metadata.table_uuid))
        return self._events(state, self._levels_of(state), snapshot, uid)

    def written(self, committed: Committed) -> Mapping[str, str]:
        """What the writer of a commit counted: the summary of its snapshot."""
        snapshot = self._load().snapshot_by_id(int(committed.version))
        return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}

    def before(self, snapshot: SnapshotId) -> SnapshotId:
        """The parent of a snapshot; `-1` of the first.

        Raises:
            TableUnreadableError: the table no longer has the snapshot.
        """
        state = self._load()
        found = state.snapshot_by_id(int(snapshot))
        if found is None:
            raise TableUnreadableError(f"{self.table}: it no longer has snapshot {snapshot}")
        parent = found.parent_snapshot_id
        return NO_SNAPSHOT if parent is None else SnapshotId(str(parent))

    def known_in(self, committed: Committed, name: str) -> int | None:
        """How many rows in the files that a commit added have a value in a column; None where their
        statistics do not say that.
        """
        state = self._load()
        snapshot = state.snapshot_by_id(int(committed.version))
        if snapshot is None:
            return None
        number = state.schema().find_field(name).field_id
        with self._reading():
            files = [
                entry.data_file
                for manifest in snapshot.manifests(state.io)
                if manifest.added_snapshot_id == snapshot.snapshot_id
                for entry in manifest.fetch_manifest_entry(state.io)
                if entry.status is ManifestEntryStatus.ADDED
            ]
        nulls = [(one.null_value_counts or {}).get(number) for one in files]
        if None in nulls:
            return None
        return sum(one.record_count for one in files) - sum(map(int, filter(None, nulls)))

    def size(self) -> TableSize:
        """What its data files hold, rows that were deleted by files of deletes among them."""
        snapshot = self._load().current_snapshot()
        if snapshot is None:
            return TableSize(rows=0, bytes=0)
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        rows = summary.get("total-records")
        return TableSize(
            rows=None if rows is None else int(rows), bytes=int(summary.get("total-files-size", 0))
        )

    def create(
        self,
        schema: pa.Schema,
        partitioned_by: Sequence[str],
        comment: str,
        properties: Mapping[str, str],
        location: str | None = None,
    ) -> None:
        """Make the table, empty, at a location or where the catalog puts it; one that another writer
        makes meanwhile is left as it is.
        """
        namespace = self.table.rpartition(".")[0]
        given = {**properties, **({"comment": comment} if comment else {})}
        try:
            with OPENING, self._writing():
                if namespace:
                    self._catalog.create_namespace_if_not_exists(namespace)
                with (
                    suppress(TableAlreadyExistsError),
                    self._catalog.create_table_transaction(
                        self.table, schema, location=location, properties=given
                    ) as made,
                    made.update_spec() as spec,
                ):
                    for name in partitioned_by:
                        spec.add_identity(name)
        except ConcurrentWriteError:
            if not self.exists():
                raise

    def drop(self) -> None:
        """Take the table out of the catalog, where it is there; its files stay."""
        with self._writing(), suppress(NoSuchTableError):
            self._catalog.drop_table(self.table)

    def require(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table that have other values."""
        state = self._load()
        wanted = {
            name: text for name, text in properties.items() if state.properties.get(name) != text
        }
        if wanted:
            with self._writing(), state.transaction() as change:
                change.set_properties(wanted)

    def widen(self, schema: pa.Schema, *, replaces: bool = False) -> dict[str, str]:
        """Give the table columns for rows that are about to be written. What readers see of it
        stays as it is.

        Args:
            schema: Of the rows, all of whose fields may be null.
            replaces: Whether the rows replace the table. A column that is not there, is spelled
                otherwise, or has not just these fields, is then written under another name, which
                `publish` puts right.

        Returns:
            By the name of each column of the rows that of the table's column.

        Raises:
            DeclarationError: a type does not follow from that of the table's column.
        """
        state = self._load()
        stored = {one.name.lower(): one.name for one in state.schema().fields}
        levels = {state.schema().find_column_name(one.source_id) for one in state.spec().fields}
        columns = dict[str, str]()
        for one in schema:
            name = str(stored.get(one.name.lower(), one.name))
            is_there = name in stored.values()
            follows = not is_there or _follows(state, one.with_name(name))
            if replaces and name not in levels:
                held = state.schema().find_type(name) if name == one.name and is_there else None
                follows = follows and held is not None and _within(held) == _within(one.type)
            if not follows:
                if not replaces or name in levels:
                    raise DeclarationError(
                        self.table,
                        name,
                        f"becomes {one.type}, which the Iceberg table's column cannot become; give "
                        f"it another name, or drop the table to make it again",
                    )
                columns[one.name] = f"{name}{STAGED}{uuid4().hex[:8]}"
            else:
                columns[one.name] = name
        if replaces and (lost := levels - set(columns.values())):
            raise DeclarationError(
                self.table,
                sorted(map(str, lost))[0],
                "is a partition column of the Iceberg table and no longer computed; compute it, or "
                "drop the table to make it again",
            )
        fields = pa.schema([one.with_name(columns[one.name]) for one in schema])
        with self._writing(), state.update_schema(case_sensitive=False) as update:
            update.union_by_name(fields)
        return columns

    def publish(
        self,
        staged: str,
        base: SnapshotId,
        commit_metadata: CommitMetadata,
        columns: Mapping[str, str] | None = None,
        *,
        is_kept: bool,
    ) -> bool:
        """Make a staged snapshot the current one of `main`.

        Args:
            staged: Its `wap.id`.
            base: The current snapshot of `main` on which it was made.
            commit_metadata: Of its execution.
            columns: What `widen` returned for rows that replace the table: other columns are
                dropped with it.
            is_kept: Whether the newest commit of its consumer is a property of the table too, so that
                it outlives its snapshot.

        Returns:
            False where nothing was staged.

        Raises:
            ConcurrentWriteError: another writer was first.
        """
        state = self._load()
        found = [
            one
            for one in state.snapshots()
            if one.summary and one.summary.additional_properties.get("wap.id") == staged
        ]
        if not found:
            return False
        snapshot = found[-1]
        parent = snapshot.parent_snapshot_id
        on_base = (NO_SNAPSHOT if parent is None else SnapshotId(str(parent))) == base
        if not on_base or _id(state.current_snapshot()) != base:
            raise ConcurrentWriteError(f"{self.table}: another writer was first")
        with self._writing(), state.transaction() as change:
            if is_kept:
                text = json.dumps([_id(snapshot), commit_metadata.to_text()])
                change.set_properties({NEWEST + str(commit_metadata.consumer): text})
            if columns is not None:
                self._replace_columns(change, state, columns)
            ManageSnapshots(change).set_current_snapshot(snapshot.snapshot_id).commit()
        return True

    @staticmethod
    def _replace_columns(change: Transaction, state: Table, columns: Mapping[str, str]) -> None:
        kept = set(columns.values())
        order = [to if STAGED not in to else name for name, to in columns.items()]
        gone = [one.name for one in state.schema().fields if one.name not in kept]
        if gone:
            with change.update_schema(allow_incompatible_changes=True) as update:
                for name in gone:
                    update.delete_column(name)
        renamed = {to: name for name, to in columns.items() if to.lower() != name.lower()}
        if renamed:
            with change.update_schema() as update:
                for name, to in renamed.items():
                    update.rename_column(name, to)
        if [one.name for one in change.table_metadata.schema().fields] != order:
            with change.update_schema() as update:
                for name in reversed(order):
                    update.move_first(name)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Around a change of the table's metadata."""
        try:
            with self._reading():
                yield
        except TableUnreadableError as error:
            if isinstance(error.__cause__, CommitFailedException):
                raise ConcurrentWriteError(f"{self.table}: another writer was first") from error
            raise

    def _commits(self) -> Iterator[Committed]:
        """The commits of executions on `main`, newest first; none of a table that is not there."""
        try:
            state = self._load()
        except TableAbsentError:
            return
        for one in reversed(_chain(state, state.current_snapshot(), NO_SNAPSHOT)[0]):
            summary = one.summary.additional_properties if one.summary else {}
            metadata = CommitMetadata.from_text(summary.get(COMMIT_METADATA_KEY))
            if metadata is not None:
                yield Committed(version=_id(one), commit_metadata=metadata)

    @property
    def _has_catalog(self) -> bool:
        """Whether the catalog is there: to open one of SQLite would make its file."""
        uri = urlsplit(self.catalog.get("uri", ""))
        return uri.scheme != "sqlite" or is_stored(uri.path[1:])

    @property
    def _catalog(self) -> Catalog:
        if urlsplit(self.catalog.get("uri", "")).scheme == "thrift":
            # one of Hive is a single connection, for a single thread; it is made when it is used
            return load_catalog("lakechime", **self.catalog)
        with OPENING:
            return _catalog(tuple(sorted(self.catalog.items())))

    def _first_poll(
        self, state: Table, head: Snapshot | None, uid: TableUid, pushed: Collection[SnapshotId]
    ) -> Captured:
        """The state before the oldest snapshot that is registered already, and the snapshots from
        there on.
        """
        chain, _ = _chain(state, head, NO_SNAPSHOT)
        first = next((at for at, one in enumerate(chain) if _id(one) in pushed), None)
        if first is None:
            if len(chain) == 1 and _is_first(chain[0]):
                return self._captured(state, uid, chain)
            return self._baseline(state, head, uid, None)
        before = self._baseline(state, chain[first - 1], uid, None).events if first else ()
        after = self._captured(state, uid, chain[first:])
        return Captured(events=(*before, *after.events), seen=after.seen)

    def _captured(self, state: Table, uid: TableUid, chain: list[Snapshot]) -> Captured:
        """The events of the snapshots that follow what was seen, oldest first."""
        levels = self._levels_of(state)
        events = [event for one in chain for event in self._events(state, levels, one, uid)]
        return Captured(events=tuple(events), seen=self._seen(state.current_snapshot(), uid))

    def _events(
        self, state: Table, levels: "_Levels", snapshot: Snapshot, uid: TableUid
    ) -> list[DataChangeEvent]:
        if _operation(snapshot) is Operation.REPLACE:
            return []
        with self._reading():
            added, removed, sizes = _changed(state, levels, snapshot)
            less = {one: keys for one, keys in removed.items() if one not in added}
            left = set(less) - _emptied(state, levels, snapshot, less)
        operations = operations_of(added, set(removed), left)
        partitions = named_partitions(self.table, snapshot.snapshot_id, sizes)
        return [
            self._event(snapshot, uid, one, operations.get(one, OperationType.UPDATE), size)
            for one, size in partitions.items()
        ]

    def _baseline(
        self, state: Table, snapshot: Snapshot | None, uid: TableUid, verdict: Verdict | None
    ) -> Captured:
        """The state at a snapshot as one commit."""
        seen = self._seen(snapshot, uid)
        if snapshot is None:
            return Captured(events=(), seen=seen)
        levels = self._levels_of(state)
        with self._reading():
            live = _live(state, levels, snapshot)
        is_again = verdict not in (None, Verdict.RECREATED)
        operation = OperationType.UPDATE if is_again else OperationType.APPEND
        partitions = named_partitions(self.table, snapshot.snapshot_id, live)
        events = tuple(
            self._event(snapshot, uid, one, operation, size, verdict, is_baseline=True)
            for one, size in partitions.items()
        )
        return Captured(events=events, seen=seen)

    def _event(
        self,
        snapshot: Snapshot,
        uid: TableUid,
        partition: Partition,
        operation: OperationType,
        added_bytes: int,
        verdict: Verdict | None = None,
        *,
        is_baseline: bool = False,
    ) -> DataChangeEvent:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        tags = tags_of(producer_tags(summary.get(TAGS_KEY)), summary.get(COMMIT_METADATA_KEY))
        parent = None if is_baseline else snapshot.parent_snapshot_id
        return DataChangeEvent(
            table=self.table,
            cluster=self.cluster,
            table_format=TableFormat.ICEBERG,
            operation_type=operation,
            partition=partition,
            snapshot_id=_id(snapshot),
            snapshot_ts=snapshot.timestamp_ms,
            table_uid=uid,
            tags=baseline_tags(tags, verdict) if is_baseline else tags,
            prev_snapshot_id=None if parent is None else SnapshotId(str(parent)),
            added_bytes=added_bytes,
        )

    def _seen(self, snapshot: Snapshot | None, uid: TableUid) -> Seen:
        return Seen(self.table, uid, _id(snapshot), self.cluster)

    def _levels_of(self, state: Table) -> "_Levels":
        with self._reading():
            return _Levels(state, self.named)

    def _load(self) -> Table:
        with self._reading():
            try:
                if not self._has_catalog:
                    raise NoSuchTableError
                return self._catalog.load_table(self.table)
            except (NoSuchTableError, NoSuchNamespaceError) as error:
                raise TableAbsentError(
                    f"{self.table}: the Iceberg catalog {self.shown_location} has no such table; "
                    f"check the name, or wait for its first write"
                ) from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Around what asks the catalog or reads files of the table, whose libraries raise errors of
        many kinds.
        """
        try:
            yield
        except LakeChimeError:
            raise
        except Exception as error:
            reason = without_password(next(iter(str(error).splitlines()), type(error).__name__))
            if isinstance(error, ValidationError | UnicodeDecodeError | EOFError):
                reason = "a metadata file of the table is not whole"
            raise TableUnreadableError(
                f"{self.table}: it cannot be read by the Iceberg catalog {self.shown_location}: "
                f"{reason}; check that the catalog and the table's files can be reached, with these "
                f"credentials, and are whole"
            ) from error


@dataclass(frozen=True)
class IcebergRows:
    """The rows of the current snapshot of a table, asked for as by `delta_rows.DeltaRows`; a table
    that does not exist has none.
    """

    log: IcebergLog

    def types(self) -> dict[str, str]:
        """The columns with their types in Spark's words, those of nested ones as Iceberg has them."""
        state = self._state()
        kinds = {one.name: one.field_type for one in state.schema().fields} if state else {}
        found = {name: _spark_type(kind) for name, kind in kinds.items()}
        return {
            name: _SPARK.get(kind, kind) if isinstance(kind, str) else str(kinds[name])
            for name, kind in found.items()
        }

    def count(self) -> int:
        """How many rows there are."""
        return self._counted(AlwaysTrue())

    def count_known(self, name: str) -> int:
        """How many rows have a value in a column."""
        return self._counted(NotNull(name))  # type: ignore[call-arg]

    def with_values(self, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The rows that have these values."""
        state = self._state()
        if state is None:
            return []
        each = [EqualTo(name, value) for name, value in values.items()]  # type: ignore[call-arg]
        same = reduce(And, each, AlwaysTrue())
        with self.log._reading():
            return state.scan(same).to_arrow().to_pylist()

    def _counted(self, condition: BooleanExpression) -> int:
        state = self._state()
        if state is None:
            return 0
        with self.log._reading():
            return state.scan(condition).count()

    def _state(self) -> Table | None:
        try:
            return self.log._load()
        except TableAbsentError:
            return None


_SPARK = {"long": "bigint", "integer": "int"}


@dataclass(frozen=True, kw_only=True)
class IcebergRange:
    """How a range of snapshots can be read, by the table's metadata.

    Attributes:
        metadata: The location of the table's metadata file.
        snapshot: The one to read as the end of the range.
        verdict: Whether increments may be read.
        note: Why not, for people.
        start: Behind which the range begins; None where it begins at nothing.
        commits: Snapshots of the range.
        data_commits: Those of them that change data; `replace` (compaction) does not.
        only_appends: Whether these only add files.
        has_delete_files: Whether files of deletes, or deletion vectors, belong to the table then.
    """

    metadata: str
    snapshot: SnapshotId
    verdict: Verdict
    note: str = ""
    start: SnapshotId | None = None
    commits: int = 0
    data_commits: int = 0
    only_appends: bool = False
    has_delete_files: bool = False


NOTES = {
    Verdict.RECREATED: "the table was replaced since it was last read",
    Verdict.ROLLBACK: "the table was put back to an older snapshot since it was last read",
    Verdict.BRANCHED: "its history no longer holds the snapshot that was last read",
    Verdict.EXPIRED: "snapshots of the range were expired",
}


def _spark_type(kind: IcebergType) -> Any:
    """A type as Spark writes it in JSON."""
    match kind:
        case StructType():
            fields = [
                {
                    "name": one.name,
                    "type": _spark_type(one.field_type),
                    "nullable": not one.required,
                    "metadata": {},
                }
                for one in kind.fields
            ]
            return {"type": "struct", "fields": fields}
        case ListType():
            element = _spark_type(kind.element_type)
            can = not kind.element_required
            return {"type": "array", "elementType": element, "containsNull": can}
        case MapType():
            return {
                "type": "map",
                "keyType": _spark_type(kind.key_type),
                "valueType": _spark_type(kind.value_type),
                "valueContainsNull": not kind.value_required,
            }
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case FixedType():
            return "binary"
    names = {"int": "integer", "timestamptz": "timestamp", "uuid": "string"}
    return {**names, "timestamp": "timestamp_ntz"}.get(str(kind), str(kind))


def _follows(state: Table, field: "pa.Field[Any]") -> bool:
    """Whether the table's column of that name can become of the field's type."""
    try:
        state.update_schema(case_sensitive=False).union_by_name(pa.schema([field]))
    except (ValidationError, ResolveError, ValueError, TypeError):
        return False
    return True


def _within(kind: IcebergType | pa.DataType) -> Any:
    """The fields within a type, at any depth, in their order."""
    match kind:
        case StructType():
            return [(one.name, _within(one.field_type)) for one in kind.fields]
        case pa.StructType():
            return [(one.name, _within(one.type)) for one in kind]
        case ListType():
            return [_within(kind.element_type)]
        case pa.ListType():
            return [_within(kind.value_type)]
        case MapType():
            return [_within(kind.key_type), _within(kind.value_type)]
        case pa.MapType():
            return [_within(kind.key_type), _within(kind.item_type)]
    return None


def _keeps_columns(state: Table, start: Snapshot | None, end: Snapshot) -> bool:
    """Whether the columns of the start are those of the end in their types, and those of the end
    still the table's own: rows of a range are read by the table's schema of now.
    """
    last = _columns_at(state, end)
    first = _columns_at(state, start) if start is not None else last
    if last is None or first is None:
        return False
    now = {one.field_id: one for one in state.schema().fields}
    return _has_all(now, last) and _has_all(last, first)


def _has_all(these: Mapping[int, NestedField], others: Mapping[int, NestedField]) -> bool:
    """Whether all columns of others are among these, by their names and in their types."""
    return all(
        number in these
        and (these[number].name, these[number].field_type) == (one.name, one.field_type)
        for number, one in others.items()
    )


def _schema_at(state: Table, snapshot: Snapshot | None) -> Schema | None:
    if snapshot is None or snapshot.schema_id is None:
        return None
    return state.schemas().get(snapshot.schema_id)


def _columns_at(state: Table, snapshot: Snapshot | None) -> dict[int, NestedField] | None:
    """The columns of a snapshot by their ids, as it is read; None where they are not known.

    Of rows that replaced the table, these are the columns that the table has of them now: they were
    staged under other names, beside those that they replaced.
    """
    schema = _schema_at(state, snapshot)
    if schema is None:
        return None
    if all(STAGED not in one.name for one in schema.fields):
        return {one.field_id: one for one in schema.fields}
    own = {one.field_id for one in schema.fields}
    return {
        one.field_id: one
        for one in state.schema().fields
        if one.field_id in own and STAGED not in one.name
    }


def _operation(snapshot: Snapshot) -> Operation | None:
    return None if snapshot.summary is None else snapshot.summary.operation


def _may_delete(snapshot: Snapshot | None) -> bool:
    """Whether the table has files of deletes at a snapshot, or may have, as its summary says."""
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    return summary.get("total-delete-files") != "0"


@lru_cache(maxsize=8)
def _catalog(properties: tuple[tuple[str, str], ...]) -> Catalog:
    """The catalog of these properties, opened once a process."""
    return load_catalog("lakechime", **dict(properties))


def _id(snapshot: Snapshot | None) -> SnapshotId:
    return NO_SNAPSHOT if snapshot is None else SnapshotId(str(snapshot.snapshot_id))


def _chain(state: Table, head: Snapshot | None, seen: SnapshotId) -> tuple[list[Snapshot], bool]:
    """The snapshots that lead to this one after one that was seen, oldest first, as far back as the
    metadata have them; and whether they join it.
    """
    found = list[Snapshot]()
    at = head
    while at is not None and _id(at) != seen:
        found.append(at)
        parent = at.parent_snapshot_id
        at = None if parent is None else state.snapshot_by_id(parent)
    joins = _id(at) == seen and (at is not None or not found or _is_first(found[-1]))
    return found[::-1], joins


def _is_first(snapshot: Snapshot) -> bool:
    """Whether nothing was in the table before.

    A missing parent alone does not show it: after pyiceberg's expiry the oldest snapshot that is
    left has none.
    """
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return (
        snapshot.parent_snapshot_id is None
        and "total-records" in summary
        and summary["total-records"] == summary.get("added-records", "0")
    )


def _verdict(
    state: Table, head: Snapshot | None, chain: list[Snapshot], seen: SnapshotId
) -> Verdict:
    """Why the history of main does not join what was seen."""
    if head is None:
        return Verdict.ROLLBACK
    known = None if seen == NO_SNAPSHOT else state.snapshot_by_id(int(seen))
    if known is None:
        return Verdict.RECREATED if _is_first(chain[0]) else Verdict.EXPIRED
    before = {one.snapshot_id for one in (known, *_chain(state, known, NO_SNAPSHOT)[0])}
    if head.snapshot_id in before:
        return Verdict.ROLLBACK
    # CREATE OR REPLACE keeps the id of the table and its snapshots, and begins a new chain
    shares = any(one.snapshot_id in before for one in chain)
    return Verdict.BRANCHED if shares else Verdict.RECREATED


Key = tuple[int, tuple[Any, ...]]  # a partition spec and values of its fields as files have them


class _Levels:
    """The partition levels of a table's events, and what each spec of the table has of them."""

    def __init__(self, state: Table, named: PartitionLevels | None) -> None:
        own = {one.name: _level(state, one) for one in _fields(state.spec())}
        self.levels = (
            named if named is not None else PartitionLevels(tuple(own), tuple(own.values()))
        )
        self._places = {
            spec_id: self._places_of(state, spec) for spec_id, spec in state.specs().items()
        }
        if all(places is None for places in self._places.values()):
            raise TableUnreadableError(
                f"{state.name()[-1]}: its partition levels are declared as "
                f"{', '.join(self.levels.names)}, and the fields of its partition spec are "
                f"{', '.join(own) or 'none'}; declare these"
            )

    def _places_of(
        self, state: Table, spec: PartitionSpec
    ) -> tuple[tuple[int, PartitionField, IcebergType], ...] | None:
        """Per level the field of a spec and where its records have it; None of a spec that lacks
        one.
        """
        found = {
            one.name: (at, one, _type(state, one))
            for at, one in enumerate(spec.fields)
            if one in _fields(spec)
        }
        if not set(self.levels.names) <= set(found):
            return None
        return tuple(found[name] for name in self.levels.names)

    def partition(self, spec_id: int, values: Any) -> Partition:
        """The partition of a file by the record of its values; None where it is not known, and of
        an unpartitioned table.
        """
        places = self._places[spec_id]
        if not places:
            return None
        return tuple(_value(one, kind, values[at]) for at, one, kind in places)

    def key(self, spec_id: int, values: Any) -> Key:
        """By what `may_hold` finds the partition of a file."""
        return spec_id, tuple(values[at] for at, _, _ in self._places[spec_id] or ())

    def may_hold(self, manifest: ManifestFile, keys: Iterable[Key]) -> bool:
        """Whether a manifest may have a file of one of these partitions, by its bounds of their
        values, which the manifest list has.
        """
        own = manifest.partition_spec_id
        places, summaries = self._places[own], manifest.partitions
        if not places or not summaries:
            return True
        bounds = [(kind, summaries[at]) for at, _, kind in places]
        return any(
            spec_id != own or all(map(_is_within, values, bounds)) for spec_id, values in keys
        )


def _fields(spec: PartitionSpec) -> list[PartitionField]:
    """The fields of a spec but those that were dropped, which stay in tables of version 1."""
    return [one for one in spec.fields if not isinstance(one.transform, VoidTransform)]


def _type(state: Table, one: PartitionField) -> IcebergType:
    """The type of a field's values; the column that it is made of may have been dropped since."""
    for _, schema in sorted(state.schemas().items(), reverse=True):
        with suppress(ValueError):
            return one.transform.result_type(schema.find_type(one.source_id))
    raise ValueError(f"the column of partition field {one.name} is in no schema")


def _level(state: Table, one: PartitionField) -> LevelType:
    match one.transform:
        case DayTransform() | MonthTransform() | YearTransform():
            return LevelType.DATE
        case HourTransform():
            return LevelType.TIMESTAMP
        case _:
            return LEVELS.get(type(_type(state, one)), LevelType.STRING)


def _value(one: PartitionField, kind: IcebergType, value: Any) -> PartitionValue:
    """A value of a partition as events write it; a time by the beginning of its period."""
    if value is None or isinstance(value, bool):
        return value
    match one.transform:
        case YearTransform():
            return f"{EPOCH.year + value:04d}-01-01"
        case MonthTransform():
            return f"{EPOCH.year + value // 12:04d}-{value % 12 + 1:02d}-01"
        case DayTransform():
            return _day(value)
        case HourTransform():
            return str(EPOCH + timedelta(hours=value))
    match kind:
        case DateType():
            return _day(value)
        case TimestampType() | TimestamptzType() if isinstance(value, int):
            return str(EPOCH + timedelta(microseconds=value))
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, int | str) else str(value)


def _day(days: int) -> str:
    return (EPOCH + timedelta(days=days)).date().isoformat()


def _is_within(value: Any, bounds: tuple[IcebergType, PartitionFieldSummary]) -> bool:
    """Whether a manifest may have a value, by its bounds; those of some types are not compared."""
    kind, summary = bounds
    if value is None:
        return summary.contains_null
    if not isinstance(value, int | str) or not isinstance(kind, PrimitiveType):
        return True
    lower, upper = summary.lower_bound, summary.upper_bound
    if lower is None or upper is None:  # it has nulls alone
        return False
    least: Any = from_bytes(kind, lower)
    greatest: Any = from_bytes(kind, upper)
    return bool(least <= value <= greatest)


def _live(state: Table, levels: _Levels, snapshot: Snapshot) -> dict[Partition, int]:
    """The bytes of each partition that holds a file of rows."""
    found = Counter[Partition]()
    for manifest in snapshot.manifests(state.io):
        if manifest.content is ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(state.io):
                file = entry.data_file
                partition = levels.partition(manifest.partition_spec_id, file.partition)
                found[partition] += file.file_size_in_bytes
    return found


def _emptied(
    state: Table, levels: _Levels, snapshot: Snapshot, partitions: Mapping[Partition, Key]
) -> set[Partition]:
    """Which of these partitions hold no file of rows."""
    left = dict(partitions)
    for manifest in snapshot.manifests(state.io) if left else ():
        if manifest.content is ManifestContent.DATA and levels.may_hold(manifest, left.values()):
            for entry in manifest.fetch_manifest_entry(state.io):
                left.pop(
                    levels.partition(manifest.partition_spec_id, entry.data_file.partition), None
                )
    return set(left)


def _changed(
    state: Table, levels: _Levels, snapshot: Snapshot
) -> tuple[set[Partition], dict[Partition, Key], dict[Partition, int]]:
    """The partitions to which a snapshot added rows, and those from which it removed some, be it by
    files of deletes; and of both the bytes of the files that it added, as its summary counts them.
    """
    added, removed, sizes = set[Partition](), dict[Partition, Key](), Counter[Partition]()
    for manifest in snapshot.manifests(state.io):
        is_own = manifest.added_snapshot_id == snapshot.snapshot_id
        # others have just files that it kept
        if not is_own or (manifest.added_files_count == 0 and manifest.deleted_files_count == 0):
            continue
        for entry in manifest.fetch_manifest_entry(state.io, discard_deleted=False):
            if entry.status is ManifestEntryStatus.EXISTING:
                continue
            is_added = entry.status is ManifestEntryStatus.ADDED
            is_rows = manifest.content is ManifestContent.DATA
            file, spec_id = entry.data_file, manifest.partition_spec_id
            partition = levels.partition(spec_id, file.partition)
            if is_added and is_rows:
                added.add(partition)
            else:
                removed[partition] = levels.key(spec_id, file.partition)
            sizes[partition] += file.file_size_in_bytes if is_added else 0
    return added, removed, sizes
