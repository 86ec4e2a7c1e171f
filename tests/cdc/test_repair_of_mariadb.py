"""Keys that are repaired: what a real MariaDB says of them comes to the table by its messages, and
later changes go on above it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.load_service import Repaired, repaired
from tests.support.mariadb import MariaDB
from tests.support.replica import read
from tests.support.shop import Shop, a_shop

pytestmark = [pytest.mark.spark, pytest.mark.services]

NOW = 1_700_000_000_500


@pytest.fixture
def shop(mariadb: MariaDB, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    with a_shop(mariadb, spark.newSession(), tmp_path) as found:
        yield found


def repair(shop: Shop, *keys: int, dry_run: bool = False) -> Repaired:
    return repaired(
        shop.tables, shop.monitor(), [(str(key),) for key in keys], NOW, dry_run=dry_run
    )


def test_keys_become_what_the_database_says_of_them_and_later_changes_go_on_above_it(shop: Shop):
    shop.insert(11, "it''s 💡", "-12345.60", lose=True)
    shop.update(2, "lost", lose=True)
    shop.delete(3, lose=True)
    shop.database.run("UPDATE orders SET note = NULL, amount = NULL, placed = NULL WHERE id = 4")
    versions = shop.lake.log("orders__changes").version
    planned = repair(shop, 11, 2, 3, 4, dry_run=True)
    assert (planned.rows, planned.deletions, planned.version) == (
        (("11",), ("2",), ("4",)),
        (("3",),),
        None,
    )
    assert shop.lake.log("orders__changes").version == versions

    done = repair(shop, 11, 2, 3, 4, 2)
    assert done.version == versions + 1
    shop.update(5, "meanwhile")
    shop.update(2, "later")
    result = shop.refresh()
    assert (result.counts.inserted, result.counts.updated, result.counts.deleted) == (1, 3, 1)
    assert [one for one in shop.rows if one[0] in (2, 3, 4, 5, 11)] == [
        (2, "later"),
        (4, None),
        (5, "meanwhile"),
        (11, "it's 💡"),
    ]
    assert [str(row["amount"]) for row in shop.lake.rows if row["id"] in (2, 4, 11)] == [
        "1.50",
        "None",
        "-12345.60",
    ]
    reported = [row for row in read(shop.lake.bronze) if row["headers"]]
    assert {(row["op"], row["row_key"], row["kind"], row["ts_ms"]) for row in reported} == {
        ("r", "[11]", "change", 1_700_000_000_000),
        ("r", "[2]", "change", 1_700_000_000_000),
        ("d", "[3]", "change", 1_700_000_000_000),
        ("r", "[4]", "change", 1_700_000_000_000),
    }
    assert {(one["key"], one["value"]) for row in reported for one in row["headers"]} == {
        ("lakechime-origin", b"repair")
    }
