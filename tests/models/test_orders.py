"""Each consumer that a backfill orders does it once, after what it reads, and each rule of that is there for a reason."""

import pytest

from tests.models.orders import MUTANTS, explored
from tests.models.verdicts import assert_holds

pytestmark = pytest.mark.tier3


def test_each_order_is_done_once_with_what_the_orders_of_its_inputs_made():
    assert_holds(explored(), states=30_000)


@pytest.mark.parametrize("name", MUTANTS)
def test_orders_with_a_rule_broken_are_caught(name: str):
    assert explored(name).problem  # of one that gets stuck at once there is no path
