"""Breaking changes are kept with what a step learns, and told once one is completed."""

from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.silver import store_schema
from lakechime_dagster.silver.schema import Breaking, Broke, KnownType
from lakechime_dagster.silver.store import Breaks, SqlEventTypes
from tests.store.test_event_types import NEW, complete, learning, prototype

HOUR_MS = 3_600_000


@pytest.fixture
def types(engine: Engine) -> SqlEventTypes:
    return SqlEventTypes(engine, "test")


def learn(types: SqlEventTypes, known: KnownType, **fields: Any) -> KnownType:
    one = learning(known, prototype(**fields))
    types.learn("shop", [one])
    return types.types("shop")[known.type]


def recent(types: SqlEventTypes, group: str = "shop") -> Sequence[Breaking]:
    return [one.breaking for one in Breaks(types.engine, "test").recent(group, HOUR_MS)]


def test_a_breaking_change_is_told_from_the_step_on_that_is_completed_next(types: SqlEventTypes) -> None:
    known = learn(types, NEW, a=1)
    learn(types, known, a="x", b=1)
    assert recent(types) == []
    complete(types, "e1")
    assert recent(types) == [Breaking(path="/a", kind="string", how=Broke.VARIANT)]
    (one,) = Breaks(types.engine, "test").of("shop", "buy")
    assert (one.type, one.schema_version) == ("buy", 2)
    assert (recent(types, "other"), Breaks(types.engine, "other").recent("shop", HOUR_MS)) == ([], [])


def test_a_breaking_change_is_told_no_more_after_a_while_though_steps_go_on(types: SqlEventTypes) -> None:
    known = learn(types, NEW, a=1)
    learn(types, known, a="x")
    complete(types, "e1")
    with writing(types.engine) as connection:
        connection.execute(sa.update(store_schema.type_break).values(told_ts=store_schema.type_break.c.told_ts - HOUR_MS - 60_000))
    complete(types, "e2")
    assert recent(types) == []
    assert len(Breaks(types.engine, "test").of("shop", "buy")) == 1
