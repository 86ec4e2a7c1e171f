"""A drain of a stream is open once and closed once, and tells who wanted it and why."""

import pytest
from sqlalchemy import Engine

from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.schema.steps import Drained
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.interventions import By
from lakechime_dagster.store.types.decisions import Drains, close_drain

ME = By(who="me", reason="the type is in another field")
TABLE = "game.events"


def done(drains: Drains, execution: str, drain_id: int, rows: int) -> None:
    with writing(drains.engine) as connection:
        close_drain(connection, execution, Drained(drain_id=drain_id, rows=rows))


def test_of_a_stream_one_drain_is_open_until_a_step_closes_it(engine: Engine) -> None:
    drains = Drains(engine, "test")
    assert (drains.open(TABLE), drains.of(TABLE)) == (None, [])
    asked = drains.ask(TABLE, ME)
    assert (asked.who, asked.reason, asked.done_ts, drains.open(TABLE)) == ("me", ME.reason, None, asked.drain_id)
    assert drains.ask(TABLE, By(who="you", reason="me too")) == asked
    assert Drains(engine, "another").open(TABLE) is drains.open("chat.events") is None
    done(drains, "e1", asked.drain_id, 3)
    done(drains, "e2", asked.drain_id, 5)
    (ended,) = drains.of(TABLE)
    assert (drains.open(TABLE), ended.rows, ended.done_ts is not None) == (None, 3, True)
    assert drains.ask(TABLE, ME).drain_id > asked.drain_id


def test_a_cancelled_drain_stays_cancelled_whatever_a_step_tells_later(engine: Engine) -> None:
    drains = Drains(engine, "test")
    with pytest.raises(NotFoundError, match=r"no drain of game\.events is open"):
        drains.cancel(TABLE, ME)
    asked = drains.ask(TABLE, ME)
    assert (drains.cancel(TABLE, ME, dry_run=True), drains.open(TABLE)) == (asked.drain_id, asked.drain_id)
    assert (drains.cancel(TABLE, By(who="you", reason="a mistake")), drains.open(TABLE)) == (asked.drain_id, None)
    done(drains, "e1", asked.drain_id, 3)
    (ended,) = drains.of(TABLE)
    assert (ended.rows, ended.reason) == (None, f"{ME.reason}; cancelled by you: a mistake")
