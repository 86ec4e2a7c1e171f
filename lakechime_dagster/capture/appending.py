"""Rows appended to a Delta table in one commit. No JVM."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake
from deltalake.exceptions import DeltaError

from lakechime_dagster.capture.delta import DeltaLog
from lakechime_dagster.errors import TableAbsentError, TableUnreadableError


def append_rows(log: DeltaLog, columns: Sequence[str], rows: Sequence[Sequence[Any]], facts: Mapping[str, str]) -> int:
    """Append rows to a table that is there, and return the version; its commit tells these facts.

    Raises:
        TableAbsentError: there is no table.
        TableUnreadableError: it cannot be written.
    """
    state = log.state()
    if state is None:
        raise TableAbsentError(f"{log.table}: there is no Delta table at {log.shown_location} to append to")
    schema = pa.schema(state.schema())
    types = [schema.field(name) for name in columns]
    arrays = [pa.array(list(values), one.type) for values, one in zip(zip(*rows, strict=True), types, strict=True)]
    try:
        write_deltalake(
            state, pa.Table.from_arrays(arrays, schema=pa.schema(types)), mode="append",
            commit_properties=CommitProperties(custom_metadata=dict(facts)),
        )  # fmt: skip
    except (DeltaError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise TableUnreadableError(f"{log.table} at {log.shown_location} cannot be appended to: {reason}") from error
    return state.version()
