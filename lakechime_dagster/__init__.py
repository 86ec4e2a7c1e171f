"""Data change events, triggers and exactly-once incremental runs for lake tables, in Dagster.

The names of `__all__` are the public API. Each is imported when it is first asked for, so that a process pays only for what it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakechime_dagster.assets.lineage_flat import lineage_definitions
    from lakechime_dagster.dce.event import DataChangeEvent, OperationType, RegisteredEvent, TableFormat
    from lakechime_dagster.dce.store import DCEStore, EventQuery
    from lakechime_dagster.definitions import build_definitions
    from lakechime_dagster.errors import LakeChimeError
    from lakechime_dagster.lake import (
        Account,
        Asset,
        Canal,
        CDCMerge,
        ChangeTable,
        Contract,
        Database,
        Debezium,
        Dms,
        Drift,
        EventGroup,
        EventStream,
        GroupOptions,
        JsonLines,
        KafkaTopic,
        Lake,
        LakeTable,
        Limits,
        Maintenance,
        Maxwell,
        Monitor,
        PathRule,
        QueryLog,
        Snapshot,
        SourceSchema,
        SourceTable,
        Storage,
        TableRows,
        TrinoLog,
        change_table,
        event_group,
        event_stream,
        personal,
        spark_table,
        sql_table,
    )
    from lakechime_dagster.resources.lakechime_resource import LAKECHIME, LakeChimeResource, NothingNewError, open_store
    from lakechime_dagster.resources.running import RunningExecution
    from lakechime_dagster.resources.spark import SPARK
    from lakechime_dagster.sensors.trigger import lakechime_sensor
    from lakechime_dagster.triggers import PartitionCondition, PartitionTrigger, Schedule, SnapshotTrigger, TableName, every, hours_of, tick

__all__ = [
    "LAKECHIME",
    "SPARK",
    "Account",
    "Asset",
    "CDCMerge",
    "Canal",
    "ChangeTable",
    "Contract",
    "DCEStore",
    "DataChangeEvent",
    "Database",
    "Debezium",
    "Dms",
    "Drift",
    "EventGroup",
    "EventQuery",
    "EventStream",
    "GroupOptions",
    "JsonLines",
    "KafkaTopic",
    "Lake",
    "LakeChimeError",
    "LakeChimeResource",
    "LakeTable",
    "Limits",
    "Maintenance",
    "Maxwell",
    "Monitor",
    "NothingNewError",
    "OperationType",
    "PartitionCondition",
    "PartitionTrigger",
    "PathRule",
    "QueryLog",
    "RegisteredEvent",
    "RunningExecution",
    "Schedule",
    "Snapshot",
    "SnapshotTrigger",
    "SourceSchema",
    "SourceTable",
    "Storage",
    "TableFormat",
    "TableName",
    "TableRows",
    "TrinoLog",
    "build_definitions",
    "change_table",
    "event_group",
    "event_stream",
    "every",
    "hours_of",
    "lakechime_sensor",
    "lineage_definitions",
    "open_store",
    "personal",
    "spark_table",
    "sql_table",
    "tick",
]

_MODULES = {
    "LAKECHIME": "resources.lakechime_resource",
    "SPARK": "resources.spark",
    "DCEStore": "dce.store",
    "DataChangeEvent": "dce.event",
    "EventQuery": "dce.store",
    "LakeChimeError": "errors",
    "LakeChimeResource": "resources.lakechime_resource",
    "NothingNewError": "resources.lakechime_resource",
    "OperationType": "dce.event",
    "PartitionCondition": "triggers",
    "PartitionTrigger": "triggers",
    "RegisteredEvent": "dce.event",
    "RunningExecution": "resources.running",
    "Schedule": "triggers",
    "SnapshotTrigger": "triggers",
    "TableFormat": "dce.event",
    "TableName": "triggers",
    "build_definitions": "definitions",
    "every": "triggers",
    "hours_of": "triggers",
    "lakechime_sensor": "sensors.trigger",
    "lineage_definitions": "assets.lineage_flat",
    "open_store": "resources.lakechime_resource",
    "tick": "triggers",
}
"""Where each name is defined; those that are not listed are declarations, in `lake`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lakechime_dagster.errors import needs

    with needs(name, extra="delta"):
        value = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'lake')}"), name)
    globals()[name] = value
    return value
