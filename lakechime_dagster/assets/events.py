"""Event streams and their typed tables as assets, with their checks."""

import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from lakechime_dagster.assets.cdc import inputs_outside
from lakechime_dagster.assets.report import commit_name, nothing_new, page_link
from lakechime_dagster.assets.tables import KINDS as KINDS_OF
from lakechime_dagster.assets.tables import attempting_asset, declared, fed
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage.declared import record_types
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.names import EACH_EVENT_ONCE, asset_key, dagster_name, op_name
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.resource import LakeChimeResource, NothingNewError
from lakechime_dagster.runtime.spark import (
    ON_SPARK,
    Attempted,
    SparkAttempt,
    SparkResource,
    account_confs,
    spark_of,
)
from lakechime_dagster.silver.requests import (
    TypeState,
    complete_group,
    completed_until,
    event_requests,
    event_types,
    types_of,
)
from lakechime_dagster.silver.results import (
    EventJob,
    Fault,
    GroupJob,
    GroupResult,
    RequestDone,
    RequestKind,
    TypeResult,
    Verified,
)
from lakechime_dagster.silver.schema import NOWHERE, KnownType, TypeCheckpoint, table_columns
from lakechime_dagster.silver.shape import Rescue
from lakechime_dagster.silver.store import BreakingSchema
from lakechime_dagster.tables.events import EventGroup, EventTable
from lakechime_dagster.tables.lake import Lake, named_types
from lakechime_dagster.tables.names import Account
from lakechime_dagster.tables.sources import KafkaTopic
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.registry import By
from lakechime_dagster.triggers.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("deltalake", "spark")
ROWS_ADD_UP, IS_WRITTEN = "rows_add_up", "is_written"
NO_TYPE_FAILS, NOTHING_WAITS, NO_VALUE_LOST, NOTHING_BREAKS = (
    "no_type_fails",
    "nothing_waits",
    "no_value_lost",
    "nothing_breaks",
)
RECENT_MS = (
    120_000  # so long a breaking change fails its check at least, as alarms look from time to time
)
# a type to which only rows were added is materialized at most so often
MATERIALIZE_EVERY = dt.timedelta(minutes=5)
FAILED_SECONDS = 60  # between ticks of the sensor of a group that cannot run
MAX_NAMED = 5  # in a sentence
MAX_SHOWN = 200  # types, or changes, in metadata
# what is no argument of an op
OF_ASSET = frozenset(
    ("metadata", "tags", "code_version", "automation_condition", "freshness_policy")
)
# of results, by the name in metadata
COUNTS = {
    "events": "rows",
    "rows written": "written",
    "rows rescued": "rescued",
    "rows discarded": "discarded",
    "rows pending": "pending",
    "columns added": "columns_added",
}
WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR
# why values are in no column that break something
KEPT_OUT = {
    Rescue.FROZEN: "kept out by the contract",
    Rescue.CAP: "kept out, as the table has as many columns as it may",
}


def event_asset(lake: Lake, table: EventTable, subscription: Subscription) -> dg.AssetsDefinition:
    """The asset of a stream's table; it depends on the table, or on the external topic or folder,
    that is its source.
    """
    kinds = (*KINDS, "kafka") if isinstance(table.source, KafkaTopic) else KINDS
    metadata = {
        "waits for": subscription.condition,
        "dagster/table_name": table.name,
        "source": str(table.source),
        "type by": "$." + ".".join(table.type_field),
    }
    given = declared(lake, table, metadata, kinds)
    given["ins"] = inputs_outside(table)
    return attempting_asset(
        lake,
        table,
        subscription,
        given,
        lambda spark, running, log: ingest(
            spark, running, event_job_of(lake, table, running), log, table.write_as
        ),
    )


def ingest(
    spark: SparkResource,
    running: RunningExecution,
    job: EventJob,
    log: Callable[[str], None],
    write_as: Account | None,
) -> SparkAttempt:
    """One attempt at an execution of a stream's table; the request to reprocess that it handled is
    closed.
    """
    with ON_SPARK:
        from lakechime_dagster.silver.bronze import ingest_events

    job, platform = replace(job, environment=os.environ), running.platform
    done = spark.attempt(
        running,
        log,
        lambda session: ingest_events(session, job, running.commit_metadata(), platform.log_at),
        confs=account_confs(write_as, job.location),
    )
    if job.reprocess is None:
        return done
    target = platform.log_at(job.location, job.name)
    committed = done.result.committed or target.last_committed(running.execution.consumer)
    found = None if committed is None else RequestDone.of(committed.commit_metadata.facts)
    if found is None or found.request_id != job.reprocess:
        if done.result.committed is not None:
            return done
        found = RequestDone(request_id=job.reprocess)
    event_requests(platform).close(running.execution.execution_id, found)
    return replace(done, facts={"rows reprocessed": found.added})


def refresh_group(
    spark: SparkResource, running: RunningExecution, job: GroupJob, log: Callable[[str], None]
) -> Attempted[GroupResult]:
    """One attempt at an execution of a group."""
    with ON_SPARK:
        from lakechime_dagster.silver.refresh import GroupRefresh

    platform = running.platform
    begun = running.execution.start.sources.get(job.group.stream.table.name, SnapshotCheckpoint())
    start = TypeCheckpoint(uid=begun.table_uid, version=int(begun.snapshot_id or NOWHERE))

    def work(session: "SparkSession") -> GroupResult:
        now = platform.store.now()
        refresh = GroupRefresh(
            spark=session,
            job=job,
            repository=event_types(platform),
            open_log=platform.log_at,
            now_ms=now,
            start=start,
        )
        return refresh.run()

    return spark.attempt(running, log, work, spark=spark_of(platform.settings, job.group))


def partitions_of_group(lake: Lake, group: EventGroup) -> dg.DynamicPartitionsDefinition:
    """The types of a group, each added with its first events."""
    return dg.DynamicPartitionsDefinition(name=f"{lake.name}__{group.name}__types")


def types_key(group: EventGroup) -> dg.AssetKey:
    """The asset whose partitions are the types of a group."""
    return asset_key(f"{group.name}__types")


def group_asset(lake: Lake, group: EventGroup, subscription: Subscription) -> dg.AssetsDefinition:
    """The asset of a group, with those of the types that the lake names as further outputs.

    A run is one execution for all types, whichever of these assets are selected. The types are
    partitions of an asset beside it, so that the group itself is launched without naming one.
    """
    key = asset_key(group.name)
    of_asset = {name: value for name, value in group.options.dagster.items() if name in OF_ASSET}
    of_op = {name: value for name, value in group.options.dagster.items() if name not in OF_ASSET}

    @dg.multi_asset(
        name=op_name(group.name),
        specs=[
            _group_spec(group, subscription, of_asset),
            _types_spec(lake, group),
            *type_specs(lake, group),
        ],
        can_subset=True,
        check_specs=[*group_check_specs(group), *type_check_specs(lake, group)],
        backfill_policy=dg.BackfillPolicy.single_run(),
        **of_op,
    )
    def body(
        context: dg.AssetExecutionContext, lakechime: LakeChimeResource, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult]:
        platform = lakechime.platform()
        _request_replays(context, platform, group)
        since = min(platform.store.now() - RECENT_MS, completed_until(platform, group.name))
        try:
            with lakechime.execution(context, subscription.name) as running:
                event_types(platform).register(groups_beside(lake, group))
                known = event_types(platform).types(group.name)
                done = refresh_group(
                    spark, running, group_job_of(lake, group, running), context.log.info
                )
                shown = types_to_materialize(known, done.result.types, platform.store.now())
                running.completed = complete_group(
                    platform, group, running.execution, done.result, [*shown]
                )
                record_types(running, group, done.result.types)
                _log_failures(context, done.result.types)
                _materialize_types(context, lake, group, shown, platform.settings.lineage_url)
                result, metadata = done.result, _report(running, done)
        except NothingNewError as nothing:
            result, metadata = _standing(platform, group), nothing_new(str(nothing)).metadata
        breaks = breaking_check(
            group, event_types(platform).breaking(group.name, since), result.types
        )
        yield from _shown(context, key, metadata, [*_group_checks(key, result), breaks])
        yield from _shown_types(context, platform, lake, group, result)

    return body


def _spec(group: EventGroup, key: dg.AssetKey, given: Mapping[str, Any]) -> dg.AssetSpec:
    """An asset of a group, which reads the stream's table, with these arguments."""
    usual: dict[str, Any] = {
        "deps": [asset_key(group.stream.table.name)],
        "group_name": group.name,
        "owners": [group.owner] if group.owner else None,
        "kinds": {KINDS_OF[group.format], "spark"},
    }
    return dg.AssetSpec(key, **{**usual, **given})


def _group_spec(
    group: EventGroup, subscription: Subscription, given: Mapping[str, Any]
) -> dg.AssetSpec:
    types = {name: one.to_json() for name, one in sorted(group.contracts.items())}
    contract = group.contract.to_json() | ({"types": types} if types else {})
    metadata = {
        "waits for": subscription.condition,
        "types": group.match,
        "contract": dg.MetadataValue.json(contract),
    }
    description = (
        group.options.description or f"Types {group.match} of {group.stream.name}, a table each"
    )
    return _spec(
        group,
        asset_key(group.name),
        {"description": description, **given, "metadata": metadata | given.get("metadata", {})},
    )


def _types_spec(lake: Lake, group: EventGroup) -> dg.AssetSpec:
    description = (
        f"The types of {group.name}, each a partition; launch some of them to have their events "
        f"read again."
    )
    partitions = partitions_of_group(lake, group)
    return _spec(
        group,
        types_key(group),
        {"skippable": True, "partitions_def": partitions, "description": description},
    )


def type_specs(lake: Lake, group: EventGroup) -> list[dg.AssetSpec]:
    """The assets of a group's named types."""
    return [_named_spec(group, table) for table in named_types(lake, group)]


def _named_spec(group: EventGroup, table: SourceTable) -> dg.AssetSpec:
    given: dict[str, Any] = {"skippable": True, "description": table.description or None}
    given |= {"group_name": table.group} if table.group else {}
    given |= {"owners": [table.owner]} if table.owner else {}
    given |= {"kinds": {*table.kinds}} if table.kinds else {}
    given |= (
        {"freshness_policy": dg.FreshnessPolicy.time_window(table.fresh_within)}
        if table.fresh_within is not None
        else {}
    )
    metadata = {"dagster/table_name": table.name, "written by": f"the group {group.name}"}
    return _spec(
        group,
        asset_key(table.name),
        {**given, **table.dagster, "metadata": {**metadata, **table.dagster.get("metadata", {})}},
    )


def failed_group_asset(lake: Lake, group: EventGroup) -> dg.AssetSpec:
    """The asset of a group that cannot run, as its declaration is wrong."""
    deps = {} if group.stream.table in lake.tables else {"deps": []}
    shown = {
        "description": f"Failed: {group.problem}",
        "metadata": {"failed": group.problem, "types": group.match},
    }
    return _spec(group, asset_key(group.name), {**shown, **deps})


def failed_group_sensor(group: EventGroup) -> dg.SensorDefinition:
    """The sensor of such a group: each tick fails with the reason. The events wait in the stream's
    table.
    """

    @dg.sensor(
        name=dagster_name(group.name),
        minimum_interval_seconds=FAILED_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Failed: {group.problem}",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        raise LakeChimeError(f"event group {group.name} does not run: {group.problem}")

    return sensor


def _shown(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    metadata: Mapping[str, Any] | None,
    checks: Iterable[dg.AssetCheckResult],
) -> Iterator[Any]:
    """What Dagster records of an asset: a materialization where there are metadata, be it selected
    or not; and its selected checks.
    """
    wanted = [
        one
        for one in checks
        if dg.AssetCheckKey(key, str(one.check_name)) in context.selected_asset_check_keys
    ]
    if metadata is not None and key in context.selected_asset_keys:
        yield dg.MaterializeResult(asset_key=key, metadata=metadata, check_results=wanted)
        return
    if metadata is not None:
        context.log_event(dg.AssetMaterialization(key, metadata=metadata))
    yield from wanted


def _shown_types(
    context: dg.AssetExecutionContext,
    platform: Platform,
    lake: Lake,
    group: EventGroup,
    result: GroupResult,
) -> Iterator[Any]:
    """What Dagster records of the types that the lake names; one that was not written is not
    materialized.
    """
    by_table, known = (
        {one.table: one for one in result.types},
        event_types(platform).types(group.name),
    )
    for table in named_types(lake, group):
        one = by_table.get(table.name)
        if one is None:
            continue
        metadata = None
        if one.committed is not None:
            columns = [
                dg.TableColumn(name, kind) for name, kind in table_columns(known[one.type].schema)
            ]
            rows = _rows_of(platform, group, one)
            metadata = _type_metadata(group, one) | {
                "dagster/column_schema": dg.MetadataValue.table_schema(
                    dg.TableSchema(columns=columns)
                ),
                **({} if rows is None else {"dagster/row_count": rows}),
            }
        yield from _shown(context, asset_key(table.name), metadata, type_checks(table, one))


def _rows_of(platform: Platform, group: EventGroup, one: TypeResult) -> int | None:
    """How many rows a type's table holds; None where that is not known, which prevents nothing, as
    they are written.
    """
    try:
        log = platform.log_of(one.table, group.format)
        return None if log.table_format is TableFormat.HIVE else log.size().rows
    except LakeChimeError:
        return None


def _request_replays(
    context: dg.AssetExecutionContext, platform: Platform, group: EventGroup
) -> None:
    """A run that a person launches with types as partitions replays those that have tables."""
    if not context.has_partition_key and not context.has_partition_key_range:
        return
    known = event_types(platform).types(group.name)
    by = By(
        who="dagster", reason=f"run {context.run_id} was launched with these types as partitions"
    )
    for name in context.partition_keys:
        if name in known and known[name].checkpoint.commits:
            event_requests(platform).ask(known[name].table, RequestKind.REPLAY, by)


def _log_failures(context: dg.AssetExecutionContext, results: Iterable[TypeResult]) -> None:
    """Log why types were not written, each with its stack, where a person looks first: in the log
    of the run.
    """
    for one in results:
        if one.error:
            context.log.error(
                f"type {one.type} was not written and keeps its checkpoint: "
                f"{one.error}\n{one.stack}"
            )


def types_to_materialize(
    known: Mapping[str, KnownType],
    results: Iterable[TypeResult],
    now_ms: int,
    every: dt.timedelta = MATERIALIZE_EVERY,
) -> dict[str, TypeResult]:
    """The types to materialize now: new ones, new columns, failures and what follows them at once,
    mere rows so often.
    """
    found: dict[str, TypeResult] = {}
    for one in results:
        before = known.get(one.type)
        is_odd = (
            one.columns_added
            or one.replayed
            or (one.error and (before is None or not before.failures))
        )
        has_recovered = before is not None and before.failures and one.committed
        is_due = one.committed and (
            before is None
            or now_ms - before.materialized_ts >= every / dt.timedelta(milliseconds=1)
        )
        if is_odd or has_recovered or is_due:
            found[one.type] = one
    return found


def _materialize_types(
    context: dg.AssetExecutionContext,
    lake: Lake,
    group: EventGroup,
    shown: Mapping[str, TypeResult],
    page_url: str,
) -> None:
    """Add the types that are new as partitions, all at once, and log a materialization of each
    type, with a link to its table.
    """
    if not shown:
        return
    partitions = str(partitions_of_group(lake, group).name)
    there = {*context.instance.get_dynamic_partitions(partitions)}
    if new := [name for name in shown if name not in there]:
        context.instance.add_dynamic_partitions(partitions, new)
    for one in shown.values():
        if one.committed is not None:
            metadata = {
                "dagster/row_count": one.written,
                **_type_metadata(group, one),
                **page_link(page_url, one.table),
            }
            context.log_event(
                dg.AssetMaterialization(types_key(group), partition=one.type, metadata=metadata)
            )


def _standing(platform: Platform, group: EventGroup) -> GroupResult:
    """The state of the types of a group, where a run has nothing to do for them."""
    return GroupResult(
        types=tuple(
            TypeResult(
                type=one.known.type,
                table=one.known.table,
                start=one.known.checkpoint.version,
                end=one.known.checkpoint.version,
                put_off=one.known.error,
                waits=one.reason if one.state is TypeState.WAITS else "",
            )
            for one in types_of(platform, group)
        )
    )


def _counts(results: Sequence[TypeResult]) -> dict[str, int]:
    """The counts of results in sum, with those of requests, where one was done."""
    done = [each for one in results for each in one.replayed]
    counts = {name: sum(getattr(one, field) for one in results) for name, field in COUNTS.items()}
    return counts | (
        {
            f"rows {what} by replays": sum(getattr(one, what) for one in done)
            for what in ("replaced", "added")
        }
        if done
        else {}
    )


def _type_metadata(group: EventGroup, one: TypeResult) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        **_counts([one]),
        "schema version": one.schema_version,
        "commit": commit_name(group.format, one.committed.version)
        if one.committed is not None
        else "nothing to do, no commit",
        "table": one.table,
    }
    if one.is_rebuilt:
        metadata["rows removed by a rebuild"] = sum(each.removed for each in one.replayed)
        metadata["breaking"] = (
            "the table was rebuilt, with its columns; tables that were computed from it must be "
            "computed again"
        )
    return metadata


def _report(running: RunningExecution, attempt: Attempted[GroupResult]) -> dict[str, Any]:
    """What a person sees of an execution of a group."""
    result, execution = attempt.result, running.execution
    return {
        "last fired because": execution.reason or execution.cause.value,
        "types written": sum(1 for one in result.types if one.committed is not None),
        "types failed": sum(1 for one in result.types if one.failure),
        "types waiting": sum(1 for one in result.types if one.waits),
        "types catching up": sum(1 for one in result.types if one.catches_up),
        **_counts(result.types),
        "rows without a type": sum(result.refused.values()),
        "types": dg.MetadataValue.md(types_table(result.types)),
        "seconds": round(sum(result.seconds.values()), 3),
        "seconds by phase": dg.MetadataValue.json(
            {phase: round(value, 3) for phase, value in result.seconds.items()}
        ),
        "number": execution.number,
        "attempt": execution.attempt,
        "spark": f"{attempt.driver}: {attempt.reason} (ready after {attempt.ready:.1f} s)",
    }


def types_table(results: Iterable[TypeResult]) -> str:
    """What an execution did, type by type, those first that failed or wait, then by rows."""
    moved = [one for one in results if one.rows or one.failure or one.waits]
    ordered = sorted(moved, key=lambda one: (not one.failure, not one.waits, -one.rows, one.type))
    cells = [
        (
            one.type,
            one.table,
            one.rows,
            one.written,
            one.rescued,
            one.columns_added,
            one.failure or one.waits,
        )
        for one in ordered
    ]
    return _markdown(("type", "table", "events", "written", "rescued", "columns added", ""), cells)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of the first rows; no text ends a cell of it."""
    lines = [
        [str(cell).replace("|", "\\|").replace("\n", " ") for cell in row]
        for row in rows[:MAX_SHOWN]
    ]
    more = [f"and {len(rows) - MAX_SHOWN} more"] if len(rows) > MAX_SHOWN else []
    table = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *lines)]
    return "\n".join([*table, *more]) if rows else "none"


def group_check_specs(group: EventGroup) -> list[dg.AssetCheckSpec]:
    """The checks that every run of a group reports."""
    about = {
        ROWS_ADD_UP: "Of each type: events of the stream = rows written + discarded + pending.",
        NO_TYPE_FAILS: "Every type could be written; one that could not keeps its checkpoint.",
        NOTHING_WAITS: "No type waits in the stream's table for a table of its own.",
        NO_VALUE_LOST: "A few rows of each execution hold all values of their events.",
        NOTHING_BREAKS: (
            "No field was continued in a variant column and no table rebuilt lately, and no "
            "contract or cap keeps values out of all columns."
        ),
    }
    return [
        dg.AssetCheckSpec(name, asset=asset_key(group.name), description=text)
        for name, text in about.items()
    ]


def type_check_specs(lake: Lake, group: EventGroup) -> list[dg.AssetCheckSpec]:
    """The checks of a group's named types, which every run of the group reports."""
    about = {
        ROWS_ADD_UP: "Events of the stream = rows written + discarded + pending.",
        IS_WRITTEN: "The type could be written, and waits for no table.",
    }
    tables = named_types(lake, group)
    return [
        dg.AssetCheckSpec(name, asset=asset_key(one.name), description=text)
        for one in tables
        for name, text in about.items()
    ]


def type_checks(table: SourceTable, one: TypeResult) -> list[dg.AssetCheckResult]:
    """The checks of a named type after an execution."""
    key, odd = asset_key(table.name), one.failure or one.waits
    return [
        dg.AssetCheckResult(
            asset_key=key, check_name=ROWS_ADD_UP, passed=one.is_balanced, metadata=_counts([one])
        ),
        dg.AssetCheckResult(
            asset_key=key,
            check_name=IS_WRITTEN,
            passed=not odd,
            severity=WARN,
            metadata={"reason": odd or "none"},
        ),
    ]


def _group_checks(key: dg.AssetKey, result: GroupResult) -> list[dg.AssetCheckResult]:
    unbalanced = {one.type: "does not add up" for one in result.types if not one.is_balanced}
    failed = {one.type: one.failure for one in result.types if one.failure}
    waiting = {one.type: one.waits for one in result.types if one.waits and one.type not in failed}
    is_stuck = bool(failed) and not any(one.committed for one in result.types)

    def check(
        name: str, types: Mapping[str, str], severity: dg.AssetCheckSeverity
    ) -> dg.AssetCheckResult:
        metadata = {
            "types": len(types),
            "reasons": dg.MetadataValue.json(dict([*types.items()][:MAX_SHOWN])),
        }
        return dg.AssetCheckResult(
            asset_key=key, check_name=name, passed=not types, severity=severity, metadata=metadata
        )

    return [
        check(ROWS_ADD_UP, unbalanced, ERROR),
        check(NO_TYPE_FAILS, failed, ERROR if is_stuck else WARN),
        check(NOTHING_WAITS, waiting, WARN),
        conserved(result.verified, key, NO_VALUE_LOST),
    ]


def breaking_check(
    group: EventGroup, schemas: Sequence[BreakingSchema], results: Iterable[TypeResult]
) -> dg.AssetCheckResult:
    """The check of recent schemas that break something, and of values that an execution kept out
    of columns; without either it passes.
    """
    facts: list[dict[str, Any]] = [
        {"type": one.type, "schema": one.version, "columns": one.decision.splitlines()}
        for one in schemas
    ]
    sentences = [
        f"schema {one.version} of {one.type}: {', '.join(one.decision.splitlines())}"
        for one in schemas
    ]
    for one in results:
        if one.is_rebuilt:
            facts.append({"type": one.type, "reason": "rebuilt"})
            sentences.append(f"the table of {one.type} was rebuilt, with its columns")
        for reason in KEPT_OUT:
            if values := one.reasons.get(reason, 0):
                facts.append({"type": one.type, "reason": reason.value, "values": values})
                sentences.append(f"values of {one.type} {KEPT_OUT[reason]}: {values}")
    metadata: dict[str, Any] = {"changes": len(facts)}
    metadata |= {"breaking": dg.MetadataValue.json(facts[:MAX_SHOWN])} if facts else {}
    metadata |= {"owner": group.owner} if facts and group.owner else {}
    return dg.AssetCheckResult(
        asset_key=asset_key(group.name),
        check_name=NOTHING_BREAKS,
        passed=not facts,
        severity=WARN,
        metadata=metadata,
        description=_named(
            sentences, [f"{group.name} is owned by {group.owner}"] if group.owner and facts else []
        ),
    )


def _named(sentences: Sequence[str], last: Sequence[str] = ()) -> str | None:
    """The first of some sentences, how many more there are, and last ones; None where there are
    none.
    """
    more = [f"and {len(sentences) - MAX_NAMED} more"] if len(sentences) > MAX_NAMED else []
    return "; ".join([*sentences[:MAX_NAMED], *more, *last]) or None


def verify_check(group: EventGroup) -> dg.AssetChecksDefinition:
    """The check of a group that is verified by a schedule; it starts Spark and reads the whole of
    the stream's table.
    """
    description = (
        "Each event is in the table of its type once, with all its values, or a contract discarded "
        "it."
    )

    @dg.asset_check(asset=asset_key(group.name), name=EACH_EVENT_ONCE, description=description)
    def check(
        context: dg.AssetCheckExecutionContext, lakechime: LakeChimeResource
    ) -> dg.AssetCheckResult:
        from lakechime_dagster.silver.service import verified

        platform = lakechime.platform()
        return conserved(verified(platform, group, context.log.info, seed=platform.store.now()))

    return check


def conserved(
    found: Sequence[Verified], key: dg.AssetKey | None = None, name: str | None = None
) -> dg.AssetCheckResult:
    """A comparison as a check: an error where an event is lost or a row is wrong, a warning where a
    type could not be read.

    Rows are named by their `_src`, and values by their pointers: they may be personal data.
    """
    wrong, unread = [one for one in found if not one.is_whole], [one for one in found if one.unread]
    problems = [
        f"{one.table}: {', '.join(f'{n} {fault.value}' for fault, n in one.faults.items())}"
        for one in wrong
    ]
    problems += [f"{one.table} could not be read: {one.unread}" for one in unread]
    faults = [
        (one.table, fault.value, count, _examples(one, fault))
        for one in wrong
        for fault, count in one.faults.items()
    ]
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=name,
        passed=not problems,
        severity=ERROR if wrong else WARN,
        metadata={
            "types": len(found),
            "events": sum(one.events for one in found),
            "rows": sum(one.rows for one in found),
            "events discarded": sum(one.discarded for one in found),
            "rows older than the stream": sum(one.gone for one in found),
            "rows compared": sum(one.sampled for one in found),
            "types with faults": len(wrong),
            "types not read": len(unread),
            "faults": dg.MetadataValue.md(_markdown(("table", "fault", "rows", "such as"), faults)),
        },
        description=_named(problems),
    )


def _examples(one: Verified, fault: Fault) -> str:
    return ", ".join(
        dict.fromkeys(
            f"{each.source} {each.pointer}".strip() for each in one.examples if each.fault is fault
        )
    )


def event_job_of(lake: Lake, table: EventTable, running: RunningExecution) -> EventJob:
    """What one execution asks of Spark for a stream's table; its range is between the checkpoints
    of its claim.
    """
    request = event_requests(running.platform).open(table.name)
    return EventJob(
        **fed(lake, table, running),
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
