"""The protocol by which a group's types move is safe, and each of its rules is there for a reason or named as good manners."""

import pytest

from tests.models.type_places import explored
from tests.models.type_rules import MUTANTS, VARIATIONS
from tests.models.verdicts import assert_caught, assert_holds

pytestmark = pytest.mark.tier3


def test_each_row_is_applied_once_and_can_always_still_arrive():
    assert_holds(explored(), states=40_000)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_protocol_with_a_needed_rule_broken_is_caught(name: str):
    assert_caught(explored(name))


@pytest.mark.parametrize("name", VARIATIONS)
def test_a_rule_of_good_manners_may_be_broken(name: str):
    assert_holds(explored(name), states=8_000)


def test_the_step_of_the_group_as_version_applies_rows_twice_when_a_lost_attempt_writes_a_type_that_failed():
    path = explored("group_step_as_version").path
    assert path[-6:] == (
        "attempt 2 of step 1 at A fails",
        "attempt 2 of step 1 completes",
        "step 2 gets attempt 1 up to 1",
        "attempt 1 of step 2 begins",
        "attempt 1 of step 1 at A commits (0, 1] as 1",
        "attempt 1 of step 2 at A commits (0, 1] as 2",
    )


def test_the_checkpoints_of_the_consumer_for_all_types_lose_the_rows_of_one_that_failed():
    found = explored("consumer_start_for_all")
    assert found.problem == "A lost rows: it holds those of the bronze commits [3]"
    assert "attempt 1 of step 1 at A fails" in found.path
