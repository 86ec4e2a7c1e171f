"""A layout that a rebuild makes anew is kept before its table is touched, and holds once the table has it."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from lakechime_dagster.errors import ConsumerConflictError
from lakechime_dagster.silver.metrics import measures
from lakechime_dagster.silver.schema import KnownType, Layout, Learning, next_layout
from lakechime_dagster.silver.store import Replays, SqlEventTypes
from lakechime_dagster.tables.events import Contract
from tests.store.test_event_decisions import ME
from tests.store.test_event_types import NEW, complete, learning, prototype, result


@pytest.fixture
def types(engine: Engine) -> SqlEventTypes:
    """A type with a long column and a sibling for texts, which made anew would be the other way round."""
    types = SqlEventTypes(engine, "test")
    types.learn("shop", [learning(NEW, prototype(a=1))])
    types.learn("shop", [learning(types.types("shop")["buy"], prototype(a="x"))])
    complete(types, "e0", result(3, step=1))
    return types


def anew(known: KnownType) -> Learning:
    layout = next_layout(Layout(), known.observed, Contract())
    return Learning(
        type=known.type,
        table=known.table,
        checkpoint=known.checkpoint,
        prototypes=(),
        enlarging=0,
        observed=known.observed,
        layout=layout,
        is_new_layout=layout != known.layout,
        before=known.layout_version,
        decision="rebuild",
    )


def shown(types: SqlEventTypes) -> tuple[int, list[str]]:
    known = types.types("shop")["buy"]
    return known.layout_version, [f"{one.name} {one.holds}" for one in known.layout.columns]


def test_a_layout_that_is_made_anew_holds_once_it_is_adopted(types: SqlEventTypes) -> None:
    (asked,) = Replays(types.engine, "test").ask("shop", ["buy"], ME, is_rebuild=True)
    before = shown(types)
    assert before == (2, ["a long", "a__v_string string"])
    assert types.propose("shop", anew(types.types("shop")["buy"]), asked.replay.replay_id) == 3
    assert shown(types) == before
    assert [(one.version, one.actor, one.decision) for one in types.history("shop", "buy")][2:] == [(3, "me", "rebuild")]
    types.adopt("shop", "buy", 2, 3)
    assert shown(types) == (3, ["a string", "a__v_long long"])
    assert [one.conflicts for one in measures(types).types] == [1]


def test_attempts_at_a_rebuild_propose_one_layout(types: SqlEventTypes) -> None:
    one = anew(types.types("shop")["buy"])
    assert [types.propose("shop", one, 1), types.propose("shop", one, 1)] == [3, 3]
    assert len(types.history("shop", "buy")) == 3
    assert types.propose("shop", replace(one, is_new_layout=False), 1) == 2


def test_a_layout_that_was_proposed_and_never_held_takes_no_number_of_others(types: SqlEventTypes) -> None:
    types.propose("shop", anew(types.types("shop")["buy"]), 1)
    assert types.learn("shop", [learning(types.types("shop")["buy"], prototype(b=1))]) == {"buy": 4}
    assert shown(types) == (4, ["a long", "a__v_string string", "b long"])
    types.adopt("shop", "buy", 2, 3)  # as an attempt that lived on was first at the table
    assert shown(types) == (3, ["a string", "a__v_long long"])


def test_a_layout_is_adopted_once_for_each_commit_of_a_rebuild(types: SqlEventTypes) -> None:
    types.propose("shop", anew(types.types("shop")["buy"]), 1)
    types.adopt("shop", "buy", 2, 3)
    types.learn("shop", [learning(types.types("shop")["buy"], prototype(b=1))])
    types.adopt("shop", "buy", 2, 3)
    assert shown(types) == (4, ["a string", "a__v_long long", "b long"])


def test_a_store_that_does_not_know_the_layout_of_a_rebuild_keeps_its_own(types: SqlEventTypes) -> None:
    before = shown(types)
    types.adopt("shop", "buy", 2, 7)
    types.adopt("shop", "sell", 2, 1)
    assert shown(types) == before


def test_who_found_out_something_under_the_former_layout_is_refused(types: SqlEventTypes) -> None:
    known = types.types("shop")["buy"]
    types.propose("shop", anew(known), 1)
    types.adopt("shop", "buy", 2, 3)
    with pytest.raises(ConsumerConflictError, match="the layout of buy is number 3 by now, and was read as 2"):
        types.learn("shop", [learning(known, prototype(b=1))])
    with pytest.raises(ConsumerConflictError):
        types.propose("shop", anew(known), 1)
