"""A cut of a database that knows a place of the log between the changes of one table that it sees and those that come later.

Each cut of MariaDB is at such a place. In PostgreSQL a change stands in the log where it was made, before its transaction has
ended; and of two transactions the one whose end stands first in the log may be seen later. So the log's place is asked
first, then who is writing to the table, and the cut is taken when all these have ended. What it does not see began to
write to the table after that: its changes, and the end of its transaction, lie above the place. Others may begin and end
meanwhile, of which the cut sees some; nothing is locked, and whoever writes to other tables is not waited for.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.comparing.log_place import BinlogPlace, StatedPlace, WalPlace, lsn_of
from lakechime_dagster.errors import LakeChimeError, SourceUnreadableError
from lakechime_dagster.sources.connection import connected, dialect_of, limit_statements
from lakechime_dagster.sources.cut import LSN, Cut, taken
from lakechime_dagster.sources.tables import column_types

LOOKS = 60  # at who is still writing
LOOK_SECONDS = 1.0  # between two of them

# Whoever changes rows holds a lock of its table, also of the partition, until other sessions see that it has ended; so does a
# prepared transaction, by the name that it had before.
_WRITERS = """
    WITH RECURSIVE parts AS (
        SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = :schema AND c.relname = :table
        UNION
        SELECT i.inhrelid FROM pg_inherits i JOIN parts p ON p.oid = i.inhparent
    )
    SELECT l.virtualtransaction AS name, max(l.pid) AS pid, bool_or(l.mode = 'AccessExclusiveLock') AS locks_out
    FROM pg_locks l JOIN parts p ON p.oid = l.relation
    WHERE l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.granted AND l.mode IN ('RowExclusiveLock', 'AccessExclusiveLock')
    GROUP BY l.virtualtransaction"""


@dataclass(frozen=True)
class SettledCut:
    """A cut, and a place of the log.

    All changes of the table that the cut does not see lie at the place or above, and so do the ends of their transactions. Of
    PostgreSQL it may see some above it too, of which the log tells again.
    """

    cut: Cut
    place: StatedPlace


class TableBusyError(LakeChimeError):
    """Transactions that write to a table have not ended in time.

    Attributes:
        table: The one of the database.
        writers: Processes of the database; None is a prepared transaction.
    """

    def __init__(self, table: str, writers: tuple[int | None, ...]) -> None:
        self.table, self.writers = table, writers
        pids = ", ".join(map(str, sorted(pid for pid in writers if pid is not None)))
        who = [f"of the processes {pids} (pg_stat_activity)"] if pids else []
        who += ["that are prepared (pg_prepared_xacts)"] if None in writers else []
        super().__init__(
            f"{table}: transactions {' and '.join(who)} have written to it and do not end, so that no place of the log lies between what "
            "is seen and what comes; wait for them, or end them, and ask again"
        )


@contextmanager
def settled(url: str, schema: str, table: str, *, seconds: int = 60, pause: Callable[[float], None] = time.sleep) -> Iterator[SettledCut]:
    """A cut beside whoever writes to a table, which ends with the context; a statement may take so many seconds.

    Raises:
        TableBusyError: A transaction of PostgreSQL has written to the table, and did not end for a minute.
        InvalidValueError: The URL names neither MySQL, MariaDB nor PostgreSQL.
        NotFoundError: PostgreSQL has no such table.
        SourceUnreadableError: The database cannot be asked, does not tell where its log stands, or is a standby.
    """
    place = _place_below(url, schema, table, seconds, pause) if dialect_of(url) is Dialect.POSTGRES else None
    with taken(url, seconds=seconds, table=(schema, table)) as cut:
        if place is None:
            assert isinstance(cut.place, BinlogPlace)
            place = cut.place
        yield SettledCut(cut, place)


def _place_below(url: str, schema: str, table: str, seconds: int, pause: Callable[[float], None]) -> WalPlace:
    """Where the log stood before it was asked who was writing to a table; all these have ended."""
    with connected(url) as (connection, _):
        connection.execution_options(isolation_level="AUTOCOMMIT")
        limit_statements(connection, seconds)
        is_standby, lsn = connection.execute(sa.text(f"SELECT pg_is_in_recovery(), {LSN}::text")).one()
        if is_standby:
            raise SourceUnreadableError(
                f"it is a standby, which does not tell who is writing to {schema}.{table}; let Monitor(database=…) name its primary server"
            )
        column_types(connection, schema, table)
        begun: frozenset[str] | None = None
        waited: list[int | None] = []
        for _ in range(LOOKS):
            writers = connection.execute(sa.text(_WRITERS), {"schema": schema, "table": table}).all()
            begun = frozenset(one.name for one in writers) if begun is None else begun
            waited = [one.pid for one in writers if one.name in begun or one.locks_out]  # the latter let nobody read it
            if not waited:
                return WalPlace(lsn_of(lsn))
            pause(LOOK_SECONDS)
    raise TableBusyError(f"{schema}.{table}", tuple(waited))
