"""Judges a range of snapshots by the table's own log: whether it may be read incrementally, and over which commits.

A RESTORE makes a new, contiguous version whose changes read like any others: it is no rollback. ROLLBACK is a log that
was itself put back, so that snapshots which were read before no longer exist.
"""

from dataclasses import dataclass

from lakechime_dagster.dce.commits import CommitsMissingError, TableCommit, TableLog
from lakechime_dagster.dce.event import SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotRange, Verdict, own_uid


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What the log says of a range.

    `version` is the snapshot to read as the end of the range. `commits` are those of the range, oldest first; `later`
    those after it, whose clean-up may have taken files of the range. `only` names the snapshots whose commits alone are
    read (None: all). `note` says what a person must know.
    """

    verdict: Verdict
    version: int
    commits: tuple[TableCommit, ...] = ()
    later: tuple[TableCommit, ...] = ()
    only: frozenset[SnapshotId] | None = None
    note: str = ""

    @property
    def data_commits(self) -> tuple[TableCommit, ...]:
        """The commits to read: those that changed data."""
        return tuple(
            commit for commit in self.commits if commit.changes_data and (self.only is None or SnapshotId(str(commit.version)) in self.only)
        )


def first_version(range_: SnapshotRange) -> int:
    """The first version of a range, inclusive as Delta's `startingVersion` wants it: the range's own start is exclusive."""
    return 0 if range_.start is None else int(range_.start) + 1


def judge(range_: SnapshotRange, log: TableLog) -> Judgement:
    """The verdict on a range of a Delta table, by its log alone."""
    head, end = log.version, int(range_.end)
    own = None if range_.table_uid is None else own_uid(range_.table_uid)
    if own is not None and log.uid != own:
        note = "the table was replaced after this execution was claimed; its newest snapshot is read"
        return Judgement(verdict=Verdict.RECREATED, version=head, note=note)
    if range_.is_recreated and end <= head:
        put_back = range_.start_uid is not None and own_uid(range_.start_uid) == own
        note = "the log was put back" if put_back else "the table was dropped and created again"
        verdict = Verdict.ROLLBACK if put_back else Verdict.RECREATED
        return Judgement(verdict=verdict, version=end, later=later_commits(log, end, head), note=f"{note} since it was last read")
    if end > head:
        note = f"snapshot {end} is no longer in the log, whose newest is {head}; that one is read"
        return Judgement(verdict=Verdict.ROLLBACK, version=head, note=note)
    if range_.is_whole:
        return Judgement(verdict=Verdict.CONTIGUOUS, version=end, later=later_commits(log, end, head))
    start = first_version(range_) - 1
    if start > end:
        return Judgement(verdict=Verdict.ROLLBACK, version=end, note=f"the log was put back from snapshot {start} to {end}")
    try:
        all_commits = log.commits(start, head)
    except CommitsMissingError as missing:
        note = f"the log was cleaned up past commit {missing.version}"
        return Judgement(verdict=Verdict.EXPIRED, version=end, later=later_commits(log, end, head), note=note)
    commits = tuple(commit for commit in all_commits if commit.version <= end)
    later = tuple(commit for commit in all_commits if commit.version > end)
    if any(commit.table_uid not in (None, own or commit.table_uid) for commit in commits):
        return Judgement(verdict=Verdict.RECREATED, version=end, note="the table was replaced in its own log")
    if any(commit.has_foreign_files for commit in commits):
        return Judgement(verdict=Verdict.RECREATED, version=end, note="the table was partitioned anew")
    gap = any(not commit.changes_data for commit in commits)
    return Judgement(verdict=Verdict.GAP_FILLED if gap else Verdict.CONTIGUOUS, version=end, commits=commits, later=later, only=range_.only)


def later_commits(log: TableLog, end: int, head: int) -> tuple[TableCommit, ...]:
    """The commits after a snapshot; none where the log cannot say."""
    try:
        return tuple(log.commits(end, head))
    except CommitsMissingError:
        return ()
