"""Each protocol is safe and can always come to rest, and without one of its rules it is not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.models import orders, pattern_changes, type_checkpoints
from tests.models.exploring import Exploration, explore

pytestmark = pytest.mark.tier3
Explored = Callable[[str], Exploration]
# with a bound of their states
MODELS = {orders: 30_000, pattern_changes: 1_000, type_checkpoints: 40_000}


@pytest.mark.parametrize(
    ("explored", "states"),
    [pytest.param(one.explored, least, id=one.__name__) for one, least in MODELS.items()],
)
def test_nothing_is_wrong_in_any_state_of_a_protocol(explored: Explored, states: int) -> None:
    found = explored("")
    assert (found.path, found.problem) == ((), None)
    assert found.states > states


@pytest.mark.parametrize(
    ("explored", "broken"),
    [
        pytest.param(one.explored, name, id=f"{one.__name__}: {name}")
        for one in MODELS
        for name in one.MUTANTS
    ],
)
def test_a_protocol_without_one_of_its_rules_is_caught(explored: Explored, broken: str) -> None:
    assert explored(broken).problem


@dataclass(frozen=True)
class Walk:
    """From 0 along the given ways."""

    ways: tuple[tuple[int, int], ...]
    wrong: int | None = None
    quiet: int = 3

    def start(self) -> int:
        return 0

    def moves(self, state: int) -> Iterator[tuple[str, int]]:
        return ((f"to {after}", after) for before, after in self.ways if before == state)

    def problem(self, state: int) -> str | None:
        return "wrong" if state == self.wrong else None

    def is_quiet(self, state: int) -> bool:
        return state == self.quiet


def test_every_state_that_can_be_reached_is_visited_once() -> None:
    assert explore(Walk(ways=((0, 1), (1, 0), (1, 2), (0, 2), (2, 3), (4, 3)))) == (4, None, ())


def test_the_shortest_way_to_a_wrong_state_and_one_that_comes_to_no_rest_are_found() -> None:
    assert explore(Walk(ways=((0, 1), (1, 2), (2, 3), (0, 2)), wrong=3))[1:] == (
        "wrong",
        ("to 2", "to 3"),
    )
    assert explore(Walk(ways=((0, 3), (0, 1), (1, 2), (2, 1))))[1:] == (
        "can never come to rest",
        ("to 1",),
    )
