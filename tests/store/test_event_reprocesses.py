"""A request to reprocess is open once and closed once, and tells who wanted it and why."""

import pytest
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.silver.results import Reprocessed
from lakechime_dagster.silver.store import Reprocesses, close_reprocess
from lakechime_dagster.triggers.interventions import By

ME = By(who="me", reason="the type is in another field")
TABLE = "game.events"


def done(reprocesses: Reprocesses, execution: str, reprocess_id: int, rows: int) -> None:
    with writing(reprocesses.engine) as connection:
        close_reprocess(connection, execution, Reprocessed(reprocess_id=reprocess_id, rows=rows))


def test_of_a_stream_one_reprocess_is_open_until_a_step_closes_it(engine: Engine) -> None:
    reprocesses = Reprocesses(engine, "test")
    assert (reprocesses.open(TABLE), reprocesses.of(TABLE)) == (None, [])
    asked = reprocesses.ask(TABLE, ME)
    assert (asked.who, asked.reason, asked.done_ts, reprocesses.open(TABLE)) == ("me", ME.reason, None, asked.reprocess_id)
    assert reprocesses.ask(TABLE, By(who="you", reason="me too")) == asked
    assert Reprocesses(engine, "another").open(TABLE) is reprocesses.open("chat.events") is None
    done(reprocesses, "e1", asked.reprocess_id, 3)
    done(reprocesses, "e2", asked.reprocess_id, 5)
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
    done(reprocesses, "e1", asked.reprocess_id, 3)
    (ended,) = reprocesses.of(TABLE)
    assert (ended.rows, ended.reason) == (None, f"{ME.reason}; cancelled by you: a mistake")
