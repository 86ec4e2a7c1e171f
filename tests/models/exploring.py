"""Visits every state that a model can reach, breadth first: the shortest way to a wrong one, or to
one that can never come to rest.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from typing import NamedTuple, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)


class Model(Protocol[State]):
    def start(self) -> State: ...

    def moves(self, state: State) -> Iterator[tuple[str, State]]:
        """What may happen next, in words, and the state after it."""
        ...

    def problem(self, state: State) -> str | None: ...

    def is_quiet(self, state: State) -> bool:
        """Whether nothing is left to do."""
        ...


class Exploration(NamedTuple):
    """How many states were met, and the nearest problem with the moves that lead to it."""

    states: int
    problem: str | None = None
    path: tuple[str, ...] = ()


def explore(model: Model[State]) -> Exploration:
    """All states, up to the first that is wrong; a state is also wrong if no quiet one can be
    reached from it.
    """
    states = [model.start()]
    numbers = {states[0]: 0}
    causes = [(0, "")]  # from where each was first reached, and how
    before: list[list[int]] = [[]]
    for number, state in enumerate(states):  # which grows meanwhile
        if problem := model.problem(state):
            return Exploration(len(states), problem, _path(causes, number))
        for move, after in model.moves(state):
            if after not in numbers:
                numbers[after] = len(states)
                states.append(after)
                causes.append((number, move))
                before.append([])
            before[numbers[after]].append(number)
    resting = _leading_to(
        {number for number, state in enumerate(states) if model.is_quiet(state)}, before
    )
    stuck = next((number for number in range(len(states)) if number not in resting), None)
    return (
        Exploration(len(states))
        if stuck is None
        else Exploration(len(states), "can never come to rest", _path(causes, stuck))
    )


def _path(causes: list[tuple[int, str]], number: int) -> tuple[str, ...]:
    moves: list[str] = []
    while number:
        number, move = causes[number]
        moves.append(move)
    return tuple(reversed(moves))


def _leading_to(goals: set[int], before: list[list[int]]) -> set[int]:
    leading = set(goals)
    queue = deque(goals)
    while queue:
        new = set(before[queue.popleft()]) - leading
        leading |= new
        queue.extend(new)
    return leading
