"""What is not read when the patterns of groups change is written once, and each rule of that is there for a reason or of good manners."""

import pytest

from tests.models.pattern_changes import MUTANTS, VARIATIONS, explored
from tests.models.verdicts import assert_caught, assert_holds

pytestmark = pytest.mark.tier3


def test_events_of_a_type_that_nobody_had_read_are_written_once():
    assert_holds(explored(), states=5_000)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_protocol_with_a_needed_rule_broken_is_caught(name: str):
    assert_caught(explored(name))


@pytest.mark.parametrize("name", VARIATIONS)
def test_a_rule_of_good_manners_may_be_broken(name: str):
    assert_holds(explored(name), states=2_000)
