"""The subscriptions of what a lake declares; without Dagster, for commands that only ask."""

from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.runtime.names import asset_name
from lakechime_dagster.silver.requests import requested_of_group, requested_of_stream
from lakechime_dagster.tables.cdc import BronzeTable
from lakechime_dagster.tables.databases import has_positions
from lakechime_dagster.tables.events import EventGroup, EventTable
from lakechime_dagster.tables.lake import QueryLog, Target, reading_name
from lakechime_dagster.tables.sources import MessageTable, TableRows
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionTrigger, SnapshotTrigger


def subscription_of(table: Target, cluster: str = "") -> Subscription:
    """The subscription of a table that the lake writes; one without a trigger has consumers all the
    same, for runs that a person launches.
    """
    return Subscription(
        name=table.name,
        trigger=table.trigger or SnapshotTrigger(table.inputs),
        reads=table.inputs,
        target=table.name,
        target_format=TableFormat(table.format),
        target_levels=table.levels
        if isinstance(table.trigger, PartitionTrigger)
        else PartitionLevels(),
        asset_keys=(asset_name(table.name),),
        cluster=cluster,
        location=table.location,
        source=table.source
        if isinstance(table, MessageTable) and not isinstance(table.source, TableRows)
        else None,
        is_ordered_by_position=isinstance(table, BronzeTable) and has_positions(table.envelope),
        is_stream=isinstance(table, EventTable),
        requests=requested_of_stream(table.name) if isinstance(table, EventTable) else None,
    )


def group_subscription(group: EventGroup, cluster: str = "") -> Subscription:
    """The subscription of a group; it writes many tables, each of which says what is in it."""
    return Subscription(
        name=group.name,
        trigger=group.trigger,
        reads=group.trigger.tables,
        asset_keys=(asset_name(group.name),),
        cluster=cluster,
        requests=requested_of_group(group.name),
    )


def log_subscription(one: QueryLog, cluster: str = "") -> Subscription:
    """The subscription that reads an audit table; it writes none, so that the success of its run
    completes an execution.
    """
    name = reading_name(one.table)
    trigger = SnapshotTrigger(one.table, one.every)
    return Subscription(
        name=name,
        trigger=trigger,
        reads=trigger.tables,
        asset_keys=(asset_name(name),),
        cluster=cluster,
    )
