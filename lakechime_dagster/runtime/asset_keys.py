"""Tables as Dagster's assets: the keys of assets and of their checks."""

import dagster as dg

from lakechime_dagster.runtime.names import (
    EACH_EVENT_ONCE,
    KEEPS_UP,
    NOTHING_LOST,
    SAME_AS_DATABASE,
    asset_name,
)
from lakechime_dagster.tables.cdc import CDCTable
from lakechime_dagster.tables.events import EventGroup


def asset_key(table: str) -> dg.AssetKey:
    """The asset key of a table: its name split at dots, and of one outside of the lake, which has
    slashes, at these alone.
    """
    text = table if "/" in table else asset_name(table)
    return dg.AssetKey([part for part in text.split("/") if part] or [table])


def verify_check_key(group: EventGroup) -> dg.AssetCheckKey:
    """The check of a group that no execution of it reports."""
    return dg.AssetCheckKey(asset_key(group.name), EACH_EVENT_ONCE)


def monitor_check_keys(table: CDCTable, *, may_compare: bool = True) -> list[dg.AssetCheckKey]:
    """The checks by which a table is watched.

    That it keeps up; where the topic of transactions is declared that nothing of them is lost;
    where its database is declared that it is the same.
    """
    names = [KEEPS_UP] + [NOTHING_LOST] * bool(table.bronze.source.transactions)
    if table.monitor is not None and table.monitor.is_comparing:
        names += [SAME_AS_DATABASE] * may_compare
    return [dg.AssetCheckKey(asset_key(table.name), name) for name in names]
