"""The table `lakechime.lineage_flat`: which columns lead to which, flattened for SQL."""

from dataclasses import dataclass
from hashlib import blake2b

from lakechime_dagster.lineage.flat import Pairs, column_pairs, table_pairs
from lakechime_dagster.lineage.network import Network
from lakechime_dagster.lineage.service import AskedLineage
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.lake import Lake

TABLE = "lakechime.lineage_flat"
COLUMN_ROWS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class Flattened:
    """How many pairs are told of tables, and of columns; None where these are more than the budget."""

    tables: int
    columns: int | None
    budget: int

    @property
    def refusal(self) -> str:
        """Why columns are not told, or nothing."""
        if self.columns is not None:
            return ""
        return f"{TABLE} tells no columns: their pairs are more than {self.budget:,}; raise --column-rows, or ask `lakechime lineage`"


def flatten(platform: Platform, lake: Lake, *, column_rows: int = COLUMN_ROWS, anew: bool = False) -> Flattened | None:
    """Bring the table to what is known now; None, and nothing is written, where it tells that already and is not to be made anew.

    Raises:
        ConsumerConflictError: somebody else was at it at the same time.
        TableUnreadableError: the table cannot be read or written.
    """
    from lakechime_dagster.lineage.flat_write import put_flat, told_up_to

    network = AskedLineage(platform, lake).network
    log, app_id, number = platform.log(TABLE), f"{platform.ledger.deployment}/{TABLE}", _number(network, column_rows)
    if not anew and told_up_to(log, app_id) == number:
        return None
    columns, tables = within(network, column_rows), list(table_pairs(network))
    version = put_flat(log, network, [*tables, *(columns or ())], app_id, number)
    platform.store.register(log.events_of_commit(version))
    return Flattened(tables=sum(map(len, tables)), columns=None if columns is None else sum(map(len, columns)), budget=column_rows)


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
    """A number of what a table tells: another one for any other network, or budget."""
    digest = blake2b("\0".join((str(column_rows), *network.labels)).encode(), digest_size=8)
    for edges in (network.inputs, network.edges, network.unsure):
        for part in (edges.sources, edges.targets, edges.kinds):
            digest.update(part.tobytes())
    return int.from_bytes(digest.digest()) >> 2
