"""A small Delta table that shows what is known elsewhere: appended to by numbers, each of which comes in once, or made anew. No JVM."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from lakechime_dagster.capture.delta import DeltaLog
from lakechime_dagster.capture.refusals import refusals_told

PROPERTIES = {"delta.enableChangeDataFeed": "true"}
_ARROW = {
    "string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "timestamp": pa.timestamp("us", "UTC"),
    "array<string>": pa.list_(pa.string()),
}  # fmt: skip


def told_up_to(log: DeltaLog, app_id: str) -> int:
    """The number up to which a table holds what is known; 0 of a table that is not there."""
    state = log.state()
    return 0 if state is None else state.transaction_version(app_id) or 0


def tell(
    log: DeltaLog, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], app_id: str, number: int, *, anew: bool = False
) -> int:  # fmt: skip
    """Append rows under a number, or put them in place of all that is there; the version of the commit. The first one makes the table.

    Raises:
        LaneConflictError: another commit was first at the same time, perhaps of this number.
        TableUnreadableError: the table cannot be written.
    """
    data = pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema([(name, _ARROW[kind]) for name, kind in columns.items()]))
    once = CommitProperties(app_transactions=[Transaction(app_id, number)])
    state = log.state()
    with refusals_told(log):
        if state is None:
            write_deltalake(log.location, data, mode="error", configuration=PROPERTIES, commit_properties=once)
        elif anew:
            write_deltalake(state, data, mode="overwrite", schema_mode="overwrite", commit_properties=once)
        else:
            write_deltalake(state, data, mode="append", commit_properties=once)
    return log.version
