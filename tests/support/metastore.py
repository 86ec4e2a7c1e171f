"""A Hive metastore, from pyspark's jars, and small tables in it, written by pyarrow."""

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakechime_dagster.dce.events import DataChangeEvent, OperationType, Seen
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.demo import servers
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.spark.jvm import find_java
from tests.support.missing import missing
from tests.support.stack_jars import ensure_jars

if TYPE_CHECKING:  # most tests do without them
    import pyarrow as pa
    from hive_metastore.ThriftHiveMetastore import Client

    from lakechime_dagster.formats.hive import HiveLog

Found = list[tuple[Any, OperationType]]
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Metastore(servers.Metastore):
    """A running metastore, and its clients."""

    @contextmanager
    def client(self) -> Iterator["Client"]:
        from hive_metastore.ThriftHiveMetastore import Client
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.transport.TSocket import TSocket
        from thrift.transport.TTransport import TBufferedTransport

        socket = TSocket("127.0.0.1", int(self.url.rpartition(":")[2]))
        socket.setTimeout(60_000)
        transport = TBufferedTransport(socket)
        transport.open()
        try:
            yield Client(TBinaryProtocol(transport))
        finally:
            transport.close()

    def forget_notifications(self) -> None:
        """Clean the log up, as the metastore does with notifications of a day ago."""
        self.handler.getMS().cleanNotificationEvents(-60)  # seconds of age


@dataclass(frozen=True)
class HiveTable:
    """A table of Parquet files, `h` in a database of its own, with these columns."""

    metastore: Metastore
    folder: Path
    columns: Mapping[str, str] = field(default_factory=lambda: {"id": "bigint"})
    database: str = field(default_factory=lambda: f"d{next(_numbers)}")

    @property
    def name(self) -> str:
        return f"{self.database}.h"

    def create(self, *columns: str, **parameters: str) -> "HiveTable":
        """Create it with partition columns, each as `day date`."""
        from hive_metastore import ttypes

        named = [one.split() for one in columns]
        keys = [ttypes.FieldSchema(name, kind, "") for name, kind in named]
        table = ttypes.Table(
            tableName="h",
            dbName=self.database,
            sd=self._stored(self.folder / "h"),
            partitionKeys=keys,
            parameters={"EXTERNAL": "TRUE"} | parameters,
            tableType="EXTERNAL_TABLE",
        )
        (self.folder / "h").mkdir(parents=True, exist_ok=True)
        with self.metastore.client() as client:
            with suppress(ttypes.AlreadyExistsException):
                location = str(self.folder / "database")
                client.create_database(ttypes.Database(self.database, "", location, {}))
            client.create_table(table)
        return self

    def drop(self) -> None:
        """Drop the table; the files of an external one stay."""
        with self.metastore.client() as client:
            client.drop_table(self.database, "h", False)

    def add(self, *values: str, at: Path | None = None, **tags: str) -> None:
        """Add a partition, without a file where its folder has none."""
        from hive_metastore import ttypes

        folder = at or self.at(*values)
        folder.mkdir(parents=True, exist_ok=True)
        parameters = {"lakechime.tags": json.dumps(tags)} if tags else {}
        partition = ttypes.Partition(
            values=list(values),
            dbName=self.database,
            tableName="h",
            sd=self._stored(folder),
            parameters=parameters,
        )
        with self.metastore.client() as client:
            client.add_partition(partition)

    def add_many(self, partitions: Iterable[str]) -> None:
        """Add partitions of a single level, by few at once: a notification has all of a call."""
        from hive_metastore import ttypes

        several = iter(partitions)
        with self.metastore.client() as client:
            while few := list(itertools.islice(several, 20)):
                for value in few:
                    self.at(value).mkdir(parents=True)
                made = [
                    ttypes.Partition(
                        values=[value],
                        dbName=self.database,
                        tableName="h",
                        sd=self._stored(self.at(value)),
                        parameters={},
                    )
                    for value in few
                ]
                client.add_partitions(made)

    def drop_partition(self, *values: str) -> None:
        with self.metastore.client() as client:
            client.drop_partition(self.database, "h", list(values), False)

    def analyze(self, *values: str) -> None:
        """Set statistics of a partition, as ANALYZE does."""
        with self.metastore.client() as client:
            partition: Any = client.get_partition(self.database, "h", list(values))
            partition.parameters["numRows"] = str(next(_numbers))
            client.alter_partition(self.database, "h", partition)

    def write(self, *values: str, name: str | None = None, rows: "pa.Table | None" = None) -> Path:
        """Write a file into the folder of a partition, of which the metastore learns nothing."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        number = next(_numbers)
        path = self.at(*values) / (name or f"part-{number}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": list(range(number))}) if rows is None else rows, path)
        return path

    def at(self, *values: str) -> Path:
        return self.folder.joinpath("h", *(value.replace(":", "%3A") for value in values))

    def _stored(self, folder: Path) -> Any:
        from lakechime_dagster.formats.hive import parquet_at

        return parquet_at(str(folder), self.columns)


@dataclass
class Polls:
    """Polls of one table, each from where the last one ended, as the store remembers them."""

    table: HiveTable
    named: PartitionLevels | None = None
    seen: Seen | None = None
    listing: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> "HiveLog":
        from lakechime_dagster.formats.hive import HiveLog

        return HiveLog(self.table.metastore.url, self.table.name, "east", self.named, self.known)

    def known(self, keys: Collection[str] | None) -> dict[str, str]:
        return {key: one for key, one in self.listing.items() if keys is None or key in keys}

    def events(self, *, lists_all: bool = False) -> tuple[DataChangeEvent, ...]:
        captured = replace(self.log, lists_all=lists_all).changes_after(self.seen)
        self.seen = captured.seen
        changed = {**self.listing, **captured.seen.listing}
        self.listing = {key: files for key, files in changed.items() if files is not None}
        return captured.events

    def found(self, *, lists_all: bool = False) -> Found:
        """By partition what was found of it; of an unpartitioned table None."""
        return found(self.events(lists_all=lists_all))


def found(events: Iterable[DataChangeEvent]) -> Found:
    return [(one.partition and one.partition[0], one.operation_type) for one in events]


def tags(events: Iterable[DataChangeEvent]) -> list[dict[str, str]]:
    return [dict(one.tags) for one in events]


@contextmanager
def running_metastore(folder: Path) -> Iterator[Metastore]:
    """A metastore that keeps nothing, and ends with the block."""
    jars = ensure_jars(servers.METASTORE_FILE)
    with servers.hive_metastore(folder, jars, find_java(), "memory:metastore") as running:
        yield Metastore(running.url, running.log, running.process, running.made)


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    """A metastore for all tests of this process."""
    try:
        with running_metastore(tmp_path_factory.mktemp("metastore")) as running:
            yield running
    except LakeChimeError as error:
        missing(str(error), "run `make ready` with a network")


@pytest.fixture
def hive_table(metastore: Metastore, tmp_path: Path) -> HiveTable:
    """A table that is still to be created."""
    return HiveTable(metastore, tmp_path)
