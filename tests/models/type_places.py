"""Every interleaving of a group whose steps write the tables of many types: is each row applied once to its type's table?

A small state machine, all of whose states are visited: `python -m tests.models.type_places --all` explores the protocol, then every mutant,
which must show a counterexample, and every variation, which must hold, as safety does not rest on its rule; `--broken NAME` explores one of
them.

The protocol. Bronze only grows. A step of the group's consumer is claimed with its end; a retry may widen the end; an attempt called lost
may
live on. A type's checkpoint says up to which bronze commit its table holds its rows, its step is 1 + the number of commits that the table
holds.
An attempt takes both from the store, or from the record (step, start, end) of the table's last commit where that is further. It commits the
type's rows of (checkpoint, end] under the type's step, which the table lets in only above all steps that it holds. Refused, it takes over
the
end of the table's last commit and leaves the rest to a later step. A type without rows in its slice moves to the end without a commit. A
type that failed stays where it was, and so is due. Settling compares step and attempt with the open
execution, and moves the consumer and the types in one transaction, types never back. A lost store is rebuilt from the tables; its
consumer starts
from nothing, at step 1.

A write that failed may have been committed all the same.

Types move to another group with their checkpoints and steps, and are committed under the consumer that they had. The new group's own
consumer
starts from nothing, and its first claim may be older than theirs. An attempt of the former group lives on, and is told apart from the
new group's when it completes.

A replay commits no new rows: under the number that follows, once the attempt is done with the type up to its own end and nobody is
ahead of it, and its record tells that end.

A rebuild is the commit of a type in place of an append: under the number that follows, it replaces what the table holds by all rows up
to the attempt's end, and its record tells that end.

A type that is far behind catches up by parts: it is read up to an end of its own before the attempt's, which its record tells and to
which it moves, with a commit if the part has rows of it. A later step reads on from there. That the others are read in segments, each
file once, is no rule of its own: of each segment a type gets the rows behind its checkpoint.

Two moves are folded: bronze grows when a claim or a retry sees it, and an attempt that can do nothing more, whatever comes, is gone. The
last attempt of a step does not crash while it is the open one, so that from every state all rows can still arrive; if not, that is a
failure.
"""

import sys
from collections.abc import Iterator
from typing import NamedTuple

from tests.models.exploring import Exploration, explore
from tests.models.reporting import main
from tests.models.type_rules import MUTANTS, VARIATIONS
from tests.models.type_state import LAST, ROWS, TYPES, UNKNOWN, Commit, Open, Part, Run, State, TypeCheckpoint

TOO_MANY = 9  # steps: what comes to rest, does before


class Bounds(NamedTuple):
    attempts: int = 2  # of a step
    alive: int = 2  # attempts at a time
    left: int = 1  # how often a type fails
    losses: int = 1  # of the store
    any_order: bool = False  # of the types of an attempt
    replays: int = 0  # that change something
    rebuilds: int = 0
    moves: int = 0  # of the types to another group
    catch_ups: int = 0  # parts that end before the attempt does


USUAL = Bounds()
NARROW = Bounds(attempts=1, alive=1, losses=0)
WITHOUT_LOSS = Bounds(losses=0)
HALVES = (Bounds(left=0), WITHOUT_LOSS)
WIDE = Bounds(alive=3, any_order=True)
REPLAYING = Bounds(left=0, replays=1)
REBUILDING = Bounds(left=0, rebuilds=1)
MOVING = Bounds(left=0, losses=0, moves=1)
MOVING_LEFT = Bounds(losses=0, moves=1)
CATCHING_UP = Bounds(left=0, catch_ups=1)


def explored(broken: str = "", is_wide: bool = False) -> Exploration:
    """The protocol, or what is left of it: a mutant within widening bounds, a variation by halves unless it is to be wide."""
    if not broken:
        all_bounds = (WIDE, MOVING_LEFT) if is_wide else (USUAL, REPLAYING, REBUILDING, CATCHING_UP, MOVING)
    elif broken in MUTANTS and broken.startswith("replay"):
        all_bounds = (REPLAYING,)
    elif broken in MUTANTS and broken.startswith("catch_up"):
        all_bounds = (CATCHING_UP,)
    elif broken.startswith("rebuild_"):
        all_bounds = (REBUILDING,)
    elif "moved" in broken:
        all_bounds = (MOVING_LEFT,) if is_wide else (MOVING,)
    elif broken in VARIATIONS:
        all_bounds = (USUAL,) if is_wide else HALVES
    else:
        all_bounds = (NARROW, WITHOUT_LOSS, USUAL)
    states = 0
    for bounds in all_bounds:
        found = explore(Group(broken, bounds))
        states += found.states
        if found.problem:
            return found._replace(states=states)
    return Exploration(states)


Moves = Iterator[tuple[str, State]]


class Group:
    """The protocol without the rules that `broken` names."""

    def __init__(self, broken: str, bounds: Bounds) -> None:
        self.broken = frozenset(broken.split("+"))
        self.bounds = bounds

    def start(self) -> State:
        return State()

    def problem(self, state: State) -> str | None:
        if state.completed >= TOO_MANY:
            return "steps follow each other without end"
        for index, table in enumerate(state.tables):
            last = max((at for at, commit in enumerate(table) if commit.is_rebuild), default=0)
            held = [row for commit in table[last:] for row in self._rows(index, commit.start, commit.end)]
            if len(held) > len(set(held)):
                return f"{TYPES[index]} holds rows twice: those of the bronze commits {held}"
            if self.is_quiet(state) and set(held) not in ({*self._rows(index, 0, LAST)}, {*ROWS[TYPES[index]]}):
                return f"{TYPES[index]} lost rows: it holds those of the bronze commits {held}"
        return None

    def is_quiet(self, state: State) -> bool:
        return not state.runs and state.open is None and not self._is_due(state, LAST)

    def _is_due(self, state: State, end: int) -> bool:
        return state.checkpoint < end or ("due_by_consumer" not in self.broken and any(known.checkpoint < end for known in state.types))

    def _rows(self, index: int, start: int, end: int) -> tuple[int, ...]:
        """The bronze commits of (start, end] that hold rows of a type."""
        found = tuple(commit for commit in ROWS[TYPES[index]] if start < commit <= end)
        return () if "rows_vanish" in self.broken and found == (1, 3) else found

    def moves(self, state: State) -> Moves:
        for move, after in self._all_moves(state):
            yield move, after._replace(runs=tuple(sorted(run for run in after.runs if not self._is_over(after, run))))

    def _is_over(self, state: State, run: Run) -> bool:
        """Whether an attempt can do nothing more; its step may come again when the store is lost."""
        is_idle = not run.has_moved_consumer and not any(part.is_due for part in run.parts)
        if run.group != state.group:
            may_complete = {"moved_completes_late", "moved_completes_for_other"} & self.broken and run.parts
            return is_idle and not may_complete
        if (
            not is_idle
            or state.losses < self.bounds.losses
            or "compares_nothing" in self.broken
            or ("late_begin" in self.broken and not run.parts)
        ):
            return False
        is_newer_open = state.open is not None and state.open.step == run.step and state.open.attempt > run.attempt
        return run.step <= state.completed or (is_newer_open and "compares_step" not in self.broken)

    def _all_moves(self, state: State) -> Moves:
        if len(state.runs) < self.bounds.alive:
            yield from self._launched(state)
        if state.losses < self.bounds.losses and any(state.tables):
            types = tuple(self._rebuilt(state))
            yield (
                "the store is lost and rebuilt",
                state._replace(checkpoint=0, completed=0, open=None, types=types, losses=state.losses + 1),
            )
        if state.group < self.bounds.moves:
            yield "the types move to another group", self._taken_over(state)
        for run in sorted(set(state.runs)):
            others = list(state.runs)
            others.remove(run)
            rest = state._replace(runs=tuple(others))
            former = " of the former group" if run.group != state.group else ""
            name = f"attempt {run.attempt} of step {run.step}{former}"
            for move, after in self._moves_of(run, state, rest):
                yield f"{name} {move}", after

    def _launched(self, state: State) -> Moves:
        if state.open is None:
            step, attempt = state.completed + 1, 1
            is_behind = state.group > 0 and not state.completed  # a group claims before types move to it
            ends = [end for end in range(1 if is_behind else max(state.head, 1), LAST + 1) if self._is_due(state, end)]
        elif state.open.attempt < self.bounds.attempts:
            step, attempt = state.open.step, state.open.attempt + 1
            narrower = range(1, state.open.end) if "retry_narrows" in self.broken else ()
            ends = [*(end for end in narrower if self._is_due(state, end)), *range(state.open.end, LAST + 1)]
        else:
            return
        for end in ends:
            run = Run(step, attempt, end, group=state.group)
            opened = state._replace(head=max(state.head, end), open=Open(step, attempt, end), runs=(*state.runs, run))
            yield f"step {step} gets attempt {attempt} up to {end}", opened

    def _taken_over(self, state: State) -> State:
        types = state.types
        if "moved_checkpoint_anew" in self.broken:
            types = tuple(TypeCheckpoint(known.step) for known in types)
        elif "moved_steps_anew" in self.broken:
            types = tuple(TypeCheckpoint() for _ in types)
        return state._replace(checkpoint=0, completed=0, open=None, types=types, group=state.group + 1)

    def _rebuilt(self, state: State) -> Iterator[TypeCheckpoint]:
        found = [max(TypeCheckpoint(), self._last(table)) for table in state.tables]
        for step, checkpoint in found:
            if "rebuilt_as_one" in self.broken:
                yield TypeCheckpoint(step, max(other.checkpoint for other in found))
            else:
                is_from_zero = "store_lost_from_zero" in self.broken
                yield TypeCheckpoint(
                    1 if is_from_zero or "rebuilt_checkpoint_only" in self.broken else step,
                    0 if is_from_zero or "rebuilt_step_only" in self.broken else checkpoint,
                )

    def _last(self, table: tuple[Commit, ...]) -> TypeCheckpoint:
        """What the record of a table's last commit tells."""
        if not table:
            return UNKNOWN
        commit = max(table)
        return self._committed(commit.step, commit.start, commit.told_end)

    def _committed(self, step: int, start: int, end: int) -> TypeCheckpoint:
        return TypeCheckpoint(
            step + ("checkpoint_without_step" not in self.broken), start if "step_without_checkpoint" in self.broken else end
        )

    def _found(self, table: tuple[Commit, ...], step: int) -> TypeCheckpoint:
        """What an attempt that is about to commit a step learns from the table."""
        if "own_step" not in self.broken:
            return self._last(table)
        told = table[-1:] if "short_history" in self.broken else table
        return self._last(tuple(commit for commit in told if commit.step == step))

    def _moves_of(self, run: Run, state: State, rest: State) -> Moves:
        is_same = state.open is not None and (state.open.step, state.open.attempt) == (run.step, run.attempt)
        is_open = is_same and (run.group == state.group or "moved_completes_for_other" in self.broken)
        if run.has_moved_consumer:
            yield "moves the types", rest._replace(types=self._moved(run, state))
            if state.left < self.bounds.left:
                yield "crashes", rest._replace(left=state.left + 1)
            return
        if not (is_open and run.attempt == self.bounds.attempts):
            yield "crashes", rest
        if not run.parts:
            if is_open or "late_begin" in self.broken:
                yield "begins", rest._replace(runs=(*rest.runs, run._replace(parts=self._begun(run, state))))
            return
        due = [index for index, part in enumerate(run.parts) if part.is_due]
        for index in due if self.bounds.any_order else due[:1]:
            for move, part, table, left in self._written(run, state, index):
                parts = (*run.parts[:index], part, *run.parts[index + 1 :])
                tables = (*state.tables[:index], table, *state.tables[index + 1 :])
                runs = (*rest.runs, run._replace(parts=parts))
                yield f"at {TYPES[index]} {move}", rest._replace(tables=tables, runs=runs, left=state.left + left)
        for index in due[:1]:
            yield from ((f"at {TYPES[index]} {move}", after) for move, after in self._caught_up(run, state, rest, index))
        for index in range(len(TYPES)):
            yield from ((f"at {TYPES[index]} {move}", after) for move, after in self._replayed(run, state, rest, index))
        if run.group != state.group and not due and "moved_completes_late" in self.broken:
            yield "completes", rest._replace(types=self._moved(run, state))
        for index in range(len(TYPES)):
            yield from ((f"at {TYPES[index]} {move}", after) for move, after in self._made_anew(run, state, rest, index))
        is_compared = is_open or (state.open is not None and state.open.step == run.step and "compares_step" in self.broken)
        if (is_compared or "compares_nothing" in self.broken) and (not due or "completes_first" in self.broken):
            yield "completes", self._completed(run, state, rest)

    def _caught_up(self, run: Run, state: State, rest: State, index: int) -> Moves:
        """A part of what is behind a type that is due, up to an end before the attempt's; what is refused is told by the usual write."""
        part, table = run.parts[index], state.tables[index]
        if state.catch_ups == self.bounds.catch_ups:
            return
        step, checkpoint = part.known
        counted = rest._replace(catch_ups=state.catch_ups + 1)
        for end in range(checkpoint + 1, run.end):
            moved, tables = end, state.tables
            if not self._rows(index, checkpoint, end):
                reached = TypeCheckpoint(step, run.end if "catch_up_skips_empty" in self.broken else end)
                move = f"moves to {end} without rows"
            elif self._lets_in([commit.step for commit in table], step):
                moved = run.end if "catch_up_moves_to_end" in self.broken else end
                told_end = run.end if "catch_up_tells_claim" in self.broken else end
                grown = (*table, Commit(step, checkpoint, end, told_end, run.group))
                tables = (*state.tables[:index], grown, *state.tables[index + 1 :])
                reached = self._committed(step, checkpoint, moved)
                move = f"commits the part ({checkpoint}, {end}] as {step}"
            else:
                continue
            parts = (*run.parts[:index], Part(reached, is_due=False), *run.parts[index + 1 :])
            yield move, counted._replace(tables=tables, runs=(*rest.runs, run._replace(parts=parts)))

    def _replayed(self, run: Run, state: State, rest: State, index: int) -> Moves:
        """A replay behind what a type is done with: a commit of no new rows, under the number that follows, with the type's checkpoint."""
        part, table = run.parts[index], state.tables[index]
        is_behind = part.known.checkpoint > run.end and "replay_behind" not in self.broken
        is_unfinished = part.known.checkpoint < run.end and "replay_before_rest" not in self.broken
        if state.replays == self.bounds.replays or part.is_due or part.known == UNKNOWN or not table or is_behind or is_unfinished:
            return
        step = part.known.step
        if not self._lets_in([commit.step for commit in table], step):
            return
        counts = TypeCheckpoint(step + 1, part.known.checkpoint)
        parts = (*run.parts[:index], Part(counts, is_due=False), *run.parts[index + 1 :])
        runs = (*rest.runs, run._replace(parts=parts))
        if "replay_counts_without_commit" in self.broken:
            yield f"counts {step}, and writes nothing", rest._replace(runs=runs, replays=state.replays + 1)
            return
        grown = (*table, Commit(step, run.end, run.end, 0 if "replay_tells_no_checkpoint" in self.broken else run.end))
        tables = (*state.tables[:index], grown, *state.tables[index + 1 :])
        yield f"replays as {step}", rest._replace(runs=runs, tables=tables, replays=state.replays + 1)

    def _made_anew(self, run: Run, state: State, rest: State, index: int) -> Moves:
        """A rebuild in place of what a type was to append: all rows up to the attempt's end, under the type's own number."""
        part, table = run.parts[index], state.tables[index]
        is_behind = part.known.checkpoint > run.end and "rebuild_behind" not in self.broken
        if state.rebuilds == self.bounds.rebuilds or part.known == UNKNOWN or not table or is_behind:
            return
        step = part.known.step
        lets_in = self._lets_in([commit.step for commit in table], step) or "rebuild_let_in_always" in self.broken
        if lets_in:
            start = part.known.checkpoint if "rebuild_from_checkpoint" in self.broken else 0
            end = part.known.checkpoint if "rebuild_tells_own_checkpoint" in self.broken else run.end
            grown, known = (*table, Commit(step, start, run.end, end, run.group, is_rebuild=True)), TypeCheckpoint(step + 1, end)
        else:
            grown, known = table, self._found(table, step)
        parts = (*run.parts[:index], Part(known, is_due=False), *run.parts[index + 1 :])
        tables = (*state.tables[:index], grown, *state.tables[index + 1 :])
        move = f"makes it anew as {step}" if lets_in else f"is refused to make it anew as {step}"
        runs = (*rest.runs, run._replace(parts=parts))
        yield move, rest._replace(runs=runs, tables=tables, rebuilds=state.rebuilds + 1)

    def _begun(self, run: Run, state: State) -> tuple[Part, ...]:
        parts = [self._looked_up(run, index, state) for index in range(len(TYPES))]
        if "consumer_start_for_all" in self.broken:
            start = state.checkpoint
        elif "slice_from_oldest" in self.broken:
            start = min((part.known.checkpoint for part in parts if part.is_due), default=0)
        else:
            return tuple(parts)
        return tuple(part._replace(known=TypeCheckpoint(part.known.step, start)) if part.is_due else part for part in parts)

    def _looked_up(self, run: Run, index: int, state: State) -> Part:
        known = state.types[index]
        found = self._found(state.tables[index], known.step)
        if found > known and "checkpoints_of_ledger_only" not in self.broken:
            if "found_waits" in self.broken:
                return Part(found, is_due=False)
            known = TypeCheckpoint(found.step, max(found.checkpoint, run.end)) if "found_own_end" in self.broken else found
        return self._sliced(run, index, known)

    def _sliced(self, run: Run, index: int, known: TypeCheckpoint) -> Part:
        if self._rows(index, known.checkpoint, run.end):
            return Part(known, is_due=True)
        return Part(TypeCheckpoint(known.step + ("empty_counts" in self.broken), max(known.checkpoint, run.end)), is_due=False)

    def _written(self, run: Run, state: State, index: int) -> Iterator[tuple[str, Part, tuple[Commit, ...], int]]:
        """What may come of a type that is due: the move, the type in the attempt, its table, and whether it was left."""
        table, known = state.tables[index], run.parts[index].known
        if "checkpoint_at_write" in self.broken:
            known = max(known, self._last(table))
            if not (part := self._sliced(run, index, known)).is_due:
                yield "finds no rows left", part, table, 0
                return
        held = [commit.step for commit in table if "moved_consumer_anew" not in self.broken or commit.group == run.group]
        version = known.step
        if "group_step_as_version" in self.broken:
            version = run.step
        elif "version_at_write" in self.broken:
            version = max(held, default=0) + 1
        done = Part(self._committed(version, known.checkpoint, run.end), is_due=False)
        nothing = Part(UNKNOWN, is_due=False)
        if self._lets_in(held, version):
            told_end = state.open.end if state.open and "record_of_claim" in self.broken else run.end
            grown = (*table, Commit(version, known.checkpoint, run.end, told_end, run.group))
            move = f"commits ({known.checkpoint}, {run.end}] as {version}"
            yield move, done, grown, 0
            if state.left < self.bounds.left:
                yield f"{move}, and hears of a failure", nothing, grown, 1
        elif "refused_own_end" in self.broken:
            yield f"is refused {version}", done, table, 0
        elif "refused_waits" in self.broken:
            yield f"is refused {version}", nothing, table, 0
        else:
            found = self._found(table, version)
            goes_on = "refused_goes_on" in self.broken and bool(self._rows(index, found.checkpoint, run.end))
            yield f"is refused {version}", Part(found, goes_on), table, 0
        if state.left < self.bounds.left:
            for move, told in self._left(run, known):
                yield move, Part(told, is_due=False), table, 1

    def _left(self, run: Run, known: TypeCheckpoint) -> Iterator[tuple[str, TypeCheckpoint]]:
        moved_on = TypeCheckpoint(known.step, run.end)
        if "failed_counts" in self.broken:
            yield "fails", TypeCheckpoint(known.step + 1, known.checkpoint)
        else:
            yield "fails", moved_on if "failed_moves_on" in self.broken else UNKNOWN

    def _lets_in(self, held: list[int], version: int) -> bool:
        if "equal_steps_only" in self.broken:
            return version not in held
        return version > max(held, default=0) or "table_lets_all_in" in self.broken

    def _completed(self, run: Run, state: State, rest: State) -> State:
        after = rest._replace(checkpoint=run.end, completed=run.step, open=None)
        if "two_transactions" in self.broken:
            return after._replace(runs=(*rest.runs, run._replace(has_moved_consumer=True)))
        if any(part.is_due for part in run.parts):
            after = after._replace(runs=(*rest.runs, run))
        return after._replace(types=self._moved(run, state))

    def _moved(self, run: Run, state: State) -> tuple[TypeCheckpoint, ...]:
        moved: list[TypeCheckpoint] = []
        for stored, part in zip(state.types, run.parts, strict=True):
            told = self._committed(part.known.step, part.known.checkpoint, run.end) if part.is_due else part.known
            if told == UNKNOWN:
                moved.append(stored)
                continue
            after = told if "checkpoints_move_back" in self.broken else max(stored, told)
            moved.append(TypeCheckpoint(after.step, LAST) if "moves_to_newest" in self.broken else after)
        return tuple(moved)


if __name__ == "__main__":
    sys.exit(main(explored, MUTANTS, VARIATIONS))
