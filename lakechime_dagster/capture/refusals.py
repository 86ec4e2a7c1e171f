"""What keeps a commit out of a Delta table, by our errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import CommitFailedError, DeltaError

from lakechime_dagster.capture.delta import DeltaLog
from lakechime_dagster.errors import LaneConflictError, TableUnreadableError


@contextmanager
def refusals_told(log: DeltaLog) -> Iterator[None]:
    """Around a write to a table.

    Raises:
        LaneConflictError: another commit was first at the same time, perhaps of the same application transaction.
        TableUnreadableError: the table cannot be written.
    """
    try:
        yield
    except CommitFailedError as error:
        raise LaneConflictError(f"{log.table}: another commit was first at {log.shown_location}; look again") from error
    except (DeltaError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise TableUnreadableError(f"{log.table} at {log.shown_location} cannot be written: {reason}") from error
