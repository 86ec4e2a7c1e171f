"""The sensors of triggers: `lakechime_sensor` on any Dagster job or asset, one for a subscription,
one for many.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from lakechime_dagster.dce.partitions import LevelType, PartitionLevels
from lakechime_dagster.errors import DeclarationError, LakeChimeError
from lakechime_dagster.runtime.names import KEY_TAG, LACKS_TAG, TRIGGER_TAG, dagster_name, run_tags
from lakechime_dagster.runtime.resource import declare_subscription, declared_subscriptions
from lakechime_dagster.settings import load_settings
from lakechime_dagster.triggers.consumers import Execution
from lakechime_dagster.triggers.decision import EXPIRED, LackingKey
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionTrigger, SnapshotTrigger

if TYPE_CHECKING:
    from lakechime_dagster.sensors.tick import OpenInstance, PolledAt
    from lakechime_dagster.triggers.evaluation import Sweep

AssetJob = Any  # what `dg.define_asset_job` returns; its class has no public name
DEADLINE_SECONDS = 30
MOST_EXPIRED = 100  # requests of a tick
INTERVAL_SECONDS = 1  # every turn of the daemon's loop; 5 would alias with its 5 seconds


def lakechime_sensor(
    name: str,
    trigger: PartitionTrigger | SnapshotTrigger,
    *,
    job: dg.JobDefinition | AssetJob | str | None = None,
    target: dg.AssetsDefinition | dg.AssetKey | None = None,
    partitioned: bool = False,
    writes: str | None = None,
    location: str | None = None,
    cluster: str | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
) -> dg.SensorDefinition:
    """A sensor that launches a job, or the materialisation of an asset, with exactly the events of
    each execution.

    In the run, `LakeChimeResource.execution(context)` gives the events.

    Args:
        name: The subscription's, and the sensor's.
        trigger: What launches runs; it names its tables.
        job: A job of the code location, or its name. A job of partitioned assets must have a
            partitions definition: `define_asset_job(…, partitions_def=…)`.
        target: Instead of a job, an asset or its key.
        partitioned: Whether a job or asset that is given by name or key is partitioned. Of what is
            partitioned, a run does the partition that the key of a partition trigger names.
        writes: The Delta table that the run writes with `write_options`: then success is that
            table's commit, and each change is applied once. Without it the run's success completes
            it, and a run that dies after its effect is repeated (at least once).
        location: The location of that table, if it is not in the warehouse.
        cluster: The cluster of the trigger's tables; by default the only one that they name, else
            LAKECHIME_CLUSTER. `ranges` name tables of other clusters `cluster:table`.
        default_status: Whether the sensor runs when it is new.

    Raises:
        DeclarationError: the trigger names no table, or no partition of what is partitioned, or
            what the run writes fires it again.
    """
    if (job is None) == (target is None):
        raise DeclarationError(name, "job=, target=", "give exactly one of them: what to launch")
    if isinstance(trigger, SnapshotTrigger) and not trigger.tables:
        raise DeclarationError(
            name, "trigger", "names no table; write SnapshotTrigger(['schema.table'])"
        )
    if location is not None and writes is None:
        raise DeclarationError(
            name,
            "location",
            "is where the table in writes= lies, which is not given; give both or neither",
        )
    keys = (
        [] if target is None else [target] if isinstance(target, dg.AssetKey) else list(target.keys)
    )
    launched = (
        job
        if isinstance(job, str)
        else job.name
        if job is not None
        else ", ".join(key.to_user_string() for key in keys)
    )
    definition = job if target is None else target
    is_named = isinstance(definition, str | dg.AssetKey)
    if partitioned and not is_named:
        raise DeclarationError(
            name,
            "partitioned",
            "is for what is given by name or key; leave it out: a definition says it itself",
        )
    partitions = None if is_named or definition is None else definition.partitions_def
    is_partitioned = partitioned or partitions is not None
    levels = (
        levels_of(trigger)
        if is_partitioned and isinstance(trigger, PartitionTrigger)
        else PartitionLevels()
    )
    if is_partitioned and not levels:
        remedy = (
            "write a PartitionTrigger on partitions with one value per level, or launch something "
            "that is not partitioned"
        )
        raise DeclarationError(
            name,
            "trigger",
            f"({trigger}) names no partition, and {launched} is partitioned; {remedy}",
        )
    subscription = Subscription(
        name=name,
        trigger=trigger,
        target=writes,
        target_levels=levels,
        location=location,
        asset_keys=tuple(key.to_user_string() for key in keys),
        job=None if job is None else launched,
        cluster=_cluster_of(trigger) if cluster is None else cluster,
    )
    _check_ends(subscription)
    launch = Launch(
        subscription=subscription,
        job=job,
        target=target,
        selection=keys or None,
        partitions=partitions,
    )
    return subscription_sensor(launch, default_status)


def deadline_sensor(
    trigger: str,
    job: dg.JobDefinition | AssetJob | str,
    *,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
) -> dg.SensorDefinition:
    """A sensor that launches a job, once for each partition key that passed the deadline of a
    partition trigger without firing: to notify somebody, or to do without what is missing.

    The run has the tags `lakechime/trigger`, `lakechime/key`, and `lakechime/lacks`, a sentence. A
    key whose partitions arrive later fires all the same.

    Args:
        trigger: The name of a `lakechime_sensor` of this code location, or a computed table.
        job: A job of the code location, or its name.
        default_status: Whether the sensor runs when it is new.
    """
    launched: dict[str, Any] = {"job_name": job} if isinstance(job, str) else {"job": job}

    @dg.sensor(
        name=dagster_name(f"{trigger}__deadline"),
        minimum_interval_seconds=DEADLINE_SECONDS,
        default_status=default_status,
        description=f"Launches a job for each key of {trigger} that passed its deadline.",
        **launched,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            expired, deployment = _expired(trigger)
        except LakeChimeError as error:
            return dg.SensorResult(skip_reason=str(error))
        known = set(json.loads(context.cursor or "[]"))
        new = [one for one in expired if one.key not in known][:MOST_EXPIRED]
        kept = [one.key for one in expired if one.key in known or one in new]
        requests = [
            dg.RunRequest(
                run_key=json.dumps([deployment, trigger, one.key]),
                tags={TRIGGER_TAG: trigger, KEY_TAG: one.key, LACKS_TAG: one.reason},
            )
            for one in new
        ]
        return dg.SensorResult(run_requests=requests, cursor=json.dumps(kept))

    return sensor


def _expired(trigger: str) -> tuple[list[LackingKey], str]:
    """The keys of a trigger that passed their deadline, and the deployment."""
    from lakechime_dagster.runtime.platform import open_platform  # as above

    subscription = declared_subscriptions().get(trigger)
    if subscription is None:
        raise DeclarationError(trigger, "deadline", "is no trigger of this code location")
    platform = open_platform()
    row = platform.ledger.subscription(trigger)
    decision = platform.evaluator.evaluate(subscription, row) if row is not None else None
    lacking = decision.lacking if decision else ()
    return [one for one in lacking if one.state == EXPIRED], platform.ledger.deployment


def _check_ends(subscription: Subscription) -> None:
    """Refuse a subscription whose own commit would wake it again, by itself or by way of others of
    this code location.

    Keys of partition triggers alone end: each of them wakes that of another partition, such as the
    next day's.
    """
    subscriptions, cluster = (
        declared_subscriptions() | {subscription.name: subscription},
        load_settings().cluster,
    )
    writers = [one for one in subscriptions.values() if one.target is not None]
    inputs = {
        name: [one.name for one in writers if one.wakes(reader, cluster)]
        for name, reader in subscriptions.items()
    }
    for name in [one.name for one in subscriptions.values() if not one.is_partitioned]:
        there, back = _path(inputs, subscription.name, name), _path(inputs, name, subscription.name)
        if there and back:
            ring = there if name == subscription.name else [*there, *back[1:]]
            remedy = "leave one of them out, or let it wait for tags that these commits do not have"
            problem = f"would fire for ever: {' ← '.join(ring)}, each by the commits of the next"
            raise DeclarationError(subscription.name, "trigger, writes", f"{problem}; {remedy}")


def _path(inputs: Mapping[str, Sequence[str]], start: str, end: str) -> list[str]:
    """The shortest path from a trigger to one whose commits wake it, by way of others; empty if
    there is none.
    """
    reached: dict[str, str] = {}
    waiting = deque([start])
    while waiting and end not in reached:
        reader = waiting.popleft()
        for name in inputs[reader]:
            if name not in reached:
                reached[name] = reader
                waiting.append(name)
    if end not in reached:
        return []
    path = [reached[end], end]
    while path[0] != start:
        path.insert(0, reached[path[0]])
    return path


def _cluster_of(trigger: PartitionTrigger | SnapshotTrigger) -> str:
    named = {one.cluster for one in trigger.watched}
    is_one = isinstance(trigger, SnapshotTrigger) and len(named) == 1
    return (is_one and named.pop()) or load_settings().cluster


def levels_of(trigger: PartitionTrigger) -> PartitionLevels:
    """The levels by which a partition key names a Dagster partition: those of a single value at a
    tick, typed as in their tables.
    """
    types = {
        name: kind
        for one in trigger.conditions
        for name, kind in zip(one.levels.names, one.levels.types, strict=True)
    }
    values = dict(trigger.key_at(trigger.every.first).values)
    return PartitionLevels.of(
        {name: types.get(name, _type_of(value)) for name, value in values.items()}
    )


def _type_of(value: object) -> LevelType:
    if isinstance(value, bool):
        return LevelType.BOOLEAN
    return LevelType.INT if isinstance(value, int) else LevelType.STRING


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A subscription and what launches its runs; with all checks of the selection unless `checks`
    names them.
    """

    subscription: Subscription
    job: Any = None  # a job, what `dg.define_asset_job` returns, or a job's name
    target: dg.AssetsDefinition | dg.AssetKey | None = None
    selection: list[dg.AssetKey] | None = None
    partitions: dg.PartitionsDefinition | None = None
    checks: list[dg.AssetCheckKey] | None = None

    def partitions_in(
        self, repository: dg.RepositoryDefinition | None
    ) -> dg.PartitionsDefinition | None:
        """The partitions of what is launched, which of a name or key are known from all
        definitions.
        """
        if isinstance(self.job, str) or isinstance(self.target, dg.AssetKey):
            return _partitions_of_named(self.subscription, repository, self.target)
        if self.subscription.job is not None and self.partitions is None:
            _check_unpartitioned(self.subscription.name, repository, self.subscription.job)
        return self.partitions


def subscription_sensor(
    launch: Launch, default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING
) -> dg.SensorDefinition:
    """The sensor of a subscription; its description is the condition in words."""
    subscription, job, target = launch.subscription, launch.job, launch.target
    if isinstance(job, str):
        launched: dict[str, Any] = {"job_name": job}
    elif job is not None:
        launched = {"job": job}
    else:
        launched = {
            "target": dg.AssetSelection.assets(target)
            if isinstance(target, dg.AssetKey)
            else target
        }
    metadata = {"tables": ", ".join(subscription.pinned)} | (
        {"writes": subscription.target} if subscription.target else {}
    )
    return _sensor(
        subscription.name,
        [launch],
        describe(subscription),
        default_status,
        metadata=metadata,
        **launched,
    )


def many_sensor(name: str, launches: Sequence[Launch]) -> dg.SensorDefinition:
    """A sensor that launches the runs of all these subscriptions; each has its own consumers, as
    with a sensor of its own.
    """
    about = (
        f"Launches the runs of {len(launches)} triggers; `lakechime trigger show` shows each of "
        f"them."
    )
    jobs = list({launch.job.name: launch.job for launch in launches}.values())
    return _sensor(name, launches, about, dg.DefaultSensorStatus.RUNNING, jobs=jobs)


def _sensor(
    name: str,
    launches: Sequence[Launch],
    description: str,
    default_status: dg.DefaultSensorStatus,
    **launched: Any,
) -> dg.SensorDefinition:
    by_name = {launch.subscription.name: launch for launch in launches}
    subscriptions = {launch.subscription.name: launch.subscription for launch in launches}
    for subscription in subscriptions.values():
        declare_subscription(subscription)
    # per store and deployment; it remembers where the last look ended
    sweeps: dict[tuple[str, str], Sweep] = {}
    polled: PolledAt = {}

    @dg.sensor(
        name=dagster_name(name),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=default_status,
        description=description,
        **launched,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        # the store, for which no process should pay that only loads definitions
        from lakechime_dagster.runtime.platform import open_platform
        from lakechime_dagster.sensors.tick import DagsterRuns, instance_of, run_tick
        from lakechime_dagster.triggers.evaluation import Sweep

        try:
            instance, repository = instance_of(context), context.repository_def
            accepts = {
                name: accepts_of(launch.partitions_in(repository), instance)
                for name, launch in by_name.items()
            }
            platform = open_platform()
            key = (platform.settings.store_url, platform.settings.deployment)
            if key not in sweeps:
                sweeps[key] = Sweep(platform.evaluator, list(subscriptions.values()))
            tick = run_tick(
                platform, sweeps[key], subscriptions, DagsterRuns(instance), accepts, polled
            )
        except LakeChimeError as error:
            return dg.SensorResult(skip_reason=str(error))
        if not tick.launches:
            return dg.SensorResult(skip_reason="; ".join(tick.sentences))
        requests = [
            _request(by_name[one.consumer.subscription], one, has_several_jobs="jobs" in launched)
            for one in tick.launches
        ]
        return dg.SensorResult(run_requests=requests)

    return sensor


def _check_unpartitioned(name: str, repository: dg.RepositoryDefinition | None, job: str) -> None:
    """Refuse a job that did not say that it is partitioned: what its assets are is known only
    beside all others.
    """
    if repository is not None and repository.get_job(job).partitions_def is not None:
        remedy = "say which partitions: define_asset_job(…, partitions_def=…)"
        raise DeclarationError(
            name,
            "job",
            f"the assets of {job} are partitioned, and no run of it would have a partition; "
            f"{remedy}",
        )


def _partitions_of_named(
    subscription: Subscription, repository: dg.RepositoryDefinition | None, key: object
) -> dg.PartitionsDefinition | None:
    """The partitions of what is launched by its name or key, which are known from all definitions.

    Raises:
        DeclarationError: the declaration says otherwise whether it is partitioned.
    """
    if repository is None:
        return None
    if isinstance(key, dg.AssetKey):
        found = repository.assets_defs_by_key[key].get_asset_spec(key).partitions_def
    else:
        found = repository.get_job(subscription.job or "").partitions_def
    launched = subscription.job or ", ".join(subscription.asset_keys)
    if found is not None and not subscription.target_levels:
        remedy = "say so (partitioned), and wait for its partitions by a partition trigger"
        raise DeclarationError(
            subscription.name, "partitioned", f"{launched} is partitioned; {remedy}"
        )
    if found is None and subscription.target_levels:
        raise DeclarationError(
            subscription.name, "partitioned", f"{launched} is not partitioned; leave it out"
        )
    return found


def accepts_of(
    partitions: dg.PartitionsDefinition | None, instance: "OpenInstance"
) -> Callable[[str], bool]:
    """Whether Dagster knows a partition key; a key of dynamic partitions is made known."""
    if partitions is None:
        return lambda key: True
    if isinstance(partitions, dg.DynamicPartitionsDefinition) and partitions.name is not None:
        name = partitions.name

        def made_known(key: str) -> bool:
            instance().add_dynamic_partitions(name, [key])
            return True

        return made_known
    return partitions.has_partition_key


def _request(launch: Launch, execution: Execution, *, has_several_jobs: bool) -> dg.RunRequest:
    """The run request of an attempt: ids in tags, never lists; requested again, Dagster launches it
    once.

    Dagster takes all checks of the selected assets, also those that the job leaves out, unless they
    are named.
    """
    return dg.RunRequest(
        job_name=launch.job.name if has_several_jobs else None,
        run_key=execution.run_key,
        tags=run_tags(execution),
        partition_key=execution.partition_key,
        asset_selection=launch.selection,
        asset_check_keys=launch.checks,
    )


def describe(subscription: Subscription) -> str:
    """The condition in words, and what a crash may repeat."""
    repeated = "At least once: a run that dies after its effect is repeated."
    promise = "Each change is applied once." if subscription.target is not None else repeated
    verb = "when all of these are there: " if subscription.is_partitioned else "after "
    return f"Launches {verb}{subscription.condition}. {promise}"
