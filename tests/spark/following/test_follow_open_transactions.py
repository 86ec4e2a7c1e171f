"""Hours of a table that follows a database which is asked for its open transactions."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.source import asked
from lakechime_dagster.cdc.state import Asked, Probe, StateRow
from lakechime_dagster.runtime.platform import hours_of
from lakechime_dagster.settings import Settings
from lakechime_dagster.spark.job import TableResult
from lakechime_dagster.tables.cdc import CDCMerge, ChangeTable, change_table
from lakechime_dagster.tables.databases import Debezium, Monitor
from lakechime_dagster.tables.sources import JsonLines
from tests.sources.test_cut import Database, on_mariadb
from tests.sources.test_open_transactions import next_second
from tests.spark.following.test_follow import interrupt
from tests.spark.following.test_follow_sources import beat
from tests.support.binlog import rows_events
from tests.support.follows import Followed
from tests.support.mariadb import CAPTURE_USER, MariaDB
from tests.support.orders import order

pytestmark = [pytest.mark.tier3, pytest.mark.spark]


@dataclass
class Shop:
    """A table of a real MariaDB, and the one that follows it, whose messages have the times and the order of the binary log."""

    server: MariaDB
    database: Database
    lake: Followed
    start: tuple[str, int]
    identities: list[int] = field(default_factory=list)
    told: int = 0

    def insert(self, identity: int) -> None:
        self.database.run(f"INSERT INTO orders VALUES ({identity})")
        self.identities.append(identity)

    def follow(self) -> TableResult:
        """A step with all that the log has, before which the database was asked."""
        events = list(rows_events(self.server, *self.start))
        new = list(zip(self.identities, events, strict=True))[self.told :]
        self.lake.tell([order(identity, at=event.at, ts_ms=event.ts_ms) for identity, event in new])
        self.told = len(events)
        self.lake.options = {"max_transaction": dt.timedelta(0), "asked": asked(self.declared, Settings(), {})}
        return self.lake.run()

    @property
    def declared(self) -> ChangeTable:
        url = f"mysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{self.server.port}/"
        return change_table(
            "shop.orders",
            source=JsonLines("in"),
            envelope=Debezium(),
            merge=CDCMerge(keys=("id",), max_transaction=dt.timedelta(0)),
            monitor=Monitor(database=url, table="shop.orders"),
        )

    def time_of(self, identity: int) -> int:
        """The one that the log has of a row."""
        return list(rows_events(self.server, *self.start))[self.identities.index(identity)].ts_ms


@pytest.fixture
def shop(mariadb: MariaDB, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    with on_mariadb(mariadb) as database:
        database.run("CREATE TABLE orders (id INT PRIMARY KEY)", f"GRANT PROCESS ON *.* TO {CAPTURE_USER}@'127.0.0.1'")
        file, at, *_ = database.run("SHOW MASTER STATUS")[0].split("\t")
        try:
            yield Shop(mariadb, database, Followed(spark, tmp_path, ("id",)), (file, int(at)))
        finally:
            database.run(f"REVOKE PROCESS ON *.* FROM {CAPTURE_USER}@'127.0.0.1'")


@pytest.mark.services
def test_a_transaction_that_is_open_holds_the_watermark_and_its_end_lets_it_go(shop: Shop) -> None:
    """Its row comes when later ones have long been read."""
    shop.insert(1)
    shop.follow()
    next_second(shop.database)
    writer = shop.server.session(shop.database.schema)
    writer.run("BEGIN", "INSERT INTO orders VALUES (2)")
    watermarks = []
    for identity in (3, 4, 5):
        next_second(shop.database)
        shop.insert(identity)
        watermarks.append(shop.follow())
    writer.run("COMMIT")
    writer.close()
    shop.identities.append(2)
    late = shop.time_of(2)
    assert late < shop.time_of(3)
    assert [one.watermark is not None and one.watermark <= late for one in watermarks] == [True, True, True]
    assert "when its database had a transaction open since" in watermarks[-1].watermark_by
    for identity in (6, 7, 8):
        shop.insert(identity)
        last = shop.follow()
        next_second(shop.database)
    assert last.watermark is not None
    assert late < last.watermark <= shop.time_of(8)
    assert last.watermark_by.endswith("when its database had no transaction open that had changed rows")
    assert [row["id"] for row in shop.lake.rows] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.services
def test_without_the_privilege_the_declared_bound_counts_and_the_run_says_what_to_grant(shop: Shop) -> None:
    shop.database.run(f"REVOKE PROCESS ON *.* FROM {CAPTURE_USER}@'127.0.0.1'")
    shop.insert(1)
    result = shop.follow()
    shop.database.run(f"GRANT PROCESS ON *.* TO {CAPTURE_USER}@'127.0.0.1'")
    assert result.watermark == shop.time_of(1)
    assert result.watermark_by.endswith("its transactions last 0:00:00 at most, as is declared")
    assert result.notes[-1] == (
        "the database was not asked for its open transactions: debezium@127.0.0.1 may not see which transactions are open: "
        "GRANT PROCESS ON *.* TO `debezium`@`127.0.0.1`;"
    )


def clock(text: str) -> int:
    """A time of the first day, in milliseconds."""
    hour, minute = text.split(":")
    return (int(hour) * 60 + int(minute)) * 60_000


def following(spark: SparkSession, folder: Path, **topics: str) -> Followed:
    return Followed(spark, folder, ("id",), options={"max_transaction": dt.timedelta(minutes=1)}, topics=topics)


def step(table: Followed, *times: str, asked_at: str, began: str | None = None, attempt: int | None = None) -> TableResult:
    """What has come by the time at which the database is asked, when a transaction may be open; an attempt leaves the consumer as it is."""
    known = len(table.remembered) if table.log("orders__state").exists() else 0
    told = [order(100 + known + number, at=clock(asked_at) + number, ts_ms=clock(time)) for number, time in enumerate(times)]
    if told:
        table.tell(told)
    at = clock(asked_at)
    probe = Probe(table="shop.orders", asked_ms=at, statement_ms=at, transaction_ms=None if began is None else clock(began))
    table.options = {**table.options, "asked": Asked(probe)}
    return table.run() if attempt is None else table.attempt(table.step + 1, attempt)


def hours(result: TableResult) -> list[int]:
    """Those that are complete since a step."""
    assert result.committed is not None
    return [int(event.partition[1]) for event in hours_of(result.committed.commit_metadata, "orders") if event.partition]


def test_an_hour_in_which_a_long_transaction_wrote_is_complete_when_its_end_was_read(spark: SparkSession, tmp_path: Path) -> None:
    """It began at half past five, and its row of then comes at half past seven; what need not be known any more is forgotten meanwhile."""
    table = following(spark, tmp_path)
    table.options = {**table.options, "collects_above": 1, "allowed_lateness": dt.timedelta(milliseconds=1)}
    steps = [
        step(table, "4:59", asked_at="5:00"),
        step(table, "6:00", asked_at="6:01", began="5:30"),
        step(table, "7:00", asked_at="7:01", began="5:30"),
        step(table, "7:02", "5:30", "7:50", asked_at="8:00"),
        step(table, "8:01", asked_at="8:02"),
        step(table, "8:03", asked_at="8:04"),
    ]
    assert [hours(one) for one in steps] == [[], [4], [], [], [], [5, 6, 7]]
    assert steps[-1].watermark == clock("8:00")
    assert len({row["step"] for row in table.remembered}) < len(steps)


def test_a_heartbeat_passes_what_the_database_said(spark: SparkSession, tmp_path: Path) -> None:
    table = following(spark, tmp_path, heartbeats="demo.*.heartbeat")
    step(table, "4:59", asked_at="5:00")
    table.tell([beat(clock("5:01"), 1)])
    step(table, asked_at="5:02")
    assert step(table, "5:03", asked_at="5:04").watermark == clock("5:00")


def test_all_attempts_at_a_step_go_by_what_the_first_one_was_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = following(spark, tmp_path)
    step(table, "4:59", asked_at="5:00")
    with monkeypatch.context() as dying:
        dying.setattr("lakechime_dagster.cdc.spark_refresh.write_rows", interrupt)
        with pytest.raises(KeyboardInterrupt):
            step(table, "5:10", asked_at="5:11", began="5:05", attempt=1)
    second = step(table, asked_at="5:20", attempt=2)
    assert second.watermark == clock("5:00")
    known = [Probe.of(StateRow(*(row[name] for name in StateRow._fields))) for row in table.remembered if row["role"] == "probe"]
    assert sorted(one.asked_ms for one in known) == [clock("5:00"), clock("5:11")]
