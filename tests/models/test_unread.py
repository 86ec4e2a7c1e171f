"""Not waking a consumer for what its code does not read loses nothing, even with wrong lineage, and each rule of it is needed."""

import pytest

from tests.models.unread import MUTANTS, explored
from tests.models.verdicts import assert_caught, assert_holds

pytestmark = pytest.mark.tier3


def test_each_commit_is_read_and_what_the_code_reads_in_time():
    assert_holds(explored(), states=500)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_broken_is_caught(name: str):
    assert_caught(explored(name))


def test_a_checkpoint_that_moves_loses_a_commit_when_the_lineage_is_wrong():
    found = explored("checkpoint_moves")
    assert found.problem == "a commit of a column that the code reads is never read"
    assert found.path[-1] == "a look moves the checkpoint"
