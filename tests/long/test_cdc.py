"""Minutes of random changes, schema changes and kills on two databases, compared at consistent
snapshots.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lakechime_dagster.cdc.change import REPAIRS
from lakechime_dagster.cdc.compare import LAKE_LACKS
from tests.long import histories
from tests.long.conftest import MINUTES
from tests.long.databases import COLUMNS, Database, MariaDBShop, PostgresShop
from tests.long.schema_changes import REPORTED, UNREPORTED, Statements
from tests.long.writer import Writer
from tests.support.chain import Chain, ChainFolders, chain
from tests.support.deployed_table import DeployedTable
from tests.support.logical_postgres import logical_postgres
from tests.support.mariadb import MariaDB
from tests.support.processes import PATIENCE

pytestmark = [pytest.mark.tier3, pytest.mark.e2e, pytest.mark.services, pytest.mark.spark]

SEED = int(os.environ.get("LAKECHIME_TEST_SEED") or random.randrange(1_000_000))
MOST_KILLS = 3  # of a round
SCHEMA_CHANGES = 2  # of each database in a round
MOST_BEHIND = 600  # seconds that a table may be behind after kills


@dataclass
class Trial:
    """What is done to the chain and its databases, and what has been so far."""

    chain: Chain
    writers: dict[str, Writer]
    dice: random.Random
    say: Callable[[str], None]
    kills: Counter[str] = field(default_factory=Counter)
    schema_changes: Counter[str] = field(default_factory=Counter)
    unreported: dict[str, set[str]] = field(default_factory=dict)  # by table, not mended yet
    comparisons: int = 0
    mended: int = 0

    def round(self, bags: dict[str, list[tuple[str, Statements]]]) -> list[str]:
        """Changes of the schema of each database, some kills, then tables are compared while the
        databases change on.

        These are the ones of which something is unreported, and another one. Given back is what
        differs that must not.
        """
        for database, writer in self.writers.items():
            for _ in range(SCHEMA_CHANGES):
                self._change_schema(database, writer, bags[database])
        for _ in range(self.dice.randint(1, MOST_KILLS)):
            self._strike()
        other = self.dice.choice(self.tables).name
        compared = [
            table for table in self.tables if table.name == other or table.name in self.unreported
        ]
        return [problem for table in compared for problem in self.differences(table)]

    @property
    def tables(self) -> list[DeployedTable]:
        return [
            DeployedTable(self.chain, f"{database}.{kind}")
            for database in self.writers
            for kind in ("orders", "histories")
        ]

    def _change_schema(
        self, database: str, writer: Writer, bag: list[tuple[str, Statements]]
    ) -> None:
        if not bag:
            bag += [*REPORTED[database].items(), *UNREPORTED[database].items()]
            self.dice.shuffle(bag)
        name, statements = bag.pop()
        if writer.change_schema(name, statements):
            self.schema_changes[f"{database}: {name}"] += 1
            self.say(f"{database}: {name}")
            if name in UNREPORTED[database]:
                for table in self.tables:
                    if table.name.startswith(f"{database}."):
                        self.unreported.setdefault(table.name, set()).add(name)

    def _strike(self) -> None:
        typed = [table.name for table in self.tables]
        consumers = [*typed, *(table.bronze for table in self.tables)]
        strikes: dict[str, Callable[[], None]] = {
            "run": lambda: self.chain.kill_run(*consumers),
            "Spark": lambda: self.chain.kill_spark(*consumers),
            "Connect": self.chain.kill_connect,
            "broker": self.chain.kill_broker,
            **{name: writer.restart_database for name, writer in self.writers.items()},
        }
        name = self.dice.choice(["run", *strikes])
        strikes[name]()
        self.kills[name] += 1
        self.say(f"killed: {name}")

    def differences(self, table: DeployedTable) -> list[str]:
        """What of a table at a cut is not that of the database, once what no message reports is
        mended.
        """
        found = self._monitored(table)
        if not found["same"] and self.unreported.get(table.name):
            self.say(
                f"{table.name} differs by {len(found['keys'])} keys as {self.unreported[table.name]} "
                f"reported nothing of them"
            )
            done = self.chain.running.lakechime("cdc", "compare", "--repair", table.name)
            self.mended += len(done["rows"]) + len(done["deletions"])
            found = self._monitored(table)
        self.unreported.pop(table.name, None)
        return (
            []
            if found["same"]
            else [f"{table.name}: {found}\n{self.chain.running.lakechime('status')}"]
        )

    def _monitored(self, table: DeployedTable) -> dict[str, Any]:
        """What the monitor finds: it asks again while what differs, or a column, may be on its way,
        or rows were truncated meanwhile.
        """
        end = time.monotonic() + MOST_BEHIND * PATIENCE
        while True:
            found = self.chain.running.lakechime("cdc", "compare", table.name, expect=None)
            self.comparisons += 1
            rows, left_out = found["source_rows"], found["left_out"]
            self.say(
                f"{table.name}: {rows} rows at {found['snapshot']}, same {found['same']}, left out "
                f"{left_out}, {found['seconds']:.0f} s"
            )
            is_known = (
                (found["passed"] or found["same"])
                and not found["truncated"]
                and LAKE_LACKS not in found["unchecked"].values()
            )
            if is_known or time.monotonic() > end:
                return found


@pytest.fixture
def databases(mariadb: MariaDB) -> Iterator[list[Database]]:
    with logical_postgres(durable=True) as postgres:
        yield [MariaDBShop(mariadb), PostgresShop(postgres)]


@pytest.fixture
def linked(
    tmp_path: Path,
    databases: list[Database],
    stack_folder: Path,
    stack_jars: Path,
    spark_jars: Path,
) -> Iterator[Chain]:
    urls = {f"LAKECHIME_TEST_{database.name.upper()}": database.url for database in databases}
    folders = ChainFolders(tmp_path, stack_folder, spark_jars, stack_jars)
    with chain(
        folders,
        "tests.long.lake",
        lambda kafka: {one.name: one.connector(kafka) for one in databases},
        **urls,
    ) as found:
        yield found


def test_two_databases_are_the_lakes_though_all_between_them_is_killed_again_and_again(
    linked: Chain, databases: list[Database], say: Callable[[str], None]
) -> None:
    say(f"{MINUTES:g} minutes, seed {SEED}")
    dice = random.Random(SEED)
    end = time.monotonic() + 60 * MINUTES
    with ExitStack() as writing:
        writers = {
            one.name: writing.enter_context(Writer(one, random.Random(dice.random())))
            for one in databases
        }
        trial = Trial(linked, writers, dice, say)
        for table in trial.tables:
            linked.await_true(
                lambda table=table: table.rows(COLUMNS), f"the first rows of {table.name}", 240
            )
        bags: dict[str, list[tuple[str, Statements]]] = {
            database.name: [] for database in databases
        }
        problems: list[str] = []
        while time.monotonic() < end and not problems:
            problems = trial.round(bags)
    assert not problems
    linked.await_true(linked.running.is_at_rest, "nothing is on the way", 600)
    assert not list(wrong(trial, databases))
    changes, transactions = (
        sum(getattr(one, name) for one in writers.values()) for name in ("changes", "transactions")
    )
    say(
        f"{changes} changes in {transactions} transactions; {trial.schema_changes.total()} of the "
        f"schema, {dict(trial.schema_changes)}"
    )
    say(
        f"{trial.kills.total()} kills, {dict(trial.kills)}; {trial.comparisons} comparisons, "
        f"{trial.mended} rows mended; all is the same"
    )


def wrong(trial: Trial, databases: list[Database]) -> Iterator[str]:
    """What is not as the databases have it, or is not accounted for, now that nothing is on the way
    any more.
    """
    for table in trial.tables:
        yield from trial.differences(table)
        yield from (f"{table.name} refused {row}" for row in table.refused())
        messages = table.messages()
        read = Counter(
            one["topic_id"] for one in messages if one["topic_id"] != REPAIRS + table.name
        )
        there = {(one["topic_id"], one["offset"]) for one in messages}
        yield from (
            f"{table.bronze} lacks {topic}@{at}"
            for topic in read
            for at in range(read[topic])
            if (topic, at) not in there
        )
        reported, read_by_executions = table.reported(), table.read_by_executions()
        if sum(read_by_executions.values()) != len(messages) or reported != {
            number: read_by_executions[number] for number in reported
        }:
            yield (
                f"{table.name} had {len(messages)} messages, read {read_by_executions} and reported of "
                f"{reported}"
            )
    for database in databases:
        if DeployedTable(trial.chain, f"{database.name}.orders").rows(COLUMNS) != database.rows(
            COLUMNS
        ):
            yield f"{database.name}.orders has other rows"
        table = DeployedTable(trial.chain, f"{database.name}.histories")
        held, meant = histories.held(table), histories.meant(table)
        yield from (
            f"{table.name}: {held.get(key)} is not {meant.get(key)}"
            for key in held | meant
            if held.get(key) != meant.get(key)
        )
