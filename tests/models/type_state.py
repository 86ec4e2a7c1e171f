"""What a group's store, its types' tables and its attempts hold at one moment; values only."""

from typing import NamedTuple

ROWS = {"A": (1, 3), "B": (2,)}  # the bronze commits that hold rows of each type
TYPES = tuple(ROWS)
LAST = 3  # bronze commits


class TypeCheckpoint(NamedTuple):
    """A type's next step, and the bronze commit up to which its table holds its rows; of two that are true the greater is the later."""

    step: int = 1
    checkpoint: int = 0


UNKNOWN = TypeCheckpoint(0, 0)


class Commit(NamedTuple):
    step: int
    start: int
    end: int
    told_end: int  # in the record
    group: int = 0
    is_rebuild: bool = False  # nothing of what the table held before is left


class Part(NamedTuple):
    """A type in an attempt: from where it is to be written, or what completing will tell of it."""

    known: TypeCheckpoint
    is_due: bool


class Run(NamedTuple):
    step: int
    attempt: int
    end: int
    parts: tuple[Part, ...] = ()  # none before it begins
    has_moved_consumer: bool = False
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
