"""A request to reprocess is open once and closed once, and tells who wanted it and why."""

import pytest
from sqlalchemy import Engine

from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.silver.results import Reprocessed
from lakechime_dagster.silver.store import Reprocesses
from lakechime_dagster.triggers.interventions import By

ME = By(who="me", reason="the type is in another field")
TABLE = "game.events"


def test_of_a_stream_one_reprocess_is_open_until_a_step_closes_it(engine: Engine) -> None:
    reprocesses = Reprocesses(engine, "test")
    assert (reprocesses.open(TABLE), reprocesses.of(TABLE)) == (None, [])
    asked = reprocesses.ask(TABLE, ME)
    assert (asked.who, asked.reason, asked.done_ts, reprocesses.open(TABLE)) == ("me", ME.reason, None, asked.reprocess_id)
    assert reprocesses.ask(TABLE, By(who="you", reason="me too")) == asked
    assert Reprocesses(engine, "another").open(TABLE) is reprocesses.open("chat.events") is None
    reprocesses.close("e1", Reprocessed(reprocess_id=asked.reprocess_id, rows=3))
    reprocesses.close("e2", Reprocessed(reprocess_id=asked.reprocess_id, rows=5))
    (ended,) = reprocesses.of(TABLE)
    assert (reprocesses.open(TABLE), ended.rows, ended.done_ts is not None) == (None, 3, True)
    assert reprocesses.ask(TABLE, ME).reprocess_id > asked.reprocess_id


def test_a_cancelled_reprocess_stays_cancelled_whatever_a_step_tells_later(engine: Engine) -> None:
    reprocesses = Reprocesses(engine, "test")
    with pytest.raises(NotFoundError, match=r"no request to reprocess game\.events is open"):
        reprocesses.cancel(TABLE, ME)
    asked = reprocesses.ask(TABLE, ME)
    assert (reprocesses.cancel(TABLE, ME, dry_run=True), reprocesses.open(TABLE)) == (asked.reprocess_id, asked.reprocess_id)
    assert (reprocesses.cancel(TABLE, By(who="you", reason="a mistake")), reprocesses.open(TABLE)) == (asked.reprocess_id, None)
    reprocesses.close("e1", Reprocessed(reprocess_id=asked.reprocess_id, rows=3))
    (ended,) = reprocesses.of(TABLE)
    assert (ended.rows, ended.reason) == (None, f"{ME.reason}; cancelled by you: a mistake")
