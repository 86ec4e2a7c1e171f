"""Appends rows and files to a Delta table without Spark, once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from lakechime_dagster.errors import TableAbsentError, TableUnreadableError
from lakechime_dagster.formats.delta import DeltaLog


def append_rows(log: DeltaLog, columns: Sequence[str], rows: Sequence[Sequence[Any]], facts: Mapping[str, str]) -> int:
    """Append rows to a table that is there, and return the version; its commit tells these facts.

    Raises:
        TableAbsentError: there is no table.
        TableUnreadableError: it cannot be written.
    """
    table = _there(log)
    schema = pa.schema(table.schema())
    types = [schema.field(name) for name in columns]
    arrays = [pa.array(list(values), one.type) for values, one in zip(zip(*rows, strict=True), types, strict=True)]
    _append(log, table, pa.Table.from_arrays(arrays, schema=pa.schema(types)), CommitProperties(custom_metadata=dict(facts)))
    return table.version()


def append_once(log: DeltaLog, rows: Iterable[Mapping[str, Any]], app_id: str, version: int) -> bool:
    """Append rows in the table's own columns; False when a commit of this transaction, or of a later version, did before.

    Raises:
        As `append_rows`.
    """
    table = _there(log)
    done = table.transaction_version(app_id)
    if done is not None and done >= version:
        return False
    data = pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(table.schema().to_arrow()))
    _append(log, table, data, CommitProperties(app_transactions=[Transaction(app_id, version)]))
    return True


def _there(log: DeltaLog) -> DeltaTable:
    table = log.state()
    if table is None:
        raise TableAbsentError(f"{log.table}: there is no Delta table at {log.shown_location} to append to")
    return table


def _append(log: DeltaLog, table: DeltaTable, data: pa.Table, properties: CommitProperties) -> None:
    try:
        write_deltalake(table, data, mode="append", commit_properties=properties)
    except (DeltaError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise TableUnreadableError(f"{log.table} at {log.shown_location} cannot be appended to: {reason}") from error
