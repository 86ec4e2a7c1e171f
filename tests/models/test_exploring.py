from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.models.exploring import explore

pytestmark = pytest.mark.tier3


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


def test_every_state_that_can_be_reached_is_visited_once():
    assert explore(Walk(ways=((0, 1), (1, 0), (1, 2), (0, 2), (2, 3), (4, 3)))) == (4, None, ())


def test_the_shortest_way_to_a_wrong_state_is_told():
    found = explore(Walk(ways=((0, 1), (1, 2), (2, 3), (0, 2)), wrong=3))
    assert (found.problem, found.path) == ("wrong", ("to 2", "to 3"))


def test_a_state_from_which_no_quiet_one_can_be_reached_is_a_problem():
    found = explore(Walk(ways=((0, 3), (0, 1), (1, 2), (2, 1))))
    assert (found.problem, found.path) == ("can never come to rest", ("to 1",))
