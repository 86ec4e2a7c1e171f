"""Groups that share the types of a stream by other patterns: is each event of a type that nobody had read written once all the same?

A state machine, all of whose states are visited; without one of the rules each mutant must show a counterexample.

The protocol. Two groups read a stream, `new` and `old`; one type is of `old` by the first patterns and of `new` by the second. A group's
step reads the versions behind its checkpoint, and of a type that is known those behind the type's own. A type that the store does not know
begins, where the patterns are those of the group's last completed step, at the group's checkpoint; else with the stream. Of two groups that
learn of it at once the store lets one in. Settling moves the checkpoint and keeps the patterns in one transaction. A group with other
patterns
than it has kept is run though nothing came. A type that is known to the other group waits until its move is declared.

That it begins with the stream, and at no later checkpoint, is needed: once the patterns have changed a group's checkpoint tells no more
what it
has left unread for another.

Folded: an attempt does all of its step at once, or learns of the type and dies. That types move with their tables is `type_checkpoints`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.models.exploring import Exploration, explore

GROUPS = NEW, OLD = (0, 1)
NAMES = ("new", "old")
EVENTS = (1, 3)  # the versions that hold events of the type
LAST = 3
MUTANTS = {
    "own_checkpoint": "a type that is new begins at the checkpoint of its group, whatever the patterns were",
    "oldest_checkpoint": "it begins at the oldest checkpoint of both groups",
    "kept_at_claim": "the new patterns are kept before the step is completed",
    "not_woken": "a group is run for events alone",
    "both_learn": "the store lets both groups learn of the type",
}


class Run(NamedTuple):
    group: int
    end: int
    patterns: int
    unread: int | None
    waits: bool  # the other group knew the type when it began


class State(NamedTuple):
    head: int = 0
    patterns: int = 0
    checkpoints: tuple[int | None, int | None] = (None, None)
    kept: tuple[int | None, int | None] = (None, None)
    known: tuple[int | None, int | None] = (None, None)  # the type's checkpoint, by the group that knows it
    written: tuple[int, ...] = ()
    runs: tuple[Run, ...] = ()
    deaths: int = 0


class Patterns:
    """The protocol, with at most one of its rules broken."""

    def __init__(self, broken: str = "", deaths: int = 2) -> None:
        self.broken = broken
        self.deaths = deaths

    def start(self) -> State:
        return State()

    def moves(self, state: State) -> Iterator[tuple[str, State]]:
        if state.head < LAST:
            yield f"version {state.head + 1} comes", state._replace(head=state.head + 1)
        if not state.patterns:
            yield "the patterns change", state._replace(patterns=1)
        for group in GROUPS:
            yield from self._claims(state, group)
        for run in state.runs:
            yield from self._ends(state._replace(runs=tuple(one for one in state.runs if one != run)), run)

    def problem(self, state: State) -> str | None:
        if len(set(state.written)) < len(state.written):
            return f"events are written twice: {state.written}"
        is_over = self.is_quiet(state) and state.known[OLD] is None  # else it waits
        return f"events are lost: {state.written} is written" if is_over and state.written != EVENTS else None

    def is_quiet(self, state: State) -> bool:
        return state.head == LAST and bool(state.patterns) and not state.runs and not any(True for _ in self._wanted(state))

    def _wanted(self, state: State) -> Iterator[int]:
        for group in GROUPS:
            has_come = (state.checkpoints[group] or 0) < state.head
            if has_come or (self.broken != "not_woken" and state.kept[group] != state.patterns):
                yield group

    def _unread(self, state: State, group: int) -> int | None:
        """From where the group looks for a type that is new; None for its own checkpoint."""
        if self.broken == "own_checkpoint" or state.kept[group] == state.patterns:
            return None
        return min(checkpoint or 0 for checkpoint in state.checkpoints) if self.broken == "oldest_checkpoint" else 0

    def _claims(self, state: State, group: int) -> Iterator[tuple[str, State]]:
        if state.head and group in {*self._wanted(state)} and all(run.group != group for run in state.runs):
            waits = state.known[1 - group] is not None
            run = Run(group, state.head, state.patterns, self._unread(state, group), waits)
            kept = _with(state.kept, group, state.patterns) if self.broken == "kept_at_claim" else state.kept
            yield f"{NAMES[group]} claims up to {state.head}", state._replace(runs=(*state.runs, run), kept=kept)

    def _ends(self, state: State, run: Run) -> Iterator[tuple[str, State]]:
        known = state.known
        if self._owner(run) == run.group and self._meets_it(state, run):
            if known[1 - run.group] is not None and self.broken != "both_learn":
                yield f"{NAMES[run.group]} is refused", state
                return
            known = _with(known, run.group, (state.checkpoints[run.group] or 0) if run.unread is None else run.unread)
        if state.deaths < self.deaths:
            yield f"{NAMES[run.group]} dies", state._replace(known=known, deaths=state.deaths + 1)
        done = state._replace(
            checkpoints=_with(state.checkpoints, run.group, run.end), kept=_with(state.kept, run.group, run.patterns), known=known
        )
        checkpoint = known[run.group]
        if checkpoint is not None and self._owner(run) == run.group:
            rows = tuple(one for one in EVENTS if checkpoint < one <= run.end)
            done = done._replace(known=_with(known, run.group, run.end), written=(*state.written, *rows))
        yield f"{NAMES[run.group]} completes up to {run.end}", done

    def _meets_it(self, state: State, run: Run) -> bool:
        """Whether an attempt meets the type, of which it knew nothing when it began."""
        start = (state.checkpoints[run.group] or 0) if run.unread is None else run.unread
        return not run.waits and state.known[run.group] is None and any(start < one <= run.end for one in EVENTS)

    def _owner(self, run: Run) -> int:
        return NEW if run.patterns else OLD


def _with(several: tuple[int | None, int | None], group: int, one: int) -> tuple[int | None, int | None]:
    return (one, several[1]) if group == NEW else (several[0], one)


def explored(broken: str = "") -> Exploration:
    return explore(Patterns(broken, deaths=2))
