"""What people decide of types: a replay is open once and closed once, the newest hint holds, and both tell who and why."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.silver.results import Replay, Replayed
from lakechime_dagster.silver.store import Hints, Replays, SqlEventTypes, close
from lakechime_dagster.tables.events import Hint
from lakechime_dagster.triggers.interventions import By
from tests.store.test_event_types import NEW, complete, learning, prototype, result

ME = By(who="me", reason="prices are cents now")


@pytest.fixture
def replays(engine: Engine) -> Replays:
    types = SqlEventTypes(engine, "test")
    types.learn("shop", [learning(NEW, prototype(a=1)), learning(replace(NEW, type="wait", table="wait"), prototype(a=1))])
    complete(types, "e0", result(1, step=1))
    return Replays(engine, "test")


def done(replays: Replays, execution: str, *several: Replayed) -> None:
    with writing(replays.engine) as connection:
        close(connection, execution, several)


def test_of_a_type_one_replay_is_open_until_a_step_closes_it(replays: Replays) -> None:
    (asked,) = replays.ask("shop", ["buy"], ME)
    assert (asked.who, asked.reason, asked.done_ts) == ("me", ME.reason, None)
    assert replays.open("shop") == {"buy": Replay(replay_id=asked.replay.replay_id, type="buy")}
    assert replays.ask("shop", ["buy"], By(who="you", reason="so do I")) == [asked]
    done(replays, "e1", Replayed(replay_id=asked.replay.replay_id, replaced=3))
    done(replays, "e2", Replayed(replay_id=asked.replay.replay_id, replaced=5))
    assert replays.open("shop") == {}
    assert [one.done for one in replays.of("shop", "buy")] == [Replayed(replay_id=asked.replay.replay_id, replaced=3)]
    (another,) = replays.ask("shop", ["buy"], ME)
    assert another.replay.replay_id > asked.replay.replay_id
    assert Replays(replays.engine, "another").of("shop", "buy") == replays.of("other", "buy") == []


def test_a_rebuild_takes_the_checkpoint_of_a_replay_that_a_step_may_be_at(replays: Replays) -> None:
    (plain,) = replays.ask("shop", ["buy"], ME)
    (asked,) = replays.ask("shop", ["buy"], By(who="you", reason="all anew"), is_rebuild=True)
    assert (asked.who, asked.replay.is_rebuild, asked.replay.replay_id > plain.replay.replay_id) == ("you", True, True)
    assert replays.open("shop") == {"buy": asked.replay}
    assert replays.ask("shop", ["buy"], ME) == replays.ask("shop", ["buy"], ME, is_rebuild=True) == [asked]
    done(replays, "e1", Replayed(replay_id=plain.replay.replay_id))
    assert replays.open("shop") == {"buy": asked.replay}
    done(replays, "e2", Replayed(replay_id=asked.replay.replay_id, replaced=3, added=1, removed=2))
    assert replays.of("shop", "buy")[-1].done == Replayed(replay_id=asked.replay.replay_id, replaced=3, added=1, removed=2)


@pytest.mark.parametrize("name", ["bye", "wait"])
def test_a_replay_of_a_type_without_a_table_is_refused_with_those_beside_it(replays: Replays, name: str) -> None:
    with pytest.raises(NotFoundError, match=f"'{name}' has no table in event group shop"):
        replays.ask("shop", ["buy", name], ME)
    assert replays.of("shop", "buy") == []


def test_a_table_of_which_a_lost_store_does_not_know_may_be_made_anew(replays: Replays) -> None:
    (asked,) = replays.ask("shop", ["wait"], ME, is_rebuild=True)
    assert replays.open("shop") == {"wait": asked.replay}
    with pytest.raises(NotFoundError, match="'bye' has no table"):
        replays.ask("shop", ["bye"], ME, is_rebuild=True)


def test_a_cancelled_replay_stays_cancelled_whatever_a_step_tells_later(replays: Replays) -> None:
    (asked,) = replays.ask("shop", ["buy"], ME)
    number = asked.replay.replay_id
    assert (replays.cancel("shop", "buy", ME, dry_run=True), len(replays.open("shop"))) == (number, 1)
    assert (replays.cancel("shop", "buy", ME), replays.open("shop")) == (number, {})
    done(replays, "e1", Replayed(replay_id=number, replaced=3))
    (kept,) = replays.of("shop", "buy")
    assert (kept.done, kept.done_ts is None, kept.reason) == (None, False, f"{ME.reason}; cancelled by me: {ME.reason}")
    with pytest.raises(NotFoundError, match="no replay of 'buy' is open"):
        replays.cancel("shop", "buy", ME)


def test_of_what_people_say_the_newest_holds_until_it_is_ended(engine: Engine) -> None:
    hints = Hints(engine, "test")
    hints.say("shop", Hint(type="buy", of="/price", says="double"), ME)
    hints.say("shop", Hint(type="buy", of="/price", says="json"), ME)
    hints.say("shop", Hint(type="buy", of="kinds", says="evolve"), ME)
    hints.say("shop", Hint(type="sell", of="/price", says="long"), ME)
    assert [(one.of, one.says) for one in hints.holding("shop") if one.type == "buy"] == [("/price", "json"), ("kinds", "evolve")]
    hints.end("shop", "buy", "/price")
    assert [(one.type, one.of) for one in hints.holding("shop")] == [("buy", "kinds"), ("sell", "/price")]
    assert [(one.hint.says, one.ended_ts is None) for one in hints.said("shop", "buy")] == [
        ("double", False),
        ("json", False),
        ("evolve", True),
    ]
    with pytest.raises(NotFoundError, match="nothing is said of '/price' of 'buy'"):
        hints.end("shop", "buy", "/price")
    assert hints.holding("other") == Hints(engine, "another").holding("shop") == []
