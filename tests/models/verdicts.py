"""What is to come of exploring a protocol, and of exploring what is left of one without a rule."""

from tests.models.exploring import Exploration


def assert_holds(found: Exploration, states: int) -> None:
    """Nothing is wrong in any of its states, which are more than so many."""
    assert found.path == ()
    assert found.problem is None
    assert found.states > states


def assert_caught(found: Exploration) -> None:
    assert found.problem
    assert found.path
