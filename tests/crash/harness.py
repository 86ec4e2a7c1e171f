"""A deployment of real processes that are killed and started again: store, code server, daemon,
warm driver, and their bookkeeping.
"""

import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pyarrow as pa
from deltalake import DeltaTable
from sqlalchemy.exc import SQLAlchemyError

from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.record import Record
from lakechime_dagster.dce.events import EventQuery
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.settings import load_settings
from lakechime_dagster.spark.jvm import WarmFile
from lakechime_dagster.spark.warm import WarmHost, start_warm_driver
from lakechime_dagster.tables.databases import Debezium
from tests.cdc.factories import BINLOG, envelope_schema, make_payload, make_record
from tests.crash.points import FOLDER, Point, Switch
from tests.support.postgres import Server
from tests.support.processes import Service, await_found, environment, free_port, is_alive
from tests.support.replica import append_messages, read
from tests.support.spark import small_settings
from tests.support.tables import write

SCHEMA = pa.schema([("id", pa.int64())])
DAGSTER_YAML = """
telemetry: {enabled: false}
compute_logs: {module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}
run_monitoring: {enabled: true, start_timeout_seconds: 40, poll_interval_seconds: 5}
concurrency: {runs: {max_concurrent_runs: 4}}
run_queue: {dequeue_interval_seconds: 1}
run_retries: {enabled: false}
sensors: {use_threads: true, num_workers: 4, num_submit_workers: 2}
"""


@dataclass(frozen=True)
class Verdict:
    """What was found wrong in the end, a sentence each."""

    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    stuck: tuple[str, ...]

    def __str__(self) -> str:
        return f"lost {len(self.lost)}, doubled {len(self.doubled)}, stuck {len(self.stuck)}"

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.stuck)


class Deployment:
    """The processes of one deployment, each started again when it has ended."""

    def __init__(
        self, home: Path, store: Server, store_url: str, jars: Path, *, attempts: int
    ) -> None:
        self.home = home
        self.store = store
        self.jars = jars
        self.switch = Switch(home / "points")
        self.switch.folder.mkdir(parents=True)
        (home / "dagster").mkdir()
        (home / "dagster" / "dagster.yaml").write_text(DAGSTER_YAML)
        self.env = environment(
            home,
            LAKECHIME_STORE_URL=store_url,
            LAKECHIME_DEPLOYMENT="crash",
            LAKECHIME_SPARK_DRIVER="warm",
            LAKECHIME_SPARK_JARS=str(jars),
            LAKECHIME_TEST_ATTEMPTS=str(attempts),
            **{FOLDER: str(self.switch.folder)},
        )
        port = free_port()
        workspace = home / "workspace.yaml"
        workspace.write_text(
            f"load_from:\n  - grpc_server: {{host: 127.0.0.1, port: {port}, location_name: "
            f"crash}}\n"
        )
        python = sys.executable
        self.code_server = Service(
            "code-server",
            [
                python,
                "-m",
                "dagster",
                "api",
                "grpc",
                "-m",
                "tests.crash.location",
                "-h",
                "127.0.0.1",
                "-p",
                str(port),
            ],
            cwd=home,
            env=self.env,
            port=port,
        )
        self.daemon = Service(
            "daemon",
            [python, "-m", "tests.crash.daemon", "run", "-w", str(workspace)],
            cwd=home,
            env=self.env,
        )
        self.warm: WarmHost | None = None
        self.next_id = 0
        self.platform: Platform = open_platform(
            load_settings(home=home, store_url=store_url, deployment="crash")
        )

    @property
    def instance(self) -> dg.DagsterInstance:
        return dg.DagsterInstance.from_config(str(self.home / "dagster"))

    # Processes

    def supervise(self) -> None:
        """Start what is not running, as an operating system's service manager does; the daemon only
        when it finds its code server.
        """
        if self.warm is None or self.warm.process.poll() is not None:
            self.warm = start_warm_driver(small_settings("warm"), self.home, self.jars)
        if not self.code_server.is_running:
            self.code_server.start()
        if not self.daemon.is_running and self.code_server.is_ready:
            self.daemon.start()

    def await_true(self, condition: Callable[[], object], what: str, seconds: float = 120) -> None:
        """Wait until this holds, while ended processes are started again; a store that is away
        counts as not yet.
        """

        def holds() -> object:
            with suppress(LakeChimeError, SQLAlchemyError):
                return condition()
            return False

        await_found(holds, what, seconds, self.supervise, pause=0.5)

    @property
    def is_warmed(self) -> bool:
        """Whether the warm driver has been exercised: runs that come before it is share its slow
        first minute.
        """
        file = WarmFile.read(self.home)
        return file is not None and file.is_warmed

    def kill_warm_driver(self) -> None:
        """The host and its JVM, as when memory runs out."""
        assert self.warm is not None
        file = WarmFile.read(self.home)
        self.warm.process.kill()
        self.warm.process.wait()
        if file is not None and file.jvm_pid:
            with suppress(ProcessLookupError):
                os.kill(file.jvm_pid, signal.SIGKILL)

    def running_pids(self) -> list[int]:
        """The processes that are in the body of a run."""
        pids = [int(sign.name.removeprefix("run-")) for sign in self.switch.folder.glob("run-*")]
        return [pid for pid in pids if is_alive(pid)]

    def kill_a_run(self, chance: random.Random) -> bool:
        pids = self.running_pids()
        if pids:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(pids), signal.SIGKILL)
        return bool(pids)

    def end(self) -> None:
        self.daemon.end()
        self.code_server.end()
        if self.warm is not None:
            self.warm.stop(10)

    # Changes, and what became of them

    def change(self, point: Point, rows: int = 2) -> None:
        """One commit of new rows to a point's source, registered by its producer, who tries until
        the store takes it.
        """
        ids = list(range(self.next_id, self.next_id + rows))
        self.next_id += rows
        log = self.platform.log(point.source)
        if point.follows:
            append_messages(
                log.location,
                [_message(number) for number in ids],
                MessageFormat(envelope=Debezium(), keys=("id",)),
            )
        else:
            write(log.location, pa.table({"id": ids}, schema=SCHEMA))
        version = log.version
        self.await_true(
            lambda: (self.platform.store.register(log.events_of_commit(version)), True)[1],
            f"the store takes {point.source}",
        )

    def completed_executions(self, point: Point) -> int:
        subscription = self.platform.ledger.subscription(point.target)
        consumer = self.platform.ledger.consumers(subscription).get("") if subscription else None
        return consumer.completed if consumer else 0

    def is_consumed(self, point: Point) -> bool:
        """Whether the consumer stands at its source's newest commit, with nothing open."""
        subscription = self.platform.ledger.subscription(point.target)
        consumer = self.platform.ledger.consumers(subscription).get("") if subscription else None
        if (
            subscription is None
            or consumer is None
            or self.platform.ledger.open_executions(subscription)
        ):
            return False
        checkpoint = consumer.checkpoint.sources.get(point.source)
        return checkpoint is not None and checkpoint.snapshot_id == str(
            self.platform.log(point.source).version
        )

    def unfinished_runs(self) -> list[dg.DagsterRun]:
        return [run for run in self.instance.get_runs() if not run.is_finished]

    def judge(self, points: Iterable[Point]) -> Verdict:
        """Compare rows and events with what must be there. Nothing may be on the way any more."""
        lost, doubled, stuck = [], [], []
        for point in points:
            if not self.is_consumed(point):
                stuck.append(self._why_stuck(point))
            sent, got = (Counter(self._rows(name)) for name in (point.source, point.target))
            lost += [f"row {row} of {point.target}" for row in (sent - got).elements()]
            doubled += [f"row {row} of {point.target}" for row in (got - sent).elements()]
            for name in (point.source, point.target):
                commits, events = (
                    Counter(self._data_versions(name)),
                    Counter(self._registered(name)),
                )
                lost += [
                    f"the event of commit {version} of {name}"
                    for version in (commits - events).elements()
                ]
                doubled += [
                    f"the event of commit {version} of {name}"
                    for version in (events - commits).elements()
                ]
        stuck += [
            f"Dagster run {run.run_id} ({run.status.value}, {run.tags})"
            for run in self.unfinished_runs()
        ]
        return Verdict(tuple(lost), tuple(doubled), tuple(stuck))

    def story(self, points: Iterable[Point]) -> str:
        """Executions and attempts of the subscriptions, for a person who looks at a failed test."""
        lines = []
        for execution in self.platform.ledger.executions(limit=1000):
            if execution.consumer.subscription in {point.target for point in points}:
                attempts = self.platform.ledger.attempts(execution.execution_id)
                tries = ", ".join(
                    f"{one.number}:{one.outcome or 'open'} {one.error or ''}" for one in attempts
                )
                lines.append(
                    f"{execution.consumer.subscription} execution {execution.number} "
                    f"{execution.state.value} version {execution.version} [{tries}]"
                )
        return "\n".join(sorted(lines))

    def _why_stuck(self, point: Point) -> str:
        subscription = self.platform.ledger.subscription(point.target)
        consumers = self.platform.ledger.consumers(subscription) if subscription else {}
        opened = self.platform.ledger.open_executions(subscription) if subscription else []
        return (
            f"{point.target}: "
            f"{[consumer.blocked_sentence(point.target) or consumer.checkpoint for consumer in consumers.values()]}, "
            f"open "
            f"{opened}"
        )

    def _rows(self, table: str) -> list[int]:
        """The numbers of a table's rows, or of those that its messages report."""
        location = self.platform.location(table)
        rows = read(location) if DeltaTable.is_deltatable(location) else []
        return [row["id"] if "id" in row else json.loads(row["row_key"])[0] for row in rows]

    def _data_versions(self, table: str) -> list[str]:
        log = self.platform.log(table)
        if not log.exists():
            return []
        return [
            str(commit.version)
            for commit in log.commits(-1, log.version)
            if log.events_of_commit(commit.version)
        ]

    def _registered(self, table: str) -> list[str]:
        events = self.platform.store.fetch(EventQuery(table=table))
        return [
            str(event.event.snapshot_id)
            for event in events
            if event.amends is None and event.event.snapshot_id is not None
        ]


def _message(number: int) -> Record:
    """A row that was inserted."""
    payload = make_payload(
        source={**BINLOG, "pos": number + 1}, after={"id": number, "name": "Ann", "amount": 5}
    )
    return make_record(payload, schema=envelope_schema(), key={"id": number}, offset=number)


@contextmanager
def deployed(
    home: Path, store: Server, store_url: str, jars: Path, *, attempts: int = 5
) -> Iterator[Deployment]:
    """A running deployment, of which nothing is left afterwards."""
    deployment = Deployment(home, store, store_url, jars, attempts=attempts)
    try:
        deployment.await_true(
            lambda: deployment.daemon.is_running and deployment.is_warmed,
            "daemon and warm driver are started",
        )
        yield deployment
    finally:
        deployment.end()
