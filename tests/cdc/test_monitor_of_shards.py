"""A table of the lake, compared with the tables of two shards that it follows: each row with its
own database.
"""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.compare import Fault, Monitored
from lakechime_dagster.cdc.load import UnrepairableError
from lakechime_dagster.cdc.load_service import repaired
from lakechime_dagster.cdc.spark_compare import monitored
from lakechime_dagster.errors import SourceUnreadableError
from lakechime_dagster.tables.databases import Database, Monitor
from tests.support.mariadb import MariaDB
from tests.support.replica import Replica
from tests.support.shop import Shop, shop_in

pytestmark = [pytest.mark.spark, pytest.mark.services]


class Shops(NamedTuple):
    """Two shops with the same ids, whose orders are one table of the lake."""

    eu: Shop
    us: Shop

    def look(self, **other: Database) -> Monitored:
        """A comparison that waits for nothing."""
        shards = {shop.name: Database(shop.url, f"{shop.schema}.orders") for shop in self}
        return monitored(
            self.eu.lake.spark,
            self.eu.tables,
            Monitor(shards={**shards, **other}, within=dt.timedelta(0)),
        )


@pytest.fixture
def shops(mariadb: MariaDB, spark: SparkSession, tmp_path: Path) -> Iterator[Shops]:
    lake = Replica(
        spark.newSession(), tmp_path, ("shard", "id"), topics={"shards": r"(?P<shard>\w+)\.orders"}
    )
    with shop_in(mariadb, lake, "eu") as eu, shop_in(mariadb, lake, "us") as us:
        yield Shops(eu, us)


def test_what_a_shard_lost_is_found_by_its_whole_key_and_nothing_of_the_others(
    shops: Shops,
) -> None:
    shops.eu.update(3, "changed")
    shops.eu.refresh()
    clean = shops.look()
    assert (clean.is_same, clean.source_rows, clean.lake_rows, clean.unchecked) == (
        True,
        20,
        20,
        {},
    )
    assert [part.split(":")[0] for part in clean.snapshot.split("; ")] == ["eu", "us"]
    shops.eu.insert(11, lose=True)
    shops.us.update(2, "lost", lose=True)
    shops.us.delete(3, lose=True)
    assert shops.look().faults == {
        ("eu", "11"): Fault.MISSING,
        ("us", "2"): Fault.DIFFERENT,
        ("us", "3"): Fault.EXTRA,
    }
    with pytest.raises(
        UnrepairableError,
        match=(
            r"no row of a shard can be written yet; let the connector of that shard take a new "
            r"snapshot"
        ),
    ):
        repaired(
            shops.eu.tables,
            Monitor(shards={"eu": Database(shops.eu.url, "shop.orders")}),
            [("eu", "1")],
            0,
        )
    with pytest.raises(SourceUnreadableError, match=r"^shard us: "):
        shops.look(us=Database("mysql+pymysql://nobody:no@127.0.0.1:1/shop", "shop.orders"))
