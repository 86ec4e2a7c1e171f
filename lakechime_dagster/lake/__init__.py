"""What users declare a lake with: source tables, computed ones in PySpark or SQL, those that follow a database, and the lake."""

from lakechime_dagster.lake.accounts import Account
from lakechime_dagster.lake.cdc_merge import CDCMerge
from lakechime_dagster.lake.change_tables import ChangeTable, SourceSchema
from lakechime_dagster.lake.contracts import Change, Contract, Mode, PathRule
from lakechime_dagster.lake.databases import Database
from lakechime_dagster.lake.declare import spark_table, sql_table
from lakechime_dagster.lake.declare_changes import change_table
from lakechime_dagster.lake.drift import Drift
from lakechime_dagster.lake.envelopes import Canal, Debezium, Dms, Maxwell
from lakechime_dagster.lake.events import EventGroup, EventStream, GroupOptions, event_group, event_stream
from lakechime_dagster.lake.feeds import JsonLines, KafkaTopic
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.maintenance import Maintenance
from lakechime_dagster.lake.monitors import Limits, Monitor
from lakechime_dagster.lake.options import Asset, Storage
from lakechime_dagster.lake.personal import Personal, personal
from lakechime_dagster.lake.query_logs import QueryLog, TrinoLog
from lakechime_dagster.lake.reads import Read, ReadMode
from lakechime_dagster.lake.snapshots import Snapshot
from lakechime_dagster.lake.table_rows import TableRows
from lakechime_dagster.lake.tables import LakeTable, RefreshMode, SourceTable

__all__ = [
    "Account",
    "Asset",
    "CDCMerge",
    "Canal",
    "Change",
    "ChangeTable",
    "Contract",
    "Database",
    "Debezium",
    "Dms",
    "Drift",
    "EventGroup",
    "EventStream",
    "GroupOptions",
    "JsonLines",
    "KafkaTopic",
    "Lake",
    "LakeTable",
    "Limits",
    "Maintenance",
    "Maxwell",
    "Mode",
    "Monitor",
    "PathRule",
    "Personal",
    "QueryLog",
    "Read",
    "ReadMode",
    "RefreshMode",
    "Snapshot",
    "SourceSchema",
    "SourceTable",
    "Storage",
    "TableRows",
    "TrinoLog",
    "change_table",
    "event_group",
    "event_stream",
    "personal",
    "spark_table",
    "sql_table",
]
