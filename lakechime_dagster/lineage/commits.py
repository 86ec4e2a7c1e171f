"""Which commit each statement of a program left: by the mark that names it, else by what it says of itself and when it was made."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from lakechime_dagster.lineage.plans.dump import Dump
from lakechime_dagster.lineage.write_marks import executions_in, marks_in


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit as a table's log has it; `says` is what its writer says of it, `is_telling` that this says whose it is."""

    version: str
    at_ms: int | None
    says: str | None = None
    is_telling: bool = True


def matched(executed: Sequence[Dump], commits: Iterable[Commit], mark: str) -> list[str | None]:
    """The version that each statement on one table left, None where it left none; commits come the newest first.

    A commit is of one statement only. One that names its statement is of no other; another one is of a statement during whose execution
    it was made, and that said of its commits what it says, the one that ended first.
    """
    found: list[str | None] = [None] * len(executed)
    places = {one.execution: place for place, one in enumerate(executed) if one.execution is not None}
    others: list[Commit] = []
    for commit in reversed(list(commits)):
        marks, named = marks_in(commit.says), executions_in(commit.says)
        if marks and mark not in marks:
            continue
        if marks and named:
            place = next((places[one] for one in named if one in places), None)
            if place is not None:
                found[place] = commit.version
        else:
            others.append(commit)
    for commit in others:
        fitting = [place for place, one in enumerate(executed) if found[place] is None and _fits(one, commit)]
        if fitting:
            found[min(fitting, key=lambda place: (executed[place].ended_ms or 0, place))] = commit.version
    return found


def _fits(one: Dump, commit: Commit) -> bool:
    if commit.at_ms is None or one.begun_ms is None or one.ended_ms is None:
        return False
    if not one.begun_ms <= commit.at_ms <= one.ended_ms:
        return False
    said = _said(one)
    if not commit.is_telling:
        return True
    return said is None or _digest(commit.says) == said


def _said(one: Dump) -> str | None:
    """The digest of what a statement says of its commit: by its own option, else by the session's setting."""
    for key in ("options", "writeOptions"):
        options = one.plan.fields.get(key) if one.plan is not None else None
        said = options.get("userMetadata") if isinstance(options, Mapping) else None
        if isinstance(said, str):
            return said
    return one.says


def _digest(text: str | None) -> str | None:
    return None if text is None else f"{int(sha256(text.encode()).hexdigest(), 16):x}"
