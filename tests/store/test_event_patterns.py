"""By which patterns a group has read, kept with its step."""

import pytest
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.silver.store import Patterns

BEFORE = (("shop", "shop.*"), ("rest", "*"))
AFTER = (("shop", "s*"), ("rest", "*"))


@pytest.fixture
def patterns(engine: Engine) -> Patterns:
    return Patterns(engine, "test")


def test_patterns_are_other_ones_until_a_step_has_read_by_them(patterns: Patterns) -> None:
    assert patterns.are_other("shop", BEFORE)
    for now, then in ((BEFORE, AFTER), (AFTER, BEFORE)):
        with writing(patterns.engine) as connection:
            patterns.keep(connection, "shop", now)
        assert (patterns.are_other("shop", reversed(now)), patterns.are_other("shop", then)) == (False, True)


def test_each_group_of_each_deployment_has_its_own(patterns: Patterns) -> None:
    with writing(patterns.engine) as connection:
        patterns.keep(connection, "shop", BEFORE)
    assert patterns.are_other("rest", BEFORE)
    assert Patterns(patterns.engine, "production").are_other("shop", BEFORE)
