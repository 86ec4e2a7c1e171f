"""Declarations as subscriptions and jobs: what the ledger and Spark need to know of a declared
table.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lakechime_dagster.cdc.database import schema_reading
from lakechime_dagster.cdc.job import BronzeJob, CDCJob, format_of
from lakechime_dagster.dce.contract import PartitionEvents
from lakechime_dagster.dce.events import Position, SnapshotId, TableFormat
from lakechime_dagster.dce.migration import switched_since
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, SnapshotRange
from lakechime_dagster.dce.store import partition_events
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.names import asset_name
from lakechime_dagster.settings import in_project
from lakechime_dagster.silver.requests import (
    event_requests,
    requested_of_group,
    requested_of_stream,
)
from lakechime_dagster.silver.results import EventJob, GroupJob
from lakechime_dagster.spark.job import InputJob, TableJob
from lakechime_dagster.tables.cdc import BronzeTable, CDCTable, Drift
from lakechime_dagster.tables.databases import all_read_deletion_vectors, has_positions
from lakechime_dagster.tables.events import EventGroup, EventTable
from lakechime_dagster.tables.lake import Lake, QueryLog, Target, reading_name
from lakechime_dagster.tables.options import Read, ReadMode
from lakechime_dagster.tables.sources import JsonLines, MessageTable, TableRows
from lakechime_dagster.tables.tables import LakeTable, RefreshMode
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


def job_of(
    lake: Lake, table: LakeTable, running: RunningExecution, injected: Mapping[str, Any]
) -> TableJob:
    """What one execution asks of Spark: the ranges of its claim, by declaration, with locations."""
    inputs = [_input(lake, table, alias, read, running) for alias, read in table.reads.items()]
    inputs += [
        _rejoined(lake, table, read, running)
        for read in table.reads.values()
        if _needs_input(table, read)
    ]
    return TableJob(
        name=table.name,
        location=running.platform.location(table.name, table.location),
        inputs=tuple(inputs),
        keys=table.keys,
        partitioned_by=table.levels.names,
        refresh=RefreshMode.FULL if not table.inputs else table.refresh,
        compute=_with_injected(table.compute, injected),
        sql=table.sql,
        partitions=running.fired_partitions,
        expect=table.expect,
        watermark=table.watermark,
        personal=tuple(table.personal),
        comment=table.description,
        ordered=running.ordered,
        **_written(table, running),
        **_tried(running),
    )


def bronze_job_of(lake: Lake, table: BronzeTable, running: RunningExecution) -> BronzeJob:
    """What one execution asks of Spark for a table of messages; its range is between the
    checkpoints of its claim.
    """
    return BronzeJob(**_fed(lake, table, running), format=format_of(table))


def event_job_of(lake: Lake, table: EventTable, running: RunningExecution) -> EventJob:
    """What one execution asks of Spark for a stream's table; its range is between the checkpoints
    of its claim.
    """
    request = event_requests(running.platform).open(table.name)
    return EventJob(
        **_fed(lake, table, running),
        type_field=table.type_field,
        producer_field=table.producer_field,
        classes=str(running.platform.settings.home / "classes"),
        reprocess=None if request is None else request.request_id,
    )


def groups_beside(lake: Lake, group: EventGroup) -> tuple[EventGroup, ...]:
    """The groups of its stream, it among them."""
    return tuple(one for one in lake.groups if one.stream == group.stream)


def group_job_of(lake: Lake, group: EventGroup, running: RunningExecution) -> GroupJob:
    """What one execution asks of Spark for a group: its stream's table up to the end of the
    claim.
    """
    bronze = group.stream.table
    replays = event_requests(running.platform).open_of_group(group.name)
    return GroupJob(
        group=group,
        groups=groups_beside(lake, group),
        bronze=running.platform.location(bronze.name, bronze.location),
        end=running.execution.end.sources[bronze.name],
        log_of=partial(running.platform.log_of, table_format=group.format),
        deployment=running.execution.consumer.deployment,
        execution_id=running.execution.execution_id,
        attempt=running.execution.attempt,
        replays=replays,
    )


def cdc_job_of(table: CDCTable, running: RunningExecution) -> CDCJob:
    """What one execution asks of Spark for a table that follows a database, which is read here for
    its columns.
    """
    bronze = table.bronze
    end = running.execution.end.sources.get(bronze.name)
    return CDCJob(
        name=table.name,
        location=running.platform.location(table.name, table.location),
        bronze=InputJob(
            alias="changes",
            table=bronze.name,
            location=running.platform.location(bronze.name, bronze.location),
            range=running.ranges.get(bronze.name),
            pinned=end.snapshot_id if end is not None else None,
        ),
        format=format_of(bronze),
        merge=table.merge,
        names=table.names,
        cluster_by=table.cluster_by,
        personal=tuple(table.personal),
        has_deletion_vectors=all_read_deletion_vectors(table.storage.readers),
        reading=schema_reading(bronze, running.platform.settings, os.environ),
        on_drift=Drift(table.schema.on_drift),
        comment=table.description,
        **_written(table, running),
        **_tried(running),
    )


def _written(table: LakeTable | CDCTable, running: RunningExecution) -> dict[str, Any]:
    """By what a table is written that is no Delta table."""
    if table.format is TableFormat.DELTA:
        return {}
    log = running.platform.log_of(table.name, table.format, levels=table.levels)
    return {"log": log, "write_mode": table.storage.write_mode}


def _fed(lake: Lake, table: MessageTable, running: RunningExecution) -> dict[str, Any]:
    """What is asked of Spark for any table that holds what a source brings, between the checkpoints
    of the claim.
    """
    folder = ""
    if isinstance(table.source, JsonLines):
        folder = str(in_project(table.source.folder))
    elif isinstance(table.source, TableRows):
        folder = running.platform.location(
            table.source.name, lake.table(table.source.name).location
        )
    return {
        "name": table.name,
        "location": running.platform.location(table.name, table.location),
        "source": table.source,
        "folder": folder,
        "comment": table.description,
        **_tried(running),
    }


def _tried(running: RunningExecution) -> dict[str, Any]:
    """From where an attempt goes on, and whether it may leave no commit."""
    return {
        "start": running.execution.start,
        "may_complete_empty": running.execution.attempt == 1,
        "has_committed": running.platform.ledger.has_committed(running.execution),
    }


def _input(
    lake: Lake, table: LakeTable, alias: str, read: Read, running: RunningExecution
) -> InputJob:
    source, platform = lake.table(read.table), running.platform
    end = running.execution.end.sources.get(read.table)
    range_ = (
        running.ranges.get(read.table)
        if read.is_changing or _is_rejoined(table, read.table)
        else None
    )
    rejoin = next(
        (name for name, other in table.reads.items() if other.table == read.rejoin), read.rejoin
    )
    uid = end.table_uid if end is not None else None
    its_format = platform.format_of(read.table, source.format, uid)
    events, switched = _partition_events(read.table, its_format, end, range_, running)
    return InputJob(
        alias=alias,
        table=read.table,
        location=platform.location(read.table, source.location),
        log=platform.log_of(read.table, its_format, source.location, source.levels),
        events=events,
        switched=platform.levels_of(source.name, source.levels).names if switched else None,
        mode=read.mode,
        range=range_,
        pinned=SnapshotId(end.snapshot_id)
        if end is not None and end.snapshot_id is not None
        else None,
        key_columns=table.key_columns.get(read.table, {}),
        keys=source.keys if isinstance(source, LakeTable) else (),
        rejoin=rejoin,
        on=read.on,
    )


def _partition_events(
    name: str,
    its_format: TableFormat,
    end: SnapshotCheckpoint | None,
    range_: SnapshotRange | None,
    running: RunningExecution,
) -> tuple[PartitionEvents | None, bool]:
    """What the events of a table say of its partitions in a range, or up to where it is pinned, where
    that is a Hive table or became one of another format in the range, and whether it did.
    """
    if end is None or end.snapshot_id is None:
        return None, False
    engine, key = running.platform.store.engine, (running.platform.settings.cluster, name)
    start = switched_since(engine, key, range_) if range_ is not None else None
    switched = start is not None
    if its_format is not TableFormat.HIVE and not switched:
        return None, False
    if start is None and range_ is not None and range_.start and not range_.is_recreated:
        start = Position.parse(range_.start)
    is_hive = its_format is TableFormat.HIVE
    through = Position.parse(end.snapshot_id) if is_hive else running.execution.end.position
    events = partition_events(engine, key, end.table_uid, start or Position.ORIGIN, through)
    return events, switched


def _is_rejoined(table: LakeTable, name: str) -> bool:
    return any(read.rejoin == name for read in table.reads.values())


def _needs_input(table: LakeTable, read: Read) -> bool:
    """Whether a rejoined table is no input of its own, so that its changes must be brought
    along.
    """
    return read.rejoin is not None and all(
        other.table != read.rejoin for other in table.reads.values()
    )


def _rejoined(lake: Lake, table: LakeTable, read: Read, running: RunningExecution) -> InputJob:
    assert read.rejoin is not None
    whole = Read(table=read.rejoin, mode=ReadMode.SNAPSHOT)
    return _input(lake, table, read.rejoin, whole, running)


def _with_injected(
    compute: Callable[..., Any] | None, injected: Mapping[str, Any]
) -> Callable[..., Any] | None:
    if compute is None or not injected:
        return compute

    def with_injected(**frames: Any) -> Any:
        return compute(**frames, **injected)

    return with_injected
