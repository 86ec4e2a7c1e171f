"""Lineage of writes by what they left in the logs of their tables, whichever job, asset or function made them."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.lineage.names import Names
from lakechime_dagster.lineage.plans.statements import Found
from lakechime_dagster.lineage.record import LineageRecord, Producer, summed
from lakechime_dagster.lineage.write_marks import marks_in
from lakechime_dagster.resources.lineage.runs import completed, lineage_store
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.triggers.lanes import CommitStamp

COMMITS = 100  # of a table's newest that are looked at for the mark of a run


@dataclass(frozen=True, kw_only=True)
class KeptWrite:
    """A table that was written, and the version of the commit by which its lineage is kept; None where it is not.

    `is_told_within` says that a body within told of all that was committed, and keeps it.
    """

    target: str
    version: str | None = None
    is_told_within: bool = False

    @property
    def is_told(self) -> bool:
        return self.version is not None or self.is_told_within


def kept_writes(
    platform: Platform, found: Found, names: Names, *, producer: Producer, run_id: str, mark: str, stamped_by: str | None = None
) -> Iterator[KeptWrite]:  # fmt: skip
    """Keep the lineage of statements that left a commit with this mark, or with a stamp of an execution of the Dagster run `stamped_by`."""
    for statement in summed(found.statements):
        location = _path(names.locations.get(statement.target, statement.target))
        left = _committed(platform, location, statement.target, mark, stamped_by)
        if left.version is not None:
            told = completed(replace(statement, unknown=(*statement.unknown, *found.unknown)), platform, location)
            lineage_store(platform).record(
                LineageRecord(producer=producer, run_id=run_id, at_ms=platform.store.now(), statement=told, version=left.version)
            )
        yield left


def _path(location: str) -> str:
    """Where a data set outside of the lake is, by its name."""
    return "/" + location.removeprefix("file/") if location.startswith("file/") else location


def _committed(platform: Platform, location: str, table: str, mark: str, stamped_by: str | None) -> KeptWrite:
    """The newest commit in a table's log that has the mark as its own, or a stamp of an execution that the run began."""
    is_told_within = False
    with suppress(TableUnreadableError):
        for commit in islice(platform.log_at(location, table).commits_backwards(), COMMITS):
            marks = marks_in(commit.user_metadata)
            if mark in marks[:1] or (stamped_by is not None and _run_of(platform, commit.user_metadata) == stamped_by):
                return KeptWrite(target=table, version=str(commit.version))
            is_told_within = is_told_within or mark in marks
    return KeptWrite(target=table, is_told_within=is_told_within)


def _run_of(platform: Platform, metadata: str | None) -> str | None:
    """The Dagster run of the execution whose stamp a commit has."""
    stamp = CommitStamp.from_text(metadata)
    execution = platform.ledger.execution(stamp.execution_id) if stamp is not None and stamp.execution_id else None
    return execution.run_id if execution is not None else None
