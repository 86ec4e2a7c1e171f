"""The Delta table of flattened lineage, put as a whole in place of what was there. No JVM."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from lakechime_dagster.capture.delta import DeltaLog
from lakechime_dagster.capture.refusals import refusals_told
from lakechime_dagster.lineage.graph.flat import Pairs
from lakechime_dagster.lineage.graph.network import Network
from lakechime_dagster.lineage.graph.reach import Certainty

SCHEMA = pa.schema([
    pa.field("source", pa.string(), nullable=False), pa.field("source_column", pa.string()),
    pa.field("target", pa.string(), nullable=False), pa.field("target_column", pa.string()),
    pa.field("layer", pa.int32(), nullable=False), pa.field("kind", pa.string(), nullable=False),
])  # fmt: skip


def put_flat(log: DeltaLog, network: Network, pairs: Iterable[Pairs], app_id: str, number: int) -> int:
    """Put pairs of a network in place of all that is in a table, which is made if it is not there; the version of the commit.

    Raises:
        LaneConflictError: another commit was first at the same time.
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
