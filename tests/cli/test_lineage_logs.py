"""`lakechime lineage ingest` reads audit tables from where it stopped, and keeps the checkpoint
with what it took.
"""

import datetime as dt
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lineage.store import LineageStandings, SqlReads
from lakechime_dagster.tables.lake import Lake, QueryLog
from lakechime_dagster.tables.tables import SourceTable
from tests.support.cli import Cli

LAKE = """
from lakechime_dagster import Lake, QueryLog, SourceTable
log = QueryLog("audit.queries", sql="query", dialect="trino", at="ended", state="state", user="who", dashboard="board", link="url")
lake = Lake("shop", [SourceTable("shop.orders"), SourceTable("audit.queries")], aliases={"hive.*": "*"}, query_logs=[log])
"""
READ = "SELECT amount FROM hive.shop.orders WHERE id = 7"
COLUMNS = ("query", "ended", "state", "who", "board", "url")


@pytest.fixture
def shop(lakechime: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    Path("audited_shop.py").write_text(LAKE)
    monkeypatch.setenv("LAKECHIME_LAKE", "audited_shop:lake")
    monkeypatch.syspath_prepend(".")
    write(lakechime, "shop/orders", pa.table({"id": [1], "amount": [2]}))
    return lakechime


def write(shop: Cli, checkpoint: str, data: pa.Table, mode: str = "append") -> None:
    folder = shop.home / "warehouse" / checkpoint
    folder.mkdir(parents=True, exist_ok=True)
    write_deltalake(str(folder), data, mode=mode)  # type: ignore[call-overload]


def audited(shop: Cli, *rows: tuple[str | None, int, str, str | None, str | None]) -> None:
    """Rows of the audit table: SQL, the minute, state, user and dashboard."""
    found = [
        (sql, dt.datetime(2026, 1, 1, 0, minute, tzinfo=dt.timezone.utc), state, who, board, "")
        for sql, minute, state, who, board in rows
    ]
    write(
        shop,
        "audit/queries",
        pa.Table.from_pylist(
            [dict(zip(COLUMNS, row, strict=True)) for row in found], schema=SCHEMA
        ),
    )


SCHEMA = pa.schema(
    [(name, pa.timestamp("us", "UTC") if name == "ended" else pa.string()) for name in COLUMNS]
)


def test_each_statement_is_taken_once_and_those_that_failed_count_for_nothing(shop: Cli) -> None:
    audited(shop, (READ, 1, "FINISHED", "ann", "Sales"), (READ, 2, "FAILED", "joe", None))
    (first,) = shop("lineage", "ingest", "--json").json["logs"]
    assert (first["documents"], first["reads"], first["refused"]) == (2, 2, [])
    audited(
        shop,
        ("INSERT INTO gold.x SELECT id FROM shop.orders", 5, "FINISHED", "etl", None),
        (READ, 9, "finished", None, "Sales"),
    )
    (second,) = shop("lineage", "ingest", "--table", "audit.queries", "--json").json["logs"]
    assert (second["documents"], second["records"], second["reads"]) == (2, 1, 1)
    assert shop("lineage", "ingest").out == (
        "audit.queries: 0 documents read, 0 without anything new; 0 writes and 0 reads recorded\n"
    )
    engine = shop.platform.store.engine
    minutes = {
        (one.consumer.name, str(*one.refs)): one.at_ms // 60_000 % 60
        for one in SqlReads(engine).of_tables(["shop.orders"])
    }
    assert minutes == {
        ("Sales", "shop.orders.amount"): 9,
        ("Sales", "shop.orders.id"): 9,
        ("ann", "shop.orders.amount"): 1,
        ("ann", "shop.orders.id"): 1,
    }
    assert [one.producer.job for one in LineageStandings(engine).of_targets(["trino/gold.x"])] == [
        "etl"
    ]


def test_a_table_that_was_recreated_is_read_from_its_beginning(shop: Cli) -> None:
    audited(shop, (READ, 1, "FINISHED", "ann", None), (READ, 2, "FINISHED", "ann", None))
    shop("lineage", "ingest")
    shutil.rmtree(shop.home / "warehouse" / "audit")
    audited(shop, (READ, 3, "FINISHED", "joe", None))
    assert shop("lineage", "ingest", "--json").json["logs"][0]["documents"] == 1
    audited(shop, ("SELEC (", 4, "FINISHED", "joe", None))
    answer = shop("lineage", "ingest", "--json")
    assert (len(answer.json["logs"][0]["refused"]), answer.code) == (1, 1)


@pytest.mark.parametrize(
    ("log", "problem"),
    [(QueryLog("audit.nothing"), "is not in the lake"), ("audit.queries", "is no QueryLog")],
)
def test_a_log_that_the_lake_does_not_have_is_refused(log: QueryLog, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        Lake("shop", [SourceTable("audit.queries")], query_logs=[log])
    with pytest.raises(DeclarationError, match="write a name"):
        QueryLog("audit.queries", sql="")
