"""The table `lakechime.lineage_flat`: which columns lead to which, flattened for SQL."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lakechime_dagster.lineage.graph import Part
from lakechime_dagster.lineage.network import (
    DIRECT_CODES,
    Certainty,
    Edges,
    Network,
    Nodes,
    edges_from,
    reach,
)
from lakechime_dagster.lineage.service import AskedLineage
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.lake import Lake

if TYPE_CHECKING:
    from lakechime_dagster.formats.delta import DeltaLog

CHUNK = 1_000_000  # pairs that are handed out at once, or a few more


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of nodes; layers from 1 on, and certainties by their numbers."""

    sources: Nodes
    targets: Nodes
    layers: NDArray[np.int32]
    kinds: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.sources)


def table_pairs(network: Network) -> Iterator[Pairs]:
    """All pairs of different data sets, by source."""
    tables = np.unique(network.datasets)
    sources, targets = (
        np.searchsorted(tables, side).astype(np.int32)
        for side in (network.inputs.sources, network.inputs.targets)
    )
    parts = network.inputs.kinds
    is_declared, is_direct = parts & Part.DECLARED != 0, parts & Part.DIRECT != 0
    # each data set as one node, whose inputs are its edges
    kinds = np.where(is_direct, 1, DIRECT_CODES + 1).astype(np.int8)
    edges, nothing = Edges(sources, targets, kinds), edges_from([])
    of_tables = Network(
        tables={},
        labels=tuple(network.labels[one] for one in tables.tolist()),
        datasets=np.arange(len(tables), dtype=np.int32),
        inputs=nothing,
        edges=edges.where(~is_declared),
        unsure=edges.where(is_declared),
    )
    for some in _by_chunks(_pairs(of_tables, np.unique(sources).tolist())):
        yield Pairs(tables[some.sources], tables[some.targets], some.layers, some.kinds)


def column_pairs(network: Network) -> Iterator[Pairs]:
    """All pairs that begin with a column and end in another data set: with a column, or with its
    rows.
    """
    columns = np.flatnonzero(network.datasets != np.arange(len(network))).tolist()
    return _by_chunks(_pairs(network, columns))


def _pairs(network: Network, sources: Iterable[int]) -> Iterator[Pairs]:
    """What each of these nodes leads to in other data sets."""
    certainty = np.zeros(len(network), np.int8)
    is_indirect = len(network.indirect.edges) + len(network.reading.edges) > 0
    there = {Certainty.UNSURE: len(network.maybe.edges) > 0, Certainty.INDIRECT: is_indirect}
    # a search for less sure ones finds no more than the next where there are no such edges
    widest, *surer = [one for one, is_there in there.items() if is_there] + [Certainty.DIRECT]
    for source in sources:
        start = np.array([source], np.int32)
        whole = reach(network, start, widest)
        if len(whole.nodes) == 1:
            continue
        certainty[whole.nodes] = widest
        for one in surer:
            certainty[reach(network, start, one).nodes] = one
        is_other = network.datasets[whole.nodes] != network.datasets[source]
        targets = whole.nodes[is_other]
        yield Pairs(
            np.full(len(targets), source, np.int32),
            targets,
            whole.layers[is_other],
            certainty[targets],
        )


def _by_chunks(found: Iterable[Pairs]) -> Iterator[Pairs]:
    several: list[Pairs] = []
    rows = 0
    for one in found:
        several.append(one)
        rows += len(one)
        if rows >= CHUNK:
            yield _together(several)
            several, rows = [], 0
    if rows:
        yield _together(several)


def _together(several: list[Pairs]) -> Pairs:
    sources, targets, layers, kinds = (
        np.concatenate([getattr(one, name) for one in several])
        for name in ("sources", "targets", "layers", "kinds")
    )
    return Pairs(sources, targets, layers, kinds)


def put_flat(
    log: "DeltaLog", network: Network, pairs: Iterable[Pairs], app_id: str, number: int
) -> int:
    """Put pairs of a network in place of all that is in a table, which is made if it is not there;
    the version of the commit.

    Raises:
        ConsumerConflictError: another commit was first at the same time.
        TableUnreadableError: the table cannot be written.
    """
    import pyarrow as pa
    from deltalake import CommitProperties, Transaction, write_deltalake

    texts = [("source", False), ("source_column", True), ("target", False), ("target_column", True)]
    fields = [pa.field(name, pa.string(), nullable=nullable) for name, nullable in texts]
    schema = pa.schema(
        [
            *fields,
            pa.field("layer", pa.int32(), nullable=False),
            pa.field("kind", pa.string(), nullable=False),
        ]
    )
    labels = pa.array(network.labels, pa.string())
    kinds = pa.array(["", *(one.name.lower() for one in Certainty)], pa.string())

    def batches() -> Iterator[pa.RecordBatch]:
        for some in pairs:
            ends: list[pa.Array] = []
            for nodes in (some.sources, some.targets):
                tables = network.datasets[nodes]
                ends += [
                    labels.take(pa.array(tables)),
                    labels.take(pa.array(nodes, mask=tables == nodes)),
                ]
            yield pa.record_batch(
                [*ends, pa.array(some.layers), kinds.take(pa.array(some.kinds))], schema=schema
            )

    data = pa.RecordBatchReader.from_batches(schema, batches())
    once = CommitProperties(app_transactions=[Transaction(app_id, number)])
    with log.writing():
        write_deltalake(
            log.state() or log.location,
            data,
            mode="overwrite",
            schema_mode="overwrite",
            commit_properties=once,
        )
    return log.version


def written_up_to(log: "DeltaLog", app_id: str) -> int:
    """The number up to which a table holds what is known; 0 of a table that is not there."""
    state = log.state()
    return 0 if state is None else state.transaction_version(app_id) or 0


TABLE = "lakechime.lineage_flat"
COLUMN_ROWS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class Flattened:
    """How many pairs of tables are in it, and of columns; None where these are more than the
    budget.
    """

    tables: int
    columns: int | None
    budget: int

    @property
    def refusal(self) -> str:
        """Why columns are missing, or nothing."""
        if self.columns is not None:
            return ""
        return (
            f"{TABLE} has no columns: their pairs are more than {self.budget:,}; raise "
            f"--column-rows, or ask `lakechime lineage`"
        )


def flatten(platform: Platform, lake: Lake, *, column_rows: int = COLUMN_ROWS) -> Flattened | None:
    """Bring the table to what is known now; None, and nothing is written, where it holds that
    already.

    Raises:
        ConsumerConflictError: somebody else was at it at the same time.
        TableUnreadableError: the table cannot be read or written.
    """
    network = AskedLineage(platform, lake).network
    log, app_id, number = (
        platform.log(TABLE),
        f"{platform.ledger.deployment}/{TABLE}",
        _number(network, column_rows),
    )
    if written_up_to(log, app_id) == number:
        return None
    columns, tables = within(network, column_rows), list(table_pairs(network))
    version = put_flat(log, network, [*tables, *(columns or ())], app_id, number)
    platform.store.register(log.events_of_commit(version))
    return Flattened(
        tables=sum(map(len, tables)),
        columns=None if columns is None else sum(map(len, columns)),
        budget=column_rows,
    )


def within(network: Network, rows: int) -> list[Pairs] | None:
    """The pairs that begin with a column; None if they are more than so many."""
    found: list[Pairs] = []
    left = rows
    for some in column_pairs(network):
        left -= len(some)
        if left < 0:
            return None
        found.append(some)
    return found


def _number(network: Network, column_rows: int) -> int:
    """A number of the content of a table: another one for any other network, or budget."""
    digest = blake2b("\0".join((str(column_rows), *network.labels)).encode(), digest_size=8)
    for edges in (network.inputs, network.edges, network.unsure):
        for part in (edges.sources, edges.targets, edges.kinds):
            digest.update(part.tobytes())
    return int.from_bytes(digest.digest()) >> 2
