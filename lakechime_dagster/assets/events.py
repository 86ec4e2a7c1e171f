"""Event streams and their typed tables as assets, with their checks."""

import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from lakechime_dagster.assets.cdc import inputs_outside
from lakechime_dagster.assets.jobs import event_job_of, group_job_of, groups_beside
from lakechime_dagster.assets.report import nothing_new, page_link
from lakechime_dagster.assets.tables import attempting_asset, declared
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage.declared import record_types
from lakechime_dagster.runtime.asset_keys import asset_key
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.names import EACH_EVENT_ONCE, dagster_name, op_name
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.resource import LakeChimeResource, NothingNewError
from lakechime_dagster.runtime.spark import ON_SPARK, Attempted, SparkAttempt, SparkResource, account_confs, spark_of
from lakechime_dagster.silver.requests import (
    TypeState,
    complete_group,
    event_breaks,
    event_hints,
    event_replays,
    event_reprocesses,
    event_types,
    types_of,
)
from lakechime_dagster.silver.results import REBUILT, EventJob, Fault, GroupJob, GroupResult, Reprocessed, TypeResult, Verified
from lakechime_dagster.silver.schema import NOWHERE, Broke, KnownType, TypeCheckpoint, table_columns
from lakechime_dagster.silver.store import KeptBreak
from lakechime_dagster.tables.events import EventGroup, EventTable
from lakechime_dagster.tables.lake import Lake, named_types
from lakechime_dagster.tables.names import Account
from lakechime_dagster.tables.sources import KafkaTopic
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.interventions import By
from lakechime_dagster.triggers.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTHING_BREAKS = "nothing_breaks"
ABOUT_BREAKS = "No field went on in a variant column, and no values were kept out of all columns by a contract or a cap, lately."
RECENT_MS = 120_000  # so long the check fails at least, as alarms look from time to time
MAX_NAMED_BREAKS = 5  # in a sentence
MAX_BREAKS = 200

_HOW = {
    Broke.VARIANT: "goes to a variant column",
    Broke.FROZEN: "is kept out by the contract",
    Broke.CAP: "is kept out, as the table has as many columns as it may",
    Broke.REBUILT: "has other columns, as its table was made anew",
}


def breaking_check(group: EventGroup, several: Sequence[KeptBreak]) -> dg.AssetCheckResult:
    """What the check says of these changes; without one it passes."""
    metadata: dict[str, Any] = {"changes": len(several)}
    if several:
        metadata["breaking"] = dg.MetadataValue.json([_break_facts(one) for one in several[:MAX_BREAKS]])
        metadata |= {"owner": group.owner} if group.owner else {}
    return dg.AssetCheckResult(
        asset_key=asset_key(group.name),
        check_name=NOTHING_BREAKS,
        passed=not several,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=metadata,
        description=_break_sentence(group, several) if several else None,
    )


def _break_facts(one: KeptBreak) -> dict[str, Any]:
    change = one.breaking
    return {
        "type": one.type,
        "path": change.path,
        "kind": change.kind,
        "how": change.how.value,
        "producer": change.producer,
        "schema": one.schema_version,
    }


def _break_sentence(group: EventGroup, several: Sequence[KeptBreak]) -> str:
    told = [
        (f"{one.breaking.kind} at {one.breaking.path} of {one.type}" if one.breaking.path else one.type)
        + (f", sent by {one.breaking.producer}," if one.breaking.producer else "")
        + f" {_HOW[one.breaking.how]}"
        for one in several[:MAX_NAMED_BREAKS]
    ]
    told += [f"and {len(several) - MAX_NAMED_BREAKS} more"] if len(several) > MAX_NAMED_BREAKS else []
    return "; ".join([*told, *([f"{group.name} is owned by {group.owner}"] if group.owner else [])])


MAX_FAULTY = 50  # types of a table that people read
MAX_NAMED_FAULTS = 5  # that an alarm names


def verify_check(group: EventGroup) -> dg.AssetChecksDefinition:
    """The check of a group that says when it is made; it starts Spark and reads the whole of the stream's table."""
    description = "Each event is in the table of its type once, with all that it says, or a contract discarded it."

    @dg.asset_check(asset=asset_key(group.name), name=EACH_EVENT_ONCE, description=description)
    def check(context: dg.AssetCheckExecutionContext, lakechime: LakeChimeResource) -> dg.AssetCheckResult:
        from lakechime_dagster.silver.service import verified

        platform = lakechime.platform()
        return conserved(verified(platform, group, context.log.info, seed=platform.store.now()))

    return check


def conserved(found: Sequence[Verified], key: dg.AssetKey | None = None, name: str | None = None) -> dg.AssetCheckResult:
    """What was found as a check: an error where an event is lost or a row is wrong, a warning where a type could not be looked at."""
    wrong, unread = [one for one in found if not one.is_whole], [one for one in found if one.unread]
    told = [f"{one.table}: {_faults(one)}" for one in wrong] + [f"{one.table} could not be looked at: {one.unread}" for one in unread]
    more = [f"and {len(told) - MAX_NAMED_FAULTS} more"] if len(told) > MAX_NAMED_FAULTS else []
    severity = dg.AssetCheckSeverity.ERROR if wrong else dg.AssetCheckSeverity.WARN
    metadata: dict[str, Any] = {
        "types": len(found),
        "events": sum(one.events for one in found),
        "rows": sum(one.rows for one in found),
        "events discarded": sum(one.discarded for one in found),
        "rows older than the stream": sum(one.gone for one in found),
        "rows looked into": sum(one.sampled for one in found),
        "types with faults": len(wrong),
        "types not looked at": len(unread),
        "faults": dg.MetadataValue.md(_faults_table(wrong)),
    }
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=name,
        passed=not told,
        severity=severity,
        metadata=metadata,
        description="; ".join([*told[:MAX_NAMED_FAULTS], *more]) or None,
    )


def _faults(one: Verified) -> str:
    return ", ".join(f"{count} {fault.value}" for fault, count in one.faults.items())


def _faults_table(wrong: Sequence[Verified]) -> str:
    """The faults, each with some `_src` and pointers; no value, which may be personal data."""
    rows = [
        (one.table, fault.value, count, _fault_examples(one, fault)) for one in wrong[:MAX_FAULTY] for fault, count in one.faults.items()
    ]
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(["| table | fault | rows | such as |", "|---|---|---|---|", *lines]) if lines else "none"


def _fault_examples(one: Verified, fault: Fault) -> str:
    return ", ".join(dict.fromkeys(f"{each.source} {each.pointer}".strip() for each in one.examples if each.fault is fault))


KINDS = ("deltalake", "spark")
ROWS_ADD_UP, IS_WRITTEN = "rows_add_up", "is_written"


def type_specs(lake: Lake, group: EventGroup) -> list[dg.AssetSpec]:
    """The assets of a group's named types; each comes from the stream's table, where a step finds events of it."""
    return [_named_spec(group, table) for table in named_types(lake, group)]


def _named_spec(group: EventGroup, table: SourceTable) -> dg.AssetSpec:
    given: dict[str, Any] = {
        "key": asset_key(table.name),
        "deps": [asset_key(group.stream.table.name)],
        "skippable": True,
        "group_name": table.group or group.name,
        "owners": [owner] if (owner := table.owner or group.owner) else None,
        "kinds": {*(table.kinds or KINDS)},
        "description": table.description or None,
        "freshness_policy": dg.FreshnessPolicy.time_window(table.fresh_within) if table.fresh_within is not None else None,
    }
    metadata = {"dagster/table_name": table.name, "written by": f"the group {group.name}"}
    return dg.AssetSpec(**{**given, **table.dagster, "metadata": {**metadata, **table.dagster.get("metadata", {})}})


def type_check_specs(lake: Lake, group: EventGroup) -> list[dg.AssetCheckSpec]:
    """The checks of a group's named types, which every run of the group reports."""
    return [spec for table in named_types(lake, group) for spec in _named_check_specs(asset_key(table.name))]


def _named_check_specs(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    adds_up = "Events of the stream = rows written + discarded + pending."
    return [
        dg.AssetCheckSpec(ROWS_ADD_UP, asset=key, description=adds_up),
        dg.AssetCheckSpec(IS_WRITTEN, asset=key, description="The type could be written, and waits for no table."),
    ]


def type_checks(table: SourceTable, one: TypeResult) -> list[dg.AssetCheckResult]:
    """What a step says of a named type."""
    key, odd = asset_key(table.name), one.failure or one.waits
    counts = {"events": one.rows, "rows written": one.written, "rows discarded": one.discarded, "rows pending": one.pending}
    return [
        dg.AssetCheckResult(asset_key=key, check_name=ROWS_ADD_UP, passed=one.is_balanced, metadata=counts),
        dg.AssetCheckResult(
            asset_key=key, check_name=IS_WRITTEN, passed=not odd, severity=dg.AssetCheckSeverity.WARN, metadata={"reason": odd or "none"}
        ),
    ]


def results_of(lake: Lake, group: EventGroup, results: Iterable[TypeResult]) -> dict[SourceTable, TypeResult]:
    """What a step did for those of its types that are named."""
    by_table = {f"{one.home or group.name}.{one.table}": one for one in results}
    return {table: by_table[table.name] for table in named_types(lake, group) if table.name in by_table}


def type_metadata(platform: Platform, group: EventGroup, written: Mapping[SourceTable, TypeResult]) -> dict[str, dict[str, Any]]:
    """What is shown of the tables of types that a step has written, by their names: columns and rows as they are now."""
    known = event_types(platform).types(group.name) if written else {}
    found: dict[str, dict[str, Any]] = {}
    for table, one in written.items():
        assert one.committed is not None
        columns = [dg.TableColumn(name, kind) for name, kind in table_columns(known[one.type].schema)]
        rows = _rows_at(platform, table, int(one.committed.version))
        found[table.name] = {
            "dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns=columns)),
            **({} if rows is None else {"dagster/row_count": rows}),
            "rows written": one.written,
        }
    return found


def _rows_at(platform: Platform, table: SourceTable, version: int) -> int | None:
    """How many rows a version holds; None where that cannot be told, which hinders nothing, as they are written."""
    try:
        return platform.log(table.name, table.location).size(version).rows
    except LakeChimeError:
        return None


NO_TYPE_FAILS, NOTHING_WAITS, NO_VALUE_LOST = "no_type_fails", "nothing_waits", "no_value_lost"
MATERIALIZE_EVERY = dt.timedelta(minutes=5)  # Dagster is told of a type to which nothing but rows came at most so often
FAILED_SECONDS = 60  # between ticks of the sensor of a group that cannot run
MAX_SHOWN = 200  # types in a table that people read
OF_ASSET = frozenset(("metadata", "tags", "code_version", "automation_condition", "freshness_policy"))  # what is no argument of an op


def event_asset(lake: Lake, table: EventTable, subscription: Subscription) -> dg.AssetsDefinition:
    """The asset of a stream's table; it depends on the table, or on the topic or folder outside of the lake, that is its source."""
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
        lambda spark, running, log: ingest(spark, running, event_job_of(lake, table, running), log, table.write_as),
    )


def ingest(
    spark: SparkResource, running: RunningExecution, job: EventJob, log: Callable[[str], None], write_as: Account | None
) -> SparkAttempt:
    """One attempt at an execution of a stream's table; the request to reprocess that it handled is closed."""
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
    committed = done.result.committed
    found = Reprocessed(reprocess_id=job.reprocess) if committed is None else Reprocessed.of(committed.commit_metadata.facts)
    if found is not None:
        event_reprocesses(platform).close(running.execution.execution_id, found)
    return done if found is None else replace(done, facts={"rows reprocessed": found.rows})


def refresh_group(spark: SparkResource, running: RunningExecution, job: GroupJob, log: Callable[[str], None]) -> Attempted[GroupResult]:
    """One attempt at an execution of a group."""
    with ON_SPARK:
        from lakechime_dagster.silver.refresh import GroupStep

    platform = running.platform
    begun = running.execution.start.sources.get(job.group.stream.table.name, SnapshotCheckpoint())
    start = TypeCheckpoint(uid=begun.table_uid, version=int(begun.snapshot_id or NOWHERE))
    repository = replace(event_types(platform), beside=frozenset(one.name for one in job.groups))

    def work(session: "SparkSession") -> GroupResult:
        step = GroupStep(spark=session, job=job, repository=repository, open_log=platform.log_at, now_ms=platform.store.now(), start=start)
        return step.run()

    return spark.attempt(running, log, work, spark=spark_of(platform.settings, job.group))


def partitions_of_group(lake: Lake, group: EventGroup) -> dg.DynamicPartitionsDefinition:
    """The types of a group, which come as their events do."""
    return dg.DynamicPartitionsDefinition(name=f"{lake.name}__{group.name}__types")


def types_key(group: EventGroup) -> dg.AssetKey:
    """The asset whose partitions are the types of a group."""
    return asset_key(f"{group.name}__types")


def group_check_specs(group: EventGroup) -> list[dg.AssetCheckSpec]:
    """The checks that every run of a group reports."""
    key = asset_key(group.name)
    return [
        dg.AssetCheckSpec(ROWS_ADD_UP, asset=key, description="Of each type: events of the stream = rows written + discarded + pending."),
        dg.AssetCheckSpec(NO_TYPE_FAILS, asset=key, description="Every type could be written; one that could not keeps its checkpoint."),
        dg.AssetCheckSpec(NOTHING_WAITS, asset=key, description="No type waits in the stream's table for a table of its own."),
        dg.AssetCheckSpec(NO_VALUE_LOST, asset=key, description="A few rows of each execution hold all values of their events."),
        dg.AssetCheckSpec(NOTHING_BREAKS, asset=key, description=ABOUT_BREAKS),
    ]


def group_asset(lake: Lake, group: EventGroup, subscription: Subscription) -> dg.AssetsDefinition:
    """The asset of a group, with those of the types that the lake names as further outputs.

    A run does one step of all types, whichever of these assets are selected. The types are partitions of an asset beside it, so that
    the group itself is launched without naming one.
    """
    key, bronze, types = asset_key(group.name), group.stream.table.name, type_specs(lake, group)
    of_asset = {name: value for name, value in group.options.dagster.items() if name in OF_ASSET}
    of_op = {name: value for name, value in group.options.dagster.items() if name not in OF_ASSET}

    @dg.multi_asset(
        name=op_name(group.name),
        specs=[_group_spec(group, subscription, of_asset), _types_spec(lake, group), *types],
        can_subset=True,
        check_specs=[*group_check_specs(group), *type_check_specs(lake, group)],
        backfill_policy=dg.BackfillPolicy.single_run(),
        **of_op,
    )
    def body(context: dg.AssetExecutionContext, lakechime: LakeChimeResource, spark: SparkResource) -> Iterator[dg.MaterializeResult]:
        platform = lakechime.platform()
        asked_by_partitions(context, platform, group)
        try:
            with lakechime.execution(context, subscription.name) as running:
                event_types(platform).move(groups_beside(lake, group), running.execution.end.sources[bronze].table_uid)
                job = group_job_of(lake, group, running)
                known = event_types(platform).types(group.name)
                done = refresh_group(spark, running, job, context.log.info)
                told = types_to_tell(known, done.result.types, platform.store.now())
                running.completed = complete_group(platform, running.subscription, running.execution, done.result, [*told])
                record_types(running, group, done.result.types)
                log_failures(context, done.result.types)
                tell_types(context, types_key(group), group, partitions_of_group(lake, group), told, platform.settings.lineage_url)
                said = {"said beside what is declared": dg.MetadataValue.json(_said(platform, group))}
                result, metadata = done.result, _report(running, done) | said
        except NothingNewError as nothing:
            result, metadata = _standing(platform, group), nothing_new(str(nothing)).metadata
        breaks = breaking_check(group, event_breaks(platform).recent(group.name, RECENT_MS))
        yield from _shown(context, key, metadata, [*_checks(key, result), breaks])
        yield from _shown_types(context, platform, lake, group, result)

    return body


def _shown_types(
    context: dg.AssetExecutionContext, platform: Platform, lake: Lake, group: EventGroup, result: GroupResult
) -> Iterator[Any]:
    """What Dagster is told of the types that the lake names; one that was not written is not materialised."""
    named = results_of(lake, group, result.types)
    about = type_metadata(platform, group, {table: one for table, one in named.items() if one.committed is not None})
    for table, one in named.items():
        of_type = {name: value for name, value in _of_type(one).items() if name != "dagster/row_count"}  # of the commit's rows alone
        facts = of_type | about[table.name] if table.name in about else None
        yield from _shown(context, asset_key(table.name), facts, type_checks(table, one))


def failed_group_asset(lake: Lake, group: EventGroup) -> dg.AssetSpec:
    """The asset of a group that cannot run, as its declaration is wrong."""
    return dg.AssetSpec(
        asset_key(group.name),
        deps=[asset_key(group.stream.table.name)] if group.stream.table in lake.tables else [],
        group_name=group.name,
        kinds={*KINDS},
        description=f"Failed: {group.problem}",
        metadata={"failed": group.problem, "types": group.match},
    )


def failed_group_sensor(group: EventGroup) -> dg.SensorDefinition:
    """The sensor of such a group: each tick fails with the reason. The events wait in the stream's table."""

    @dg.sensor(
        name=dagster_name(group.name),
        minimum_interval_seconds=FAILED_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Failed: {group.problem}",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        raise LakeChimeError(f"event group {group.name} does not run: {group.problem}")

    return sensor


def _group_spec(group: EventGroup, subscription: Subscription, given: Mapping[str, Any]) -> dg.AssetSpec:
    metadata = {"waits for": subscription.condition, "types": group.match, "contract": dg.MetadataValue.json(_contract(group))}
    usual: dict[str, Any] = {
        "key": asset_key(group.name),
        "deps": [asset_key(group.stream.table.name)],
        "group_name": group.name,
        "owners": [group.owner] if group.owner else None,
        "kinds": {*KINDS},
        "description": group.options.description or f"Types {group.match} of {group.stream.name}, a table each",
    }
    return dg.AssetSpec(**{**usual, **given, "metadata": metadata | given.get("metadata", {})})


def _types_spec(lake: Lake, group: EventGroup) -> dg.AssetSpec:
    return dg.AssetSpec(
        types_key(group),
        deps=[asset_key(group.stream.table.name)],
        skippable=True,
        partitions_def=partitions_of_group(lake, group),
        group_name=group.name,
        owners=[group.owner] if group.owner else None,
        kinds={*KINDS},
        description=f"The types of {group.name}, each a partition; launch some of them to have their events read again.",
    )


def _shown(
    context: dg.AssetExecutionContext, key: dg.AssetKey, metadata: Mapping[str, Any] | None, checks: Iterable[dg.AssetCheckResult]
) -> Iterator[Any]:
    """What Dagster is told of an asset: a materialisation where there are metadata, be it selected or not; and its selected checks."""
    wanted = [one for one in checks if dg.AssetCheckKey(key, str(one.check_name)) in context.selected_asset_check_keys]
    if metadata is not None and key in context.selected_asset_keys:
        yield dg.MaterializeResult(asset_key=key, metadata=metadata, check_results=wanted)
        return
    if metadata is not None:
        context.log_event(dg.AssetMaterialization(key, metadata=metadata))
    yield from wanted


def asked_by_partitions(context: dg.AssetExecutionContext, platform: Platform, group: EventGroup) -> None:
    """A run that a person launches with types as partitions replays those that have tables."""
    if not context.has_partition_key and not context.has_partition_key_range:
        return
    known = event_types(platform).types(group.name)
    asked = [name for name in context.partition_keys if name in known and known[name].checkpoint.commits]
    if asked:
        by = By(who="dagster", reason=f"run {context.run_id} was launched with these types as partitions")
        event_replays(platform).ask(group.name, asked, by)


def log_failures(context: dg.AssetExecutionContext, results: Iterable[TypeResult]) -> None:
    """Log why types were not written, each with its stack, where a person looks first: in the log of the run."""
    for one in results:
        if one.error:
            context.log.error(f"type {one.type} was not written and keeps its checkpoint: {one.error}\n{one.stack}")


def types_to_tell(
    known: Mapping[str, KnownType], results: Iterable[TypeResult], now_ms: int, every: dt.timedelta = MATERIALIZE_EVERY
) -> dict[str, TypeResult]:
    """The types of which people are told now: new columns, failures and what follows them at once, mere rows so often."""
    found: dict[str, TypeResult] = {}
    for one in results:
        before = known.get(one.type)
        is_odd = bool(one.columns_added or one.replayed or (one.error and (before is None or not before.failures)))
        has_recovered = before is not None and before.failures > 0 and one.committed is not None
        is_moved = before is not None and before.checkpoint.commits > 0 and not before.told_ts  # to this group
        is_due = one.committed is not None and (before is None or now_ms - before.told_ts >= every / dt.timedelta(milliseconds=1))
        if is_odd or has_recovered or is_moved or is_due:
            found[one.type] = one
    return found


def tell_types(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    group: EventGroup,
    partitions: dg.DynamicPartitionsDefinition,
    told: Mapping[str, TypeResult],
    page_url: str,
) -> None:
    """Add the types that are new as partitions, all at once, and log a materialisation of each type, with a link to its table."""
    if not told:
        return
    assert partitions.name is not None
    there = set(context.instance.get_dynamic_partitions(partitions.name))
    if new := [one for name, one in told.items() if name not in there]:
        context.instance.add_dynamic_partitions(partitions.name, [one.type for one in new])
    for one in told.values():
        if one.committed is not None:
            link = page_link(page_url, f"{one.home or group.name}.{one.table}")
            context.log_event(dg.AssetMaterialization(key, partition=one.type, metadata=_of_type(one) | link))


def _standing(platform: Platform, group: EventGroup) -> GroupResult:
    """How the types of a group fare, where a run has nothing to do for them."""
    return GroupResult(
        types=tuple(
            TypeResult(
                type=one.known.type,
                table=one.known.table,
                start=one.known.checkpoint.version,
                end=one.known.checkpoint.version,
                home=one.known.home,
                put_off=one.known.error,
                waits=one.reason if one.state is TypeState.WAITS else "",
            )
            for one in types_of(platform, group)
        )
    )


def _of_type(one: TypeResult) -> dict[str, Any]:
    version = f"version {one.committed.version}" if one.committed is not None else "nothing to do, no commit"
    replays: dict[str, Any] = {
        "rows replaced by a replay": sum(each.replaced for each in one.replayed),
        "rows added by a replay": sum(each.added for each in one.replayed),
    }
    if any(REBUILT in each.commit_metadata.facts for each in one.commits):
        replays["rows removed by a rebuild"] = sum(each.removed for each in one.replayed)
        replays["breaking"] = "the table was made anew, and its columns; who reads it computes anew what he made of it"
    return {
        "dagster/row_count": one.written,
        "rows rescued": one.rescued,
        "rows discarded": one.discarded,
        "columns added": one.columns_added,
        "schema version": one.schema_version,
        "commit": version,
        "table": one.table,
        **(replays if one.replayed else {}),
    }


def _report(running: RunningExecution, attempt: Attempted[GroupResult]) -> dict[str, Any]:
    """What a person sees of a step of a group."""
    result, execution = attempt.result, running.execution
    wrote = [one for one in result.types if one.committed is not None]
    return {
        "last fired because": execution.reason or execution.cause.value,
        "types written": len(wrote),
        "types failed": sum(1 for one in result.types if one.failure),
        "types waiting": sum(1 for one in result.types if one.waits),
        "types catching up": sum(1 for one in result.types if one.catches_up),
        "events": sum(one.rows for one in result.types),
        "rows written": sum(one.written for one in result.types),
        "rows rescued": sum(one.rescued for one in result.types),
        "rows discarded": sum(one.discarded for one in result.types),
        "rows pending": sum(one.pending for one in result.types),
        "rows without a type": sum(result.refused.values()),
        "columns added": sum(one.columns_added for one in result.types),
        "types replayed": sum(1 for one in result.types if one.replayed),
        "rows replaced by replays": sum(each.replaced for one in result.types for each in one.replayed),
        "rows added by replays": sum(each.added for one in result.types for each in one.replayed),
        "types of the step": dg.MetadataValue.md(types_table(result.types)),
        "seconds": round(sum(result.seconds.values()), 3),
        "seconds by phase": dg.MetadataValue.json({phase: round(value, 3) for phase, value in result.seconds.items()}),
        "step": execution.step,
        "attempt": execution.attempt,
        "spark": f"{attempt.driver}: {attempt.reason} (ready after {attempt.ready:.1f} s)",
    }


def types_table(results: Iterable[TypeResult]) -> str:
    """What a step did, type by type, those first that failed or wait, then by rows."""
    moved = [one for one in results if one.rows or one.failure or one.waits]
    ordered = sorted(moved, key=lambda one: (not one.failure, not one.waits, -one.rows, one.type))
    cells = [(one.type, one.table, one.rows, one.written, one.rescued, one.columns_added, one.failure or one.waits) for one in ordered]
    rows = ["| " + " | ".join(_cell(str(cell)) for cell in row) + " |" for row in cells[:MAX_SHOWN]]
    more = [f"and {len(ordered) - MAX_SHOWN} more"] if len(ordered) > MAX_SHOWN else []
    head = ["| type | table | events | written | rescued | columns added | |", "|---|---|---|---|---|---|---|"]
    return "\n".join([*head, *rows, *more]) if rows else "none"


def _checks(key: dg.AssetKey, result: GroupResult) -> list[dg.AssetCheckResult]:
    unbalanced = [one.type for one in result.types if not one.is_balanced]
    failed = {one.type: one.failure for one in result.types if one.failure}
    waiting = {one.type: one.waits for one in result.types if one.waits and one.type not in failed}
    warn = dg.AssetCheckSeverity.WARN
    is_stuck = bool(failed) and not any(one.committed for one in result.types)
    return [
        dg.AssetCheckResult(
            asset_key=key, check_name=ROWS_ADD_UP, passed=not unbalanced, metadata={"types that do not add up": ", ".join(unbalanced)}
        ),
        dg.AssetCheckResult(
            asset_key=key,
            check_name=NO_TYPE_FAILS,
            passed=not failed,
            severity=dg.AssetCheckSeverity.ERROR if is_stuck else warn,
            metadata=_told(failed),
        ),
        dg.AssetCheckResult(asset_key=key, check_name=NOTHING_WAITS, passed=not waiting, severity=warn, metadata=_told(waiting)),
        conserved(result.verified, key, NO_VALUE_LOST),
    ]


def _told(several: Mapping[str, str]) -> dict[str, Any]:
    shown = dict(list(several.items())[:MAX_SHOWN])
    return {"types": len(several), "reasons": dg.MetadataValue.json(shown)}


def _contract(group: EventGroup) -> dict[str, Any]:
    """What is declared; that of a type stands below it where it has one of its own."""
    types = {name: one.to_json() for name, one in sorted(group.contracts.items())}
    return group.contract.to_json() | ({"types": types} if types else {})


def _said(platform: Platform, group: EventGroup) -> list[dict[str, str]]:
    """What people say of the group's types beside what is declared; `lakechime schema show` tells who and why."""
    return [{"type": one.type, "of": one.of, "says": one.says} for one in event_hints(platform).holding(group.name)]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
