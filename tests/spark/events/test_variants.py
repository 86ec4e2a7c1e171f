"""VARIANT siblings: written, appended, replayed and read back with all that they were given; only where a contract asks for them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.silver.event import JsonEvent, event_of
from lakechime_dagster.silver.results import leaves_of, read_back
from lakechime_dagster.silver.shape import Rescue
from lakechime_dagster.tables.events import Contract, PathRule
from tests.spark.events.test_group import drifting
from tests.support.streams import Stream, event, stream

pytestmark = pytest.mark.spark


@pytest.fixture
def game(spark: SparkSession, tmp_path: Path) -> Stream:
    return stream(spark, tmp_path, contract=Contract(kinds="variant"))


def rows(game: Stream, kind: str) -> list[dict[str, Any]]:
    """The rows of a type's table by their `_src`, as Spark tells them in JSON."""
    table = game.spark.read.format("delta").load(game.location(kind))
    found = [json.loads(row[0]) for row in table.select(F.to_json(F.struct("*"))).collect()]
    return sorted(found, key=lambda row: int(row["_src"].partition("@")[2]))


def prices(game: Stream) -> list[Any]:
    return [{name: value for name, value in row.items() if name.startswith("price")} for row in rows(game, "buy")]


def features(game: Stream, kind: str) -> set[str]:
    return {*(DeltaTable(game.location(kind)).protocol().reader_features or ())}


def check_leaves(game: Stream, kind: str, sent: Mapping[str, bytes]) -> None:
    """Every leaf of every event of a type is in its row."""
    known = game.types.types("shop")[kind]
    found = rows(game, kind)
    assert len(found) == len({row["_src"] for row in found})
    mine = {
        source: one for source, text in sent.items() if isinstance(one := event_of(text), JsonEvent) and dict(one.fields)["type"] == kind
    }
    assert {row["_src"] for row in found} == mine.keys()
    for row in found:
        assert read_back(row, row.get("_rescued"), known.layout) == leaves_of(mine[row["_src"]].fields), row


def test_all_further_kinds_of_a_field_go_to_one_sibling_which_shuts_other_readers_out(game: Stream) -> None:
    game.drop(event("buy", price=3))
    game.run()
    assert features(game, "buy") == set()
    game.drop(event("buy", price="four"), event("buy", price={"a": [1, None, "x"]}), event("buy", price=4))
    done = game.run()["buy"]
    assert (done.error, done.written, done.rescued, done.columns_added) == ("", 3, 0, 1)
    assert features(game, "buy") == {"variantType"}
    game.drop(event("buy", price=[2**70, 1.5]), event("buy", price=5), event("buy", price=False))
    assert game.run()["buy"].written == 3
    assert prices(game) == [
        {"price": 3},
        {"price__v_variant": "four"},
        {"price__v_variant": {"a": [1, None, "x"]}},
        {"price": 4},
        {"price__v_variant": [2**70, 1.5]},
        {"price": 5},
        {"price__v_variant": False},
    ]


def test_a_table_may_be_made_with_a_variant_and_grow_by_other_columns(game: Stream) -> None:
    game.drop(event("buy", price=3), event("buy", price="four"))
    assert game.run()["buy"].error == ""
    game.drop(event("buy", price=4, more={"a": 1}), event("buy", price=True))
    assert game.run()["buy"].error == ""
    assert prices(game) == [{"price__v_variant": 3}, {"price": "four"}, {"price__v_variant": 4}, {"price__v_variant": True}]


def test_what_a_variant_cannot_hold_is_rescued(game: Stream) -> None:
    game.drop(event("buy", price=True))
    game.run()
    game.drop(
        b'{"type":"buy","price":1e400}',
        b'{"type":"buy","price":' + b"9" * 39 + b"}",
        b'{"type":"buy","price":["\\ud800",{"a":1,"a":2}]}',
        b'{"type":"buy","price":' + b'{"b":[' * 60 + b"1" + b"]}" * 60 + b"}",
        b'{"type":"buy","price":' + b"[" * 99 + b"1" + b"]" * 99 + b"}",
        b'{"type":"buy","price":[' + b"1," * 499_000 + b"1]}",
        b'{"type":"buy","price":[' + b"1," * 501_000 + b"1]}",
    )
    done = game.run()["buy"]
    assert (done.error, done.reasons) == ("", {Rescue.OVERFLOW: 2, Rescue.INEXACT: 1, Rescue.DUPLICATE: 1, Rescue.CAP: 2})
    assert len(prices(game)[-2]["price__v_variant"]) == 499_001


def test_every_leaf_is_read_back_whatever_goes_to_variants(spark: SparkSession, tmp_path: Path) -> None:
    game = stream(spark, tmp_path, contract=Contract(paths={"/v*": PathRule(kinds="variant"), "/deep": PathRule(kinds="variant")}))
    random, sent = Random(7), dict[str, bytes]()
    for _ in range(2):
        at = (game.folder / "in" / "a.jsonl").stat().st_size if sent else 0
        for number in range(150):
            payload = drifting(random, number)
            sent[f"a.jsonl@{at}"] = payload
            at += len(payload) + 1
            game.drop(payload)
        assert all(one.is_balanced and not one.error for one in game.run().values())
    known = game.types.types("shop")
    assert any("variant" in json.dumps(one.layout.to_json()) for one in known.values())
    for kind in known:
        check_leaves(game, kind, sent)


def test_a_replay_brings_earlier_values_to_a_variant_once(spark: SparkSession, tmp_path: Path) -> None:
    game = stream(spark, tmp_path, contract=Contract(kinds="freeze"))
    game.drop(event("buy", price=3, more=[{"n": 1}]))
    game.run()
    game.drop(event("buy", price={"a": 1.5}), event("buy", price=5), event("buy", more=[{"n": "x"}, {"n": 2}]))
    game.run()
    game.group = replace(game.group, contract=Contract(kinds="variant"))
    game.drop(event("buy", price="six"))
    done = game.replay("buy")["buy"]
    assert (done.error, [(one.replaced, one.added) for one in done.replayed]) == ("", [(2, 0)])
    assert prices(game) == [{"price": 3}, {"price__v_variant": {"a": 1.5}}, {"price": 5}, {}, {"price__v_variant": "six"}]
    assert [row.get("more") for row in rows(game, "buy")][3] == [{"n__v_variant": "x"}, {"n": 2}]
    before = DeltaLog(game.location("buy"), "buy").version
    again = game.replay("buy", is_whole=True)["buy"]
    assert (again.error, [(one.replaced, one.added) for one in again.replayed]) == ("", [(0, 0)])
    assert DeltaLog(game.location("buy"), "buy").version == before
    game.spark.sql(
        f"update delta.`{game.location('buy')}` set price__v_variant = parse_json('7') where _src = '{rows(game, 'buy')[1]['_src']}'"
    )
    (third,) = game.replay("buy", is_whole=True)["buy"].replayed
    assert (third.replaced, prices(game)[1]) == (1, {"price__v_variant": {"a": 1.5}})
