"""A schema that a rebuild makes anew is kept before its table is touched."""

import pytest
from sqlalchemy import Engine

from lakechime_dagster.errors import ConsumerConflictError
from lakechime_dagster.silver.metrics import measures
from lakechime_dagster.silver.schema import Broke, relearned
from lakechime_dagster.silver.store import Breaks, SqlEventTypes
from lakechime_dagster.tables.events import Contract
from tests.store.test_event_types import NEW, complete, learning, prototype, result


@pytest.fixture
def types(engine: Engine) -> SqlEventTypes:
    """A type with a long column and a variant column for texts, which made anew would be the other way round."""
    types = SqlEventTypes(engine, "test")
    types.learn("shop", [learning(NEW, prototype(a=1))])
    types.learn("shop", [learning(types.types("shop")["buy"], prototype(a="x"))])
    complete(types, "e0", result(3, step=1))
    return types


def shown(types: SqlEventTypes) -> tuple[int, list[str]]:
    known = types.types("shop")["buy"]
    return known.schema_version, [f"{one.name} {one.holds}" for one in known.schema.columns]


def test_a_schema_that_is_made_anew_holds_at_once_and_breaks_what_read_the_former_one(types: SqlEventTypes) -> None:
    known = types.types("shop")["buy"]
    assert types.learn("shop", [relearned(known, [], Contract())]) == {"buy": 3}
    assert shown(types) == (3, ["a string", "a__v_long long"])
    assert [one.conflicts for one in measures(types).types] == [1]
    assert Breaks(types.engine, "test").of("shop", "buy")[-1].breaking.how is Broke.REBUILT
    with pytest.raises(ConsumerConflictError, match="the schema of buy is number 3 by now, and was read as 2"):
        types.learn("shop", [learning(known, prototype(b=1))])
