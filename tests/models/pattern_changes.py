"""Groups that share the types of a stream by other patterns: is each event of a type written once,
whoever reads it first?

A state machine, all of whose states are visited; without one of the rules each mutant must show a
counterexample.

The protocol. Two groups read a stream, `new` and `old`; one type is of `old` by the first patterns
and of `new` by the second. A group's execution reads the versions behind its checkpoint, and of its
own types those behind the type's. The group that meets a type first, be it another group's,
registers it for its owner, beginning where this execution begins. An execution with the second
patterns moves the type with its checkpoint. A group that is given a type by another one is woken.

Folded: an attempt does all of its execution at once, or registers the type and dies. How a
table reports its checkpoint is `type_places`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.models.exploring import Exploration, explore

GROUPS = NEW, OLD = (0, 1)
NAMES = ("new", "old")
EVENTS = (1, 3)  # the versions that hold events of the type
LAST = 3
MUTANTS = {
    "own_only": "a group registers its own types only",
    "at_the_end": "a type begins where the execution that registers it ends",
    "not_woken": "a type that another group registers or moves does not wake its owner",
    "again": "a moved type begins at the checkpoint of its new owner",
}


class Run(NamedTuple):
    group: int
    end: int
    patterns: int


class Known(NamedTuple):
    owner: int
    checkpoint: int
    is_due: bool = False


class State(NamedTuple):
    head: int = 0
    patterns: int = 0
    checkpoints: tuple[int, int] = (0, 0)
    known: Known | None = None
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
            if group in {*self._wanted(state)} and all(run.group != group for run in state.runs):
                yield (
                    f"{NAMES[group]} begins up to {state.head}",
                    self._begun(state, Run(group, state.head, state.patterns)),
                )
        for run in state.runs:
            yield from self._ends(
                state._replace(runs=tuple(one for one in state.runs if one != run)), run
            )

    def problem(self, state: State) -> str | None:
        if len(set(state.written)) < len(state.written):
            return f"events are written twice: {state.written}"
        waits = state.known is not None and state.known.owner == OLD  # until an execution moves it
        is_over = self.is_quiet(state) and not waits
        return (
            f"events are lost: {state.written} is written"
            if is_over and state.written != EVENTS
            else None
        )

    def is_quiet(self, state: State) -> bool:
        return (
            state.head == LAST
            and bool(state.patterns)
            and not state.runs
            and not any(True for _ in self._wanted(state))
        )

    def _wanted(self, state: State) -> Iterator[int]:
        for group in GROUPS:
            is_due = state.known is not None and state.known.owner == group and state.known.is_due
            if state.checkpoints[group] < state.head or is_due:
                yield group

    def _begun(self, state: State, run: Run) -> State:
        known = state.known
        if known is not None and run.patterns and known.owner == OLD:
            checkpoint = state.checkpoints[NEW] if self.broken == "again" else known.checkpoint
            known = Known(NEW, checkpoint, is_due=self.broken != "not_woken")
        return state._replace(runs=(*state.runs, run), known=known)

    def _ends(self, state: State, run: Run) -> Iterator[tuple[str, State]]:
        owner, known, start = (
            (NEW if run.patterns else OLD),
            state.known,
            state.checkpoints[run.group],
        )
        meets = any(start < one <= run.end for one in EVENTS)
        if known is None and meets and not (self.broken == "own_only" and owner != run.group):
            begin = {"at_the_end": run.end}.get(self.broken, start)
            known = Known(owner, begin, is_due=owner != run.group and self.broken != "not_woken")
        if state.deaths < self.deaths:
            yield f"{NAMES[run.group]} dies", state._replace(known=known, deaths=state.deaths + 1)
        checkpoints = (
            (run.end, state.checkpoints[OLD])
            if run.group == NEW
            else (state.checkpoints[NEW], run.end)
        )
        done = state._replace(checkpoints=checkpoints, known=known)
        if known is not None and known.owner == owner == run.group:
            rows = tuple(one for one in EVENTS if known.checkpoint < one <= run.end)
            done = done._replace(
                known=Known(owner, max(known.checkpoint, run.end)), written=(*state.written, *rows)
            )
        yield f"{NAMES[run.group]} completes up to {run.end}", done


def explored(broken: str = "") -> Exploration:
    return explore(Patterns(broken, deaths=2))
