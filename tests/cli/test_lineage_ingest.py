"""`lakechime lineage ingest` takes JSON lines, loses none for another, and says what it did not
understand.
"""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakechime_dagster.lineage.store import LineageStandings, SqlReads
from tests.lineage.ingest.factories import dataset, make_document, make_event
from tests.lineage.sql.shapes import line
from tests.support.cli import Cli

LAKE = """
from lakechime_dagster import Lake, SourceTable
lake = Lake("shop", [SourceTable("shop.orders"), SourceTable("gold.days")], aliases={"hive.*": "*"})
"""


@pytest.fixture
def shop(lakechime: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A lake of two tables, of which one is there."""
    Path("lineage_shop.py").write_text(LAKE)
    monkeypatch.setenv("LAKECHIME_LAKE", "lineage_shop:lake")
    monkeypatch.syspath_prepend(".")
    folder = lakechime.home / "warehouse" / "shop" / "orders"
    folder.mkdir(parents=True)
    write_deltalake(str(folder), pa.table({"id": [1], "amount": [2]}))
    return lakechime


def lines(*documents: object) -> str:
    return "\n".join(one if isinstance(one, str) else json.dumps(one) for one in documents)


def test_lines_are_taken_with_the_columns_of_the_lakes_tables(shop: Cli) -> None:
    documents = lines(
        make_document("INSERT INTO hive.gold.days SELECT * FROM hive.shop.orders", dialect="trino"),
        make_document("SELECT amount FROM shop.orders", dashboard="Sales"),
        make_event(
            inputs=(dataset("hive", "hive.shop.orders"),),
            outputs=(dataset("s3://out", "elsewhere"),),
        ),
    )
    answer = shop("lineage", "ingest", "-", stdin=documents)
    assert (answer.code, answer.out) == (
        0,
        "-: 3 documents read, 0 without anything new; 2 writes and 1 read recorded\n",
    )
    assert "not in the lake: s3://out/elsewhere" in answer.err
    engine = shop.platform.store.engine
    (found,) = LineageStandings(engine).of_targets(["gold.days"])
    assert line(found.statement).startswith(
        "gold.days: amount = identity shop.orders.amount, id = identity shop.orders.id"
    )
    (reader,) = SqlReads(engine).of_tables(["shop.orders"])
    assert (reader.consumer.name, str(*reader.refs)) == ("Sales", "shop.orders.amount")


def test_lineage_that_a_person_writes_down_is_answered_as_if_a_program_had_reported_it(
    shop: Cli,
) -> None:
    sources = [{"namespace": "hive", "name": "hive.shop.orders", "field": "amount"}]
    days = dataset(
        "hive", "hive.gold.days", columnLineage={"fields": {"total": {"inputFields": sources}}}
    )
    by_hand = make_event(
        job="a script that nobody sees",
        inputs=(dataset("hive", "hive.shop.orders"),),
        outputs=(days,),
    )
    assert shop("lineage", "ingest", "-", stdin=lines(by_hand)).code == 0
    hits = shop("lineage", "upstream", "gold.days.total", "--json").json["tables"]
    assert [
        (hit["table"], hit["kind"], [one["name"] for one in hit["columns"]]) for hit in hits
    ] == [("shop.orders", "direct", ["amount"])]


def test_a_line_that_cannot_be_read_loses_no_other(shop: Cli) -> None:
    documents = lines(
        make_document(),
        "",
        "{",
        make_document(sql="SELECT {{ x }}"),
        make_document(task="other"),
        "[]",
    )
    answer = shop("lineage", "ingest", "-", "--json", stdin=documents)
    assert answer.code == 1
    assert (answer.json["documents"], answer.json["records"]) == (2, 2)
    assert [one["number"] for one in answer.json["refused"]] == [3, 4, 6]
    (way,) = SqlReads(shop.platform.store.engine).ways()
    assert way.name == "file"
