"""A Hive metastore, from pyspark's jars, and small tables in it, written by pyarrow; `python -m
tests.support.metastore` fetches the jar of its notification log ahead of the tests.
"""

import itertools
import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lock import locked
from lakechime_dagster.spark.jvm import find_java, pyspark_home, retrieve
from tests.support.missing import missing
from tests.support.processes import REPOSITORY

if TYPE_CHECKING:  # most tests do without them
    import pyarrow as pa
    from hive_metastore.ThriftHiveMetastore import Client

IVY_FILE = Path(__file__).with_name("metastore.xml")
CONF = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.metastore.transactional.event.listeners": "org.apache.hive.hcatalog.listener.DbNotificationListener",
    "hive.async.log.enabled": "false",
    "hive.warehouse.subdir.inherit.perms": "false",  # else it starts a chmod for each folder
}
OPENED = ("lang", "net", "io", "util", "util.concurrent")
FORMAT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquet"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Metastore:
    """A running metastore: its URL, and its handler in the Java machine."""

    url: str
    handler: Any = field(repr=False)

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
        from hive_metastore import ttypes

        return ttypes.StorageDescriptor(
            cols=[ttypes.FieldSchema(name, kind, "") for name, kind in self.columns.items()],
            location=str(folder),
            inputFormat=f"{FORMAT}InputFormat",
            outputFormat=f"{FORMAT}OutputFormat",
            serdeInfo=ttypes.SerDeInfo(
                serializationLib="org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
                parameters={},
            ),
            parameters={},
        )


@contextmanager
def running_metastore(folder: Path) -> Iterator[Metastore]:
    """A metastore that listens on this machine only, in a Java machine that ends with the block."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
    from py4j.protocol import Py4JError

    java, jars = find_java(), [ensure_jar(), pyspark_home() / "jars" / "*"]
    opened = [f"--add-opens=java.base/java.{one}=ALL-UNNAMED" for one in OPENED]
    with (folder / "metastore.log").open("w") as log:
        started: Any = launch_gateway(
            classpath=os.pathsep.join(map(str, jars)),
            javaopts=["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *opened],
            java_path=str(java.executable),
            die_on_exit=True,
            enable_auth=True,
            cwd=str(folder),
            redirect_stdout=log,
            redirect_stderr=log,
            return_proc=True,
        )
        port, token, process = started
        try:
            parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
            gateway = JavaGateway(gateway_parameters=parameters)
            handler, server, listening = _server(
                gateway.jvm, CONF | {"hive.metastore.warehouse.dir": str(folder / "warehouse")}
            )

            def serve() -> None:
                with suppress(Py4JError, OSError):  # the Java machine ends
                    server.serve()

            threading.Thread(target=serve, daemon=True).start()
            yield Metastore(f"thrift://127.0.0.1:{listening}", handler)
            gateway.shutdown()
        finally:
            process.kill()
            process.wait()


def _server(jvm: Any, settings: Mapping[str, str]) -> tuple[Any, Any, int]:
    """What `HiveMetaStore.main` makes, which would listen on every address of the machine."""
    conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
    for key, value in settings.items():
        conf.set(key, value)
    metastore, thrift = jvm.org.apache.hadoop.hive.metastore, jvm.org.apache.thrift
    handler = metastore.HiveMetaStore.HMSHandler("hive", conf, False)
    retrying = metastore.RetryingHMSHandler.getProxy(conf, handler, True)
    socket = thrift.transport.TServerSocket(jvm.java.net.InetSocketAddress("127.0.0.1", 0))
    args = thrift.server.TThreadPoolServer.Args(socket)
    server = thrift.server.TThreadPoolServer(
        args.processor(metastore.TSetIpAddressProcessor(retrying))
    )
    return handler, server, socket.getServerSocket().getLocalPort()


def ensure_jar() -> Path:
    """The jar of the notification log; it is whole where it is there, because it is moved in when it
    is.

    Raises:
        LakeChimeError: It cannot be fetched.
    """
    (asked,) = ElementTree.parse(IVY_FILE).getroot().iter("dependency")
    home, name = REPOSITORY / ".lakechime", IVY_FILE.stem
    jar = home / name / f"{asked.attrib['name']}-{asked.attrib['rev']}.jar"
    if jar.is_file():
        return jar
    jar.parent.mkdir(parents=True, exist_ok=True)
    with (
        locked(home / f"{name}.lock"),
        tempfile.TemporaryDirectory(prefix=f".{name}-", dir=home) as temporary,
    ):
        if not jar.is_file():
            print(f"Fetching {jar.name} into {jar.parent} (once, 75 kB)", file=sys.stderr)  # noqa: T201
            answer = retrieve(
                IVY_FILE, Path(temporary) / "jars", find_java(), cache=Path(temporary) / "cache"
            )
            fetched = Path(temporary) / "jars" / jar.name
            if answer.returncode or not fetched.is_file():
                said = (answer.stdout + answer.stderr).strip()[-500:]
                raise LakeChimeError(f"{jar.name} cannot be fetched; is there a network? {said}")
            fetched.rename(jar)
    return jar


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


if __name__ == "__main__":
    try:
        ensure_jar()
    except LakeChimeError as error:
        sys.exit(str(error))
