"""A table of the lake, compared with the table of a real MariaDB that it follows: what was lost is
found, and nothing else.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc import spark_compare as looked_at
from lakechime_dagster.cdc.compare import Fault, Monitored
from lakechime_dagster.cdc.load_service import repaired
from lakechime_dagster.cdc.service import ReplicaTables
from lakechime_dagster.cdc.spark_compare import monitored
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.tables.cdc import Deletes
from lakechime_dagster.tables.names import DELETED_AT
from tests.support.mariadb import MariaDB
from tests.support.replica import Replica
from tests.support.shop import Shop, a_shop, shop_in

pytestmark = [pytest.mark.spark, pytest.mark.services]

AT_ONCE = dt.timedelta(0)


@pytest.fixture
def shop(mariadb: MariaDB, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    with a_shop(mariadb, spark.newSession(), tmp_path) as found:
        yield found


def look(shop: Shop, **declared: object) -> Monitored:
    """A comparison that waits for nothing."""
    return monitored(shop.lake.spark, shop.tables, shop.monitor(**{"within": AT_ONCE, **declared}))


def faults(found: Monitored) -> dict[str, Fault]:
    return {key: fault for (key,), fault in found.faults.items()}


def test_what_was_lost_is_found_by_its_key_and_nothing_else(shop: Shop):
    shop.truncate()
    for identity in range(1, 11):
        shop.insert(identity)
    shop.update(3, "changed")
    shop.delete(4)
    shop.messages.append(replace(shop.messages[-1], offset=len(shop.messages)))  # sent again
    shop.snapshot(*[identity for identity in range(1, 11) if identity != 4])
    shop.refresh()
    clean = look(shop)
    assert (clean.is_same, clean.source_rows, clean.lake_rows, clean.faults, clean.left_out) == (
        True,
        9,
        9,
        {},
        0,
    )
    assert (clean.snapshot.partition(" ")[0], clean.unchecked, clean.unresolved) == (
        "binlog",
        {},
        0,
    )

    shop.insert(11, lose=True)
    shop.update(2, "lost", lose=True)
    shop.delete(3, lose=True)
    rows = shop.lake.spark.read.format("delta").load(shop.lake.location)
    rows.where("id = 5").write.format("delta").mode("append").save(shop.lake.location)
    found = look(shop)
    assert faults(found) == {
        "11": Fault.MISSING,
        "2": Fault.DIFFERENT,
        "3": Fault.EXTRA,
        "5": Fault.DUPLICATE,
    }
    assert not found.is_same
    assert set(faults(look(shop, columns=["amount"]))) == {"11", "3", "5"}
    with pytest.raises(
        InvalidValueError,
        match="columns 'gone': is no column of both tables; they are id, note, amount, placed",
    ):
        look(shop, columns=["gone"])

    shop.truncate(lose=True)
    shop.database.run("ALTER TABLE orders ADD COLUMN extra INT DEFAULT 5, DROP COLUMN note")
    emptied = look(shop)
    assert (set(faults(emptied).values()), emptied.source_rows, emptied.lake_rows) == (
        {Fault.EXTRA},
        0,
        10,
    )
    assert emptied.unchecked == {
        "extra": "the lake's table does not have it",
        "note": "the database's table does not have it",
    }


@pytest.mark.parametrize(
    "write_mode", [None, pytest.param("merge-on-read", marks=pytest.mark.tier3)]
)
def test_renamed_columns_are_compared_and_repaired_as_the_database_names_them(
    mariadb: MariaDB, spark: SparkSession, tmp_path: Path, write_mode: str | None
):
    """Of a Delta table, and of an Iceberg table."""
    names = {"id": "order_id", "note": "amount", "amount": "note"}
    lake = Replica(
        spark.newSession(),
        tmp_path,
        keys=("order_id",),
        options={"names": names},
        write_mode=write_mode,
    )
    with shop_in(mariadb, lake) as shop:
        clean = look(shop)
        assert (clean.is_same, clean.source_rows, clean.lake_rows, clean.unchecked) == (
            True,
            10,
            10,
            {},
        )
        shop.insert(11, lose=True)
        shop.update(2, "lost", lose=True)
        assert faults(look(shop)) == {"11": Fault.MISSING, "2": Fault.DIFFERENT}
        assert faults(look(shop, columns=["amount"])) == {"11": Fault.MISSING}
        repaired(shop.tables, shop.monitor(), [("11",), ("2",)], 1_700_000_000_000)
        shop.lake.run()
        assert look(shop).is_same


@pytest.mark.tier3
def test_rows_that_stay_though_they_were_deleted_are_not_compared(shop: Shop):
    shop.lake.options = {"deletes": Deletes.SOFT}
    shop.delete(4)
    shop.update(5, "changed")
    shop.refresh()
    assert [row["id"] for row in shop.lake.rows if row[DELETED_AT] is not None] == [4]
    clean = look(shop)
    assert (clean.is_same, clean.source_rows, clean.lake_rows, clean.faults, clean.unchecked) == (
        True,
        9,
        9,
        {},
        {},
    )
    shop.delete(6, lose=True)
    shop.insert(4, lose=True)
    assert faults(look(shop)) == {"4": Fault.MISSING, "6": Fault.EXTRA}
    now = 1_700_000_000_000
    reported = repaired(shop.tables, shop.monitor(), [("4",), ("6",)], now)
    assert (reported.rows, reported.deletions) == ((("4",),), (("6",),))
    shop.lake.run()
    assert look(shop).is_same
    assert [row["id"] for row in shop.lake.rows if row[DELETED_AT] is not None] == [6]


def test_a_change_on_its_way_is_waited_for_until_the_lake_has_read_past_the_snapshot(shop: Shop):
    shop.insert(11)
    shop.insert(12, lose=True)
    waited = list[float]()

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            shop.insert(13)
            shop.messages[-1] = replace(shop.messages[-1], topic_id="created again", offset=0)
        if len(waited) < 3:
            shop.refresh()

    found = monitored(
        shop.lake.spark, shop.tables, shop.monitor(within=dt.timedelta(minutes=5)), pause=pause
    )
    assert faults(found) == {"12": Fault.MISSING}
    assert (found.is_passed, len(waited)) == (True, 2)


@pytest.mark.tier3
def test_keys_with_which_the_lake_is_ahead_of_the_snapshot_are_left_out_and_counted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    before = looked_at.version_of

    def ahead(table: ReplicaTables) -> looked_at.Version:
        monkeypatch.setattr(looked_at, "version_of", before)
        shop.update(7, "after the snapshot")
        shop.delete(8)
        shop.insert(11)
        shop.refresh()
        return before(table)

    monkeypatch.setattr(looked_at, "version_of", ahead)
    found = look(shop)
    assert (found.is_same, found.left_out, found.is_passed) == (True, 3, True)
