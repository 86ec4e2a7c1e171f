"""The composition root of the shipped code location: the lake named by LAKECHIME_LAKE as Dagster
definitions.
"""

from collections.abc import Callable, Iterable, Mapping

import dagster as dg
from typing_extensions import assert_never

from lakechime_dagster.assets.cdc import bronze_asset, cdc_asset, cdc_tables, monitor_checks
from lakechime_dagster.assets.events import (
    event_asset,
    failed_group_asset,
    failed_group_sensor,
    group_asset,
    group_check_specs,
    type_check_specs,
    type_specs,
    types_key,
    verify_check,
)
from lakechime_dagster.assets.lineage import query_log_asset
from lakechime_dagster.assets.maintenance import maintenance_asset
from lakechime_dagster.assets.partitions import partitions_of, planned_deps
from lakechime_dagster.assets.report import check_specs, linked
from lakechime_dagster.assets.subscriptions import (
    group_subscription,
    log_subscription,
    subscription_of,
)
from lakechime_dagster.assets.tables import source_asset, table_asset
from lakechime_dagster.errors import DeclarationError, LakeChimeError
from lakechime_dagster.lineage.manifest import Manifest, manifest_in
from lakechime_dagster.runtime.maintenance import policy_of
from lakechime_dagster.runtime.names import (
    asset_key,
    dagster_name,
    maintenance_name,
    monitor_check_keys,
    op_name,
    verify_check_key,
)
from lakechime_dagster.runtime.resource import LAKECHIME, declare_lake, declare_subscription
from lakechime_dagster.runtime.spark import SPARK
from lakechime_dagster.sensors.events import events_sensor
from lakechime_dagster.sensors.schedules import (
    alarms_sensor,
    maintenance_sensor,
    monitors_sensor,
    outside_sensor,
    verify_sensor,
)
from lakechime_dagster.sensors.trigger import Launch, many_sensor, subscription_sensor
from lakechime_dagster.settings import load_settings, project_folder
from lakechime_dagster.tables.cdc import BronzeTable, CDCTable
from lakechime_dagster.tables.events import EventGroup, EventTable
from lakechime_dagster.tables.lake import (
    Lake,
    Table,
    Target,
    foreign_sources,
    load_lake,
    named_types,
    reading_name,
)
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.subscription import Subscription

# of a lake, beside triggers'
SENSORS = ("events", "maintenance", "monitors", "verify", "alarms", "outside")
# a sensor's tick costs Dagster 26 CPU milliseconds; above this one sensor decides for all triggers
MAX_SENSORS = 100


def build_definitions(
    lake: Lake, cluster: str | None = None, manifest: Manifest | None = None
) -> dg.Definitions:
    """A lake as Dagster definitions: assets, checks, jobs, sensors, resources; merge them with
    others as you like.

    Others that name the resources `lakechime` and `spark` give them as LAKECHIME and SPARK. The
    lake's tables are those of `cluster`, LAKECHIME_CLUSTER when it is not given. What a manifest
    knows of further inputs are dependencies too.

    Raises:
        DeclarationError: two of its ops or sensors would have one name, or Dagster refuses one of
            its assets.
    """
    cluster = load_settings().cluster if cluster is None else cluster
    _check_accounts(lake)
    declare_lake(lake)
    subscriptions = {
        table.name: declare_subscription(subscription_of(table, cluster)) for table in lake.targets
    }
    subscriptions |= {
        group.name: declare_subscription(group_subscription(group, cluster))
        for group in lake.working_groups
    }
    logs = {
        one.table: declare_subscription(log_subscription(one, cluster)) for one in lake.query_logs
    }
    jobs = _jobs(lake)
    launches = [
        Launch(
            subscription=subscriptions[table.name],
            job=jobs[_job_name(lake, table)],
            selection=[asset_key(table.name)],
            partitions=partitions_of(lake, table),
            checks=_checks(table),
        )
        for table in lake.targets
        if table.trigger is not None
    ]
    launches += [
        _launch(lake, subscriptions[group.name], jobs[_group_job_name(lake, group)], group)
        for group in lake.working_groups
    ]
    launches += [
        Launch(
            subscription=subscription,
            job=jobs[_log_job_name(lake)],
            selection=[asset_key(subscription.name)],
        )
        for subscription in logs.values()
    ]
    reading = [subscription.name for subscription in logs.values()]
    _check_names(
        [*(table.name for table in lake.targets), *(group.name for group in lake.groups), *reading],
        op_name,
        {},
    )
    taken = {
        dagster_name(f"{lake.name}__{what}"): f"the sensor of {lake.name}'s {what}"
        for what in SENSORS
    }
    _check_names([launch.subscription.name for launch in launches], dagster_name, taken)
    is_many = len(launches) > MAX_SENSORS
    sensors = (
        [many_sensor(f"{lake.name}__triggers", launches)]
        if is_many
        else [subscription_sensor(one) for one in launches]
    )
    failed = [group for group in lake.groups if group.problem]
    sensors += [failed_group_sensor(group) for group in failed]
    foreign, planned = foreign_sources(lake), planned_deps(lake, manifest)
    partitioned = {source.name: partitions_of(lake, source) for source in foreign}
    assets: list[dg.AssetSpec | dg.AssetsDefinition] = [
        *(
            _asset(lake, table, subscriptions, planned.get(table.name, ()))
            for table in (*foreign, *lake.targets)
        ),
        *(group_asset(lake, group, subscriptions[group.name]) for group in lake.working_groups),
        *(failed_group_asset(lake, group) for group in failed),
        *(query_log_asset(lake, one, logs[one.table]) for one in lake.query_logs),
    ]
    known = [
        *lake.tables,
        *(table for group in lake.working_groups for table in named_types(lake, group)),
    ]
    names, page_url = (
        {asset_key(table.name): table.name for table in known},
        load_settings().lineage_url,
    )
    tables = dg.Definitions(
        assets=[linked(asset, names, page_url) for asset in assets],
        jobs=list(jobs.values()),
        sensors=[*sensors, events_sensor(lake, partitioned), outside_sensor(lake)],
        resources={"lakechime": LAKECHIME, "spark": SPARK},
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(
        tables, _maintenance(lake), _monitors(lake), _verify(lake), _alarms(lake)
    )


def _asset(
    lake: Lake,
    table: Table,
    subscriptions: Mapping[str, Subscription],
    planned: tuple[dg.AssetDep, ...],
) -> dg.AssetSpec | dg.AssetsDefinition:
    """The asset of a table; an error of Dagster names the table."""
    try:
        match table:
            case SourceTable():
                return source_asset(lake, table)
            case LakeTable():
                return table_asset(lake, table, subscriptions[table.name], planned)
            case BronzeTable():
                return bronze_asset(lake, table, subscriptions[table.name])
            case CDCTable():
                return cdc_asset(lake, table, subscriptions[table.name])
            case EventTable():
                return event_asset(lake, table, subscriptions[table.name])
            case _:
                assert_never(table)
    except LakeChimeError:
        raise
    except Exception as error:
        raise DeclarationError(
            table.name, "dagster", f"Dagster refuses the asset: {error}"
        ) from error


def _maintenance(lake: Lake) -> dg.Definitions:
    """What keeps the files of tables, of a group all at once; nothing in a lake that declares none
    of it.
    """
    tables = [
        table for table in (*lake.targets, *lake.working_groups) if table.maintenance is not None
    ]
    if not tables:
        return dg.Definitions()
    name = f"{lake.name}__maintenance"
    selection = dg.AssetSelection.assets(
        *[asset_key(maintenance_name(table.name)) for table in tables]
    )
    schedules = {table.name: policy_of(table).every for table in tables}
    return dg.Definitions(
        assets=[maintenance_asset(lake, table) for table in tables],
        jobs=[dg.define_asset_job(name, selection=selection)],
        sensors=[maintenance_sensor(name, schedules)],
    )


def _monitors(lake: Lake) -> dg.Definitions:
    """What looks at tables that follow a database; nothing in a lake without them."""
    tables = cdc_tables(lake)
    if not tables:
        return dg.Definitions()
    name = f"{lake.name}__monitors"
    checks = [check for table in tables for check in monitor_checks(table)]
    job = dg.define_asset_job(name, selection=dg.AssetSelection.checks(*checks))
    return dg.Definitions(asset_checks=checks, jobs=[job], sensors=[monitors_sensor(name, tables)])


def _verify(lake: Lake) -> dg.Definitions:
    """What looks whether each event of groups is in its table; nothing in a lake whose groups do
    not say when.
    """
    groups = [group for group in lake.working_groups if group.options.verify is not None]
    if not groups:
        return dg.Definitions()
    name = f"{lake.name}__verify"
    checks = [verify_check(group) for group in groups]
    job = dg.define_asset_job(name, selection=dg.AssetSelection.checks(*checks))
    return dg.Definitions(asset_checks=checks, jobs=[job], sensors=[verify_sensor(name, groups)])


def _alarms(lake: Lake) -> dg.Definitions:
    """The sensor that notifies people of failing checks."""
    reported = [spec.key for table in lake.targets for spec in check_specs(table)]
    reported += [
        spec.key
        for group in lake.working_groups
        for spec in (*group_check_specs(group), *type_check_specs(lake, group))
    ]
    reported += [
        verify_check_key(group) for group in lake.working_groups if group.options.verify is not None
    ]
    keys = [*reported, *(key for table in cdc_tables(lake) for key in monitor_check_keys(table))]
    return dg.Definitions(sensors=[alarms_sensor(lake.name, keys, lake.alarms)] if keys else [])


def _check_names(tables: Iterable[str], named: Callable[[str], str], taken: dict[str, str]) -> None:
    """Refuse tables that would have one name in Dagster, with each other or with what is
    `taken`.
    """
    for table in tables:
        name = named(table)
        if (other := taken.setdefault(name, table)) != table:
            raise DeclarationError(
                table, "name", f"is {name} in Dagster, as {other} is; rename one of them"
            )


def _jobs(lake: Lake) -> dict[str, dg.JobDefinition]:
    """A job per partitions definition, shared by the sensors: a job of each sensor's own costs
    seven times the memory.
    """
    members: dict[str, list[Target]] = {}
    for table in lake.targets:
        members.setdefault(_job_name(lake, table), []).append(table)
    jobs = {
        name: dg.define_asset_job(name, selection=_selection(tables))
        for name, tables in members.items()
    }
    groups = {
        _group_job_name(lake, group): _selection_of(lake, group) for group in lake.working_groups
    }
    reading = [asset_key(reading_name(one.table)) for one in lake.query_logs]
    logs = {_log_job_name(lake): dg.AssetSelection.assets(*reading)} if reading else {}
    return jobs | {
        name: dg.define_asset_job(name, selection=selection)
        for name, selection in (groups | logs).items()
    }  # type: ignore[misc]


def _check_accounts(lake: Lake) -> None:
    """Refuse accounts that have no effect in the warehouse, where tables lie that declare no
    location of their own.
    """
    warehouse = load_settings().warehouse
    for table in lake.targets:
        if table.write_as is not None and table.location is None:
            table.write_as.check_at(table.name, warehouse)


def _checks(table: Target) -> list[dg.AssetCheckKey] | None:
    """The checks of a run; of a table that is watched those that it reports itself, as others are
    made at times of their own.
    """
    return [spec.key for spec in check_specs(table)] if isinstance(table, CDCTable) else None


def _selection(tables: Iterable[Target]) -> dg.AssetSelection:
    """Tables with their checks, but for those that monitors make at times of their own."""
    several = list(tables)
    chosen: dg.AssetSelection = dg.AssetSelection.assets(
        *[asset_key(table.name) for table in several]
    )
    apart = [
        key for table in several if isinstance(table, CDCTable) for key in monitor_check_keys(table)
    ]
    return chosen - dg.AssetSelection.checks(*apart) if apart else chosen


def _selection_of(lake: Lake, group: EventGroup) -> dg.AssetSelection:
    """A group, and its types that the lake names, with the checks that its executions report."""
    chosen: dg.AssetSelection = dg.AssetSelection.assets(*_group_keys(lake, group))
    return (
        chosen
        if group.options.verify is None
        else chosen - dg.AssetSelection.checks(verify_check_key(group))
    )


def _launch(
    lake: Lake, subscription: Subscription, job: dg.JobDefinition, group: EventGroup
) -> Launch:
    """A run does an execution of all types of a group, so that it is launched without one of them."""
    checks = [spec.key for spec in (*group_check_specs(group), *type_check_specs(lake, group))]
    return Launch(
        subscription=subscription, job=job, selection=_group_keys(lake, group), checks=checks
    )


def _group_keys(lake: Lake, group: EventGroup) -> list[dg.AssetKey]:
    """The asset of a group, that of its types, and those of types that the lake names."""
    return [
        asset_key(group.name),
        types_key(group),
        *(spec.key for spec in type_specs(lake, group)),
    ]


def _group_job_name(lake: Lake, group: EventGroup) -> str:
    return f"{lake.name}__{dagster_name(group.name)}"


def _log_job_name(lake: Lake) -> str:
    return f"{lake.name}__query_logs"


def _job_name(lake: Lake, table: Target) -> str:
    partitions = partitions_of(lake, table)
    if partitions is None:
        return f"{lake.name}__tables"
    by_time = {dg.DailyPartitionsDefinition: "daily", dg.HourlyPartitionsDefinition: "hourly"}.get(
        type(partitions)
    )
    return f"{lake.name}__{by_time or '__'.join(('by', *table.levels.names))}"


@dg.definitions
def defs() -> dg.Definitions:
    """The code location."""
    return build_definitions(
        load_lake(load_settings().lake), manifest=manifest_in(project_folder())
    )
