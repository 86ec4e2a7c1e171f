"""Data change events, triggers and exactly-once incremental runs for lake tables, in Dagster.

The names of `__all__` are the public API. Each is imported when it is first asked for, so that a
process pays only for what it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakechime_dagster.api.client import Client
    from lakechime_dagster.assets.lineage import lineage_definitions
    from lakechime_dagster.components import (
        CDCTableComponent,
        DeadlineComponent,
        EventStreamComponent,
        LakeComponent,
        SourceTableComponent,
        SqlTableComponent,
        TriggerComponent,
    )
    from lakechime_dagster.dce.events import (
        DataChangeEvent,
        EventQuery,
        OperationType,
        RegisteredEvent,
        TableFormat,
    )
    from lakechime_dagster.dce.store import DCEStore
    from lakechime_dagster.definitions import build_definitions
    from lakechime_dagster.errors import LakeChimeError
    from lakechime_dagster.lineage.runs import spark_lineage
    from lakechime_dagster.runtime.execution import RunningExecution
    from lakechime_dagster.runtime.resource import (
        LAKECHIME,
        LakeChimeResource,
        NothingNewError,
        open_store,
    )
    from lakechime_dagster.runtime.spark import SPARK
    from lakechime_dagster.sensors.trigger import deadline_sensor, lakechime_sensor
    from lakechime_dagster.tables.cdc import CDCMerge, CDCTable, Drift, SourceSchema, cdc_table
    from lakechime_dagster.tables.databases import (
        Canal,
        Database,
        Debezium,
        Dms,
        Limits,
        Maxwell,
        Monitor,
    )
    from lakechime_dagster.tables.declare import spark_table, sql_table
    from lakechime_dagster.tables.events import (
        Contract,
        EventGroup,
        EventStream,
        GroupOptions,
        event_group,
        event_stream,
    )
    from lakechime_dagster.tables.lake import Lake, QueryLog
    from lakechime_dagster.tables.maintenance import Maintenance
    from lakechime_dagster.tables.names import Account
    from lakechime_dagster.tables.options import Asset, Storage, personal
    from lakechime_dagster.tables.sources import JsonLines, KafkaTopic, TableRows
    from lakechime_dagster.tables.tables import LakeTable, SourceTable
    from lakechime_dagster.triggers.schedule import Schedule, every, hours_of, tick
    from lakechime_dagster.triggers.triggers import (
        PartitionCondition,
        PartitionTrigger,
        SnapshotTrigger,
        TableName,
    )

__all__ = [
    "LAKECHIME",
    "SPARK",
    "Account",
    "Asset",
    "CDCMerge",
    "CDCTable",
    "CDCTableComponent",
    "Canal",
    "Client",
    "Contract",
    "DCEStore",
    "DataChangeEvent",
    "Database",
    "DeadlineComponent",
    "Debezium",
    "Dms",
    "Drift",
    "EventGroup",
    "EventQuery",
    "EventStream",
    "EventStreamComponent",
    "GroupOptions",
    "JsonLines",
    "KafkaTopic",
    "Lake",
    "LakeChimeError",
    "LakeChimeResource",
    "LakeComponent",
    "LakeTable",
    "Limits",
    "Maintenance",
    "Maxwell",
    "Monitor",
    "NothingNewError",
    "OperationType",
    "PartitionCondition",
    "PartitionTrigger",
    "QueryLog",
    "RegisteredEvent",
    "RunningExecution",
    "Schedule",
    "SnapshotTrigger",
    "SourceSchema",
    "SourceTable",
    "SourceTableComponent",
    "SqlTableComponent",
    "Storage",
    "TableFormat",
    "TableName",
    "TableRows",
    "TriggerComponent",
    "build_definitions",
    "cdc_table",
    "deadline_sensor",
    "event_group",
    "event_stream",
    "every",
    "hours_of",
    "lakechime_sensor",
    "lineage_definitions",
    "open_store",
    "personal",
    "spark_lineage",
    "spark_table",
    "sql_table",
    "tick",
]

_MODULES = {
    "Account": "tables.names",
    "Asset": "tables.options",
    "CDCMerge": "tables.cdc",
    "CDCTableComponent": "components",
    "Canal": "tables.databases",
    "Client": "api.client",
    "CDCTable": "tables.cdc",
    "Contract": "tables.events",
    "DCEStore": "dce.store",
    "DataChangeEvent": "dce.events",
    "Database": "tables.databases",
    "DeadlineComponent": "components",
    "Debezium": "tables.databases",
    "Dms": "tables.databases",
    "Drift": "tables.cdc",
    "EventGroup": "tables.events",
    "EventQuery": "dce.events",
    "EventStream": "tables.events",
    "EventStreamComponent": "components",
    "GroupOptions": "tables.events",
    "JsonLines": "tables.sources",
    "KafkaTopic": "tables.sources",
    "LAKECHIME": "runtime.resource",
    "Lake": "tables.lake",
    "LakeChimeError": "errors",
    "LakeChimeResource": "runtime.resource",
    "LakeComponent": "components",
    "LakeTable": "tables.tables",
    "Limits": "tables.databases",
    "Maintenance": "tables.maintenance",
    "Maxwell": "tables.databases",
    "Monitor": "tables.databases",
    "NothingNewError": "runtime.resource",
    "OperationType": "dce.events",
    "PartitionCondition": "triggers.triggers",
    "PartitionTrigger": "triggers.triggers",
    "QueryLog": "tables.lake",
    "RegisteredEvent": "dce.events",
    "RunningExecution": "runtime.execution",
    "SPARK": "runtime.spark",
    "Schedule": "triggers.schedule",
    "SnapshotTrigger": "triggers.triggers",
    "SourceSchema": "tables.cdc",
    "SourceTable": "tables.tables",
    "SourceTableComponent": "components",
    "SqlTableComponent": "components",
    "Storage": "tables.options",
    "TableFormat": "dce.events",
    "TableName": "triggers.triggers",
    "TableRows": "tables.sources",
    "TriggerComponent": "components",
    "build_definitions": "definitions",
    "cdc_table": "tables.cdc",
    "deadline_sensor": "sensors.trigger",
    "event_group": "tables.events",
    "event_stream": "tables.events",
    "every": "triggers.schedule",
    "hours_of": "triggers.schedule",
    "lakechime_sensor": "sensors.trigger",
    "lineage_definitions": "assets.lineage",
    "needs": "errors",
    "open_store": "runtime.resource",
    "personal": "tables.options",
    "spark_lineage": "lineage.runs",
    "spark_table": "tables.declare",
    "sql_table": "tables.declare",
    "tick": "triggers.schedule",
}
"""Where each name is defined."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lakechime_dagster.errors import needs

    with needs(name, extra="delta"):
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names to look through: those of components, as `dg list components` finds them here, and what
    is imported already.
    """
    return [*globals(), *(name for name, module in _MODULES.items() if module == "components")]
