"""A consumer that is not woken by what its code does not read: does each commit still come to
whoever reads it, in time?

A state machine, all of whose states are visited; without one of the rules each mutant must show a
counterexample.

The protocol. Commits of a source update some of its columns, and mostly report which. The code of a
consumer reads some, and its lineage says which: rightly, wrongly, or it is not known, as of code
that changed since. A look wakes the consumer if one of the commits behind its checkpoint does not
report its columns, or reports one that the lineage does not exclude, or is a day old. A woken consumer
reads all commits behind its checkpoint, and its checkpoint moves to the newest; the checkpoint of
one that is not woken stays, and what waits for it is looked at again.

A day passes only when no look would wake the consumer: looks are much more frequent. A consumer
whose lineage is right, or not known, must have read by then what its code reads; one whose lineage
is wrong reads it right after.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.models.exploring import Exploration, explore

MUTANTS = {
    "checkpoint_moves": "the checkpoint of a consumer that is not woken moves",
    "search_moves": "what did not wake a consumer is not looked at again",
    "no_day": "what is not read waits for ever",
    "unknown_is_unread": "code whose lineage is not known reads nothing",
    "unreported_is_unread": "a commit that does not report its columns changed none",
    "stale_lineage": "the lineage of code that changed holds on",
    "one_is_enough": "one column that is not read excuses a commit",
    "range_from_needed": "a woken consumer reads from the commit that woke it",
}
COMMITS = 3
KINDS = ("a", "b", "ab", "?a")  # the columns that a commit updates; with ? it does not report them


class State(NamedTuple):
    commits: tuple[str, ...] = ()
    read: frozenset[int] = frozenset()
    checkpoint: int = 0
    searched: int = 0
    old: int = 0  # so many commits are a day old
    code: str = "a"  # the columns that it reads
    lineage: str | None = None  # the columns that it says to be read
    plans: int = 0
    changes: int = 0
    is_late: bool = False


class Consumer:
    """The protocol without the rule that `broken` names."""

    def __init__(self, broken: str) -> None:
        self.broken = broken

    def start(self) -> State:
        return State()

    def problem(self, state: State) -> str | None:
        if state.is_late:
            return "what the code reads was not read within a day"
        passed = range(max(state.checkpoint, state.searched))
        if any(at not in state.read and set(state.commits[at]) & set(state.code) for at in passed):
            return "a commit of a column that the code reads is never read"
        return None

    def is_quiet(self, state: State) -> bool:
        return max(state.checkpoint, state.searched) == len(state.commits)

    def moves(self, state: State) -> Iterator[tuple[str, State]]:
        if len(state.commits) < COMMITS:
            for kind in KINDS:
                yield (
                    f"commit {len(state.commits) + 1} updates {kind}",
                    state._replace(commits=(*state.commits, kind)),
                )
        if state.lineage is None and state.plans < 2:
            for said in ("a", "b"):
                yield (
                    f"the lineage says {said}",
                    state._replace(lineage=said, plans=state.plans + 1),
                )
        if not state.changes:
            lineage = state.lineage if self.broken == "stale_lineage" else None
            yield "the code reads b instead", state._replace(code="b", lineage=lineage, changes=1)
        waking = [
            at
            for at in range(max(state.checkpoint, state.searched), len(state.commits))
            if self._wakes(state, at)
        ]
        if waking:
            yield "a look wakes the consumer", self._read_all(state, waking[0])
        elif not self.is_quiet(state):
            if self.broken == "checkpoint_moves":
                yield "a look moves the checkpoint", state._replace(checkpoint=len(state.commits))
            if self.broken == "search_moves":
                yield "a look is done with it", state._replace(searched=len(state.commits))
            yield (
                "a day passes",
                state._replace(old=len(state.commits), is_late=self._is_late(state)),
            )

    def _wakes(self, state: State, at: int) -> bool:
        if at < state.old and self.broken != "no_day":
            return True
        reported = state.commits[at]
        if reported.startswith("?"):
            return self.broken != "unreported_is_unread"
        if state.lineage is None:
            return self.broken != "unknown_is_unread"
        meets = all if self.broken == "one_is_enough" else any
        return meets(column in state.lineage for column in reported)

    def _read_all(self, state: State, first: int) -> State:
        start = first if self.broken == "range_from_needed" else state.checkpoint
        head = len(state.commits)
        return state._replace(
            read=state.read | set(range(start, head)), checkpoint=head, searched=head
        )

    def _is_late(self, state: State) -> bool:
        is_right = (
            state.lineage is None
            or set(state.code) <= set(state.lineage)
            or self.broken == "stale_lineage"
        )
        waiting = [
            kind
            for at, kind in enumerate(state.commits)
            if at not in state.read and at >= state.checkpoint
        ]
        is_read = any(kind.startswith("?") or set(kind) & set(state.code) for kind in waiting)
        return is_read and is_right


def explored(broken: str = "") -> Exploration:
    """The protocol, or what is left of it without a rule; there are no more states to be had."""
    return explore(Consumer(broken))
