"""A table of a real MariaDB, of whose rows no message told, loaded in chunks while it changes: the lake's table becomes what it is."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.compare_service import monitored
from lakechime_dagster.cdc.load import LOADS, LoadGapError
from lakechime_dagster.cdc.load_service import Chunk, chunks_loaded
from tests.support.follows import read
from tests.support.mariadb import MariaDB
from tests.support.shop import Shop, a_shop

pytestmark = [pytest.mark.spark, pytest.mark.services]

NOW = 1_700_000_000_500


@pytest.fixture
def shop(mariadb: MariaDB, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    """Of 25 orders messages told the first ten."""
    with a_shop(mariadb, spark.newSession(), tmp_path) as found:
        for identity in range(11, 26):
            found.insert(identity, f"old {identity}", lose=True)
        yield found


def load(shop: Shop, size: int = 10, *, now: int = NOW, restart: bool = False, dry_run: bool = False) -> Iterator[Chunk]:
    ticks = count(now)
    return chunks_loaded(shop.task, shop.monitor(), size, lambda: next(ticks), restart=restart, dry_run=dry_run)


def is_same(shop: Shop) -> bool:
    return monitored(shop.lake.spark, shop.table, shop.monitor(within=dt.timedelta(0))).is_same


def loaded_keys(shop: Shop) -> Counter[str]:
    """How often a load told each row."""
    return Counter(row["row_key"] for row in read(shop.lake.bronze) if row["topic_id"].startswith(LOADS))


def every(*identities: int) -> Counter[str]:
    return Counter(f"[{identity}]" for identity in identities)


def test_a_table_is_loaded_while_it_changes_and_is_then_what_the_database_is(shop: Shop):
    shop.update(2, "lost", lose=True)
    shop.update(4, "on its way")
    loading = load(shop)
    first = next(loading)
    assert (first.rows, first.total, first.last, first.is_last) == (10, 10, ("10",), False)

    shop.update(3, "after its chunk")
    shop.delete(5)
    shop.insert(30)
    shop.update(15, "before its chunk")
    shop.delete(16)
    shop.follow()
    second = next(loading)
    assert (second.rows, second.last) == (10, ("21",))

    shop.insert(31, "in no chunk yet")
    shop.update(17, "after its chunk too")
    third = next(loading)
    assert (third.rows, third.total, third.is_last) == (6, 26, True)
    assert next(loading, None) is None
    shop.insert(32, "after the load")
    shop.follow()

    assert is_same(shop)
    rows = dict(shop.rows)
    assert (rows[2], rows[3], rows[4], rows[15], rows[17]) == (
        "lost",
        "after its chunk",
        "on its way",
        "before its chunk",
        "after its chunk too",
    )
    assert {5, 16} & rows.keys() == set()
    assert max(loaded_keys(shop).values()) == 1
    told = [row for row in read(shop.lake.bronze) if row["topic_id"].startswith(LOADS)]
    assert {(row["op"], row["snapshot"], row["ts_ms"]) for row in told} == {("r", None, 1_700_000_000_000)}
    assert len({tuple(row["position"]) for row in told}) == len({first.cut, second.cut, third.cut}) == 3


def test_a_load_that_was_interrupted_goes_on_above_its_last_chunk(shop: Shop):
    first = next(load(shop))
    shop.update(9, "meanwhile")

    rest = list(load(shop, 8, now=NOW + 60_000))
    assert [(one.load, one.rows, one.total, one.is_last) for one in rest] == [
        (first.load, 8, 18, False),
        (first.load, 7, 25, True),
    ]
    assert loaded_keys(shop) == every(*range(1, 26))
    shop.follow()
    assert is_same(shop)

    again = list(load(shop, 100, now=NOW + 120_000))
    assert [(one.rows, one.load == first.load) for one in again] == [(25, False)]


@pytest.mark.tier3
def test_a_load_below_which_the_stream_does_not_reach_is_refused(shop: Shop):
    DeltaTable(shop.lake.bronze).delete()
    message, file = json.loads(shop.messages[-1].value or b""), "mysql-bin.999999"
    message["payload"]["source"] |= {"file": file, "pos": 4}
    shop.lake.tell([replace(shop.messages[-1], value=json.dumps(message).encode())])
    with pytest.raises(LoadGapError, match=r"the stream of shop\.shop_\w+\.orders begins at binlog 999999:4:0, above binlog \d+:\d+"):
        next(load(shop))
    assert loaded_keys(shop) == Counter()
