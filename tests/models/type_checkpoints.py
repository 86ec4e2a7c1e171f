"""Every interleaving of a group whose steps write the tables of many types: is each row applied
once to its type's table?

A small state machine, all of whose states are visited; without one of the rules each mutant must
show a counterexample.

The protocol. Bronze only grows. A step of the group's consumer is claimed with its end; a retry may
widen the end; an attempt called lost may live on. A type's checkpoint says up to which bronze
commit its table holds its rows, its step is 1 + the number of commits that the table holds. An
attempt takes both from the store, or from the record (step, start, end) of the table's last commit
where that is further. It commits the type's rows of (checkpoint, end] under the type's step, which
the table lets in only above all steps that it holds. Refused, it takes over the end of the table's
last commit and leaves the rest to a later step. A type without rows in its slice moves to the end
without a commit. A type that failed stays where it was, and so is due. Settling compares step and
attempt with the open execution, and moves the consumer and the types in one transaction, types
never back. A lost store is rebuilt from the tables; its consumer starts from nothing, at step 1.

A write that failed may have been committed all the same.

Types move to another group with their checkpoints and steps, and are committed under the consumer
that they had. The new group's own consumer starts from nothing, and its first claim may be older
than theirs. An attempt of the former group lives on, and is distinguished from the new group's when it
completes.

A replay commits no new rows: under the number that follows, once the attempt is done with the type
up to its own end and nobody is ahead of it, and its record reports that end.

A rebuild is the commit of a type in place of an append: under the number that follows, it replaces
what the table holds by all rows up to the attempt's end, and its record reports that end.

A type that is far behind catches up by parts: it is read up to an end of its own before the
attempt's, which its record reports and to which it moves, with a commit if the part has rows of it. A
later step reads on from there. That the others are read in segments, each file once, is no rule of
its own: of each segment a type gets the rows behind its checkpoint.

Two moves are folded: bronze grows when a claim or a retry sees it, and an attempt that can do
nothing more, whatever comes, is gone. The last attempt of a step does not crash while it is the
open one, so that from every state all rows can still arrive; if not, that is a failure.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.models.exploring import Exploration, explore

MUTANTS = {  # a name with + breaks rules of which each alone may be broken
    "group_step_as_version": "a commit's version is the step of the group, not of the type",
    "version_at_write": (
        "the version is the next one that the table lets in, not the one of the checkpoint that "
        "the rows start from"
    ),
    "table_lets_all_in": "the table lets a commit in whatever steps it holds",
    "failed_counts": "the step of a failed type counts up, as if it had committed",
    "empty_counts": "the step of a type without rows counts up, as if it had committed",
    "refused_own_end": (
        "after a refused write the checkpoint moves to the attempt's own end, not to the end that "
        "the table reports"
    ),
    "found_own_end": (
        "a commit found before writing moves the checkpoint to the attempt's own end, not to the "
        "end that the table reports"
    ),
    "record_of_claim": "the record of a commit reports the end of the open execution, not that of its rows",
    "checkpoint_without_step": "a commit moves the type's checkpoint, not its step",
    "step_without_checkpoint": "a commit moves the type's step, not its checkpoint",
    "consumer_start_for_all": "every type is sliced from the consumer's checkpoint",
    "slice_from_oldest": "every type is sliced from the oldest checkpoint, where reading starts",
    "failed_moves_on": "a failed type moves to the end when the step is completed",
    "catch_up_reports_claim": "the record of a part by which a type catches up reports the attempt's end, not the part's",
    "catch_up_moves_to_end": "a type that was caught up by a part moves to the attempt's end",
    "catch_up_skips_empty": "a part without rows moves its type to the attempt's end",
    "moves_to_newest": (
        "completing moves the types that are done to the newest bronze commit, not up to what was "
        "read"
    ),
    "completes_first": "a step is completed before its types are written",
    "due_by_consumer": "a step is claimed for new bronze commits only, not for types that are behind the consumer",
    "rebuilt_as_one": "after the loss of the store all types start from the furthest end",
    "rows_vanish": "bronze does not only grow: a wider slice no longer has the rows of a narrower one",
    "replay_behind": (
        "an attempt that finds a table ahead of its own end replays it too, and its record reports "
        "that end"
    ),
    "replay_before_rest": (
        "a type of which rows are left to a later step is replayed, and the record reports the "
        "attempt's end"
    ),
    "replay_reports_no_checkpoint": "the record of a replay reports no end",
    "replay_counts_without_commit": "a replay that changed nothing counts as a commit",
    "rebuild_reports_own_checkpoint": "the record of a rebuild reports the checkpoint from which the "
    "type was to go on, not the end of what "
    "it read",
    "rebuild_behind": "an attempt that finds a table ahead of its own end makes it again up to there",
    "rebuild_let_in_always": "a rebuild is let in whatever steps the table holds",
    "rebuild_from_checkpoint": "a rebuild replaces the table by what lies behind the type's checkpoint",
    "moved_consumer_again": "types that move to another group are committed under a consumer of that group",
    "checkpoints_of_ledger_only+moved_checkpoint_again": "types that move to another group begin at its consumer's checkpoint, under "
    "their own steps",
    "checkpoints_of_ledger_only+rebuilt_step_only": "no attempt looks before it writes, and a lost "
    "store gets back steps without "
    "checkpoints",
    "checkpoints_of_ledger_only+refused_waits": "no attempt looks into the tables, neither before it writes nor when it is refused",
    "own_step+short_history": "an attempt looks for the commit of its own step, in a history that reports the last one only",
}
ROWS = {"A": (1, 3), "B": (2,)}  # the bronze commits that hold rows of each type
TYPES = tuple(ROWS)
LAST = 3  # bronze commits


class TypeCheckpoint(NamedTuple):
    """A type's next step, and the bronze commit up to which its table holds its rows; of two that
    are true the greater is the later.
    """

    step: int = 1
    checkpoint: int = 0


UNKNOWN = TypeCheckpoint(0, 0)


class Commit(NamedTuple):
    step: int
    start: int
    end: int
    reported_end: int  # in the record
    group: int = 0
    is_rebuild: bool = False  # nothing of what the table held before is left


class Part(NamedTuple):
    """A type in an attempt: from where it is to be written, or what completing will report of it."""

    known: TypeCheckpoint
    is_due: bool


class Run(NamedTuple):
    step: int
    attempt: int
    end: int
    parts: tuple[Part, ...] = ()  # none before it begins
    group: int = 0


class Open(NamedTuple):
    step: int
    attempt: int
    end: int


class State(NamedTuple):
    head: int = 0  # bronze commits that were seen
    checkpoint: int = 0
    completed: int = 0
    open: Open | None = None
    types: tuple[TypeCheckpoint, ...] = (TypeCheckpoint(),) * len(TYPES)
    tables: tuple[tuple[Commit, ...], ...] = ((),) * len(TYPES)
    runs: tuple[Run, ...] = ()
    left: int = 0
    losses: int = 0
    replays: int = 0
    rebuilds: int = 0
    group: int = 0  # which has the types; the consumer is its own
    catch_ups: int = 0


TOO_MANY = 9  # steps: what comes to rest, does before


class Bounds(NamedTuple):
    attempts: int = 2  # of a step
    alive: int = 2  # attempts at a time
    left: int = 1  # how often a type fails
    losses: int = 1  # of the store
    replays: int = 0  # that change something
    rebuilds: int = 0
    moves: int = 0  # of the types to another group
    catch_ups: int = 0  # parts that end before the attempt does


USUAL = Bounds()
NARROW = Bounds(attempts=1, alive=1, losses=0)
WITHOUT_LOSS = Bounds(losses=0)
REPLAYING = Bounds(left=0, replays=1)
REBUILDING = Bounds(left=0, rebuilds=1)
MOVING = Bounds(left=0, losses=0, moves=1)
CATCHING_UP = Bounds(left=0, catch_ups=1)


def explored(broken: str = "") -> Exploration:
    """The protocol, or what is left of it without a rule, within widening bounds."""
    if not broken:
        all_bounds = (USUAL, REPLAYING, REBUILDING, CATCHING_UP, MOVING)
    elif broken.startswith("replay"):
        all_bounds = (REPLAYING,)
    elif broken.startswith("catch_up"):
        all_bounds = (CATCHING_UP,)
    elif broken.startswith("rebuild_"):
        all_bounds = (REBUILDING,)
    elif "moved" in broken:
        all_bounds = (MOVING,)
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
            held = [
                row
                for commit in table[last:]
                for row in self._rows(index, commit.start, commit.end)
            ]
            if len(held) > len(set(held)):
                return f"{TYPES[index]} holds rows twice: those of the bronze commits {held}"
            if self.is_quiet(state) and set(held) not in (
                {*self._rows(index, 0, LAST)},
                {*ROWS[TYPES[index]]},
            ):
                return f"{TYPES[index]} lost rows: it holds those of the bronze commits {held}"
        return None

    def is_quiet(self, state: State) -> bool:
        return not state.runs and state.open is None and not self._is_due(state, LAST)

    def _is_due(self, state: State, end: int) -> bool:
        return state.checkpoint < end or (
            "due_by_consumer" not in self.broken
            and any(known.checkpoint < end for known in state.types)
        )

    def _rows(self, index: int, start: int, end: int) -> tuple[int, ...]:
        """The bronze commits of (start, end] that hold rows of a type."""
        found = tuple(commit for commit in ROWS[TYPES[index]] if start < commit <= end)
        return () if "rows_vanish" in self.broken and found == (1, 3) else found

    def moves(self, state: State) -> Moves:
        for move, after in self._all_moves(state):
            yield (
                move,
                after._replace(
                    runs=tuple(sorted(run for run in after.runs if not self._is_over(after, run)))
                ),
            )

    def _is_over(self, state: State, run: Run) -> bool:
        """Whether an attempt can do nothing more; its step may come again when the store is
        lost.
        """
        is_idle = not any(part.is_due for part in run.parts)
        if run.group != state.group:
            return is_idle
        if not is_idle or state.losses < self.bounds.losses:
            return False
        is_newer_open = (
            state.open is not None
            and state.open.step == run.step
            and state.open.attempt > run.attempt
        )
        return run.step <= state.completed or is_newer_open

    def _all_moves(self, state: State) -> Moves:
        if len(state.runs) < self.bounds.alive:
            yield from self._launched(state)
        if state.losses < self.bounds.losses and any(state.tables):
            types = tuple(self._rebuilt(state))
            yield (
                "the store is lost and rebuilt",
                state._replace(
                    checkpoint=0, completed=0, open=None, types=types, losses=state.losses + 1
                ),
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
            # a group claims before types move to it
            is_behind = state.group > 0 and not state.completed
            ends = [
                end
                for end in range(1 if is_behind else max(state.head, 1), LAST + 1)
                if self._is_due(state, end)
            ]
        elif state.open.attempt < self.bounds.attempts:
            step, attempt = state.open.step, state.open.attempt + 1
            ends = [*range(state.open.end, LAST + 1)]
        else:
            return
        for end in ends:
            run = Run(step, attempt, end, group=state.group)
            opened = state._replace(
                head=max(state.head, end), open=Open(step, attempt, end), runs=(*state.runs, run)
            )
            yield f"step {step} gets attempt {attempt} up to {end}", opened

    def _taken_over(self, state: State) -> State:
        types = state.types
        if "moved_checkpoint_again" in self.broken:
            types = tuple(TypeCheckpoint(known.step) for known in types)
        return state._replace(
            checkpoint=0, completed=0, open=None, types=types, group=state.group + 1
        )

    def _rebuilt(self, state: State) -> Iterator[TypeCheckpoint]:
        found = [max(TypeCheckpoint(), self._last(table)) for table in state.tables]
        for step, checkpoint in found:
            if "rebuilt_as_one" in self.broken:
                yield TypeCheckpoint(step, max(other.checkpoint for other in found))
            else:
                yield TypeCheckpoint(step, 0 if "rebuilt_step_only" in self.broken else checkpoint)

    def _last(self, table: tuple[Commit, ...]) -> TypeCheckpoint:
        """What the record of a table's last commit reports."""
        if not table:
            return UNKNOWN
        commit = max(table)
        return self._committed(commit.step, commit.start, commit.reported_end)

    def _committed(self, step: int, start: int, end: int) -> TypeCheckpoint:
        return TypeCheckpoint(
            step + ("checkpoint_without_step" not in self.broken),
            start if "step_without_checkpoint" in self.broken else end,
        )

    def _found(self, table: tuple[Commit, ...], step: int) -> TypeCheckpoint:
        """What an attempt that is about to commit a step learns from the table."""
        if "own_step" not in self.broken:
            return self._last(table)
        reported = table[-1:] if "short_history" in self.broken else table
        return self._last(tuple(commit for commit in reported if commit.step == step))

    def _moves_of(self, run: Run, state: State, rest: State) -> Moves:
        is_same = state.open is not None and (state.open.step, state.open.attempt) == (
            run.step,
            run.attempt,
        )
        is_open = is_same and run.group == state.group
        if not (is_open and run.attempt == self.bounds.attempts):
            yield "crashes", rest
        if not run.parts:
            if is_open:
                yield (
                    "begins",
                    rest._replace(runs=(*rest.runs, run._replace(parts=self._begun(run, state)))),
                )
            return
        due = [index for index, part in enumerate(run.parts) if part.is_due]
        for index in due[:1]:
            for move, part, table, left in self._written(run, state, index):
                parts = (*run.parts[:index], part, *run.parts[index + 1 :])
                tables = (*state.tables[:index], table, *state.tables[index + 1 :])
                runs = (*rest.runs, run._replace(parts=parts))
                yield (
                    f"at {TYPES[index]} {move}",
                    rest._replace(tables=tables, runs=runs, left=state.left + left),
                )
        for index in due[:1]:
            yield from (
                (f"at {TYPES[index]} {move}", after)
                for move, after in self._caught_up(run, state, rest, index)
            )
        for index in range(len(TYPES)):
            yield from (
                (f"at {TYPES[index]} {move}", after)
                for move, after in self._replayed(run, state, rest, index)
            )
        for index in range(len(TYPES)):
            yield from (
                (f"at {TYPES[index]} {move}", after)
                for move, after in self._recreated(run, state, rest, index)
            )
        if is_open and (not due or "completes_first" in self.broken):
            yield "completes", self._completed(run, state, rest)

    def _caught_up(self, run: Run, state: State, rest: State, index: int) -> Moves:
        """A part of what is behind a type that is due, up to an end before the attempt's; what is
        refused is reported by the usual write.
        """
        part, table = run.parts[index], state.tables[index]
        if state.catch_ups == self.bounds.catch_ups:
            return
        step, checkpoint = part.known
        counted = rest._replace(catch_ups=state.catch_ups + 1)
        for end in range(checkpoint + 1, run.end):
            moved, tables = end, state.tables
            if not self._rows(index, checkpoint, end):
                reached = TypeCheckpoint(
                    step, run.end if "catch_up_skips_empty" in self.broken else end
                )
                move = f"moves to {end} without rows"
            elif self._lets_in([commit.step for commit in table], step):
                moved = run.end if "catch_up_moves_to_end" in self.broken else end
                reported_end = run.end if "catch_up_reports_claim" in self.broken else end
                grown = (*table, Commit(step, checkpoint, end, reported_end, run.group))
                tables = (*state.tables[:index], grown, *state.tables[index + 1 :])
                reached = self._committed(step, checkpoint, moved)
                move = f"commits the part ({checkpoint}, {end}] as {step}"
            else:
                continue
            parts = (*run.parts[:index], Part(reached, is_due=False), *run.parts[index + 1 :])
            yield (
                move,
                counted._replace(tables=tables, runs=(*rest.runs, run._replace(parts=parts))),
            )

    def _replayed(self, run: Run, state: State, rest: State, index: int) -> Moves:
        """A replay behind what a type is done with: a commit of no new rows, under the number that
        follows, with the type's checkpoint.
        """
        part, table = run.parts[index], state.tables[index]
        is_behind = part.known.checkpoint > run.end and "replay_behind" not in self.broken
        is_unfinished = part.known.checkpoint < run.end and "replay_before_rest" not in self.broken
        if (
            state.replays == self.bounds.replays
            or part.is_due
            or part.known == UNKNOWN
            or not table
            or is_behind
            or is_unfinished
        ):
            return
        step = part.known.step
        if not self._lets_in([commit.step for commit in table], step):
            return
        counts = TypeCheckpoint(step + 1, part.known.checkpoint)
        parts = (*run.parts[:index], Part(counts, is_due=False), *run.parts[index + 1 :])
        runs = (*rest.runs, run._replace(parts=parts))
        if "replay_counts_without_commit" in self.broken:
            yield (
                f"counts {step}, and writes nothing",
                rest._replace(runs=runs, replays=state.replays + 1),
            )
            return
        grown = (
            *table,
            Commit(
                step,
                run.end,
                run.end,
                0 if "replay_reports_no_checkpoint" in self.broken else run.end,
            ),
        )
        tables = (*state.tables[:index], grown, *state.tables[index + 1 :])
        yield (
            f"replays as {step}",
            rest._replace(runs=runs, tables=tables, replays=state.replays + 1),
        )

    def _recreated(self, run: Run, state: State, rest: State, index: int) -> Moves:
        """A rebuild in place of what a type was to append: all rows up to the attempt's end, under
        the type's own number.
        """
        part, table = run.parts[index], state.tables[index]
        is_behind = part.known.checkpoint > run.end and "rebuild_behind" not in self.broken
        if (
            state.rebuilds == self.bounds.rebuilds
            or part.known == UNKNOWN
            or not table
            or is_behind
        ):
            return
        step = part.known.step
        lets_in = (
            self._lets_in([commit.step for commit in table], step)
            or "rebuild_let_in_always" in self.broken
        )
        if lets_in:
            start = part.known.checkpoint if "rebuild_from_checkpoint" in self.broken else 0
            end = (
                part.known.checkpoint
                if "rebuild_reports_own_checkpoint" in self.broken
                else run.end
            )
            grown, known = (
                (*table, Commit(step, start, run.end, end, run.group, is_rebuild=True)),
                TypeCheckpoint(step + 1, end),
            )
        else:
            grown, known = table, self._found(table, step)
        parts = (*run.parts[:index], Part(known, is_due=False), *run.parts[index + 1 :])
        tables = (*state.tables[:index], grown, *state.tables[index + 1 :])
        move = f"makes it again as {step}" if lets_in else f"is refused to make it again as {step}"
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
        return tuple(
            part._replace(known=TypeCheckpoint(part.known.step, start)) if part.is_due else part
            for part in parts
        )

    def _looked_up(self, run: Run, index: int, state: State) -> Part:
        known = state.types[index]
        found = self._found(state.tables[index], known.step)
        if found > known and "checkpoints_of_ledger_only" not in self.broken:
            known = (
                TypeCheckpoint(found.step, max(found.checkpoint, run.end))
                if "found_own_end" in self.broken
                else found
            )
        return self._sliced(run, index, known)

    def _sliced(self, run: Run, index: int, known: TypeCheckpoint) -> Part:
        if self._rows(index, known.checkpoint, run.end):
            return Part(known, is_due=True)
        return Part(
            TypeCheckpoint(
                known.step + ("empty_counts" in self.broken), max(known.checkpoint, run.end)
            ),
            is_due=False,
        )

    def _written(
        self, run: Run, state: State, index: int
    ) -> Iterator[tuple[str, Part, tuple[Commit, ...], int]]:
        """What may come of a type that is due: the move, the type in the attempt, its table, and
        whether it was left.
        """
        table, known = state.tables[index], run.parts[index].known
        held = [
            commit.step
            for commit in table
            if "moved_consumer_again" not in self.broken or commit.group == run.group
        ]
        version = known.step
        if "group_step_as_version" in self.broken:
            version = run.step
        elif "version_at_write" in self.broken:
            version = max(held, default=0) + 1
        done = Part(self._committed(version, known.checkpoint, run.end), is_due=False)
        nothing = Part(UNKNOWN, is_due=False)
        if self._lets_in(held, version):
            reported_end = (
                state.open.end if state.open and "record_of_claim" in self.broken else run.end
            )
            grown = (*table, Commit(version, known.checkpoint, run.end, reported_end, run.group))
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
            yield f"is refused {version}", Part(found, is_due=False), table, 0
        if state.left < self.bounds.left:
            for move, reported in self._left(run, known):
                yield move, Part(reported, is_due=False), table, 1

    def _left(self, run: Run, known: TypeCheckpoint) -> Iterator[tuple[str, TypeCheckpoint]]:
        moved_on = TypeCheckpoint(known.step, run.end)
        if "failed_counts" in self.broken:
            yield "fails", TypeCheckpoint(known.step + 1, known.checkpoint)
        else:
            yield "fails", moved_on if "failed_moves_on" in self.broken else UNKNOWN

    def _lets_in(self, held: list[int], version: int) -> bool:
        return version > max(held, default=0) or "table_lets_all_in" in self.broken

    def _completed(self, run: Run, state: State, rest: State) -> State:
        after = rest._replace(checkpoint=run.end, completed=run.step, open=None)
        if any(part.is_due for part in run.parts):
            after = after._replace(runs=(*rest.runs, run))
        return after._replace(types=self._moved(run, state))

    def _moved(self, run: Run, state: State) -> tuple[TypeCheckpoint, ...]:
        moved: list[TypeCheckpoint] = []
        for stored, part in zip(state.types, run.parts, strict=True):
            reported = (
                self._committed(part.known.step, part.known.checkpoint, run.end)
                if part.is_due
                else part.known
            )
            if reported == UNKNOWN:
                moved.append(stored)
                continue
            after = max(stored, reported)
            moved.append(
                TypeCheckpoint(after.step, LAST) if "moves_to_newest" in self.broken else after
            )
        return tuple(moved)
