"""How long from a database's commit until the lake has its rows: `python -m benchmarks.freshness
[--json] [--minutes 4] [--rate 1000]`.

MariaDB, Debezium, Kafka and a table that follows, under Dagster's daemon with the instance that
`lakechime dev` writes. Ten transactions a second insert rows and change as many, of a table of
100,000. The lake has them by the time of the commit that brings them.
"""

import argparse
import random
import statistics
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from benchmarks._cdc_lake import DATABASE
from benchmarks._lines import Line, at_least, at_most, show
from lakechime_dagster.settings import load_settings
from tests.support.background import Background
from tests.support.chain import ChainFolders, chain
from tests.support.deployed_table import DeployedTable
from tests.support.mariadb import MariaDB, mariadb_server
from tests.support.stack import debezium_settings, servers_folder
from tests.support.stack_jars import ensure_stack_jars

ROWS = 100_000
PER_SECOND = 10  # transactions
TABLE = """
    CREATE TABLE orders (
      id INT PRIMARY KEY, customer VARCHAR(40) NOT NULL, amount DECIMAL(12,2) NOT NULL,
      changed_at DATETIME(6) NOT NULL, batch INT NOT NULL)
"""
SHARE = 0.95


class Writer(Background):
    """Writes batches of `size` changes, each a transaction that bears its number; `committed` are
    their moments.
    """

    def __init__(self, mariadb: MariaDB, size: int) -> None:
        super().__init__(pause=0)
        self._session = mariadb.session(DATABASE)
        self._dice = random.Random(4)
        self._half = size // 2
        self._begin = time.time()
        self.committed: list[float] = []

    def turn(self) -> None:
        batch = len(self.committed) + 1
        time.sleep(max(0.0, self._begin + batch / PER_SECOND - time.time()))
        first = ROWS + 1 + self._half * (batch - 1)
        rows = ", ".join(
            f"({n}, 'customer {n}', {n % 997}.50, NOW(6), {batch})"
            for n in range(first, first + self._half)
        )
        ids = ", ".join(map(str, self._dice.sample(range(1, first), self._half)))
        change = (
            f"UPDATE orders SET amount = amount + 1, changed_at = NOW(6), batch = {batch} WHERE id "
            f"IN ({ids})"
        )
        self._session.run("BEGIN", f"INSERT INTO orders VALUES {rows}", change, "COMMIT")
        self.committed.append(time.time())

    def close(self) -> None:
        self._session.close()


@dataclass(frozen=True)
class Arrival:
    """A commit that brought batches up to a number, and its moment in seconds."""

    batch: int
    at: float


@dataclass(frozen=True)
class Measured:
    """The moments of batches that were written once the table followed, and of the commits that
    brought them.
    """

    first: int
    committed: Sequence[float]
    messages: Sequence[Arrival]
    rows: Sequence[Arrival]

    def seconds(self, arrivals: Sequence[Arrival]) -> list[float]:
        """From the commit of each batch to the first commit that has it."""
        upto = [one.batch for one in arrivals]
        return [
            arrivals[bisect_left(upto, batch)].at - self.committed[batch - 1]
            for batch in range(self.first, len(self.committed) + 1)
        ]

    @property
    def rate(self) -> float:
        """Batches a second."""
        return (len(self.committed) - self.first) / (
            self.committed[-1] - self.committed[self.first - 1]
        )


def measure(minutes: float, rate: int) -> Measured:
    with followed() as (mariadb, orders):
        orders.chain.await_true(
            lambda: newest_batch(orders.location) == 0, "the rows that were there", 300
        )
        with Writer(mariadb, rate // PER_SECOND) as writer:
            orders.chain.await_true(lambda: newest_batch(orders.location), "the first batch", 300)
            first, end = len(writer.committed) + 1, time.monotonic() + 60 * minutes
            while time.monotonic() < end:
                writer.expect_health()
                orders.chain.expect_health()
                time.sleep(1)
        last = len(writer.committed)
        orders.chain.await_true(lambda: newest_batch(orders.location) == last, f"batch {last}", 600)
        bronze = orders.chain.location(orders.bronze)
        return Measured(
            first,
            writer.committed,
            message_arrivals(bronze, rate // PER_SECOND),
            row_arrivals(orders.location),
        )


@contextmanager
def followed() -> Iterator[tuple[MariaDB, DeployedTable]]:
    """A database, and its table in the lake."""
    settings = load_settings()
    spark = settings.spark.model_copy(update={"driver": "warm"})
    with servers_folder() as folder:
        (folder / "home").mkdir()
        folders = ChainFolders(folder / "home", folder, settings.jars, ensure_stack_jars(), spark)
        with mariadb_server(folder / "mariadb") as mariadb:
            session = mariadb.session()
            rows = f"SELECT seq, 'customer', 1, NOW(6), 0 FROM seq_1_to_{ROWS}"
            session.run(
                f"CREATE DATABASE {DATABASE}",
                f"USE {DATABASE}",
                TABLE,
                f"INSERT INTO orders {rows}",
            )
            session.close()
            with chain(
                folders,
                "benchmarks._cdc_lake",
                lambda kafka: {DATABASE: debezium_settings(DATABASE, mariadb, kafka)},
            ) as running:
                yield mariadb, DeployedTable(running, "shop.orders")


def newest_batch(location: str, version: int | None = None) -> int | None:
    """The newest batch of which rows are there; None before there are any."""
    if not DeltaTable.is_deltatable(location):
        return None
    found = (
        QueryBuilder()
        .register("t", DeltaTable(location, version=version))
        .execute("SELECT max(batch) AS newest FROM t")
    )
    return pa.table(found)["newest"][0].as_py()


def row_arrivals(location: str) -> list[Arrival]:
    """What each version of the table has."""
    commits = sorted(DeltaTable(location).history(), key=lambda commit: commit["version"])
    found = [
        (newest_batch(location, commit["version"]), commit["timestamp"] / 1000)
        for commit in commits
    ]
    return [Arrival(batch, at) for batch, at in found if batch is not None]


def message_arrivals(bronze: str, size: int) -> list[Arrival]:
    """What each version of the bronze table has: a message of each row that was there, then `size`
    of each batch.
    """
    count, arrivals = 0, []
    for commit in sorted(DeltaTable(bronze).history(), key=lambda commit: commit["version"]):
        count += int(commit.get("operationMetrics", {}).get("numOutputRows", 0))
        arrivals.append(Arrival((count - ROWS) // size, commit["timestamp"] / 1000))
    return arrivals


def lines(measured: Measured, rate: int) -> list[Line]:
    rows, messages = (
        sorted(measured.seconds(measured.rows)),
        sorted(measured.seconds(measured.messages)),
    )
    size = rate // PER_SECOND
    executions = [
        after.batch - before.batch
        for before, after in zip(measured.rows, measured.rows[1:], strict=False)
    ]
    late = int(SHARE * len(rows))
    return [
        at_least(
            "changes a second that the database took", measured.rate * size, "/s", 0.95 * rate
        ),
        at_most("commit of the database to the lake's row, p50", statistics.median(rows), "s"),
        at_most("commit of the database to the lake's row, p95", rows[late], "s"),
        at_most(
            "of it: until the bronze table has the message, p50", statistics.median(messages), "s"
        ),
        at_most("of it: until the bronze table has the message, p95", messages[late], "s"),
        at_most(
            "changes of one number, median",
            size * statistics.median(one for one in executions if one),
            "",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    show(lines(measure(options.minutes, options.rate), options.rate), as_json=options.json)


if __name__ == "__main__":
    main()
