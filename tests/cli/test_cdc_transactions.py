"""`lakechime cdc compare --transactions`: whether of each transaction as many changes came as its end tells."""

from dataclasses import replace

import pytest

from lakechime_dagster.cdc.job import format_of
from lakechime_dagster.cdc.record import Message, Record, bronze_row
from lakechime_dagster.tables.sources import JsonLines
from tests.cdc.factories import make_record
from tests.cli.shop import NAME, Shop
from tests.cli.test_cdc import told
from tests.support.cli import Cli
from tests.support.replica import BRONZE

HOUR = 3_600_000


@pytest.fixture
def shop(lakechime: Cli) -> Shop:
    return Shop.declared(lakechime, source=JsonLines("in", records=True, transactions="m.transaction"))


def change(transaction: str, checkpoint: int, at: int) -> Record:
    return told(at, at, transaction={"id": transaction, "total_order": checkpoint, "data_collection_order": checkpoint})


def end(transaction: str, changes: int) -> Record:
    counts = [{"data_collection": "shop.orders", "event_count": changes}]
    value = {"status": "END", "id": transaction, "event_count": changes, "data_collections": counts}
    return replace(make_record(value, key=None), topic="m.transaction")


def come(shop: Shop, *messages: Record, hours: int = 1) -> None:
    """Messages that were written so many hours ago, a second after each other."""
    now, reader = shop.lakechime.platform.store.now() - hours * HOUR, format_of(shop.table.bronze).reader()
    rows = [bronze_row(Message(one, (), now + second * 1000), reader) for second, one in enumerate(messages)]
    shop.write("__changes", rows, BRONZE)


def test_where_all_came_it_says_so(shop: Shop) -> None:
    come(shop, change("0-1-2", 1, 10), change("0-1-2", 2, 11), end("0-1-2", 2))
    answer = shop.lakechime("cdc", "compare", NAME, "--transactions")
    assert (answer.code, answer.out) == (0, "1 transaction ended with 2 changes of the table\nall of them arrived\n")


def test_what_lacks_is_named_and_the_exit_code_is_1(shop: Shop) -> None:
    come(shop, change("0-1-2", 1, 10), end("0-1-2", 2), change("0-1-3", 1, 12), end("0-1-3", 1), hours=30)
    assert shop.lakechime("cdc", "compare", NAME, "--transactions").out.startswith("0 transactions ended")
    answer = shop.lakechime("cdc", "compare", NAME, "--transactions", "--since", "2024-01-01T00:00:00Z", "--json")
    assert (answer.code, answer.json["transactions"], answer.json["changes"]) == (1, 2, 3)
    assert answer.json["lacking"] == [
        {
            "source": "m.shop.orders",
            "transaction": "0-1-2",
            "expected": 2,
            "found": 1,
            "sure": True,
            "end": {"topic": "m.transaction", "partition": 0, "offset": 7},
        }
    ]
    shown = shop.lakechime("cdc", "compare", NAME, "--transactions", "--since", "2024-01-01T00:00:00Z").out
    assert "of transaction 0-1-2, which ended at m.transaction[0]@7, 1 of 2 changes arrived" in shown


def test_a_table_without_such_a_topic_is_refused(lakechime: Cli) -> None:
    Shop.declared(lakechime)
    answer = lakechime("cdc", "compare", NAME, "--transactions")
    assert (answer.code, "declares no topic of transactions; declare transactions= of its source" in answer.err) == (1, True)
