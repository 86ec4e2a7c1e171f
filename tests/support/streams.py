"""A small stream for tests: a folder of JSON lines, its table, and groups whose executions go on by
hand.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.events import SnapshotId, TableFormat
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.formats.iceberg import IcebergLog
from lakechime_dagster.silver.bronze import ingest_events
from lakechime_dagster.silver.refresh import GroupRefresh
from lakechime_dagster.silver.results import (
    EventJob,
    GroupJob,
    GroupResult,
    Request,
    RequestKind,
    TypeResult,
)
from lakechime_dagster.silver.schema import KnownType, Learning, TypeCheckpoint
from lakechime_dagster.silver.store import SqlEventTypes
from lakechime_dagster.sources.files import FileSource
from lakechime_dagster.spark.iceberg import IcebergSource
from lakechime_dagster.spark.job import TableResult
from lakechime_dagster.tables.events import (
    EventGroup,
    EventStream,
    checked_groups,
    event_group,
    event_stream,
    table_of,
)
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.consumers import (
    Checkpoint,
    CommitMetadata,
    ConsumerId,
    SourceOffsets,
)
from tests.support.iceberg import IcebergWorld
from tests.support.stores import fresh_memory

GAME = event_stream("game", source=JsonLines("in"), producer_field="$.title")


def event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode()


def repository() -> SqlEventTypes:
    engine = fresh_memory()
    return SqlEventTypes(engine, "test")


@dataclass
class Stream:
    """A stream whose files a test writes, and one group of it."""

    spark: SparkSession
    folder: Path
    group: EventGroup
    types: SqlEventTypes = field(default_factory=repository)
    stream: EventStream = GAME
    groups: tuple[EventGroup, ...] = ()  # all of the stream, where there are others
    checkpoint: SourceOffsets | None = None
    ingested: int = 0
    start: TypeCheckpoint = field(default_factory=TypeCheckpoint)
    executions: int = 0
    max_catchup: int = 100
    classes: str = ""  # where the tokenizer's are kept; Python reports what payloads are without

    @property
    def bronze(self) -> str:
        return str(self.folder / self.stream.name / "events")

    def location(self, kind: str) -> str:
        """Where the table of a type lies: in the folder of the group that had it first."""
        homes = [
            one
            for one in (self.group.name, "shop")
            if (self.folder / one / table_of(kind)).exists()
        ]
        return str(self.folder / (homes or [self.group.name])[0] / table_of(kind))

    def log_of(self, table: str) -> DeltaLog | IcebergLog:
        """The log of a type's table."""
        if self.group.format is TableFormat.ICEBERG:
            return IcebergLog(IcebergWorld.within(self.folder).properties, table)
        return DeltaLog(str(self.folder.joinpath(*table.split("."))), table)

    def drop(self, *payloads: bytes, name: str = "a.jsonl") -> None:
        (self.folder / "in").mkdir(exist_ok=True)
        with (self.folder / "in" / name).open("ab") as file:
            file.writelines(one + b"\n" for one in payloads)

    def job(self) -> EventJob:
        """What is asked of the stream's table."""
        return EventJob(
            name=self.stream.table.name,
            location=self.bronze,
            source=self.stream.table.source,
            folder=str(self.folder / "in"),
            start=Checkpoint(offsets=self.checkpoint),
            type_field=self.stream.table.type_field,
            producer_field=self.stream.table.producer_field,
            classes=self.classes,
        )

    def ingest(self, reprocess: int | None = None, attempt: int = 1) -> TableResult:
        """The next execution of the stream's table, which may reprocess what is refused there."""
        self.ingested += 1
        end = FileSource(self.folder / "in", "*.jsonl").poll(self.checkpoint).end
        job = replace(self.job(), reprocess=reprocess, may_complete_empty=attempt == 1)
        commit_metadata = CommitMetadata(
            consumer=ConsumerId("test", self.stream.table.name),
            number=self.ingested,
            attempt=attempt,
            execution_id=f"b{self.ingested}",
            end=Checkpoint(offsets=end),
        )
        result = ingest_events(self.spark, job, commit_metadata, DeltaLog)
        self.checkpoint = end
        return result

    def end(self) -> SnapshotCheckpoint:
        log = DeltaLog(self.bronze, self.stream.table.name)
        return SnapshotCheckpoint(table_uid=log.uid, snapshot_id=SnapshotId(str(log.version)))

    def execute(
        self,
        end: SnapshotCheckpoint | None = None,
        attempt: int = 1,
        execution: str = "",
        now_ms: int = 0,
        replays: Mapping[str, Request] | None = None,
    ) -> GroupRefresh:
        """An attempt at the group's next execution, to be run."""
        end = end or self.end()
        groups = self.groups or checked_groups(self.stream, [self.group])
        self.types.register(groups)
        job = GroupJob(
            group=self.group,
            groups=groups,
            bronze=self.bronze,
            end=end,
            log_of=self.log_of,
            deployment="test",
            execution_id=execution,
            attempt=attempt,
            replays=replays or {},
            max_catchup=self.max_catchup,
        )
        return GroupRefresh(
            spark=self.spark,
            job=job,
            repository=self.types,
            open_log=DeltaLog,
            now_ms=now_ms,
            start=self.start,
        )

    def complete(self, result: GroupResult, end: SnapshotCheckpoint, execution: str) -> None:
        with writing(self.types.engine) as connection:
            self.types.complete(connection, self.group.name, execution, result, str(end.table_uid))
        self.start = TypeCheckpoint(uid=end.table_uid, version=int(end.snapshot_id or -1))

    def replay(self, *names: str) -> dict[str, TypeResult]:
        """An execution of the group that replays these types beside what came."""
        return self.run(replays={name: request(name) for name in names})

    def run(
        self, now_ms: int = 0, replays: Mapping[str, Request] | None = None
    ) -> dict[str, TypeResult]:
        """The next execution of the stream's table, and of the group, completed."""
        self.ingest()
        self.executions += 1
        end = self.end()
        execution = f"e{self.executions}"
        result = self.execute(end, execution=execution, now_ms=now_ms, replays=replays).run()
        self.complete(result, end, execution)
        return {one.type: one for one in result.types}

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """The rows of a type's table by their `_src`, of a Delta table as another engine reads
        them.
        """
        log = self.log_of(f"{self.group.name}.{table_of(kind)}")
        if isinstance(log, IcebergLog):
            # pyiceberg 0.12 reads a null list of structs within a struct as an empty one
            found = IcebergSource(self.spark, log).read_snapshot(None)[0].toArrow()
        else:
            state = DeltaTable(self.location(kind))
            found = pa.table(QueryBuilder().register("t", state).execute("select * from t"))
        return sorted(
            found.to_pylist(),
            key=lambda row: (row["_src"].partition("@")[0], int(row["_src"].partition("@")[2])),
        )

    def commits(self, kind: str) -> int:
        """How many commits a type's table has."""
        log = self.log_of(f"{self.group.name}.{table_of(kind)}")
        if isinstance(log, IcebergLog):
            return len(IcebergWorld(dict(log.catalog)).catalog.load_table(log.table).history())
        return log.version + 1

    def payloads(self, kind: str) -> list[dict[str, Any]]:
        """The same without technical columns and those that are null."""
        return [
            {
                name: value
                for name, value in row.items()
                if (value is not None and not name.startswith("_")) or name.startswith("_x")
            }
            for row in self.rows(kind)
        ]


def request(name: str, kind: RequestKind = RequestKind.REPLAY) -> Request:
    """That somebody wants a type of the group shop replayed, or rebuilt."""
    return Request(request_id=7, table=f"shop.{name}", kind=kind)


class Remembering:
    """A store as an attempt saw it at one time, whatever it knows by now; it keeps nothing."""

    def __init__(self, types: SqlEventTypes) -> None:
        self.known = types.types("shop")
        self.kept = types.variations("shop", [*self.known])

    def types(self, group: str) -> dict[str, KnownType]:
        return self.known

    def variations(self, group: str, types: Collection[str]) -> dict[str, Any]:
        return {name: self.kept[name] for name in types}

    def learn(self, group: str, several: Sequence[Learning]) -> dict[str, int]:
        return {one.type: one.before + 1 for one in several}

    def register(self, *given: object) -> None: ...

    def hold(self, *given: object) -> None: ...


def late(refresh: GroupRefresh, types: SqlEventTypes) -> GroupRefresh:
    """An attempt that read what the store knows now, and lives on."""
    return replace(refresh, repository=cast(Any, Remembering(types)))


# a test whose fixture `game` gives the parameter to `stream`
BOTH = pytest.mark.parametrize("game", ["delta", "iceberg"], indirect=True)


def stream(
    spark: SparkSession, folder: Path, table_format: str = "delta", **options: Any
) -> Stream:
    """A stream with a group whose tables are of a format; a session keeps the first Iceberg catalog
    that it gets.
    """
    session = spark.newSession() if table_format == "iceberg" else spark
    storage = Storage(format=table_format)
    return Stream(session, folder, event_group("shop", GAME, storage=storage, **options))
