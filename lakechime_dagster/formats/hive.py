"""A Hive table without Spark: changes of the files of its partitions as data change events, and
folders that become those of its partitions.

It has no snapshots. The metastore's notifications name partitions that may have changed, and not
all of them: Spark's INSERT into an existing Parquet partition leaves none. So the files of all
partitions are listed from time to time, and a partition has changed when its listing has.
"""

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit
from uuid import uuid4

from hive_metastore import ttypes
from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    AlreadyExistsException,
    NoSuchObjectException,
    NotificationEventRequest,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakechime_dagster.dce.events import (
    DataChangeEvent,
    OperationType,
    Seen,
    SnapshotId,
    TableFormat,
    TableUid,
    Tags,
    digest,
)
from lakechime_dagster.dce.partitions import (
    NULL_PARTITION,
    UNPARTITIONED,
    LevelType,
    PartitionLevels,
    canonical_json,
    canonical_partition,
    checked_partition,
)
from lakechime_dagster.dce.snapshots import Verdict, next_generation, own_uid
from lakechime_dagster.errors import (
    InvalidValueError,
    LakeChimeError,
    TableAbsentError,
    TableUnreadableError,
)
from lakechime_dagster.formats.changes import (
    TAGS_KEY,
    VERDICT_TAG,
    Captured,
    Partition,
    baseline_tags,
    operations_of,
    producer_tags,
    tags_of,
)
from lakechime_dagster.formats.files import TableFolder, has_folder, is_local
from lakechime_dagster.triggers.consumers import (
    COMMIT_METADATA_KEY,
    CommitMetadata,
    Committed,
    ConsumerId,
)

WHOLE_LISTING_MS = 5 * 60_000  # all partitions are listed when they were not for so long
MAX_NOTIFICATIONS = 5_000  # of all tables; after more of them all partitions are listed
MAX_REPEATED = 500  # of those of other tables, that the next poll reads again
MAX_NAMED = 100  # partitions that are asked for one by one
BATCH = 300  # partitions of one answer of the metastore
TIMEOUT_MS = 60_000  # of each call
LISTINGS = 16  # folders that are listed at the same time
FILE_FORMATS = {"ParquetHiveSerDe": "parquet", "OrcSerde": "orc"}  # by the class of the SerDe
WRITTEN = "_lakechime"  # the folder in a table's for those that are swapped in
STATISTICS = {"COLUMN_STATS_ACCURATE", "numFiles", "numRows", "rawDataSize", "totalSize"}
Struct = Any  # of the metastore's client, to which each field of it may be None
Values = tuple[str, ...]  # of a partition, by its columns and as Hive spells them
T = TypeVar("T")
_logger = logging.getLogger(__name__)
logging.getLogger("thrift").setLevel(logging.CRITICAL)  # it logs the errors that it raises


@dataclass(frozen=True)
class HiveLog:
    """The changes of one Hive table.

    What it has `seen` is no snapshot: it names the last notification that was read and the moment
    when all partitions were listed last.

    Args:
        metastore: The URL of the metastore, `thrift://host:9083`.
        table: The name in the metastore, `database.table`, which its events carry.
        cluster: The data platform that its events carry.
        named: The levels by which events name partitions; the partition columns by default.
        known: Reads the listing that was registered last (`Seen.listing`), of partitions of these
            keys, or of all.
        lists_all: Whether each poll lists all partitions.

    Raises (every method):
        TableAbsentError: the metastore has no such table.
        TableUnreadableError: the metastore, or a folder of the table, is out of reach.
    """

    metastore: str
    table: str
    cluster: str = ""
    named: PartitionLevels | None = None
    known: Callable[[Collection[str] | None], Mapping[str, str]] = lambda keys: {}
    lists_all: bool = False

    @property
    def table_format(self) -> Literal[TableFormat.HIVE]:
        return TableFormat.HIVE

    @property
    def uid(self) -> TableUid:
        with self._client() as client:
            return _uid(self._load(client))

    @property
    def shown_location(self) -> str:
        """The metastore."""
        return self.metastore

    @property
    def newest(self) -> SnapshotId:
        """The newest notification of the metastore."""
        with self._client() as client:
            self._load(client)
            return SnapshotId(str(_newest(client)))

    def levels(self) -> PartitionLevels:
        with self._client() as client:
            return _Levels(self.table, self._load(client), self.named).levels

    def stored(self) -> "HiveStorage":
        """Where the rows of the table are now, and how they are written.

        Raises:
            TableUnreadableError: also for a table, or a partition of it, whose files Spark does not
                read as Hive does.
        """
        with self._client() as client:
            table = self._load(client)
            levels, parameters = _Levels(self.table, table, self.named), table.parameters or {}
            whole = [([], table)] if not table.partitionKeys else []
            folders: dict[str, list[HiveFolder]] = {}
            for values, one in whole or [(one.values, one) for one in _partitions(client, table)]:
                raw = tuple(None if value == NULL_PARTITION else value for value in values)
                folder = HiveFolder(levels.canonical(values), raw, one.sd.location)
                folders.setdefault(_file_format(self.table, parameters, one.sd), []).append(folder)
        return _storage(levels, table, folders)

    def folder_of_all(self) -> tuple[str, str] | None:
        """The folder of the table and the format of its files, where just its rows are in there, in
        folders named as Spark names those of partitions; else None.
        """
        with self._client() as client:
            location = _location(self._load(client))
        stored = self.stored()
        if len(stored.folders) != 1:
            return None
        ((written_as, folders),) = stored.folders.items()
        columns = [name for name, _ in stored.partitioned_by]
        root, known = _folder(location), set[str]()
        for one in folders:
            inside = re.sub(r"^file:/+", "/", one.location).rstrip("/").removeprefix(location)[1:]
            named = [part.partition("=")[0] for part in inside.split("/") if part]
            if named != columns:
                return None
            known |= {file.path for file in root.files_in(inside)}
        rows = {file.path for file in root.data_files()}
        return (written_as, location) if rows <= known else None

    def columns(self) -> tuple[tuple[str, str, bool], ...]:
        """Name, type in Hive's words and whether it may be null of each column; none of a table
        that is not there.
        """
        try:
            with self._client() as client:
                table = self._load(client)
        except TableAbsentError:
            return ()
        return tuple((one.name, one.type, True) for one in (*table.sd.cols, *table.partitionKeys))

    def exists(self) -> bool:
        """Whether the metastore has the table."""
        try:
            return bool(self.uid)
        except TableAbsentError:
            return False

    def committed(self, consumer: ConsumerId, number: int) -> Committed | None:
        """The commit of this execution of the consumer; None where it has none, or where all that
        it replaced was replaced again.
        """
        found = (one for one in self._commits(consumer) if one.commit_metadata.number == number)
        return next(found, None)

    def last_committed(self, consumer: ConsumerId) -> Committed | None:
        """The newest commit of a consumer that is still known."""
        commits = self._commits(consumer)
        return max(commits, key=lambda one: one.commit_metadata.number, default=None)

    def watermark(self) -> int | None:
        """The latest watermark of the commits that are still known, in milliseconds of event time."""
        marks = (one.commit_metadata.watermark for one in self._commits())
        return max((one for one in marks if one is not None), default=None)

    def events_of(self, committed: Committed) -> list[DataChangeEvent]:
        """What stands for the events of a commit of an execution, which are captured (`Seen`): the
        partitions that it replaced.
        """
        text = committed.commit_metadata.to_text()
        with self._client() as client:
            table = self._load(client)
            levels, polled = (
                _Levels(self.table, table, self.named),
                Seen(self.table, _uid(table), SnapshotId("")),
            )
            keys = [
                canonical_json(one.values)
                for one in (_partitions(client, table) if table.partitionKeys else ())
                if (one.parameters or {}).get(COMMIT_METADATA_KEY) == text
            ]
        change = _Change(OperationType.UPDATE, Tags())
        return [self._event(polled, levels.partition(key), change, {}) for key in keys]

    def note(self, parameters: Mapping[str, str]) -> None:
        """Set parameters of the table."""
        with self._client() as client:
            table = self._load(client)
            table.parameters = {**(table.parameters or {}), **parameters}
            client.alter_table(table.dbName, table.tableName, table)

    def _commits(self, consumer: ConsumerId | None = None) -> list[Committed]:
        """The commits, of a consumer, that the parameters of the table name, and those of its
        partitions: of these for a consumer with a key, which has replaced one.
        """
        try:
            with self._client() as client:
                table = self._load(client)
                every = [table]
                if table.partitionKeys and (consumer is None or consumer.key):
                    every += _partitions(client, table)
        except TableAbsentError:
            return []
        texts = {(one.parameters or {}).get(COMMIT_METADATA_KEY) for one in every}
        return [
            Committed(version=SnapshotId(str(one.number)), commit_metadata=one)
            for text in texts
            if (one := CommitMetadata.from_text(text)) and consumer in (None, one.consumer)
        ]

    def create(
        self, columns: Mapping[str, str], partitioned_by: Mapping[str, str], location: str
    ) -> None:
        """Make an external table of Parquet files, and its database, where there is none.

        Args:
            columns: By name their types in Hive's words, without the partition columns.
            partitioned_by: The same of these.
            location: Of its folder, which lies in that of its database.
        """
        database, _, name = self.table.rpartition(".")
        database = database or "default"
        table = ttypes.Table(
            tableName=name,
            dbName=database,
            sd=parquet_at(location, columns),
            partitionKeys=_fields(partitioned_by),
            parameters={"EXTERNAL": "TRUE"},
            tableType="EXTERNAL_TABLE",
        )
        with self._client() as client, suppress(AlreadyExistsException):
            with suppress(AlreadyExistsException):
                parent = location.rpartition("/")[0]
                client.create_database(ttypes.Database(database, "", parent, {}))
            client.create_table(table)

    def drop(self) -> None:
        """Take the table out of the metastore; its files stay."""
        with self._client() as client:
            table = self._load(client)
            client.drop_table(table.dbName, table.tableName, deleteData=False)

    def new_folder(self) -> "HiveStorage":
        """The table with one folder in place of all: a new one within its own, which nobody reads.

        Raises:
            TableUnreadableError: also for a table whose partitions cannot be swapped.
        """
        with self._client() as client:
            table = self._load(client)
        written_as = _file_format(self.table, table.parameters or {}, table.sd)
        _require_swappable(self.table, table)
        base = table.sd.location.rstrip("/").partition(f"/{WRITTEN}/")[0]
        folder = HiveFolder(UNPARTITIONED, (), f"{base}/{WRITTEN}/{uuid4().hex}")
        return _storage(_Levels(self.table, table, self.named), table, {written_as: [folder]})

    def swap(
        self,
        written: Mapping[Values, str],
        replaced: Iterable[Values] | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Make folders those of their partitions, in place of the ones that these have now, and drop
        those of the partitions `replaced` (None: of all) that have none.

        No file is removed. Each partition changes at once. First those that exist do, up to 300 in
        one transaction of the metastore, then the new ones, then the dropped ones.

        Args:
            written: Folders by partition; of an unpartitioned table one without values.
            replaced: Partitions.
            parameters: Of each partition that got a folder, such as `lakechime.tags`.
        """
        with self._client() as client:
            table = self._load(client)
            asked = {"db_name": table.dbName, "tbl_name": table.tableName}
            if not table.partitionKeys:
                moved = _moved(table, table, written[()], parameters)
                client.alter_table(table.dbName, table.tableName, moved)
                return
            levels = _Levels(self.table, table, self.named)
            new = {levels.key(values): values for values in written}
            old = None if replaced is None else {levels.key(values) for values in replaced}
            there: dict[str, list[str]] = {}
            for name in client.get_partition_names(**asked, max_parts=-1):
                there.setdefault(levels.key(_values(name)), []).append(name)
            # by values: those of the metastore may be spelled otherwise, such as 03 for 3
            altered = {names[0]: written[new[key]] for key, names in there.items() if key in new}
            added = [values for key, values in new.items() if key not in there]
            gone = there.keys() if old is None else there.keys() & (old | new.keys())
            dropped = [name for key in gone for name in there[key] if name not in altered]
            for names in _batches([*altered]):
                places = {_values(name): altered[name] for name in names}
                found: Any = client.get_partitions_by_names(**asked, names=names)
                client.alter_partitions(
                    **asked,
                    new_parts=[
                        _moved(table, one, places[tuple(one.values)], parameters) for one in found
                    ],
                )
            for many in _batches(added):
                client.add_partitions([_new(table, one, written[one], parameters) for one in many])
            for names in _batches(dropped):
                client.drop_partitions_req(
                    ttypes.DropPartitionsRequest(
                        dbName=table.dbName,
                        tblName=table.tableName,
                        parts=ttypes.RequestPartsSpec(names=names),
                        deleteData=False,
                        needResult=False,
                    )
                )

    def changes_after(self, seen: Seen | None, pushed: Collection[SnapshotId] = ()) -> Captured:
        """The events since the last poll, as `ChangeLog` has it.

        Several writes to a partition between two polls are one event. EXPIRED, where notifications
        were cleaned up unread, stands in the events of what the listings differ by.
        """
        with self._client() as client:
            # before files are listed: a later change has a later notification
            newest = _newest(client)
            table = self._load(client)
            levels, uid, mark = _Levels(self.table, table, self.named), _uid(table), _Mark(0, 0)
            news = _News(verdict=None if seen is None else Verdict.RECREATED)
            if seen is not None and own_uid(seen.table_uid) == uid:
                mark = _Mark.parse(seen.snapshot_id)
                news = _news(client, table, mark.notification, newest)
                is_recreated = news.verdict is Verdict.RECREATED
                uid = next_generation(seen.table_uid) if is_recreated else seen.table_uid
            is_whole = news.partitions is None or self.lists_all or mark.is_old
            polled = Seen(self.table, uid, mark.moved(newest, is_whole=is_whole), self.cluster)
            if seen is not None and not is_whole and not news.partitions:
                # to move on for each would overtake every slower poll of the table
                is_far = newest - mark.notification >= MAX_REPEATED
                return Captured(events=(), seen=polled if is_far else seen)
            found = _listed(client, table, None if is_whole else news.partitions)
        known = self.known(None if is_whole else list(found))
        if is_whole:
            found = dict.fromkeys(known) | found
        is_new = seen is None or seen.table_uid != uid
        changes = _changes(levels, found, known, lambda: self.known(None), is_new=is_new)
        if levels.levels and None in changes:
            what = "%s: values of a partition fit no event; registered without a partition"
            _logger.warning(what, self.table)
            changes[None] = changes[None]._replace(operation=OperationType.UPDATE)
        verdict = {VERDICT_TAG: news.verdict.value} if news.verdict else {}
        extra = baseline_tags(Tags(), news.verdict) if is_new else verdict
        events = tuple(
            self._event(polled, partition, changes[partition], extra)
            for partition in sorted(changes, key=canonical_json)
        )
        texts = {key: one and one.text for key, one in found.items()}
        listing = {key: text for key, text in texts.items() if text != known.get(key)}
        return Captured(events=events, seen=replace(polled, listing=listing))

    def _event(
        self, polled: Seen, partition: Partition, change: "_Change", extra: Mapping[str, str]
    ) -> DataChangeEvent:
        """An event with a key that no other poll gives, since none has the same mark."""
        where = digest([polled.table_uid, partition]).hex()
        return DataChangeEvent(
            table=self.table,
            cluster=self.cluster,
            table_format=TableFormat.HIVE,
            operation_type=change.operation,
            partition=partition,
            table_uid=polled.table_uid,
            tags=change.tags.merged(extra),
            event_key=f"hive/{polled.snapshot_id}/{where}",
            added_bytes=change.added_bytes,
        )

    def _load(self, client: Client) -> Struct:
        database, _, name = self.table.rpartition(".")
        try:
            table: Struct = client.get_table(dbname=database or "default", tbl_name=name)
        except NoSuchObjectException as error:
            raise TableAbsentError(
                f"{self.table}: the Hive metastore {self.metastore} has no such table; check the "
                f"name, or wait for its first write"
            ) from error
        if not table.sd.location:
            raise TableUnreadableError(
                f"{self.table}: in the Hive metastore it has no folder, as a view has none; name "
                f"a table"
            )
        return table

    @contextmanager
    def _client(self) -> Iterator[Client]:
        """A new connection, and around what is asked by it or read of files."""
        address = urlsplit(self.metastore)
        socket = TSocket(address.hostname or "", address.port or 9083)
        socket.setTimeout(TIMEOUT_MS)
        transport = TBufferedTransport(socket)
        try:
            transport.open()
            yield Client(TBinaryProtocolAccelerated(transport))
        except LakeChimeError:
            raise
        except Exception as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise TableUnreadableError(
                f"{self.table}: it cannot be read by the Hive metastore {self.metastore}: "
                f"{reason}; check that the metastore and the table's files can be reached"
            ) from error
        finally:
            transport.close()


class HiveFolder(NamedTuple):
    """A partition, or an unpartitioned table: the canonical text by which events name it, None
    where none can, the text of each value (None: no value), and the URL or path of its folder.
    """

    key: str | None
    values: tuple[str | None, ...]
    location: str


class HiveStorage(NamedTuple):
    """A table as the metastore has it: its id, columns with their types in Hive's words, without
    and with those of partitions, the names of its partition levels in the order of canonical texts,
    and its folders by the format of their files, `parquet` or `orc`.

    `schema` is the same of a table that Spark wrote, in Spark's JSON, else "".
    """

    uid: TableUid
    columns: tuple[tuple[str, str], ...]
    partitioned_by: tuple[tuple[str, str], ...]
    levels: tuple[str, ...]
    schema: str
    folders: Mapping[str, Sequence[HiveFolder]]


class _Mark(NamedTuple):
    """Up to where a table is captured: a notification, and when all partitions were listed."""

    notification: int
    listed_ms: int

    @classmethod
    def parse(cls, text: SnapshotId) -> "_Mark":
        notification, _, listed_ms = text.partition("-")
        return cls(int(notification), int(listed_ms))

    @property
    def is_old(self) -> bool:
        """Whether all partitions are to be listed; clocks of two machines may differ."""
        return abs(_now_ms() - self.listed_ms) >= WHOLE_LISTING_MS

    def moved(self, notification: int, *, is_whole: bool) -> SnapshotId:
        """The mark of a poll, which is another where it listed anything."""
        listed_ms = max(self.listed_ms + 1, _now_ms()) if is_whole else self.listed_ms
        return SnapshotId(f"{notification}-{listed_ms}")


class _News(NamedTuple):
    """What notifications say: the partitions to list, None for all, and what else happened."""

    partitions: set[tuple[str, ...]] | None = None
    verdict: Verdict | None = None


class _Listed(NamedTuple):
    """The files of a partition, each with path, size and time, the oldest first."""

    files: list[tuple[str, int, int]]
    tags: Tags

    @property
    def text(self) -> str:
        return _text(self.files)

    def added_to(self, text: str | None) -> list[tuple[str, int, int]] | None:
        """The files after those of an earlier listing, all of them without one; None where the
        oldest are not those that it had.
        """
        count = 0 if text is None else int(text.partition(":")[0])
        is_same = text is None or _text(self.files[:count]) == text
        return self.files[count:] if is_same else None


class _Change(NamedTuple):
    operation: OperationType
    tags: Tags
    added_bytes: int | None = None


class _Levels:
    """The partition levels of a table's events, and the values of its partitions by them."""

    def __init__(self, name: str, table: Struct, named: PartitionLevels | None) -> None:
        own = {one.name: _level(one.type) for one in table.partitionKeys}
        self.levels = (
            named if named is not None else PartitionLevels(tuple(own), tuple(own.values()))
        )
        declared = [one.lower() for one in self.levels.names]
        if declared and sorted(declared) != sorted(own):
            raise TableUnreadableError(
                f"{name}: its partition levels are declared as {', '.join(self.levels.names)}, and "
                f"its partition columns are {', '.join(own) or 'none'}; declare these"
            )
        self.names = tuple(declared)
        self._places = [list(own).index(one) for one in declared]

    def canonical(self, values: Sequence[str]) -> str | None:
        """The text by which events name a partition; None where none can."""
        partition = self.partition(canonical_json(values))
        if partition is None and values:
            return None
        return canonical_partition(partition, self.levels)

    def key(self, values: Sequence[str]) -> str:
        """The same of any partition, and of its values as they are where no event can name it."""
        return self.canonical(values) or canonical_json(values)

    def partition(self, key: str) -> Partition:
        """The partition of a key; None of an unpartitioned table, and of values that fit no
        event.
        """
        values = json.loads(key)
        if len(values) != len(self._places):  # of a table that had the name and the second before
            return None
        raw = [None if values[at] == NULL_PARTITION else values[at] for at in self._places]
        try:
            return checked_partition(self.levels.typed(raw)) if raw else None
        except InvalidValueError:
            return None


def _changes(
    levels: _Levels,
    found: Mapping[str, _Listed | None],
    known: Mapping[str, str],
    all_known: Callable[[], Mapping[str, str]],
    *,
    is_new: bool,
) -> dict[Partition, _Change]:
    """What happened to each partition since the known listing, of which a new table has none.

    All that is known is asked for where a partition lost files: others may be called alike.
    """
    added, removed, tags = set[Partition](), set[Partition](), dict[Partition, Tags]()
    sizes = Counter[Partition]()
    for key, one in found.items():
        absent = NO_FILES if key == TABLE else None
        old = absent if is_new else known.get(key, absent)
        if (one.text if one else absent) == old:
            continue
        partition = levels.partition(key)
        tags[partition] = one.tags if one else Tags()
        more = one.added_to(old) if one else None
        if one is None or more is None:
            removed.add(partition)
        if one is not None and (old is None or one.files):
            added.add(partition)
            sizes[partition] += sum(size for _, size, _ in (one.files if more is None else more))
    left = set[Partition]()
    if removed - added:
        after = {**all_known(), **{key: one and one.text for key, one in found.items()}}
        left = {
            levels.partition(key) for key, text in after.items() if text not in (None, NO_FILES)
        }
    operations = operations_of(added, removed, left)
    return {one: _Change(operation, tags[one], sizes[one]) for one, operation in operations.items()}


def _news(client: Client, table: Struct, after: int, newest: int) -> _News:
    """What the notifications of a table say, from `after`, exclusive, to the newest."""
    if newest == after:
        return _News(partitions=set())
    if newest - after > MAX_NOTIFICATIONS:
        return _News()
    asked = NotificationEventRequest(lastEvent=after, maxEvents=newest - after)
    answer: Struct = client.get_next_notification(asked) if newest > after else None
    events = answer.events if answer else ()
    if not events or [one.eventId for one in events] != list(range(after + 1, newest + 1)):
        return _News(verdict=Verdict.EXPIRED)
    mine = [one for one in events if (one.dbName, one.tableName) == (table.dbName, table.tableName)]
    if any(one.eventType == "DROP_TABLE" for one in mine):
        return _News(verdict=Verdict.RECREATED)
    return _News(partitions=_named(mine, [one.name for one in table.partitionKeys]))


def _named(events: Iterable[Struct], columns: list[str]) -> set[tuple[str, ...]] | None:
    """The partitions that notifications name; None where one of them says none, or too many."""
    found = set[tuple[str, ...]]()
    for one in events:
        if columns and one.eventType in ("ALTER_TABLE", "CREATE_TABLE"):
            continue
        try:
            message = json.loads(one.message)
            named = message["partitions"] if "partitions" in message else [message["keyValues"]]
            found |= {tuple(values[column] for column in columns) for values in named}
        except (ValueError, KeyError, TypeError):
            return None
    return found if len(found) <= MAX_NAMED else None


def _listed(
    client: Client, table: Struct, named: Iterable[tuple[str, ...]] | None
) -> dict[str, _Listed | None]:
    """The files of these partitions, or of all, by key; None of one that is not there."""
    asked = {"db_name": table.dbName, "tbl_name": table.tableName}
    found: dict[str, _Listed | None] = {}
    there: list[tuple[str, Struct]] = []
    if not table.partitionKeys:
        there = [(TABLE, table)]
    elif named is None:
        there = [(canonical_json(one.values), one) for one in _partitions(client, table)]
    else:
        for values in named:
            found[canonical_json(values)] = None
            with suppress(NoSuchObjectException):
                one = client.get_partition(**asked, part_vals=list(values))
                there.append((canonical_json(values), one))
    location = _location(table)
    root = _folder(location)
    with ThreadPoolExecutor(LISTINGS) as pool:
        files = list(pool.map(lambda one: _files(root, location, _location(one[1])), there))
    own = _tags(table)
    for (key, one), listed in zip(there, files, strict=True):
        tags = tags_of({**own, **_tags(one)}, (one.parameters or {}).get(COMMIT_METADATA_KEY))
        found[key] = _Listed(listed, tags)
    return found


def _partitions(client: Client, table: Struct) -> Iterator[Struct]:
    """All partitions of a table."""
    asked = {"db_name": table.dbName, "tbl_name": table.tableName}
    for names in _batches(client.get_partition_names(**asked, max_parts=-1)):
        yield from client.get_partitions_by_names(**asked, names=names)


def _batches(every: Sequence[T]) -> Iterator[list[T]]:
    yield from (list(every[at : at + BATCH]) for at in range(0, len(every), BATCH))


def _values(name: str) -> Values:
    """The values of a partition by its name, such as `day=2024-05-01/hour=3`."""
    return tuple(unquote(one.partition("=")[2]) for one in name.split("/"))


def _new(
    table: Struct, values: Values, location: str, parameters: Mapping[str, str] | None
) -> Struct:
    """A partition that is to be added."""
    one = ttypes.Partition(list(values), table.dbName, table.tableName)
    return _moved(table, one, location, parameters)


def _moved(
    table: Struct, one: Struct, location: str, parameters: Mapping[str, str] | None
) -> Struct:
    """A partition, or the table itself, with other rows in another folder, written as the table is;
    without statistics and tags of those that it had.
    """
    moved = deepcopy(one)
    moved.sd = deepcopy(table.sd)
    moved.sd.location = location
    serde = moved.sd.serdeInfo.parameters or {}
    if "path" in serde:  # where Spark finds the rows of an unpartitioned table of its own
        serde["path"] = location
    kept = {
        name: value
        for name, value in (one.parameters or {}).items()
        if name not in STATISTICS | {TAGS_KEY, COMMIT_METADATA_KEY}
        and not name.startswith("spark.sql.statistics.")
    }
    moved.parameters = {**kept, **(parameters or {})}
    return moved


def _require_swappable(name: str, table: Struct) -> None:
    """Ensure that readers find the rows of a table in any folder that the metastore names.

    Raises:
        TableUnreadableError: they do not.
    """
    parameters = table.parameters or {}
    is_sparks = "spark.sql.sources.provider" in parameters
    if (table.sd.numBuckets or 0) > 0 or "spark.sql.sources.schema.numBuckets" in parameters:
        what, remedy = "its rows are in buckets, which are not written", "name a table without"
    elif (
        is_sparks
        and table.partitionKeys
        and (parameters.get("spark.sql.partitionProvider") != "catalog")
    ):
        what = "Spark does not look for its partitions in the metastore"
        remedy = f"run MSCK REPAIR TABLE {name} once"
    else:
        return
    raise TableUnreadableError(f"{name}: {what}, so that none can be replaced; {remedy}")


def _file_format(table: str, parameters: Mapping[str, str], storage: Struct) -> str:
    """The format of the files of a table with these parameters, in Spark's words."""
    provider = parameters.get("spark.sql.sources.provider", "").lower()
    serde = storage.serdeInfo.serializationLib or ""
    is_acid = parameters.get("transactional", "").lower() == "true"
    found = provider or FILE_FORMATS.get(serde.rpartition(".")[2], "")
    if found not in FILE_FORMATS.values() or is_acid:
        how = "as an ACID table of Hive" if is_acid else f"with {provider or serde or 'no SerDe'}"
        raise TableUnreadableError(
            f"{table}: its rows are written {how}, which Spark does not read as Hive does; computed "
            f"tables read Hive tables of Parquet and ORC files: name a copy in one of these, and a "
            f"table of Delta or Iceberg by its own format"
        )
    return found


def parquet_at(location: str, columns: Mapping[str, str]) -> Struct:
    """How the metastore describes a folder of Parquet files with columns of these types."""
    package = "org.apache.hadoop.hive.ql.io.parquet"
    return ttypes.StorageDescriptor(
        cols=_fields(columns),
        location=location,
        inputFormat=f"{package}.MapredParquetInputFormat",
        outputFormat=f"{package}.MapredParquetOutputFormat",
        serdeInfo=ttypes.SerDeInfo(
            serializationLib=f"{package}.serde.ParquetHiveSerDe", parameters={}
        ),
        parameters={},
    )


def _fields(columns: Mapping[str, str]) -> list[Struct]:
    return [ttypes.FieldSchema(name, kind, "") for name, kind in columns.items()]


def _storage(
    levels: "_Levels", table: Struct, folders: Mapping[str, Sequence[HiveFolder]]
) -> HiveStorage:
    """A table with these folders."""
    types = [[(one.name, one.type) for one in of] for of in (table.sd.cols, table.partitionKeys)]
    return HiveStorage(
        uid=_uid(table),
        columns=tuple(types[0]),
        partitioned_by=tuple(types[1]),
        levels=levels.names,
        schema=_spark_schema(table.parameters or {}),
        folders=folders,
    )


def _spark_schema(parameters: Mapping[str, str]) -> str:
    """The schema that Spark keeps in the parameters of its own tables, else ""."""
    whole = "spark.sql.sources.schema"
    parts = range(int(parameters.get(f"{whole}.numParts", 0)))
    return parameters.get(whole) or "".join(parameters[f"{whole}.part.{one}"] for one in parts)


def _files(root: TableFolder, table: str, location: str) -> list[tuple[str, int, int]]:
    """The files of a folder; at a URL within the table's by the connection of that. A partition
    whose folder is gone has none, as Hive reads it; a table whose folder is gone is out of reach.
    """
    if location != table and has_folder(table) and is_local(location) and not has_folder(location):
        return []
    inside = location.removeprefix(f"{table}/")
    is_inside = inside != location and not is_local(location)
    files = root.data_files(inside) if is_inside else _folder(location).data_files()
    start = len(inside) + 1 if is_inside else 0
    return sorted(
        ((one.path[start:], one.size, one.modified) for one in files),
        key=lambda file: (file[2], file[0]),
    )


def _folder(location: str) -> TableFolder:
    """The folder of a location as Hive writes it, which escapes nothing in a URL."""
    return TableFolder(location if is_local(location) else quote(location, safe=":/@"))


def _location(of: Struct) -> str:
    """Where files are: a path on this machine, or a URL."""
    return re.sub(r"^file:/+", "/", of.sd.location).rstrip("/")


def _tags(of: Struct) -> dict[str, str]:
    return producer_tags((of.parameters or {}).get(TAGS_KEY))


def _text(files: Sequence[tuple[str, int, int]]) -> str:
    """What a listing is remembered by: how many files, and their digest."""
    return f"{len(files)}:{digest(files).hex()}"


def _level(kind: str) -> LevelType:
    try:
        return LevelType.of("partition column", kind.partition("(")[0])
    except InvalidValueError:
        return LevelType.STRING


def _newest(client: Client) -> int:
    """The id of the newest notification; 0 of a metastore that keeps none."""
    current: Struct = client.get_current_notificationEventId()
    return current.eventId


def _uid(table: Struct) -> TableUid:
    """A metastore has no id of a table, but the second of its creation."""
    return TableUid(f"hive-{table.createTime}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


TABLE = canonical_json([])  # the key of an unpartitioned table
NO_FILES = _text(())
