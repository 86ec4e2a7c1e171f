"""All that runs between the rows of databases and those of a lake that follows them, each part of
which can be killed.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakechime_dagster.demo.servers import Server, connect_worker, kafka_broker, listens
from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.jvm import WarmFile, find_java
from lakechime_dagster.spark.warm import WarmHost, start_warm_driver
from tests.support.dagster_dev import DagsterDev, dagster_dev
from tests.support.impatient import KAFKA
from tests.support.kafka import Worker
from tests.support.processes import REPOSITORY, await_found, free_port, program
from tests.support.spark import small_settings
from tests.support.struck import await_begun, kill_run

SMALL = small_settings("warm")  # for tables of hundreds of rows


@dataclass
class Chain:
    """A broker, Kafka Connect, `dagster dev` with one code location, and the warm driver of its
    runs.
    """

    broker: Server
    kafka: int
    connect: Worker
    connectors: tuple[str, ...]
    running: DagsterDev
    warm: WarmHost
    folders: "ChainFolders"
    killed: list[str] = field(default_factory=list)  # runs, or their Spark

    def kill_connect(self) -> None:
        self.connect.server.kill()
        self.connect.server.start(self.connect.answers)

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.start(lambda: listens(self.kafka))

    def kill_run(self, *consumers: str) -> None:
        """The process of a run that changes rows of one of these tables."""
        self.killed.append(kill_run(self.running, *consumers))

    def kill_spark(self, *consumers: str) -> None:
        """The warm driver's host and its JVM while a run of one of these works with it; somebody
        starts another one.
        """
        run_id, host = await_begun(self.running, *consumers)
        assert int(host) == self.warm.process.pid
        file = WarmFile.read(self.running.home)
        self.warm.process.kill()
        self.warm.process.wait()
        if file is not None and file.jvm_pid:
            with suppress(ProcessLookupError):
                os.kill(file.jvm_pid, signal.SIGKILL)
        self.warm = start_warm_driver(self.folders.spark, self.running.home, self.folders.jars)
        self.killed.append(run_id)

    def location(self, table: str) -> str:
        return str(self.running.home.joinpath("warehouse", *table.split(".")))

    def failed(self) -> list[str]:
        """Those of the runs that were killed, themselves or their Spark, that did not come to an
        end of their own.
        """
        return [
            run_id
            for run_id in self.killed
            if (run := self.running.instance.get_run_by_id(run_id)) and not run.is_success
        ]

    def expect_health(self) -> None:
        """Raises what a failed task of a connector says."""
        for name in self.connectors:
            self.connect.expect_health(name)

    def await_true(self, condition: Callable[[], Any], what: str, seconds: float = 300) -> None:
        await_found(
            condition,
            f"{what}\n{self.running.service.tail()}",
            seconds,
            self.expect_health,
            pause=0.5,
        )


@dataclass(frozen=True)
class ChainFolders:
    """Where a chain runs.

    Attributes:
        home: Of the lake.
        folder: For the servers, which others may enter.
        jars: Spark's.
        stack_jars: Those of the servers.
        spark: Of the warm driver.
    """

    home: Path
    folder: Path
    jars: Path
    stack_jars: Path
    spark: SparkSettings = SMALL


@contextmanager
def chain(
    folders: ChainFolders,
    module: str,
    connectors: Callable[[str], Mapping[str, Mapping[str, str]]],
    **wishes: str,
) -> Iterator[Chain]:
    """A running chain, of which nothing is left afterwards.

    Args:
        folders: Where it runs.
        module: The code location, which has a `lake`.
        connectors: By name the settings of those that Connect runs, given the address of the
            broker.
        wishes: More of the environment of the code location.
    """
    home, port, java = folders.home, free_port(), find_java()
    file = REPOSITORY / f"{module.replace('.', '/')}.py"
    python_file = (
        f"relative_path: '{file}', working_directory: '{REPOSITORY}', location_name: followed"
    )
    (home / "workspace.yaml").write_text(f"load_from:\n  - python_file: {{{python_file}}}\n")
    address = f"127.0.0.1:{port}"
    wishes |= {
        "LAKECHIME_LAKE": f"{module}:lake",
        "LAKECHIME_SPARK_DRIVER": folders.spark.driver,
        "LAKECHIME_SPARK_JARS": str(folders.jars),
        "LAKECHIME_SPARK_MEMORY": folders.spark.memory,
        "LAKECHIME_SPARK_CONF": json.dumps(folders.spark.conf),
        KAFKA: address,
    }
    command = [*program("dagster"), "dev", "-w", str(home / "workspace.yaml")]
    found = connectors(address)
    warm, there = start_warm_driver(folders.spark, home, folders.jars), None
    try:
        with (
            kafka_broker(folders.folder / "chain-kafka", folders.stack_jars, java, port) as broker,
            connect_worker(
                folders.folder / "chain-connect",
                folders.stack_jars,
                java,
                address,
                connectors=found,
            ) as connect,
            dagster_dev("dagster-dev", command, home, {"followed"}, home, **wishes) as running,
        ):
            there = Chain(
                broker,
                port,
                Worker(connect.url, connect.server),
                tuple(found),
                running,
                warm,
                folders,
            )
            yield there
    finally:
        (there.warm if there else warm).stop()
