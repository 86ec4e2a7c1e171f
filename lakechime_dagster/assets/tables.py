"""Computed tables and their sources as assets, and what a run asks of Spark."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import dagster as dg

from lakechime_dagster.assets.partitions import (
    check_inputs,
    input_deps,
    levels_text,
    partitions_of,
    shared_with,
    with_signature,
)
from lakechime_dagster.assets.report import (
    Report,
    check_levels,
    check_results,
    check_specs,
    combined,
    inputs_declared,
    needs_watermark,
    nothing_new,
    page_link,
    personal_results,
    personal_specs,
    report_of,
)
from lakechime_dagster.dce.events import (
    PartitionEvents,
    Position,
    SnapshotId,
    TableFormat,
    version_of,
)
from lakechime_dagster.dce.queries import switched_since
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, SnapshotRange
from lakechime_dagster.errors import (
    ConsumerConflictError,
    MessagesUnreadableError,
    NotFoundError,
    TableUnreadableError,
)
from lakechime_dagster.lineage.declared import record_declared
from lakechime_dagster.lineage.recording import LineageToKeep
from lakechime_dagster.lineage.runs import observer, record_lineage, seen_lineage, written_beside
from lakechime_dagster.lineage.schema_check import check_fits
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.names import asset_key, pool_of
from lakechime_dagster.runtime.platform import markers_of
from lakechime_dagster.runtime.resource import LakeChimeResource, NothingNewError
from lakechime_dagster.runtime.sources import opened
from lakechime_dagster.runtime.spark import SparkAttempt, SparkResource
from lakechime_dagster.settings import in_project
from lakechime_dagster.spark.job import Executed, InputJob, Outcome, TableJob, TableResult
from lakechime_dagster.tables.cdc import CDCTable
from lakechime_dagster.tables.lake import Lake, Target
from lakechime_dagster.tables.options import Read, ReadMode
from lakechime_dagster.tables.sources import JsonLines, MessageTable, TableRows
from lakechime_dagster.tables.tables import LakeTable, RefreshMode, SourceTable
from lakechime_dagster.triggers.consumers import COMPLETE
from lakechime_dagster.triggers.evidence import partition_events
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Subscription

Attempt = Callable[[SparkResource, RunningExecution, Callable[[str], None]], SparkAttempt]


def table_asset(
    lake: Lake, table: LakeTable, subscription: Subscription, planned: tuple[dg.AssetDep, ...] = ()
) -> dg.AssetsDefinition:
    """The asset of a computed table; its dependencies are the declared inputs, and the planned
    ones.
    """

    def body(
        context: dg.AssetExecutionContext,
        lakechime: LakeChimeResource,
        spark: SparkResource,
        **injected: Any,
    ) -> dg.MaterializeResult:
        keys = (
            list(context.partition_keys)
            if context.has_partition_key or context.has_partition_key_range
            else [None]
        )
        injected |= shared_with(table, {"context": context, "lakechime": lakechime, "spark": spark})

        def attempt(running: RunningExecution) -> SparkAttempt:
            check_fits(running, lake, table)
            facts: dict[str, Any] = {}

            def ended(executed: Executed) -> None:
                facts.update(
                    recorded_beside(
                        context, table, lambda: written_beside(running, lake, table, executed)
                    )
                )

            job, watch = (
                job_of(lake, table, running, injected),
                observer(ended, partial(check_levels, running, lake, table)),
            )
            return replace(
                spark.refresh(running, job, context.log.info, table.write_as, watch), facts=facts
            )

        reports = each_key(
            keys,
            lambda key: materialise(context, lakechime, lake, table, subscription, key, attempt),
        )
        platform = lakechime.platform()
        now = from_milliseconds(platform.store.now())
        before = (
            platform.log_of(table.name, TableFormat(table.format), table.location).watermark()
            if needs_watermark(table, reports)
            else None
        )
        checks = [
            *check_results(table, reports, now, before),
            inputs_declared(lake, table, reports),
        ]
        checks += personal_results(lake, table, platform)
        return dg.MaterializeResult(metadata=combined(reports), check_results=checks)

    partitions = partitions_of(lake, table)
    kinds = (KINDS[TableFormat(table.format)], "spark")
    given = {
        "partitions_def": partitions,
        # one run for many partitions: each of them is an execution of its own, in its own consumer
        "backfill_policy": dg.BackfillPolicy.single_run() if partitions is not None else None,
        **declared(lake, table, static_metadata(table, subscription), kinds),
    }
    given["deps"] = [*given["deps"], *planned]
    given["check_specs"] = [*given["check_specs"], *personal_specs(lake, table)]
    with warnings.catch_warnings():
        # Dagster warns that its backfill policies may change
        warnings.simplefilter("ignore", dg.BetaWarning)
        asset = dg.asset(**given)(with_signature(body, table))
    check_inputs(table, asset)
    return asset


def attempting_asset(
    lake: Lake,
    table: Target,
    subscription: Subscription,
    given: Mapping[str, Any],
    attempt: Attempt,
) -> dg.AssetsDefinition:
    """The asset of a table that is run as a whole, by one attempt a run; `given` are the arguments
    of `dg.asset`.
    """

    def body(
        context: dg.AssetExecutionContext, lakechime: LakeChimeResource, spark: SparkResource
    ) -> dg.MaterializeResult:
        log = context.log.info
        report = materialise(
            context,
            lakechime,
            lake,
            table,
            subscription,
            None,
            lambda running: attempt(spark, running, log),
        )
        now = from_milliseconds(lakechime.platform().store.now())
        return dg.MaterializeResult(
            metadata=report.metadata, check_results=check_results(table, [report], now)
        )

    return dg.asset(**given)(body)


def declared(
    lake: Lake,
    table: Target,
    metadata: Mapping[str, Any],
    kinds: Iterable[str] = ("deltalake", "spark"),
) -> dict[str, Any]:
    """The arguments of `dg.asset` for every table that the lake writes, with those of its
    declaration.
    """
    given = {
        "key": asset_key(table.name),
        "deps": input_deps(lake, table),
        "group_name": table.group or table.name.split(".")[0],
        "owners": [table.owner] if table.owner else None,
        "kinds": {*table.kinds} or {*kinds},
        "description": table.description or None,
        "check_specs": check_specs(table),
        "pool": pool_of(table),
    }
    return {**given, **table.dagster, "metadata": {**metadata, **table.dagster.get("metadata", {})}}


def each_key(
    keys: Sequence[str | None], materialise_key: Callable[[str | None], Report]
) -> list[Report]:
    """What was done for each key; a consumer that is busy or held, or a key that is not there,
    hinders no other.

    Raises:
        ConsumerConflictError: after the last key, naming those that were left out.
    """
    reports: list[Report] = []
    conflicts: list[str] = []
    for key in keys:
        try:
            reports.append(materialise_key(key))
        except (ConsumerConflictError, NotFoundError) as error:
            if len(keys) == 1:
                raise
            conflicts.append(str(error))
    if conflicts:
        raise ConsumerConflictError(
            f"{len(conflicts)} of {len(keys)} partitions were left out, the others are done: "
            f"{'; '.join(conflicts)}"
        )
    return reports


def materialise(
    context: dg.AssetExecutionContext,
    lakechime: LakeChimeResource,
    lake: Lake,
    table: Target,
    subscription: Subscription,
    partition: str | None,
    attempt: Callable[[RunningExecution], SparkAttempt],
) -> Report:
    """One execution: begin it, refresh the table on Spark, complete it at once, and report it."""
    try:
        with lakechime.execution(context, subscription.name, partition=partition) as running:
            done = attempt(running)
            seen = seen_lineage(running, lake, table, done.result)
            complete(running, table, done.result, seen)
            recorded = record_lineage(running, seen)
            record_declared(running, table, done.result)
            facts = (
                lag_of(lake, table, running)
                | page_link(running.platform.settings.lineage_url, table.name)
                | dict(done.facts)
            )
            report = report_of(running, done, facts, recorded)
    except NothingNewError as nothing:
        report = nothing_new(str(nothing))
    context.log.info(f"{table.name}: {report.sentence}")
    return report


def recorded_beside(
    context: dg.AssetExecutionContext, table: LakeTable, look: Callable[[], Sequence[str]]
) -> dict[str, Any]:
    """The other tables that a function wrote, each of which is logged too: graph and triggers know
    nothing of it.

    What hinders the look is logged: neither what the function computed nor its own error is lost by
    it.
    """
    try:
        written = look()
    except Exception as error:  # noqa: BLE001 - whatever it is, as above
        context.log.warning(f"what {table.name} wrote beside its result is not known: {error}")
        return {}
    if written:
        context.log.info(f"written beside the result: {', '.join(written)}")
    return (
        {"written beside": dg.MetadataValue.md("\n".join(f"- {name}" for name in written))}
        if written
        else {}
    )


def complete(
    running: RunningExecution, table: Target, result: TableResult, seen: LineageToKeep | None = None
) -> None:
    """Complete right after commit and registration, so that nothing downstream looks in between;
    with it what was `seen` is kept.

    A fired partition in which nothing changed is complete all the same: it gets a marker (law 16).
    """
    platform, execution = running.platform, running.execution
    if result.outcome is Outcome.NOTHING:
        commit_metadata = running.commit_metadata()
        commit_metadata = (
            commit_metadata
            if result.complete is None
            else replace(
                commit_metadata, facts={**commit_metadata.facts, COMPLETE: list(result.complete)}
            )
        )
        markers = markers_of(
            commit_metadata, table.name, table.levels, running.subscription.cluster
        )
        running.completed = platform.complete_without_commit(
            execution, markers, f"{execution.reason}; nothing to do"
        )
        return
    target = platform.target_of(running.subscription)
    running.completed = platform.complete_if_committed(target, execution, seen) is not None


def static_metadata(table: LakeTable, subscription: Subscription) -> dict[str, Any]:
    """What is known of a table before any run: what it waits for, how it is computed and laid
    out.
    """
    metadata: dict[str, Any] = {
        "waits for": subscription.condition
        if table.trigger is not None
        else "nobody: a person launches it",
        "refresh": table.refresh.value,
        "dagster/table_name": table.name,
    }
    if table.keys:
        metadata["keys"] = ", ".join(table.keys)
    if table.levels:
        metadata["partitioned by"] = levels_text(table.levels)
    if table.sql is not None:
        metadata["sql"] = dg.MetadataValue.md(f"```sql\n{inspect.cleandoc(table.sql)}\n```")
    return metadata


def lag_of(lake: Lake, table: Target, running: RunningExecution) -> dict[str, Any]:
    """How far the table is behind its inputs now: commits since the claim, and seconds since the
    last one consumed.

    Of one that reads a source, what that holds beyond the claim.
    """
    if running.subscription.source is not None:
        try:
            return {
                "waiting in the source": opened(running.subscription)
                .poll(running.execution.end.offsets)
                .news
                or "nothing"
            }
        except MessagesUnreadableError as error:  # the run is done: the problem is shown instead
            return {"waiting in the source": str(error)}
    behind = 0
    for name in table.inputs:
        if lake.table(name).format is not TableFormat.DELTA:
            continue
        end = running.execution.end.sources.get(name)
        log = running.platform.log(name, lake.table(name).location)
        version = version_of(end.snapshot_id) if end is not None else None
        if version is not None:
            with suppress(TableUnreadableError):  # the run is done: such an input is left out
                behind += max(0, log.version - version)
    consumed = [event.event_ts for event in running.events]
    newest = max(consumed, default=None)
    lag: dict[str, Any] = {"lag in commits": behind}
    if newest is not None:
        lag["lag in seconds"] = round((running.platform.store.now() - newest) / 1000, 1)
    return lag


KINDS = {TableFormat.DELTA: "deltalake", TableFormat.ICEBERG: "iceberg", TableFormat.HIVE: "hive"}


def source_asset(lake: Lake, table: SourceTable) -> dg.AssetSpec:
    """The external asset of a source."""
    schema = table.name.split(".")[0]
    writer = "somebody else; its events are registered or reconciled"
    metadata: dict[str, Any] = {"dagster/table_name": table.name, "written by": writer}
    if table.levels:
        metadata["partitioned by"] = levels_text(table.levels)
    given: dict[str, Any] = {
        "key": asset_key(table.name),
        "partitions_def": partitions_of(lake, table),
        "group_name": table.group or schema,
        "owners": [table.owner] if table.owner else None,
        "kinds": {*table.kinds} or {KINDS[TableFormat(table.format)]},
        "description": table.description or None,
        "freshness_policy": dg.FreshnessPolicy.time_window(table.fresh_within)
        if table.fresh_within is not None
        else None,
    }
    return dg.AssetSpec(
        **{**given, **table.dagster, "metadata": {**metadata, **table.dagster.get("metadata", {})}}
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
        **written_by(table, running),
        **tried(running),
    )


def written_by(table: LakeTable | CDCTable, running: RunningExecution) -> dict[str, Any]:
    """By what a table is written that is no Delta table."""
    if table.format is TableFormat.DELTA:
        return {}
    log = running.platform.log_of(table.name, table.format, levels=table.levels)
    return {"log": log, "write_mode": table.storage.write_mode}


def fed(lake: Lake, table: MessageTable, running: RunningExecution) -> dict[str, Any]:
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
        **tried(running),
    }


def tried(running: RunningExecution) -> dict[str, Any]:
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
