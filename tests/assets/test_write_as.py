"""Tables that accounts write, seen by a setting that the local file system obeys: the rights of the
files that it makes.
"""

from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.cdc import CDCMerge, SourceSchema, cdc_table
from lakechime_dagster.tables.databases import Maxwell
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import Account
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.sources import JsonLines
from tests.assets.test_cdc_table import reported
from tests.assets.test_table import Location

pytestmark = pytest.mark.spark


@pytest.fixture
def location(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, spark_driver: Driver
) -> Location:
    """A table that follows a database and one that is computed, each written by an account, and one
    that nobody's account writes.
    """
    monkeypatch.setenv("NOBODY_ELSE", "077")
    (home / "in").mkdir()
    (home / "in" / "a.jsonl").write_bytes(reported(1, 10))
    writer = Account("shop-writer", {"fs.permissions.umask-mode": "$NOBODY_ELSE"})
    orders = cdc_table(
        "shop.orders",
        source=JsonLines(str(home / "in")),
        envelope=Maxwell(),
        merge=CDCMerge(keys=("id",)),
        schema=SourceSchema(types={"id": "bigint", "amount": "bigint"}),
        storage=Storage(write_as=writer),
    )
    total = sql_table(
        "gold.total",
        sql="SELECT sum(amount) AS amount FROM shop.orders",
        storage=Storage(write_as=writer),
    )
    count = sql_table("gold.count", sql="SELECT count(*) AS n FROM shop.orders")
    return Location(
        instance, build_definitions(Lake("shop", [orders, total, count])), open_platform()
    )


def rights(folder: str) -> set[str]:
    """What others than its owner may do with the files of a table."""
    files = [
        path
        for path in Path(folder).rglob("*")
        if path.is_file() and not path.name.endswith(".crc")
    ]
    assert any(path.suffix == ".parquet" for path in files)
    assert any(path.suffix == ".json" for path in files)
    return {f"{path.stat().st_mode & 0o077:o}" for path in files}


def test_an_account_writes_its_tables_and_no_others(location: Location) -> None:
    assert location.run("shop__tables").success
    where = location.platform.location
    written = [
        where("shop.orders__changes"),
        where("shop.orders"),
        where("shop.orders") + "__state",
        where("gold.total"),
    ]
    assert [rights(one) for one in written] == [{"0"}] * 4
    assert rights(where("gold.count")) == {"44"}
