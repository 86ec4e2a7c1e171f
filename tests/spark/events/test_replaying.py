"""A replay brings earlier events into the columns that their type has by now: once, in one commit,
and nothing else.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.tables.events import Contract
from tests.support.streams import BOTH, Stream, event, late, request, stream

pytestmark = pytest.mark.spark


@pytest.fixture
def game(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Stream:
    return stream(
        spark,
        tmp_path,
        getattr(request, "param", "delta"),
        contract=Contract(kinds="freeze", columns="freeze"),
    )


def thawed(game: Stream) -> None:
    """From now on new columns and variant columns may come."""
    game.group = replace(game.group, contract=Contract())


def frozen_then_thawed(game: Stream) -> None:
    """A row is there as it should be, and one whose price was rescued."""
    game.drop(event("buy", price=3))
    game.run()
    game.drop(event("buy", price="four"))
    game.run()
    thawed(game)


@BOTH
def test_what_was_rescued_moves_to_the_columns_that_there_are_by_now(game: Stream) -> None:
    game.drop(event("buy", price=3, more={"a": 1}))
    game.run()
    game.drop(
        event("buy", price="four", more={"a": 2, "b": [{"c": 1}]}),
        event("buy", price=5),
        event("sell", n=1),
    )
    game.run()
    assert json.loads(game.rows("buy")[1]["_rescued"]) == [
        {"p": "/price", "v": "four", "r": "frozen"},
        {"p": "/more/b", "v": [{"c": 1}], "r": "frozen"},
    ]
    thawed(game)
    before = game.commits("buy")
    done = game.replay("buy")["buy"]
    assert [(one.replaced, one.added) for one in done.replayed] == [(1, 0)]
    assert game.payloads("buy") == [
        {"type": "buy", "price": 3, "more": {"a": 1, "b": None}},
        {"type": "buy", "price__v_string": "four", "more": {"a": 2, "b": [{"c": 1}]}},
        {"type": "buy", "price": 5},
    ]
    assert [row["_rescued"] for row in game.rows("buy")] == [None, None, None]
    assert [row["_schema_version"] for row in game.rows("buy")] == [1, 2, 1]
    assert game.commits("buy") == before + 1


@BOTH
def test_twice_is_once_and_nothing_changed_is_no_commit(game: Stream) -> None:
    game.drop(event("buy", price=3), event("buy", price=4, Price=5))
    game.run()
    thawed(game)
    game.drop(event("buy", price="x"))
    game.run()
    game.replay("buy")
    before, rows = game.commits("buy"), game.rows("buy")
    done = game.replay("buy")["buy"]
    assert [(one.replaced, one.added) for one in done.replayed] == [(0, 0)]
    assert (game.commits("buy"), game.rows("buy")) == (before, rows)


def test_events_that_came_meanwhile_are_appended_and_the_earlier_ones_replayed(
    game: Stream,
) -> None:
    frozen_then_thawed(game)
    game.drop(event("buy", price="five"))
    done = game.replay("buy")["buy"]
    assert (done.rows, done.written, [(one.replaced, one.added) for one in done.replayed]) == (
        1,
        1,
        [(1, 0)],
    )
    assert game.payloads("buy")[1:] == [
        {"type": "buy", "price__v_string": "four"},
        {"type": "buy", "price__v_string": "five"},
    ]
    game.drop(event("buy", price=6))
    assert game.run()["buy"].written == 1
    assert len(game.rows("buy")) == 4


@BOTH
def test_events_that_a_contract_dropped_come_back(game: Stream) -> None:
    game.group = replace(
        game.group, contract=Contract(kinds="discard_row", columns="discard_value")
    )
    game.drop(event("buy", price=3))
    game.run()
    game.drop(event("buy", price="four"))
    assert game.run()["buy"].discarded == 1
    game.drop(event("buy", price=5, more=1))
    assert game.run()["buy"].written == 1
    thawed(game)
    (done,) = game.replay("buy")["buy"].replayed
    assert (done.replaced, done.added) == (1, 1)
    assert game.payloads("buy") == [
        {"type": "buy", "price": 3},
        {"type": "buy", "price__v_string": "four"},
        {"type": "buy", "price": 5, "more": 1},
    ]


@BOTH
def test_a_replay_of_an_attempt_that_died_is_found_and_counted_once(game: Stream) -> None:
    frozen_then_thawed(game)
    asked = {"buy": request("buy")}
    game.execute(attempt=1, execution="e8", replays=asked).run()  # and dies before it completes
    game.drop(event("buy", price="five"))
    game.ingest()
    result = game.execute(attempt=2, execution="e8", replays=asked).run()
    game.complete(result, game.end(), "e8")
    (done, again) = result.types[0].replayed
    assert (done.replaced, again.replaced, again.added) == (1, 0, 0)
    assert result.types[0].is_balanced
    assert game.payloads("buy")[1:] == [
        {"type": "buy", "price__v_string": "four"},
        {"type": "buy", "price__v_string": "five"},
    ]
    assert game.run()["buy"].rows == 0


@BOTH
def test_an_attempt_that_lives_on_is_not_let_in_by_its_replay(game: Stream) -> None:
    frozen_then_thawed(game)
    zombie = late(
        game.execute(attempt=1, execution="e8", replays={"buy": request("buy")}), game.types
    )
    game.drop(event("buy", price=5))
    game.run()
    before = game.commits("buy")
    result = zombie.run()
    assert "another attempt was first" in result.types[0].error
    assert (game.commits("buy"), len(game.rows("buy"))) == (before, 3)
