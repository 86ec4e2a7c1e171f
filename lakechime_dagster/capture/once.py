"""Rows appended to a Delta table at most once, by a transaction that its log keeps. No JVM."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from lakechime_dagster.capture.delta import DeltaLog
from lakechime_dagster.errors import TableAbsentError, TableUnreadableError


def append_once(log: DeltaLog, rows: Iterable[Mapping[str, Any]], app_id: str, version: int) -> bool:
    """Append rows in the table's own columns; False when a commit of this transaction, or of a later version, did before.

    Raises:
        TableAbsentError: there is no table.
        TableUnreadableError: it cannot be written.
    """
    table = log.state()
    if table is None:
        raise TableAbsentError(f"{log.table}: there is no Delta table at {log.shown_location} to append to")
    done = table.transaction_version(app_id)
    if done is not None and done >= version:
        return False
    data = pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(table.schema().to_arrow()))
    properties = CommitProperties(app_transactions=[Transaction(app_id, version)])
    try:
        write_deltalake(table, data, mode="append", commit_properties=properties)
    except (DeltaError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise TableUnreadableError(f"{log.table} at {log.shown_location} cannot be appended to: {reason}") from error
    return True
