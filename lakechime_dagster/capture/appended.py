"""The rows that were appended to a Delta table after a version: read from the files that its commits added. No JVM."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from lakechime_dagster.capture.delta import DeltaLog
from lakechime_dagster.dce.commits import CommitsMissingError
from lakechime_dagster.errors import TableUnreadableError

ROWS = 2_000  # that are handed on together


@dataclass(frozen=True)
class Appended:
    """Rows of one commit, or with None as version of the table as it stood at `through`."""

    through: int
    rows: tuple[dict[str, Any], ...]
    is_last: bool  # of its commit


def appended(log: DeltaLog, after: int | None, columns: Sequence[str], through: int | None = None) -> Iterator[Appended]:
    """The rows that came after a version, or with None all of them, commit by commit, some at a time.

    Where the log no longer holds a commit after that version, all rows that are there come again. Else commits after `through`
    are left for another time.

    Raises:
        TableUnreadableError: the table, a file of it or one of the columns cannot be read.
    """
    state = log.state()
    if state is None:
        return
    newest = state.version()
    try:
        commits = log.commits(after, newest if through is None else min(through, newest)) if after is not None and after <= newest else None
    except CommitsMissingError:
        commits = None
    if commits is None:
        files = [row["path"] for row in pa.table(state.get_add_actions(flatten=True)).to_pylist()]
        yield from _of_files(log, files, columns, newest)
        return
    for commit in commits:
        yield from _of_files(log, [file.path for file in commit.added], columns, commit.version)


def _of_files(log: DeltaLog, paths: Sequence[str], columns: Sequence[str], version: int) -> Iterator[Appended]:
    for path in paths:
        try:
            with log.files.open_input_file(unquote(path)) as source:
                file = pq.ParquetFile(source)
                missing = [name for name in columns if name not in file.schema_arrow.names]
                if missing:
                    there = ", ".join(file.schema_arrow.names)
                    raise TableUnreadableError(f"{log.table} has no column {missing[0]} in its files; they have {there}")
                for batch in file.iter_batches(ROWS, columns=list(columns)):
                    yield Appended(version, tuple(batch.to_pylist()), is_last=False)
        except (OSError, pa.ArrowException, DeltaError) as error:
            reason = str(error).splitlines()[0]
            raise TableUnreadableError(f"{log.table} at {log.shown_location} cannot be read: {reason}") from error
    yield Appended(version, (), is_last=True)
