"""The newest id of a real MariaDB's table, which the lake must have some time later, as the check `keeps_up` says it."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.assets.monitor_results import NEWEST
from lakechime_dagster.cdc.comparing.keeping_up import EarlierIds, NewestId, SeenId, beyond
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lake import CDCMerge, Database, JsonLines, Lake, Limits, Monitor
from lakechime_dagster.resources.following.followed import Followed
from lakechime_dagster.resources.following.keeping_up import keeping_up
from lakechime_dagster.store.events import SqlDCEStore
from tests.cli.shop import Shop
from tests.cli.test_cdc import told
from tests.cli.test_cdc_moves import settled
from tests.sensors.test_tick import ToldRuns
from tests.support.cli import Cli
from tests.support.mariadb import CAPTURE_USER, MariaDB, MariaDBSession

pytestmark = pytest.mark.services

MINUTE = 60_000
SCHEMA = "newest"


@pytest.fixture
def database(mariadb: MariaDB) -> Iterator[MariaDBSession]:
    """A table that has the ids 1 and 2, as the lake has."""
    session = mariadb.session()
    session.run(
        f"CREATE DATABASE {SCHEMA}", f"USE {SCHEMA}", "CREATE TABLE orders (id INT PRIMARY KEY)", "INSERT INTO orders VALUES (1), (2)"
    )
    yield session
    session.run(f"DROP DATABASE {SCHEMA}")
    session.close()


@pytest.fixture
def url(mariadb: MariaDB) -> str:
    return f"mysql+pymysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{mariadb.port}/{SCHEMA}"


@pytest.fixture
def shop(lakechime: Cli, url: str, tmp_path: Path) -> Shop:
    """A table whose lane has read the ids 1 and 2."""
    (tmp_path / "in").mkdir()
    monitor = Monitor(database=url, table=f"{SCHEMA}.orders")
    shop = Shop.declared(lakechime, monitor=monitor, source=JsonLines(str(tmp_path / "in")))
    shop.tell(told(1, 10), told(2, 11))
    settled(lakechime, ToldRuns())
    return shop


def looked(shop: Shop, seen: SeenId | None = None) -> tuple[tuple[NewestId, ...], list[str]]:
    """The newest ids, and what of the measures is beyond the limits."""
    assert shop.table.monitor is not None
    found = keeping_up(
        Followed(shop.lakechime.platform, shop.table), shop.table.monitor, {} if seen is None else {"": EarlierIds(newest=seen)}
    )
    return found.newest, beyond(found, Limits())


def test_an_id_that_the_database_had_some_time_ago_must_be_in_the_lake(shop: Shop, database: MariaDBSession) -> None:
    assert looked(shop) == ((NewestId(shard="", in_database=2, in_lake=2),), [])
    database.run("INSERT INTO orders VALUES (3)")
    assert looked(shop) == ((NewestId(shard="", in_database=3, in_lake=2),), [])
    seen = SeenId(3, shop.lakechime.platform.store.now() - 20 * MINUTE)
    ((found,), problems) = looked(shop, seen)
    assert (found.lacking, problems) == ((seen,), ["row 3, which the database had 0:20:00 ago and has still, is not in shop.orders"])
    assert looked(shop, SeenId(2, 0))[1] == []
    database.run("INSERT INTO orders VALUES (4)", "DELETE FROM orders WHERE id = 3")
    assert looked(shop, seen)[1] == []


def test_a_missing_row_is_remembered_until_it_comes_though_newer_ones_do(
    shop: Shop, database: MariaDBSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    definitions = build_definitions(Lake("shop", [shop.table]))
    keys = [dg.AssetCheckKey(dg.AssetKey(["shop", "orders"]), "keeps_up")]
    with dg.DagsterInstance.ephemeral() as instance:

        def after(minutes: float) -> tuple[str, Any]:
            monkeypatch.setattr(SqlDCEStore, "now", lambda _: int(time.time() * 1000 + minutes * MINUTE))
            job = definitions.resolve_job_def("shop__monitors").get_subset(asset_check_selection=set(keys))
            (found,) = job.execute_in_process(instance=instance).get_asset_check_evaluations()
            said = re.search(r"row 3, which the database had 0:(\d+):\d+ ago", str(found.metadata["beyond limits"].value))
            return said[1] if said else "", found.metadata[NEWEST].value

        database.run("INSERT INTO orders VALUES (3)")
        assert [after(0), after(10), after(20)] == [("", {"": 3}), ("", {"": 3}), ("20", {"": 3})]
        database.run("INSERT INTO orders VALUES (4)")
        shop.tell(told(4, 12))
        settled(shop.lakechime, ToldRuns())
        assert [after(25), after(45)] == [("25", {"": 4}), ("45", {"": 4})]
        shop.tell(told(3, 13))
        settled(shop.lakechime, ToldRuns())
        assert after(50) == ("", {"": 4})


def test_tables_without_whole_numbers_as_ids_are_not_asked_and_a_shard_that_does_not_answer_is_named(
    shop: Shop, database: MariaDBSession, url: str, lakechime: Cli, tmp_path: Path
) -> None:
    database.run("ALTER TABLE orders MODIFY id VARCHAR(10)")
    assert looked(shop) == ((), [])
    shards = {"eu": Database("mysql+pymysql://nobody@127.0.0.1:1/shop", "shop.orders")}
    source = JsonLines(str(tmp_path / "in"), shards=r"(?P<shard>\w+).*")
    sharded = Shop.declared(lakechime, monitor=Monitor(shards=shards), source=source, merge=CDCMerge(keys=("shard", "id")))
    assert sharded.table.monitor is not None
    found = keeping_up(Followed(lakechime.platform, sharded.table), sharded.table.monitor, {})
    assert (found.newest, found.unasked.startswith("shard eu: ")) == ((), True)
