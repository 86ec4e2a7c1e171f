"""The small integers by which the store keeps formats and operations; never renumbered."""

from lakechime_dagster.dce.event import OperationType, TableFormat

FORMAT_CODES = {TableFormat.HIVE: 1, TableFormat.ICEBERG: 2, TableFormat.DELTA: 3}
OPERATION_CODES = {OperationType.APPEND: 1, OperationType.DELETE: 2, OperationType.UPDATE: 3}
FORMATS = {code: member for member, code in FORMAT_CODES.items()}
OPERATIONS = {code: member for member, code in OPERATION_CODES.items()}
