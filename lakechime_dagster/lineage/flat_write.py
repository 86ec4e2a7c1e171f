"""Writes the table `lakechime.lineage_flat`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from lakechime_dagster.formats.delta import DeltaLog, refusals_told
from lakechime_dagster.lineage.flat import Pairs
from lakechime_dagster.lineage.network import Certainty, Network

SCHEMA = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("source_column", pa.string()),
        pa.field("target", pa.string(), nullable=False),
        pa.field("target_column", pa.string()),
        pa.field("layer", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
    ]
)


def put_flat(log: DeltaLog, network: Network, pairs: Iterable[Pairs], app_id: str, number: int) -> int:
    """Put pairs of a network in place of all that is in a table, which is made if it is not there; the version of the commit.

    Raises:
        ConsumerConflictError: another commit was first at the same time.
        TableUnreadableError: the table cannot be written.
    """
    state = log.state()
    data = pa.RecordBatchReader.from_batches(SCHEMA, _batches(network, pairs))
    once = CommitProperties(app_transactions=[Transaction(app_id, number)])
    with refusals_told(log):
        write_deltalake(state or log.location, data, mode="overwrite", schema_mode="overwrite", commit_properties=once)
    return log.version


def _batches(network: Network, pairs: Iterable[Pairs]) -> Iterator[pa.RecordBatch]:
    labels = pa.array(network.labels, pa.string())
    kinds = pa.array(["", *(one.name.lower() for one in Certainty)], pa.string())
    for some in pairs:
        ends: list[pa.Array] = []
        for nodes in (some.sources, some.targets):
            tables = network.datasets[nodes]
            ends += [labels.take(pa.array(tables)), labels.take(pa.array(nodes, mask=tables == nodes))]
        yield pa.record_batch([*ends, pa.array(some.layers), kinds.take(pa.array(some.kinds))], schema=SCHEMA)


PROPERTIES = {"delta.enableChangeDataFeed": "true"}
_ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<string>": pa.list_(pa.string()),
}


def told_up_to(log: DeltaLog, app_id: str) -> int:
    """The number up to which a table holds what is known; 0 of a table that is not there."""
    state = log.state()
    return 0 if state is None else state.transaction_version(app_id) or 0


def tell(
    log: DeltaLog, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], app_id: str, number: int, *, anew: bool = False
) -> int:
    """Append rows under a number, or put them in place of all that is there; the version of the commit. The first one makes the table.

    Raises:
        ConsumerConflictError: another commit was first at the same time, perhaps of this number.
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
