"""A dump of a real MariaDB's table, instructed to the table that follows it: the lake's table becomes
what the database is.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.change import StatedPosition, stated_position
from lakechime_dagster.cdc.load import LOADS
from lakechime_dagster.cdc.load_service import Chunk, dump_loaded
from lakechime_dagster.cdc.service import ReplicaTables
from lakechime_dagster.cdc.spark_compare import monitored
from tests.support.mariadb import MariaDB
from tests.support.replica import read
from tests.support.shop import Shop, a_shop

pytestmark = [pytest.mark.spark, pytest.mark.services]

NOW = 1_700_000_000_500
PLACED = dt.datetime(2024, 2, 29, 12, 30, 0, 123)

Dumped = tuple[Path, StatedPosition]


@pytest.fixture
def shop(mariadb: MariaDB, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    """Of 25 orders messages reported the first ten."""
    with a_shop(mariadb, spark.newSession(), tmp_path) as found:
        for identity in range(11, 26):
            found.insert(identity, f"old {identity}", lose=True)
        yield found


def dumped(shop: Shop, folder: Path) -> Dumped:
    """The database's table as it is now, and where its log stands."""
    lines = [
        line.split("\t")
        for line in shop.database.run("SELECT id, note, amount FROM orders ORDER BY note, id")
    ]
    rows = [
        {"id": int(one), "note": note, "amount": Decimal(amount), "placed": PLACED}
        for one, note, amount in lines
    ]
    return stored(rows, folder, "{}:{}".format(*shop.checkpoint()))


def stored(rows: Sequence[dict[str, Any]], folder: Path, as_of: str) -> Dumped:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), folder / "orders.parquet")
    return folder, stated_position(as_of)


def load(tables: ReplicaTables, dump: Dumped, size: int = 10, *, now: int = NOW) -> Iterator[Chunk]:
    ticks = count(now)
    return dump_loaded(tables, *dump, size, lambda: next(ticks))


def is_same(shop: Shop) -> bool:
    return monitored(shop.lake.spark, shop.tables, shop.monitor(within=dt.timedelta(0))).is_same


def loaded_keys(shop: Shop) -> Counter[str]:
    """How often a load reported each row."""
    return Counter(
        row["row_key"] for row in read(shop.lake.bronze) if row["topic_id"].startswith(LOADS)
    )


def test_changes_above_a_dump_win_and_those_below_lose_whatever_comes_first(
    shop: Shop, tmp_path: Path
):
    shop.update(1, "below, on its way")
    shop.update(2, "below, and changed above")
    shop.delete(3, lose=True)
    dump = dumped(shop, tmp_path / "dump")
    shop.update(2, "above")
    shop.update(15, "above, of no row yet")
    shop.delete(16)
    shop.insert(30, "came above")
    shop.refresh()

    loading = load(shop.tables, dump)
    first = next(loading)
    assert (first.rows, first.total, first.snapshot) == (10, 10, str(dump[1]))
    shop.update(20, "while it is reported")
    shop.delete(21)
    shop.refresh()
    assert [(one.rows, one.total) for one in loading] == [(10, 20), (4, 24)]
    shop.refresh()

    rows = dict(shop.rows)
    assert (rows[1], rows[2], rows[15], rows[20]) == (
        "below, on its way",
        "above",
        "above, of no row yet",
        "while it is reported",
    )
    assert {16, 21} & rows.keys() == set()
    assert rows.pop(3) == "new", "a dump deletes nothing"
    shop.database.run("INSERT INTO orders VALUES (3, 'new', 1.50, '2024-02-29 12:30:00.000123')")
    assert is_same(shop)
    assert max(loaded_keys(shop).values()) == 1


@pytest.mark.tier3
def test_a_load_that_was_interrupted_begins_again_and_means_the_same(shop: Shop, tmp_path: Path):
    dump = dumped(shop, tmp_path / "dump")
    shop.update(1, "above")
    next(load(shop.tables, dump))
    assert [one.total for one in load(shop.tables, dump, 20, now=NOW + 60_000)] == [20, 25]
    assert loaded_keys(shop)["[1]"] == 2
    shop.refresh()
    assert is_same(shop)
