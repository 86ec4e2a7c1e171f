"""A table is unproven since a change of the schema that no message tells, until a comparison shows that it is the same."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.assets.monitor_results import PLACE, SEEN
from lakechime_dagster.cdc.comparing.log_place import BinlogPlace
from lakechime_dagster.cdc.messages.bronze_rows import Message, bronze_row
from lakechime_dagster.cdc.messages.readers import format_of
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lake import JsonLines, Lake, Monitor
from lakechime_dagster.lake.change_tables import CHANGES
from lakechime_dagster.triggers.grid import DAY_MS
from tests.cdc.factories import make_record
from tests.cli.shop import Shop
from tests.cli.test_cdc import MARIADB, told
from tests.support.cli import Cli
from tests.support.follows import BRONZE

TABLE = dg.AssetKey(["shop", "orders"])
NOW = int(dt.datetime.now(dt.timezone.utc).timestamp() * 1000)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture
def shop(lakechime: Cli, tmp_path: Path) -> Shop:
    monitor = Monitor(database="mysql+pymysql://reader@127.0.0.1:1/shop", table="shop.orders")
    shop = Shop.declared(lakechime, monitor=monitor, source=JsonLines(str(tmp_path), records=True, ddl="m"))
    shop.tell(told(1, 10), told(2, 11))
    return shop


def alter(shop: Shop, statement: str, pos: int, *, table: str = "orders", at_ms: int = NOW) -> None:
    """A schema change comes to the table of messages."""
    payload = {
        "source": {**MARIADB, "pos": pos, "row": 0, "ts_ms": at_ms}, "databaseName": "shop", "ddl": statement,
        "tableChanges": [{"type": "ALTER", "id": f'"shop"."{table}"', "table": {"columns": []}}],
    }  # fmt: skip
    record = replace(make_record(payload, key=None, offset=pos), topic="m", topic_id="m")
    rows = [bronze_row(Message(record, (), at_ms), format_of(shop.table.bronze).reader())]
    shop.write(CHANGES, rows, BRONZE)


def compare(instance: dg.DagsterInstance, pos: int, *, passed: bool) -> None:
    """As if the table was compared at a place of the log."""

    @dg.asset_check(asset=TABLE, name="same_as_database")
    def check() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=passed, metadata={PLACE: str(BinlogPlace((3, pos)))})

    assert dg.Definitions(asset_checks=[check]).resolve_implicit_global_asset_job_def().execute_in_process(instance=instance).success


def looked(shop: Shop, instance: dg.DagsterInstance) -> dg.AssetCheckEvaluation:
    """What the check says now."""
    definitions = build_definitions(Lake("shop", [shop.table]))
    selection = dg.AssetSelection.checks(dg.AssetCheckKey(TABLE, "is_proven"))
    job = definitions.resolve_job_def("shop__monitors")
    run = job.get_subset(asset_check_selection=selection.resolve_checks(definitions.resolve_asset_graph())).execute_in_process(
        instance=instance, resources={}
    )
    (found,) = run.get_asset_check_evaluations()
    return found


def test_a_table_whose_schema_did_nothing_that_is_untold_is_proven(shop: Shop, instance: dg.DagsterInstance) -> None:
    alter(shop, "ALTER TABLE orders ADD COLUMN c INT", 20)
    alter(shop, "ALTER TABLE items RENAME COLUMN a TO b", 21, table="items")
    found = looked(shop, instance)
    assert (found.passed, found.description) == (True, None)


def test_what_is_untold_makes_the_table_unproven_since_then_and_names_the_remedy(shop: Shop, instance: dg.DagsterInstance) -> None:
    alter(shop, "ALTER TABLE orders RENAME COLUMN a TO b", 20, at_ms=NOW - 5_000)
    alter(shop, "ALTER TABLE orders TRUNCATE PARTITION p", 21)
    found = looked(shop, instance)
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert found.metadata["unproven since"].value == pytest.approx((NOW - 5_000) / 1000)
    assert found.description is not None
    assert found.description.startswith("unproven since 2")
    assert "renames column a; may change rows: ALTER TABLE orders TRUNCATE PARTITION p" in found.description
    assert "`lakechime cdc repair shop.orders --from-monitor`" in found.description
    assert "| 1 |" in str(found.metadata["schema changes"].value)


@pytest.mark.parametrize(("passed", "pos", "is_proven"), [(True, 30, True), (True, 15, False), (False, 30, False)])
def test_a_comparison_that_passed_above_it_proves_the_table(
    shop: Shop, instance: dg.DagsterInstance, passed: bool, pos: int, is_proven: bool
) -> None:
    alter(shop, "ALTER TABLE orders RENAME COLUMN a TO b", 20)
    compare(instance, pos, passed=passed)
    assert looked(shop, instance).passed == is_proven


def test_what_was_proven_once_stays_so_when_a_later_comparison_fails(shop: Shop, instance: dg.DagsterInstance) -> None:
    alter(shop, "ALTER TABLE orders RENAME COLUMN a TO b", 20)
    compare(instance, 30, passed=True)
    first = looked(shop, instance)
    compare(instance, 40, passed=False)
    second = looked(shop, instance)
    assert (first.passed, second.passed) == (True, True)
    assert [one.metadata[PLACE].value for one in (first, second)] == ["binlog 3:30"] * 2
    assert first.metadata[SEEN].value == second.metadata[SEEN].value


def test_messages_from_long_before_the_table_was_seen_the_same_are_not_read(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter(shop, "ALTER TABLE orders RENAME COLUMN a TO b", 50, at_ms=NOW - 3 * DAY_MS)
    assert not looked(shop, instance).passed
    compare(instance, 30, passed=True)  # below it, so that its age alone leaves it out
    assert looked(shop, instance).passed
