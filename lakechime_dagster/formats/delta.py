"""A Delta table without Spark: its commits as data change events, its files, its protocol."""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cached_property
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from lakechime_dagster.compat import UTC
from lakechime_dagster.dce.events import (
    DataChangeEvent,
    OperationType,
    Seen,
    SnapshotId,
    TableFormat,
    TableUid,
    Tags,
    version_of,
)
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.snapshots import (
    CommitsMissingError,
    TableCommit,
    TableSize,
    Verdict,
    next_generation,
    own_uid,
)
from lakechime_dagster.errors import (
    ConsumerConflictError,
    TableAbsentError,
    TableUnreadableError,
    without_password,
)
from lakechime_dagster.formats.changes import (
    Captured,
    Partition,
    baseline_tags,
    named_partitions,
    operations_of,
    tags_of,
)
from lakechime_dagster.formats.delta_log import (
    DeltaLevels,
    commit_path,
    first_metadata,
    parse_commit,
)
from lakechime_dagster.formats.files import StoredFile, TableFolder
from lakechime_dagster.tables.maintenance import DataFile, OldFile, Span, TableFiles
from lakechime_dagster.triggers.consumers import (
    COMMIT_METADATA_KEY,
    Checkpoint,
    CommitMetadata,
    Committed,
    ConsumerId,
)
from lakechime_dagster.triggers.schedule import DAY_MS

# columns, leaves of structs counted one by one, which have statistics unless a property lists
# others
INDEXED = 32
MAX_TEXT = 32  # characters of a bound
LAST = chr(0x10FFFF)  # the greatest character


LISTED = "delta.dataSkippingStatsColumns"
_NAME = re.compile(r"((?:`(?:[^`]|``)*`|[^,.`]+)(?:\.(?:`(?:[^`]|``)*`|[^,.`]+))*)(?:,|$)")
_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def listed_in(property_value: str) -> frozenset[str]:
    """The columns with statistics that a property of a table lists, in lower case; dots lead into
    structs.
    """
    return frozenset(
        ".".join(
            (quoted or plain).replace("``", "`").strip().lower()
            for quoted, plain in _PART.findall(name)
        )
        for name in _NAME.findall(property_value)
    )


def statistics_of(footer: pq.FileMetaData, listed: Collection[str] | None = None) -> dict[str, Any]:
    """The statistics of a file as the `stats` of its `add` holds them: `numRecords`, `nullCount`,
    `minValues`, `maxValues`.

    Lists and maps, whose leaves repeat, have none. Booleans and decimals have no bounds: those of
    booleans skip no file, and not every engine reads decimals of JSON exactly. Where the table
    lists columns, only these have statistics.
    """
    nulls, least, greatest = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for at in range(footer.num_columns if listed is not None else min(INDEXED, footer.num_columns)):
        leaf = footer.schema.column(at)
        if leaf.max_repetition_level or (listed is not None and not _is_listed(leaf.path, listed)):
            continue
        groups = [
            footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)
        ]
        if any(one is None or not one.has_null_count for one in groups):
            continue
        path = leaf.path.split(".")
        _put(nulls, path, sum(one.null_count for one in groups))
        bounds = [(one.min, one.max) for one in groups if one.has_min_max]
        if bounds and len(bounds) == sum(1 for one in groups if one.num_values):
            _put(least, path, _lower(min(low for low, _ in bounds)))
            _put(greatest, path, _upper(max(high for _, high in bounds)))
    return {
        "numRecords": footer.num_rows,
        "nullCount": nulls,
        "minValues": least,
        "maxValues": greatest,
    }


def _is_listed(path: str, listed: Collection[str]) -> bool:
    parts = path.lower().split(".")
    return any(".".join(parts[:length]) in listed for length in range(1, len(parts) + 1))


def _put(into: dict[str, Any], path: list[str], value: Any) -> None:
    """A value under the names of the structs around it; None is not put."""
    if value is not None:
        for name in path[:-1]:
            into = into.setdefault(name, {})
        into[path[-1]] = value


def _lower(value: Any) -> Any:
    return value[:MAX_TEXT] if isinstance(value, str) else _as_json(value)


def _upper(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= MAX_TEXT:
        return _as_json(value)
    return None if value[MAX_TEXT] == LAST else value[:MAX_TEXT] + LAST


def _as_json(value: Any) -> Any:
    """A bound in JSON; None where it has none. Times have microseconds: an upper bound cut to
    milliseconds would be too low.
    """
    match value:
        case bool():
            return None
        case float():
            return value if math.isfinite(value) else None
        case int() | str():
            return value
        case datetime():
            text = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return text.isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
        case date():
            return value.isoformat()
        case _:
            return None


PLAIN_WRITER = 4  # the last of Delta's writer versions that requires these features only
PLAIN_FEATURES = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}
)
BY_FEATURES = 7  # the version of writers that names its features
CONSTRAINT = "delta.constraints."


def is_plain(state: DeltaTable) -> bool:
    """Whether files of its columns may be added as they are: it has no partitions, constraints or
    generated columns.
    """
    metadata, protocol = state.metadata(), state.protocol()
    named = protocol.min_writer_version >= BY_FEATURES and PLAIN_FEATURES.issuperset(
        protocol.writer_features or ()
    )
    is_free = not any(name.startswith(CONSTRAINT) for name in metadata.configuration)
    schema = json.loads(state.schema().to_json())
    is_open = all(field["nullable"] and not field["metadata"] for field in _fields(schema))
    return (
        is_free
        and is_open
        and not metadata.partition_columns
        and (named or protocol.min_writer_version <= PLAIN_WRITER)
    )


def add_folder(
    state: DeltaTable,
    folder: TableFolder,
    name: str,
    app_id: str,
    version: int,
    facts: Mapping[str, str],
) -> bool:
    """Commit the Parquet files of a folder under a transaction; False when one of it, or of a later
    version, did before this state.

    Args:
        state: The table as the commit finds it; `is_plain`.
        folder: The table's.
        name: Of the folder below it, with files of the table's columns, all or some of them. Those
            without rows are left out.
        app_id: The transaction's application.
        version: Its number, which commits of the application raise.
        facts: The metadata of the commit.

    Raises:
        FileNotFoundError: there is no such file, so that rows would be lost.
        CommitFailedError: another commit since this state conflicts with this one, such as one of
            its transaction.
    """
    done = state.transaction_version(app_id)
    if done is not None and done >= version:
        return False
    property_value = state.metadata().configuration.get(LISTED)
    listed = None if property_value is None else listed_in(property_value)
    properties = CommitProperties(
        custom_metadata=dict(facts), app_transactions=[Transaction(app_id, version)]
    )
    state.create_write_transaction(
        list(_actions(folder, name, listed)), "append", state.schema(), commit_properties=properties
    )
    return True


def _actions(folder: TableFolder, name: str, listed: Collection[str] | None) -> Iterator[AddAction]:
    found = [one for one in folder.files_in(name) if one.name.endswith(".parquet")]
    if not found:
        raise FileNotFoundError(
            f"{name} holds no Parquet file, and a writer without rows writes one too"
        )
    for one in found:
        with folder.open(one.path) as opened:
            statistics = statistics_of(pq.read_metadata(opened), listed)
        if statistics["numRecords"]:
            yield AddAction(
                f"{name}/{one.name}", one.size, {}, one.modified, True, json.dumps(statistics)
            )


def _fields(kind: Any) -> Iterator[Mapping[str, Any]]:
    """The fields of a type in Delta's words, and those within them."""
    if isinstance(kind, Mapping):
        for field in kind.get("fields", ()):
            yield field
            yield from _fields(field["type"])
        for name in ("elementType", "keyType", "valueType"):
            yield from _fields(kind.get(name))


@dataclass(frozen=True)
class DeltaLog:
    """The log of one Delta table.

    Args:
        location: a local path or a URL that deltalake understands.
        table: the name that its events carry.
        cluster: the data platform that its events carry.
        storage_options: credentials and endpoints of an object store, as deltalake takes them.

    Raises (every method):
        TableAbsentError: the table does not exist; `exists` returns False instead.
        TableUnreadableError: nothing readable is there, or the location is out of reach.
    """

    location: str
    table: str
    cluster: str = ""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def exists(self) -> bool:
        """Whether a Delta table lies there."""
        try:
            return DeltaTable.is_deltatable(self.location, dict(self.storage_options))
        except (DeltaError, OSError, ValueError) as error:
            raise self._log_unreadable() from error

    @property
    def shown_location(self) -> str:
        """The location as messages may show it, without what is secret in it."""
        return without_password(self.location)

    @property
    def table_format(self) -> Literal[TableFormat.DELTA]:
        return TableFormat.DELTA

    @property
    def uid(self) -> TableUid:
        return TableUid(str(self._open().metadata().id))

    @property
    def version(self) -> int:
        return self._open().version()

    @property
    def newest(self) -> SnapshotId:
        return SnapshotId(str(self.version))

    def state(self) -> DeltaTable | None:
        """The table's newest state; None of one that is not there."""
        return self._open_or_none()

    def levels(self) -> PartitionLevels:
        """The partition levels with the types of the table's schema."""
        return _levels(self._open()).levels

    def properties(self, version: int | None = None) -> Mapping[str, str]:
        return dict(self._open(version).metadata().configuration)

    def size(self, version: int | None = None) -> TableSize:
        files = pa.table(self._open(version).get_add_actions(flatten=True))
        rows = (
            files["num_records"].to_pylist()
            if "num_records" in files.column_names
            else [None] * files.num_rows
        )
        return TableSize(
            rows=None if None in rows else sum(rows), bytes=sum(files["size_bytes"].to_pylist())
        )

    def commits_backwards(self) -> Iterator[TableCommit]:
        """The commits that the log still holds, newest first."""
        return self._commits_backwards(self._open())

    def commits(self, after: int, through: int) -> list[TableCommit]:
        """The commits of (after, through], oldest first.

        Raises:
            CommitsMissingError: the log was cleaned up past one of them.
        """
        levels = _levels(self._open())
        found = []
        for version in range(after + 1, through + 1):
            text = self._commit_text(version)
            if text is None:
                raise CommitsMissingError(version)
            found.append(self._commit(version, text, levels))
        return found

    def events_of(self, committed: Committed) -> list[DataChangeEvent]:
        """The events of a commit of an execution."""
        return self.events_of_commit(int(committed.version))

    def events_of_commit(self, version: int) -> list[DataChangeEvent]:
        """One event per partition that this commit changed; none for a commit that moved files or
        wrote only metadata.
        """
        state = self._open()
        text = self._commit_text(version)
        if text is None:
            reason = "it was cleaned up, or never made"
            raise TableUnreadableError(
                f"{self.table}: commit {version} is not in the log at {self.shown_location}; "
                f"{reason}"
            )
        commit = self._commit(version, text, _levels(state))
        uid = (
            state.metadata().id
            if version == state.version()
            else commit.table_uid or self._uid_at(version)
        )
        return self._events(commit, TableUid(str(uid)))

    def changes_after(self, seen: Seen | None, pushed: Collection[SnapshotId] = ()) -> Captured:
        """The events since the last poll, as `ChangeLog` has it.

        ROLLBACK begins a new generation of the `table_uid`, since the snapshot ids will come again.
        """
        if seen is None:
            versions = [one for each in pushed if (one := version_of(each)) is not None]
            return self._first_poll(min(versions)) if versions else self._baseline(None)
        start = int(seen.snapshot_id)
        levels = self._levels_of(own_uid(seen.table_uid))
        if levels is None:
            return self._baseline(Verdict.RECREATED)
        events: list[DataChangeEvent] = []
        version = start
        while (text := self._commit_text(version + 1)) is not None:
            version += 1
            commit = self._commit(version, text, levels)
            if commit.has_foreign_files or commit.table_uid not in (None, own_uid(seen.table_uid)):
                return self._baseline(Verdict.RECREATED)
            events += self._events(commit, seen.table_uid)
        if version == start and self._commit_text(start) is None and (now := self.version) != start:
            if now > start:
                return self._baseline(Verdict.EXPIRED, of=seen.table_uid)
            return self._baseline(Verdict.ROLLBACK, of=next_generation(seen.table_uid))
        return Captured(events=tuple(events), seen=self.seen(version, seen.table_uid))

    def _first_poll(self, pushed: int) -> Captured:
        """The state before the first commit that is registered already, and the commits from there
        on.
        """
        try:
            before = self._baseline(None, pushed - 1).events if pushed else ()
        except TableUnreadableError:  # cleaned up: only the newest state is left
            return self._baseline(None)
        after = self.changes_after(self.seen(pushed - 1))
        return replace(after, events=(*before, *after.events))

    def seen(self, version: int, uid: TableUid | None = None) -> Seen:
        """The statement that every commit up to a version has been registered."""
        return Seen(self.table, uid or self.uid, SnapshotId(str(version)), self.cluster)

    def committed(self, consumer: ConsumerId, number: int) -> Committed | None:
        """The commit of this execution of the consumer, or None when it has not committed (a later
        one may have).

        The table's state says at once whether the consumer got that far. If it did but the log was
        cleaned up past the commit itself, the answer has `is_commit_metadata_lost`: the execution
        did commit, where it ended is no longer known.
        """
        state = self._open_or_none()
        reached = None if state is None else state.transaction_version(str(consumer))
        if state is None or reached is None or reached < number:
            return None
        for commit in self._commits_backwards(state):
            reached = commit.transactions.get(str(consumer))
            if reached == number:
                commit_metadata = CommitMetadata.from_text(commit.user_metadata)
                return (
                    _committed(commit.version, commit_metadata)
                    if commit_metadata
                    else _commit_metadata_lost(commit.version, consumer, number)
                )
            if (reached is not None and reached < number) or commit.version == 0:
                return None
        return _commit_metadata_lost(state.version(), consumer, number)

    def last_committed(self, consumer: ConsumerId) -> Committed | None:
        """The newest commit of a consumer: from where a consumer that the ledger does not know goes
        on.
        """
        state = self._open_or_none()
        reached = None if state is None else state.transaction_version(str(consumer))
        return None if reached is None else self.committed(consumer, reached)

    def watermark(self, version: int | None = None) -> int | None:
        """The watermark of the newest commit that has one, of all or of those up to a version, in
        milliseconds of event time.
        """
        state = self._open_or_none(version)
        newest_first = self._commit_metadata_backwards(state) if state is not None else ()
        return next((one.watermark for one in newest_first if one.watermark is not None), None)

    def fed(self, version: int) -> Checkpoint | None:
        """The checkpoint of its source at a version, by the newest commit that has one; None where
        the log holds none.
        """
        return next(
            (
                commit_metadata.end
                for commit_metadata in self._commit_metadata_backwards(self._open(version))
                if commit_metadata.end.offsets is not None
            ),
            None,
        )

    def rows(self, version: int) -> pa.Table | None:
        """All rows of a version; None where columns may be mapped or rows deleted within files,
        which only Delta's own reader handles.
        """
        state = self._open(version)
        if state.protocol().min_reader_version > 1:
            return None
        try:
            return state.to_pyarrow_table()
        except (DeltaError, OSError, ValueError) as error:
            remedy = "check that its files are there and can be reached"
            raise TableUnreadableError(
                f"{self.table}: version {version} at {self.shown_location} cannot be read; {remedy}"
            ) from error

    def columns(self, version: int | None = None) -> tuple[tuple[str, Any, bool], ...]:
        """Name, type and whether it may be null of each column, the type as Spark writes it in
        JSON; none of a table that is not there.

        Raises:
            TableUnreadableError: the log does not hold this version any more.
        """
        schema = self.schema(version)
        fields = json.loads(schema)["fields"] if schema is not None else []
        return tuple((str(one["name"]), one["type"], bool(one["nullable"])) for one in fields)

    def schema(self, version: int | None = None) -> str | None:
        """The columns with all that the log keeps of each, in Spark's JSON; None of a table that is
        not there.

        Raises:
            TableUnreadableError: as `columns`.
        """
        state = self._open_or_none() if version is None else self._open(version)
        return state.schema().to_json() if state is not None else None

    def plain_columns(self) -> str | None:
        """The columns of a table to which files of them may be added as they are, in Spark's JSON;
        None of another, or of none.
        """
        state = self._open_or_none()
        return state.schema().to_json() if state is not None and is_plain(state) else None

    def add_folder(self, folder: str, commit_metadata: CommitMetadata) -> bool:
        """Commit the Parquet files of a folder below the table's; False when the execution of the
        metadata, or a later one, has committed.

        The table is one of `plain_columns`.

        Raises:
            ConsumerConflictError: another commit was first at the same time, perhaps of this
                execution; the log shows whose it is.
        """
        facts = {COMMIT_METADATA_KEY: commit_metadata.to_text()}
        with self.writing():
            return add_folder(
                self._open(),
                self.folder,
                folder,
                commit_metadata.txn_app_id,
                commit_metadata.number,
                facts,
            )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around a write to the table.

        Raises:
            ConsumerConflictError: another commit was first at the same time, perhaps of the same
                application transaction.
            TableUnreadableError: the table cannot be written.
        """
        try:
            yield
        except CommitFailedError as error:
            raise ConsumerConflictError(
                f"{self.table}: another commit was first at {self.shown_location}; look again"
            ) from error
        except (DeltaError, OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise TableUnreadableError(
                f"{self.table} at {self.shown_location} cannot be written: {reason}"
            ) from error

    @cached_property
    def folder(self) -> TableFolder:
        """The files of the table's location."""
        return TableFolder(self.location, self.storage_options)

    def _events(self, commit: TableCommit, uid: TableUid) -> list[DataChangeEvent]:
        added = {file.partition for file in commit.added}
        removed = added if commit.has_foreign_files else {file.partition for file in commit.removed}
        left = self._live_partitions(commit.version) if removed - added else set[Partition]()
        operations = operations_of(added, removed, left)
        tags = tags_of(commit.tags, commit.user_metadata)
        prev = commit.version - 1 if commit.version else None
        return [
            self._event(
                commit.version,
                commit.timestamp,
                uid,
                p,
                tags,
                operation=operations.get(p, OperationType.UPDATE),
                prev=prev,
                added_bytes=size,
            )
            for p, size in named_partitions(self.table, commit.version, commit.added_bytes).items()
        ]

    def _live_partitions(self, version: int) -> set[Partition]:
        state = self._open(version)
        return set(_live(state, _levels(state)))

    def _baseline(
        self, verdict: Verdict | None, at: int | None = None, of: TableUid | None = None
    ) -> Captured:
        state = self._open(at)
        uid, version = of or TableUid(str(state.metadata().id)), state.version()
        seen = self.seen(version, uid)
        text = self._commit_text(version)
        levels = _levels(state)
        commit = self._parsed(version, text, levels) if text else None
        if version == 0 and commit and verdict is None:
            return Captured(events=tuple(self._events(commit, uid)), seen=seen)
        tags = baseline_tags(
            tags_of(commit.tags, commit.user_metadata) if commit else Tags(), verdict
        )
        operation = (
            OperationType.UPDATE
            if verdict in (Verdict.EXPIRED, Verdict.ROLLBACK)
            else OperationType.APPEND
        )
        timestamp = commit.timestamp if commit else None
        partitions = named_partitions(self.table, version, _live(state, levels))
        events = tuple(
            self._event(
                version, timestamp, uid, p, tags, operation=operation, prev=None, added_bytes=size
            )
            for p, size in partitions.items()
        )
        return Captured(events=events, seen=seen)

    def _event(
        self,
        version: int,
        timestamp: int | None,
        uid: TableUid,
        partition: Partition,
        tags: Tags,
        *,
        operation: OperationType,
        prev: int | None,
        added_bytes: int,
    ) -> DataChangeEvent:
        return DataChangeEvent(
            table=self.table,
            cluster=self.cluster,
            table_format=TableFormat.DELTA,
            operation_type=operation,
            partition=partition,
            snapshot_id=SnapshotId(str(version)),
            snapshot_ts=timestamp,
            table_uid=uid,
            tags=tags,
            prev_snapshot_id=None if prev is None else SnapshotId(str(prev)),
            added_bytes=added_bytes,
        )

    def _commit_metadata_backwards(self, state: DeltaTable) -> Iterator[CommitMetadata]:
        """The metadata of the commits of consumers, newest first."""
        parsed = (
            CommitMetadata.from_text(commit.user_metadata)
            for commit in self._commits_backwards(state)
        )
        return (one for one in parsed if one is not None)

    def _commits_backwards(self, state: DeltaTable) -> Iterator[TableCommit]:
        levels = _levels(state)
        for version in range(state.version(), -1, -1):
            text = self._commit_text(version)
            if text is None:
                return
            yield self._parsed(version, text, levels)

    def _levels_of(self, uid: TableUid) -> DeltaLevels | None:
        """The levels of the table if it still is the one of that id, read from its first commit
        where the log has it.
        """
        text = self._commit_text(0)
        metadata = first_metadata(text) if text else None
        if metadata is not None and metadata["id"] == uid:
            return DeltaLevels.of_metadata(metadata)
        state = self._open()
        return _levels(state) if str(state.metadata().id) == uid else None

    def _uid_at(self, version: int) -> TableUid:
        try:
            return TableUid(str(self._open(version).metadata().id))
        except TableUnreadableError:
            return self.uid

    def _commit(self, version: int, text: str, levels: DeltaLevels) -> TableCommit:
        """The commit by these levels, or by those of its own version where the partitioning of the
        table changed in between.
        """
        commit = self._parsed(version, text, levels)
        if commit.has_foreign_files and commit.table_uid is None:
            return self._parsed(version, text, _levels(self._open(version)))
        return commit

    def _parsed(self, version: int, text: str, levels: DeltaLevels) -> TableCommit:
        try:
            return parse_commit(version, text, levels)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TableUnreadableError(
                f"{self.table}: commit {version} at {self.shown_location} is not a readable Delta "
                f"commit; repair or restore the log"
            ) from error

    def _commit_text(self, version: int) -> str | None:
        """The text of a commit file, or None when it is not there."""
        try:
            content = self.folder.read(commit_path(version))
            return None if content is None else content.decode()
        except (OSError, ValueError, DeltaError) as error:
            raise self._log_unreadable() from error

    def _log_unreadable(self) -> TableUnreadableError:
        return TableUnreadableError(
            f"{self.table}: the log at {self.shown_location} cannot be read; check the location "
            f"and its access rights"
        )

    def _open(self, version: int | None = None) -> DeltaTable:
        state = self._open_or_none(version)
        if state is None:
            remedy = "check the location, or wait for its first write"
            raise TableAbsentError(
                f"{self.table}: there is no Delta table at {self.shown_location}; {remedy}"
            )
        return state

    def _open_or_none(self, version: int | None = None) -> DeltaTable | None:
        try:
            return DeltaTable(
                self.location, version=version, storage_options=dict(self.storage_options)
            )
        except TableNotFoundError:
            return None
        except (DeltaError, OSError, ValueError) as error:
            at = "" if version is None else f" at version {version}"
            remedy = (
                "check that it can be reached, and that its log is whole and of a protocol that "
                "deltalake supports"
            )
            raise TableUnreadableError(
                f"{self.table}: the Delta table at {self.shown_location} cannot be read{at}; "
                f"{remedy}"
            ) from error


def _levels(state: DeltaTable) -> DeltaLevels:
    return DeltaLevels.of_schema(
        json.loads(state.schema().to_json()), state.metadata().partition_columns
    )


def _live(state: DeltaTable, levels: DeltaLevels) -> dict[Partition, int]:
    """The bytes of each partition that holds a file; of None for an unpartitioned table with any."""
    actions = pa.table(state.get_add_actions(flatten=True))
    sizes = actions["size_bytes"].to_pylist()
    if not levels.levels:
        return {None: sum(sizes)} if sizes else {}
    found = Counter[Partition]()
    columns = [
        actions[
            f"partition.{name}"
            if f"partition.{name}" in actions.column_names
            else f"partition.{physical}"
        ].to_pylist()
        for name, physical in zip(levels.levels.names, levels.physical, strict=True)
    ]
    for size, *row in zip(sizes, *columns, strict=True):
        found[levels.values(dict(zip(levels.physical, row, strict=True)))] += size
    return found


def _committed(version: int, commit_metadata: CommitMetadata) -> Committed:
    return Committed(version=SnapshotId(str(version)), commit_metadata=commit_metadata)


def _commit_metadata_lost(version: int, consumer: ConsumerId, number: int) -> Committed:
    commit_metadata = CommitMetadata(consumer=consumer, number=number, attempt=0, end=Checkpoint())
    return Committed(
        version=SnapshotId(str(version)),
        commit_metadata=commit_metadata,
        is_commit_metadata_lost=True,
    )


def table_files(log: DeltaLog, cluster_by: Sequence[str] = ()) -> TableFiles:
    """The files of a table as they lie now; of one that is clustered by these columns, how its rows
    lie together too.

    Raises:
        TableAbsentError: there is no table.
        TableUnreadableError: its location is out of reach.
    """
    state = log.state()
    if state is None:
        raise TableAbsentError(
            f"{log.table}: there is no Delta table at {log.shown_location}; wait for its first "
            f"write"
        )
    live = _live_files(state, cluster_by[:1])
    names = {unquote(file.path) for file in live}
    others = [file for file in log.folder.data_files() if file.path not in names]
    removed, orphans = _explained(log, others)
    return TableFiles(
        table=log.table,
        live=tuple(live),
        removed=tuple(removed),
        orphans=tuple(orphans),
        properties=dict(state.metadata().configuration),
        is_clustered="clustering" in (state.protocol().writer_features or ()),
        dimensions=max(1, len(cluster_by)),
    )


def _live_files(state: DeltaTable, spread: Sequence[str]) -> list[DataFile]:
    levels = DeltaLevels.of_schema(
        json.loads(state.schema().to_json()), state.metadata().partition_columns
    )
    deleted = _deleted(state)
    keys = [
        (f"partition.{name}", f"partition.{physical}")
        for name, physical in zip(levels.levels.names, levels.physical, strict=True)
    ]
    found = []
    for row in pa.table(state.get_add_actions(flatten=True)).to_pylist():
        raw = {
            physical: row.get(shown, row.get(spelled))
            for (shown, spelled), physical in zip(keys, levels.physical, strict=True)
        }
        found.append(
            DataFile(
                path=row["path"],
                size=row["size_bytes"],
                rows=row["num_records"],
                deleted=deleted.get(unquote(row["path"]), 0),
                modified=row["modification_time"],
                partition=levels.values(raw),
                span=next((_span(row, name) for name in spread), None),
            )
        )
    return found


def _span(row: Mapping[str, Any], name: str) -> Span | None:
    """From the least to the greatest value of a column in a file, where it has statistics."""
    least, greatest = row.get(f"min.{name}"), row.get(f"max.{name}")
    return None if least is None or greatest is None else (least, greatest)


def _deleted(state: DeltaTable) -> dict[str, int]:
    """How many rows of each file are deleted by a vector."""
    if "deletionVectors" not in (state.protocol().reader_features or ()):
        return {}
    root = unquote(urlsplit(state.table_uri).path).rstrip("/") + "/"
    found: dict[str, int] = {}
    for batch in pa.RecordBatchReader.from_stream(state.deletion_vectors()):
        for path, kept in zip(
            batch["filepath"].to_pylist(), batch["selection_vector"], strict=True
        ):
            name = unquote(urlsplit(path).path).removeprefix(root)
            found[name] = kept.values.false_count
    return found


def _explained(log: DeltaLog, files: list[StoredFile]) -> tuple[list[OldFile], list[OldFile]]:
    """Files that hold no row: those that a commit removed, or wrote as changes, since then; and
    those that none names.
    """
    left = {file.path: file for file in files}
    removed: list[OldFile] = []
    for commit in log.commits_backwards() if left else ():
        for path in _let_go(commit):
            if (file := left.pop(path, None)) is not None:
                removed.append(
                    OldFile(path=path, size=file.size, since=commit.timestamp or file.modified)
                )
        if (
            not left
            or (commit.timestamp or 0) < min(file.modified for file in left.values()) - DAY_MS
        ):
            break
    return removed, [
        OldFile(path=file.path, size=file.size, since=file.modified) for file in left.values()
    ]


def _let_go(commit: TableCommit) -> Iterator[str]:
    """The files that a commit took from the table, and those of its change feed, which are never
    rows of it.
    """
    for file in (*commit.removed, *commit.moved_out):
        yield unquote(file.path)
    for path in commit.change_files:
        yield unquote(path)
