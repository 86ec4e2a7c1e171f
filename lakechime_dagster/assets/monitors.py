"""Checks of tables that follow a database: whether each keeps up with it, lost nothing, is the same and is proven to be."""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from lakechime_dagster.assets.monitor_results import MISSING, NEWEST, PLACE, kept_up, not_there, proven, same, whole
from lakechime_dagster.cdc.comparing.keeping_up import EarlierIds, SeenId
from lakechime_dagster.cdc.comparing.untold import SeenSame
from lakechime_dagster.lake.change_tables import ChangeTable
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.monitors import UNDECLARED
from lakechime_dagster.resources.following.monitor import followed, monitored, opened_driver
from lakechime_dagster.resources.following.source_queries import check_source_queries
from lakechime_dagster.resources.keys import asset_key, monitor_check_keys
from lakechime_dagster.resources.lakechime_resource import LakeChimeResource
from lakechime_dagster.resources.names import IS_PROVEN, KEEPS_UP, NOTHING_LOST, SAME_AS_DATABASE

MAX_LOOKS = 500  # evaluations of a check among which one is looked for


def watched(lake: Lake) -> list[ChangeTable]:
    """The tables of a lake that follow a database."""
    return [table for table in lake.targets if isinstance(table, ChangeTable)]


def monitor_checks(table: ChangeTable) -> list[dg.AssetChecksDefinition]:
    """The checks of a table, those of `monitor_check_keys`."""
    made = {KEEPS_UP: _keeps_up, NOTHING_LOST: _nothing_lost, SAME_AS_DATABASE: _same_as_database, IS_PROVEN: _is_proven}
    return [made[key.name](table) for key in monitor_check_keys(table)]


def _keeps_up(table: ChangeTable) -> dg.AssetChecksDefinition:
    monitor = table.monitor or UNDECLARED

    @dg.asset_check(asset=asset_key(table.name), name=KEEPS_UP, description="What came is read soon, and nothing is lost before it is.")
    def check(context: dg.AssetCheckExecutionContext, lakechime: LakeChimeResource) -> dg.AssetCheckResult:
        from lakechime_dagster.resources.following.followed import Followed
        from lakechime_dagster.resources.following.keeping_up import keeping_up

        followed = Followed(lakechime.platform(), table)
        before = earlier_ids(context.instance, table, followed.platform.store.now() - round(monitor.limits.behind.total_seconds() * 1000))
        return kept_up(keeping_up(followed, monitor, before), monitor.limits)

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


def _is_proven(table: ChangeTable) -> dg.AssetChecksDefinition:
    description = "Since the table was the same as the database's, no change of the schema did to rows what no message tells."

    @dg.asset_check(asset=asset_key(table.name), name=IS_PROVEN, description=description)
    def check(context: dg.AssetCheckExecutionContext, lakechime: LakeChimeResource) -> dg.AssetCheckResult:
        from lakechime_dagster.resources.following.followed import Followed
        from lakechime_dagster.resources.following.unproven import unproven

        seen = last_seen_same(context.instance, table)
        return proven(unproven(Followed(lakechime.platform(), table), seen), seen, table)

    return check


def earlier_ids(instance: dg.DagsterInstance, table: ChangeTable, until_ms: int) -> dict[str, EarlierIds]:
    """By shard the newest id that the database had at the last look that was not after a moment, and what was missing at the last look.

    A row that is missing is looked up until the lake has it or the database has it no more, however many are newer by then.
    """
    lacking: Mapping[str, Any] | None = None
    newest: dict[str, SeenId] = {}
    for at_ms, found in _evaluations(instance, table, KEEPS_UP):
        if NEWEST not in found.metadata:
            continue
        lacking = _json_of(found, MISSING) if lacking is None else lacking
        if at_ms <= until_ms:
            newest = {shard: SeenId(one, at_ms) for shard, one in _json_of(found, NEWEST).items() if isinstance(one, int)}
            break
    lacked = {shard: tuple(SeenId(*one) for one in several) for shard, several in (lacking or {}).items()}
    return {shard: EarlierIds(newest=newest.get(shard), lacking=lacked.get(shard, ())) for shard in {*newest, *lacked}}


def _json_of(found: dg.AssetCheckEvaluation, name: str) -> Mapping[str, Any]:
    value = found.metadata[name].value if name in found.metadata else None
    return value if isinstance(value, dict) else {}


def last_seen_same(instance: dg.DagsterInstance, table: ChangeTable) -> SeenSame | None:
    """When the table was the same as the database's last; None if no comparison that is looked at says so."""
    for at_ms, found in _evaluations(instance, table, SAME_AS_DATABASE):
        if found.passed and PLACE in found.metadata:
            return SeenSame(str(found.metadata[PLACE].value), at_ms)
    return None


def _evaluations(instance: dg.DagsterInstance, table: ChangeTable, check: str) -> Iterator[tuple[int, dg.AssetCheckEvaluation]]:
    """What a check said of a table and when, in milliseconds since the epoch; the newest one first."""
    key = dg.AssetCheckKey(asset_key(table.name), check)
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=MAX_LOOKS):
        if record.event is not None and (found := record.event.asset_check_evaluation) is not None:
            yield round(record.event.timestamp * 1000), found
