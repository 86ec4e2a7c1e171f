"""A table of a real database in the lake, while all that stands between them is killed: in the end every row is the same."""

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import dagster as dg
import duckdb
import pymysql
import pytest
from deltalake import DeltaTable

from lakechime_dagster.demo.servers.connect import Connect, connect_worker
from lakechime_dagster.demo.servers.kafka import kafka_broker
from lakechime_dagster.demo.servers.server import Server, listens
from lakechime_dagster.demo.verify import load_delta
from lakechime_dagster.spark.java import find_java
from lakechime_dagster.spark.warm import WarmHost, start_warm_driver
from lakechime_dagster.spark.warm_file import WarmFile
from tests.support.dagster_dev import DagsterDev, dagster_dev
from tests.support.follows import read
from tests.support.kafka import Kafka
from tests.support.mariadb import CAPTURE_USER, MariaDB
from tests.support.processes import REPOSITORY, await_found, free_port, program
from tests.support.spark import INTERPRETED, small_settings
from tests.support.stack import debezium_settings

pytestmark = [pytest.mark.e2e, pytest.mark.services, pytest.mark.spark]

NAME = "killed"  # of the database, the connector and its topics
BRONZE, TYPED = "shop.orders__changes", "shop.orders"
COLUMNS = ("id", "customer", "amount", "note", "changed_at")
TABLE = """
    CREATE TABLE orders (
      id INT PRIMARY KEY, customer VARCHAR(40) NOT NULL, amount DECIMAL(12,2) NOT NULL, note VARCHAR(40), changed_at DATETIME(6) NOT NULL)
"""
WARM = small_settings("warm", conf=INTERPRETED)  # a table of hundreds of rows
Row = tuple[Any, ...]


class Writer:
    """Changes rows, a transaction after another, until it is told to stop."""

    def __init__(self, mariadb: MariaDB) -> None:
        self._session = mariadb.session(NAME)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.transactions = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._session.close()

    def _write(self) -> None:
        while not self._stop.wait(0.1):  # so that a table of hundreds of rows comes of it, not of thousands
            new = 10 * self.transactions
            values = ", ".join(f"({new + n}, 'käufer {n}', {new}.{n}5, NULL, NOW(6))" for n in range(3))
            self._session.run(
                "BEGIN",
                f"INSERT INTO orders VALUES {values}",
                f"UPDATE orders SET amount = amount + 1, note = 'paid', changed_at = NOW(6) WHERE id = {new - 10}",
                f"UPDATE orders SET id = {new - 11}, changed_at = NOW(6) WHERE id = {new - 19}",
                f"DELETE FROM orders WHERE id = {new - 28}",
                "COMMIT",
            )
            self.transactions += 1


@dataclass
class World:
    """All that runs between a row of the database and a row of the lake."""

    mariadb: MariaDB
    broker: Server
    kafka: int
    connect: Connect
    running: DagsterDev
    warm: WarmHost
    jars: Path
    killed: list[str] = field(default_factory=list)  # runs, or their Spark

    def kill_connect(self) -> None:
        self.connect.server.kill()
        self.connect.server.start(self.connect.answers)

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.start(lambda: listens(self.kafka))

    def kill_run(self) -> None:
        """The process of a run that changes rows."""
        run_id, _ = self._await_begun(TYPED)
        os.kill(int(self._await_said(run_id, r"Started process for run \(pid: (\d+)\)")), signal.SIGKILL)
        self.killed.append(run_id)

    def kill_spark(self) -> None:
        """The warm driver's host and its JVM while a run works with it; somebody starts another one."""
        run_id, host = self._await_begun(BRONZE, TYPED)
        assert int(host) == self.warm.process.pid
        file = WarmFile.read(self.running.home)
        self.warm.process.kill()
        self.warm.process.wait()
        if file is not None and file.jvm_pid:
            with suppress(ProcessLookupError):
                os.kill(file.jvm_pid, signal.SIGKILL)
        self.warm = start_warm_driver(WARM, self.running.home, self.jars)
        self.killed.append(run_id)

    def _await_begun(self, *lanes: str) -> tuple[str, str]:
        """A run of these lanes that begins from now on, once it has a driver of Spark, and the process of that one's host."""

        def at_work() -> list[str]:
            return [run["runId"] for lane in lanes for run in self.running.runs(lane) if run["status"] == "STARTED"]

        before = at_work()  # they may be about to end
        begun = await_found(lambda: [run for run in at_work() if run not in before], f"a run of {' or '.join(lanes)}", 60, pause=0.1)
        return begun[0], self._await_said(begun[0], r"attached to the warm driver of process (\d+)")

    def _await_said(self, run_id: str, pattern: str) -> str:
        """What a line of a run's log says in the group of a pattern."""

        def found() -> str | None:
            messages = [record.message for record in self.instance.all_logs(run_id)]
            return next((match[1] for text in messages if (match := re.search(pattern, text))), None)

        return await_found(found, f"{pattern} in the log of {run_id}", 30, pause=0.1)

    @property
    def instance(self) -> dg.DagsterInstance:
        return dg.DagsterInstance.from_config(str(self.running.home / "dagster"))

    def location(self, table: str) -> str:
        return str(self.running.home.joinpath("warehouse", *table.split(".")))

    def committed(self) -> list[Row]:
        """All rows of the database."""
        with (
            pymysql.connect(
                host="127.0.0.1", port=self.mariadb.port, user=CAPTURE_USER, password=CAPTURE_USER, database=NAME
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"SELECT {', '.join(COLUMNS)} FROM orders ORDER BY id")
            return list(cursor.fetchall())

    def followed(self) -> list[Row]:
        """All rows of the lake, read by DataFusion; none before there is a table."""
        if not DeltaTable.is_deltatable(self.location(TYPED)):
            return []
        return sorted(tuple(row[name] for name in COLUMNS) for row in read(self.location(TYPED)))

    def followed_by_duckdb(self) -> list[Row]:
        with duckdb.connect() as connection:
            load_delta(connection)
            rows = connection.table_function("delta_scan", [self.location(TYPED)])
            return rows.select(*map(duckdb.ColumnExpression, COLUMNS)).sort(duckdb.ColumnExpression("id")).fetchall()

    def messages(self) -> list[tuple[str, int, int]]:
        return sorted((row["topic"], row["partition"], row["offset"]) for row in read(self.location(BRONZE)))

    def told(self) -> dict[int, int]:
        """By step of the typed table how many messages its run says that it counted, by what became of each."""
        found = self.instance.fetch_materializations(dg.AssetKey(TYPED.split(".")), limit=1000).records
        said = [record.asset_materialization.metadata for record in found if record.asset_materialization]
        counts = {name for metadata in said for name in metadata if re.fullmatch(r"events (?!consumed$).+", name)}
        return {
            int(str(metadata["step"].value)): sum(int(str(metadata[name].value)) for name in counts & metadata.keys())
            for metadata in said if counts & metadata.keys()
        }  # fmt: skip

    def read_by_steps(self) -> dict[int, int]:
        """By step of the typed table how many messages lie in the range that its commit names."""
        rows = {commit["version"]: int(commit["operationMetrics"].get("numOutputRows", 0)) for commit in self._commits(BRONZE)}
        stamps = [json.loads(commit["userMetadata"]) for commit in self._commits(TYPED) if "userMetadata" in commit]
        ends = {stamp["step"]: int(stamp["end"]["sources"][BRONZE][1]) for stamp in stamps}
        steps = sorted(ends)
        starts = dict(zip(steps, [-1, *(ends[step] for step in steps)], strict=False))
        return {step: sum(rows[version] for version in range(starts[step] + 1, ends[step] + 1)) for step in steps}

    def _commits(self, table: str) -> list[dict[str, Any]]:
        return DeltaTable(self.location(table)).history()

    def is_at_rest(self) -> bool:
        triggers = self.running.lakechime("status")["triggers"]
        return not any(flow["open"] or flow["waiting"] or flow["held"] or flow["stale"] for flow in triggers)

    def is_refused(self) -> bool:
        """Whether any message or row was refused."""
        quarantines = [location for table in (BRONZE, TYPED) if DeltaTable.is_deltatable(location := self.location(f"{table}__quarantine"))]
        return any(read(location) for location in quarantines)

    def failed(self) -> list[str]:
        """Those of the runs that were killed, themselves or their Spark, that did not come to an end of their own."""
        return [run_id for run_id in self.killed if (run := self.instance.get_run_by_id(run_id)) and not run.is_success]

    def is_over(self) -> bool:
        """Whether every run of Dagster has ended."""
        return all(run.is_finished for run in self.instance.get_runs())

    def await_followed(self, condition: Callable[[], object], what: str) -> None:
        await_found(condition, f"{what}\n{self.running.service.tail()}", 120, lambda: self.connect.expect_health(NAME), pause=0.5)


@pytest.fixture
def world(tmp_path: Path, mariadb: MariaDB, stack_folder: Path, stack_jars: Path, spark_jars: Path) -> Iterator[World]:
    session = mariadb.session()
    session.run(f"CREATE DATABASE {NAME}", f"USE {NAME}", TABLE, "INSERT INTO orders VALUES (1000000, 'first', 1, NULL, NOW(6))")
    session.close()
    port, java = free_port(), find_java()
    workspace = tmp_path / "workspace.yaml"
    place = f"relative_path: '{REPOSITORY / 'tests/e2e/followed.py'}', working_directory: '{REPOSITORY}', location_name: followed"
    workspace.write_text(f"load_from:\n  - python_file: {{{place}}}\n")
    wishes = {
        "LAKECHIME_LAKE": "tests.e2e.followed:lake", "LAKECHIME_SPARK_DRIVER": "warm",
        "LAKECHIME_SPARK_CONF": json.dumps(INTERPRETED), "LAKECHIME_SPARK_JARS": str(spark_jars),
        "LAKECHIME_TEST_KAFKA": f"127.0.0.1:{port}",
        "LAKECHIME_TEST_DATABASE": f"mysql+pymysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{mariadb.port}/{NAME}",
    }  # fmt: skip
    command = [*program("dagster"), "dev", "-w", str(workspace)]
    warm = start_warm_driver(WARM, tmp_path, spark_jars)
    there = None
    try:
        with kafka_broker(stack_folder / "killed-kafka", stack_jars, java, port) as broker:
            kafka = Kafka(f"127.0.0.1:{port}", "", broker)
            connectors = {NAME: debezium_settings(NAME, mariadb, kafka)}
            folder = stack_folder / "killed-connect"
            with (
                connect_worker(folder, stack_jars, java, kafka.address, connectors=connectors) as connect,
                dagster_dev("dagster-dev", command, tmp_path, {"followed"}, tmp_path, **wishes) as running,
            ):
                there = World(mariadb, broker, port, connect, running, warm, spark_jars)
                yield there
    finally:
        (there.warm if there else warm).stop()


def test_every_row_of_a_database_is_the_lakes_though_all_between_them_was_killed(world: World) -> None:
    with Writer(world.mariadb) as writer:
        world.await_followed(world.followed, "the first rows")
        for kill in (world.kill_run, world.kill_connect, world.kill_broker, world.kill_spark):
            before = writer.transactions
            kill()
            await_found(lambda before=before: writer.transactions > before, "the writer goes on", 30)
        compared = world.running.lakechime("cdc", "monitor", TYPED)
    committed = world.committed()
    world.await_followed(lambda: world.followed() == committed, f"{len(committed)} rows as the database has them")
    world.await_followed(world.is_at_rest, "nothing is on the way")
    world.await_followed(world.is_over, "no run is at work")
    assert (compared["keys"], compared["unchecked"]) == ({}, {})
    assert world.followed_by_duckdb() == committed
    messages = world.messages()
    assert messages == [(f"{NAME}.{NAME}.orders", 0, offset) for offset in range(len(messages))]
    told, read_by_steps = world.told(), world.read_by_steps()
    assert sum(read_by_steps.values()) == len(messages)
    assert told == {step: read_by_steps[step] for step in told}
    assert len(read_by_steps) - len(told) <= len(world.killed), "what was killed after its commit alone tells no counts"
    assert len(world.failed()) >= 2, "one whose process was killed, one whose Spark was"
    assert not world.is_refused()
