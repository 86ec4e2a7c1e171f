"""A running lake with a stream of events that a writer offers, and what came of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from lakechime_dagster.dce.engine import open_engine
from lakechime_dagster.silver.schema import KnownType
from lakechime_dagster.silver.store import SqlEventTypes
from tests.support.dagster_dev import DagsterDev, dagster_dev
from tests.support.drift import Drift
from tests.support.offering import Prepared
from tests.support.processes import REPOSITORY, await_found, program
from tests.support.struck import kill_run

MODULE = "tests.support.event_module"
FOLDER = "LAKECHIME_TEST_FOLDER"  # the variable that holds the folder of the events
MAX_BYTES = (
    "LAKECHIME_TEST_MAX_BYTES"  # and the one that holds how much of them one execution takes
)
BRONZE, GROUP, OTHER = "game.events", "play", "game_other"


@dataclass(frozen=True)
class EventLake:
    """What `lakechime dev` runs for the stream, and the files that a writer offers it."""

    running: DagsterDev
    prepared: Prepared

    @cached_property
    def repository(self) -> SqlEventTypes:
        return SqlEventTypes(open_engine(f"sqlite:///{self.running.home / 'dce.sqlite'}"), "local")

    def location(self, table: str) -> str:
        return str(self.running.home.joinpath("warehouse", *table.split(".")))

    def table_of(self, group: str, known: KnownType) -> str:
        return self.location(known.table)

    def types(self) -> dict[str, tuple[str, KnownType]]:
        """All types that came, with their groups."""
        return {
            name: (group, known)
            for group in (GROUP, OTHER)
            for name, known in self.repository.types(group).items()
        }

    def kill_at_work(self) -> str:
        """A run of the group, when the first of its tables are written: the next one that
        begins.
        """
        # the commits of an execution come after one another, so that some of an execution are there while
        # others are not
        before: list[int] = []

        def is_writing() -> bool:
            found = sum(1 for _ in Path(self.location(GROUP)).glob("*/_delta_log/*.json"))
            before.append(found)
            return found > before[0]

        return kill_run(self.running, GROUP, when=is_writing)

    def lines_in_bronze(self) -> int:
        """How many lines the stream's table has, as its log reports."""
        where = self.location(BRONZE)
        if not DeltaTable.is_deltatable(where):
            return 0
        return sum(
            pa.table(DeltaTable(where).get_add_actions(flatten=True))["num_records"].to_pylist()
        )

    def is_caught_up(self, lines: int) -> bool:
        """Whether all lines are in the stream's table, each type that has a table got all of it,
        and nothing is at work.
        """
        if self.lines_in_bronze() < lines:
            return False
        version = DeltaTable(self.location(BRONZE)).version()
        if any(
            one.schema_version and one.checkpoint.version < version
            for _, one in self.types().values()
        ):
            return False
        return self.running.is_at_rest()

    def await_caught_up(self, lines: int, seconds: float) -> None:
        await_found(
            lambda: self.is_caught_up(lines),
            f"all is caught up\n{self.running.service.tail()}",
            seconds,
            pause=1,
        )


@contextmanager
def event_lake(home: Path, drift: Drift, jars: Path, max_bytes: int) -> Iterator[EventLake]:
    """The lake of `event_module`, of which an execution takes so much, run by `lakechime dev`;
    nothing of it is left afterwards.
    """
    prepared = Prepared.of(drift, home)
    wishes = {
        "LAKECHIME_LAKE": f"{MODULE}:lake",
        "LAKECHIME_SPARK_DRIVER": "warm",
        "LAKECHIME_SPARK_JARS": str(jars),
        FOLDER: str(prepared.folder),
        MAX_BYTES: str(max_bytes),
        "JAVA_TOOL_OPTIONS": "",  # of JVMs that live for seconds
    }
    command = [*program("lakechime"), "dev"]
    with dagster_dev(
        "lakechime-dev", command, home, {"lakechime_dagster"}, REPOSITORY, **wishes
    ) as running:
        yield EventLake(running, prepared)
