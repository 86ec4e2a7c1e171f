"""Checks of tables that follow a database: whether each keeps up with it, lost nothing and is the same."""

import dagster as dg

from lakechime_dagster.assets.monitor_results import kept_up, not_there, same, whole
from lakechime_dagster.lake.change_tables import ChangeTable
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.monitors import UNDECLARED
from lakechime_dagster.resources.following.monitor import followed, monitored, opened_driver
from lakechime_dagster.resources.following.source_queries import check_source_queries
from lakechime_dagster.resources.keys import asset_key, monitor_check_keys
from lakechime_dagster.resources.lakechime_resource import LakeChimeResource
from lakechime_dagster.resources.names import KEEPS_UP, NOTHING_LOST, SAME_AS_DATABASE


def watched(lake: Lake) -> list[ChangeTable]:
    """The tables of a lake that follow a database."""
    return [table for table in lake.targets if isinstance(table, ChangeTable)]


def monitor_checks(table: ChangeTable) -> list[dg.AssetChecksDefinition]:
    """The checks of a table, those of `monitor_check_keys`."""
    made = {KEEPS_UP: _keeps_up, NOTHING_LOST: _nothing_lost, SAME_AS_DATABASE: _same_as_database}
    return [made[key.name](table) for key in monitor_check_keys(table)]


def _keeps_up(table: ChangeTable) -> dg.AssetChecksDefinition:
    monitor = table.monitor or UNDECLARED

    @dg.asset_check(asset=asset_key(table.name), name=KEEPS_UP, description="What came is read soon, and nothing is lost before it is.")
    def check(lakechime: LakeChimeResource) -> dg.AssetCheckResult:
        from lakechime_dagster.resources.following.followed import Followed
        from lakechime_dagster.resources.following.keeping_up import keeping_up

        return kept_up(keeping_up(Followed(lakechime.platform(), table), monitor), monitor.limits)

    return check


def _nothing_lost(table: ChangeTable) -> dg.AssetChecksDefinition:
    monitor = table.monitor or UNDECLARED
    description = "Of each transaction that ended within a day, as many changes came as its end tells."

    @dg.asset_check(asset=asset_key(table.name), name=NOTHING_LOST, description=description)
    def check(lakechime: LakeChimeResource) -> dg.AssetCheckResult:
        from lakechime_dagster.resources.following.followed import Followed
        from lakechime_dagster.resources.following.transactions import transactions_counted

        return whole(transactions_counted(Followed(lakechime.platform(), table), monitor))

    return check


def _same_as_database(table: ChangeTable) -> dg.AssetChecksDefinition:
    monitor = table.monitor
    assert monitor is not None
    there = ", ".join(dict.fromkeys(one.table for one in monitor.databases.values()))
    of = "the databases of its shards" if monitor.shards else "its database"
    description = f"{table.name} has the rows of {there} in {of}, at one place of the database's log."

    @dg.asset_check(asset=asset_key(table.name), name=SAME_AS_DATABASE, description=description)
    def check(context: dg.AssetCheckExecutionContext, lakechime: LakeChimeResource) -> dg.AssetCheckResult:
        platform = lakechime.platform()
        check_source_queries(platform.settings)
        if not platform.log(table.name, table.location).exists():
            return not_there(table)
        with opened_driver(platform, context.log.info) as driver:
            return same(monitored(driver.spark, followed(platform, table), monitor), table)

    return check
