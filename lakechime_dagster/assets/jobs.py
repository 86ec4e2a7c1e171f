"""Declarations as subscriptions and jobs: what the ledger and Spark need to know of a declared table."""

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from lakechime_dagster.cdc.job import BronzeJob, ChangeJob
from lakechime_dagster.cdc.readers import format_of
from lakechime_dagster.cdc.source import asked, schema_reading
from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.dce.partitions import LevelType, PartitionLevels
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lineage.manifest import FILE, Manifest
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.names import asset_key, asset_name, op_name
from lakechime_dagster.settings import in_project
from lakechime_dagster.silver.job import EventJob, GroupJob
from lakechime_dagster.silver.requests import event_hints, event_patterns, event_replays, event_reprocesses
from lakechime_dagster.spark.job import InputJob, TableJob
from lakechime_dagster.tables.cdc import BronzeTable, ChangeTable, Deletes, Drift
from lakechime_dagster.tables.databases import all_read_deletion_vectors, tells_position
from lakechime_dagster.tables.events import EventGroup, EventTable
from lakechime_dagster.tables.lake import AuditLog, Lake, Table, Target, find_cycle, reading_name, writer_of
from lakechime_dagster.tables.options import Read, ReadMode
from lakechime_dagster.tables.sources import FeedTable, JsonLines, TableRows
from lakechime_dagster.tables.tables import LakeTable, RefreshMode, SourceTable
from lakechime_dagster.triggers.subscription import Offsets, Subscription, conditions_on, is_hourly, offsets_of, waits_for_own
from lakechime_dagster.triggers.triggers import PartitionTrigger, SnapshotTrigger

MAX_COMMITS = 4  # of messages that a followed table takes with a claim: each may hold as much as a step of theirs reads


def subscription_of(table: Target, cluster: str = "", unread: Mapping[str, frozenset[str]] | None = None) -> Subscription:
    """The subscription of a table that the lake writes; one without a trigger has consumers all the same, for runs that a person launches.

    `unread` are by table the columns of which it is known that its code does not read them.
    """
    return Subscription(
        name=table.name,
        trigger=table.trigger or SnapshotTrigger(table.inputs),
        reads=table.inputs,
        target=table.name,
        target_levels=table.levels if isinstance(table.trigger, PartitionTrigger) else PartitionLevels(),
        asset_keys=(asset_name(table.name),),
        cluster=cluster,
        location=table.location,
        feed=table.feed if isinstance(table, FeedTable) and not isinstance(table.feed, TableRows) else None,
        is_ordered_by_position=isinstance(table, BronzeTable) and tells_position(table.envelope),
        max_commits=MAX_COMMITS if isinstance(table, ChangeTable) else None,
        is_stream=isinstance(table, EventTable),
        unread=unread or {},
    )


def group_subscription(lake: Lake, group: EventGroup, cluster: str = "") -> Subscription:
    """The subscription of a group; it writes many tables, each of which says what is in it."""
    return Subscription(
        name=group.name,
        trigger=group.trigger,
        reads=group.trigger.tables,
        asset_keys=(asset_name(group.name),),
        cluster=cluster,
        patterns=tuple((one.name, one.match) for one in groups_beside(lake, group)),
    )


def log_subscription(one: AuditLog, cluster: str = "") -> Subscription:
    """The subscription that reads an audit table; it writes none, so that the success of its run settles a step."""
    name = reading_name(one.table)
    trigger = SnapshotTrigger(one.table, one.every)
    return Subscription(name=name, trigger=trigger, reads=trigger.tables, asset_keys=(asset_name(name),), cluster=cluster)


def job_of(lake: Lake, table: LakeTable, running: RunningExecution, injected: Mapping[str, Any]) -> TableJob:
    """What one execution asks of Spark: the ranges of its claim, by declaration, with locations."""
    inputs = [_input(lake, table, alias, read, running) for alias, read in table.reads.items()]
    inputs += [_rejoined(lake, table, read, running) for read in table.reads.values() if _needs_input(table, read)]
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
        **_tried(running),
    )


def bronze_job_of(lake: Lake, table: BronzeTable, running: RunningExecution) -> BronzeJob:
    """What one execution asks of Spark for a table of messages; its range is between the places of its claim."""
    return BronzeJob(**_fed(lake, table, running), format=format_of(table))


def event_job_of(lake: Lake, table: EventTable, running: RunningExecution) -> EventJob:
    """What one execution asks of Spark for a stream's table; its range is between the places of its claim."""
    classes, reprocess = str(running.platform.settings.home / "classes"), event_reprocesses(running.platform).open(table.name)
    return EventJob(
        **_fed(lake, table, running), type_field=table.type_field, producer_field=table.producer_field, classes=classes, reprocess=reprocess
    )


def groups_beside(lake: Lake, group: EventGroup) -> tuple[EventGroup, ...]:
    """The groups of its stream, it among them."""
    return tuple(one for one in lake.groups if one.stream == group.stream)


def group_job_of(lake: Lake, group: EventGroup, running: RunningExecution) -> GroupJob:
    """What one execution asks of Spark for a group: its stream's table up to the end of the claim."""
    bronze, subscription = group.stream.table, running.subscription
    return GroupJob(
        group=group.with_hints(event_hints(running.platform).holding(group.name)),
        groups=groups_beside(lake, group),
        bronze=running.platform.location(bronze.name, bronze.location),
        end=running.execution.end.sources[bronze.name],
        warehouse=running.platform.warehouse,
        deployment=running.execution.consumer.deployment,
        execution_id=running.execution.execution_id,
        attempt=running.execution.attempt,
        looks_back=event_patterns(running.platform).are_other(subscription.name, subscription.patterns),
        replays=event_replays(running.platform).open(group.name),
    )


def change_job_of(table: ChangeTable, running: RunningExecution) -> ChangeJob:
    """What one execution asks of Spark for a table that follows a database, which is asked here for its columns and open transactions."""
    bronze = table.bronze
    end = running.execution.end.sources.get(bronze.name)
    return ChangeJob(
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
        deletes=Deletes(table.merge.deletes),
        max_delete_ratio=table.merge.max_delete_ratio,
        max_transaction=table.merge.max_transaction,
        max_continuous_empty_commits=table.merge.max_continuous_empty_commits,
        asked=asked(table, running.platform.settings, os.environ),
        reading=schema_reading(bronze, running.platform.settings, os.environ),
        on_drift=Drift(table.schema.on_drift),
        allowed_lateness=table.merge.allowed_lateness,
        comment=table.description,
        **_tried(running),
    )


def _fed(lake: Lake, table: FeedTable, running: RunningExecution) -> dict[str, Any]:
    """What is asked of Spark for any table that holds what a feed brings, between the places of the claim."""
    folder = ""
    if isinstance(table.feed, JsonLines):
        folder = str(in_project(table.feed.folder))
    elif isinstance(table.feed, TableRows):
        folder = running.platform.location(table.feed.name, lake.table(table.feed.name).location)
    return {
        "name": table.name,
        "location": running.platform.location(table.name, table.location),
        "feed": table.feed,
        "folder": folder,
        "comment": table.description,
        **_tried(running),
    }


def _tried(running: RunningExecution) -> dict[str, Any]:
    """From where an attempt goes on, and whether it may leave no commit."""
    return {
        "start": running.execution.start,
        "may_settle_empty": running.execution.attempt == 1,
        "has_committed": running.platform.ledger.has_committed(running.execution),
    }


def _input(lake: Lake, table: LakeTable, alias: str, read: Read, running: RunningExecution) -> InputJob:
    source = lake.table(read.table)
    end = running.execution.end.sources.get(read.table)
    rejoin = next((name for name, other in table.reads.items() if other.table == read.rejoin), read.rejoin)
    return InputJob(
        alias=alias,
        table=read.table,
        location=running.platform.location(read.table, source.location),
        mode=read.mode,
        range=running.ranges.get(read.table) if read.is_changing or _is_rejoined(table, read.table) else None,
        pinned=SnapshotId(end.snapshot_id) if end is not None and end.snapshot_id is not None else None,
        key_columns=table.key_columns.get(read.table, {}),
        keys=source.keys if isinstance(source, LakeTable) else (),
        rejoin=rejoin,
        on=read.on,
    )


def _is_rejoined(table: LakeTable, name: str) -> bool:
    return any(read.rejoin == name for read in table.reads.values())


def _needs_input(table: LakeTable, read: Read) -> bool:
    """Whether a rejoined table is no input of its own, so that its changes must be brought along."""
    return read.rejoin is not None and all(other.table != read.rejoin for other in table.reads.values())


def _rejoined(lake: Lake, table: LakeTable, read: Read, running: RunningExecution) -> InputJob:
    assert read.rejoin is not None
    whole = Read(table=read.rejoin, mode=ReadMode.SNAPSHOT)
    return _input(lake, table, read.rejoin, whole, running)


def _with_injected(compute: Callable[..., Any] | None, injected: Mapping[str, Any]) -> Callable[..., Any] | None:
    if compute is None or not injected:
        return compute

    def with_injected(**frames: Any) -> Any:
        return compute(**frames, **injected)

    return with_injected


HOUR_FORMAT = "%Y-%m-%d-%H"


def partitions_of(lake: Lake, table: Table) -> dg.PartitionsDefinition | None:
    """The partitions that Dagster shows of a table; None where it is run as a whole, or a source's levels are not times.

    A computed table has them when its trigger fires by partition, dynamic ones where its levels are not times; a source that
    others write when its levels are a date, or a date and an hour, and some trigger says when the lake's time begins.
    """
    if not table.levels or (isinstance(table, LakeTable) and not isinstance(table.trigger, PartitionTrigger)):
        return None
    if isinstance(table, SourceTable) and writer_of(lake, table) is not None:
        return None
    span = lake.span
    if span is not None and table.levels.types == (LevelType.DATE,):
        end = span.end.isoformat() if span.end else None
        return dg.DailyPartitionsDefinition(span.start.isoformat(), end_date=end, end_offset=0 if end else span.days_ahead)
    if span is not None and is_hourly(table.levels):
        end = f"{span.end}-00" if span.end else None
        return dg.HourlyPartitionsDefinition(
            f"{span.start}-00", end_date=end, fmt=HOUR_FORMAT, timezone="UTC", end_offset=0 if end else span.hours_ahead
        )
    if isinstance(table, LakeTable):
        return dg.DynamicPartitionsDefinition(name=f"{lake.name}__{'__'.join(table.levels.names)}")
    return None


def levels_text(levels: PartitionLevels) -> str:
    """The levels for people: `flight_date (date), hour (int)`."""
    return ", ".join(f"{name} ({kind.value})" for name, kind in zip(levels.names, levels.types, strict=True))


def input_deps(lake: Lake, table: Target) -> list[dg.AssetDep]:
    """The declared inputs of a table."""
    below = partitions_of(lake, table)
    return [dg.AssetDep(asset_key(name), partition_mapping=mapping_of(lake, table, name, below)) for name in table.inputs]


def mapping_of(lake: Lake, table: Target, name: str, below: dg.PartitionsDefinition | None) -> dg.PartitionMapping | None:
    """Which partitions of an input a partition of a table needs, of which `below` are; None where the input has none in Dagster.

    They are those for which its trigger waits. Of an input that it reads and does not wait for they are all, but for changes of
    a table that is replaced by partitions, of which a run reads those of its own.
    """
    above = partitions_of(lake, lake.table(name))
    if above is None:
        return None
    if below is None or not isinstance(table, LakeTable) or not isinstance(table.trigger, PartitionTrigger):
        return dg.AllPartitionMapping()
    is_waited_for = bool(conditions_on(table.trigger, name))
    reads_own = not is_waited_for and table.refresh is RefreshMode.PARTITIONS and _reads_changes(table, name)
    if isinstance(above, dg.TimeWindowPartitionsDefinition) and isinstance(below, dg.TimeWindowPartitionsDefinition):
        offsets = Offsets(0, 0) if reads_own else offsets_of(table.trigger, table.levels, name)
        return dg.AllPartitionMapping() if offsets is None else dg.TimeWindowPartitionMapping(offsets.start, offsets.end)
    is_own = reads_own or waits_for_own(table.trigger, table.levels, name)
    return dg.IdentityPartitionMapping() if above == below and is_own else dg.AllPartitionMapping()


def _reads_changes(table: LakeTable, name: str) -> bool:
    """Whether all that a table reads of an input are changes."""
    return all(read.is_changing and read.table == name for read in table.reads.values() if name in (read.table, read.rejoin))


def with_signature(body: Any, table: LakeTable) -> Any:
    """The body with the parameters that Dagster should give: its own, and those that the table's function asks for.

    Raises:
        DeclarationError: the function calls something else by the name of one of ours.
    """
    own = {one.name: one for one in inspect.signature(body).parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD}
    asked = []
    for one in table.injected:
        if one.name not in own:
            asked.append(inspect.Parameter(one.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=one.annotation))
        elif one.name != "context" and one.annotation is not (ours := own[one.name].annotation):
            remedy = f"is the {ours.__name__} of this package; annotate it so, or give it another name"
            raise DeclarationError(table.name, f"parameter {one.name!r}", remedy)
    body.__signature__ = inspect.Signature([*own.values(), *asked])
    body.__annotations__ = {parameter.name: parameter.annotation for parameter in body.__signature__.parameters.values()}
    body.__name__ = op_name(table.name)
    body.__doc__ = table.description
    return body


def shared_with(table: LakeTable, own: Mapping[str, Any]) -> dict[str, Any]:
    """What of the body's own parameters the table's function asks for too."""
    return {one.name: own[one.name] for one in table.injected if one.name in own}


def check_inputs(table: LakeTable, asset: dg.AssetsDefinition) -> None:
    """Refuse a parameter that Dagster takes for one more input, as it is nothing else to it.

    Raises:
        DeclarationError: naming the parameter.
    """
    strange = set(asset.dependency_keys) - {asset_key(name) for name in table.inputs}
    for one in table.injected:
        if asset_key(one.name) in strange:
            remedy = "is no input, `context`, `config` or resource by its annotation; give it a default, or leave it out"
            raise DeclarationError(table.name, f"parameter {one.name!r}", remedy)


def planned_inputs(lake: Lake, manifest: Manifest | None) -> Mapping[str, tuple[str, ...]]:
    """By table the tables of the lake that its code reads beside the declared ones, as the manifest has it.

    Raises:
        DeclarationError: together they are a cycle; it names the path.
    """
    if manifest is None or manifest.lake != lake.name:
        return {}
    declared, known = lake.graph(), manifest.tables
    found = {
        table.name: tuple(name for name in known[table.name].inputs if name in declared and name not in (*table.inputs, table.name))
        for table in lake.computed
        if table.name in known
    }
    found = {name: inputs for name, inputs in found.items() if inputs}
    cycle = find_cycle({name: (*inputs, *found.get(name, ())) for name, inputs in declared.items()})
    if cycle is not None:
        raise DeclarationError(cycle[0], FILE, f"is a cycle: {' ← '.join(cycle)}; let one of them not read the next, and plan again")
    return found


def planned_deps(lake: Lake, manifest: Manifest | None) -> Mapping[str, tuple[dg.AssetDep, ...]]:
    """The same as dependencies; a table that is read so is read whole, whatever its partitions."""
    return {table: tuple(_dep(lake, name) for name in inputs) for table, inputs in planned_inputs(lake, manifest).items()}


def _dep(lake: Lake, name: str) -> dg.AssetDep:
    whole = dg.AllPartitionMapping() if partitions_of(lake, lake.table(name)) is not None else None
    return dg.AssetDep(asset_key(name), partition_mapping=whole)
