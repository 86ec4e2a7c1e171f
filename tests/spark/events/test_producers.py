"""What each producer sends and brings is counted once, and who brings too many columns is kept from more, without a loss."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.lake import JsonLines, event_group, event_stream
from lakechime_dagster.lake.contracts import Hint
from lakechime_dagster.schema.kinds import Kind
from lakechime_dagster.schema.rescue import Rescue
from lakechime_dagster.schema.results import Sent
from lakechime_dagster.spark.events import census, rescues
from lakechime_dagster.store.types.producers import Producer, producers
from lakechime_dagster.store.types.repository import SqlEventTypes
from tests.support.streams import Stream, event, stream

pytestmark = pytest.mark.spark


@pytest.fixture
def game(spark: SparkSession, tmp_path: Path) -> Stream:
    return stream(spark, tmp_path, max_columns_per_producer=4)


def kept(game: Stream, kind: str | None = None) -> dict[str, Producer]:
    assert isinstance(game.types, SqlEventTypes)
    return {one.producer: one for one in producers(game.types, "shop", kind)}


def told(game: Stream, kind: str = "buy") -> list[list[Any]]:
    return [[(one["p"], one["r"]) for one in json.loads(row["_rescued"] or "[]")] for row in game.rows(kind)]


def test_who_has_brought_as_many_columns_as_he_may_is_let_in_when_another_sends_the_path(game: Stream) -> None:
    game.drop(event("buy", title="a", x=1), event("buy", title="b", y=1))
    game.run()
    game.drop(event("buy", title="a", p=1, q=1, r={"s": 1}, x="one"))
    assert game.run()["buy"].reasons == {Rescue.PRODUCER_CAP: 3}
    assert told(game)[2] == [("/q", "producer_cap"), ("/r", "producer_cap"), ("/x", "producer_cap")]
    known = game.types.types("shop")["buy"]
    assert known.withheld == {("/q", Kind.LONG): "a", ("/r/s", Kind.LONG): "a", ("/x", Kind.STRING): "a"}
    assert {who: one.columns for who, one in kept(game).items()} == {"a": 4, "b": 1}

    game.drop(event("buy", title="a", p=1, q=1, r={"s": 1}, x="two"), event("buy", title="b", q=5))
    done = game.run()["buy"]
    assert (done.columns_added, done.reasons) == (1, {Rescue.PRODUCER_CAP: 2})
    assert {who: one.columns for who, one in kept(game).items()} == {"a": 4, "b": 2}
    assert game.payloads("buy")[-2:] == [{"type": "buy", "title": "a", "p": 1, "q": 1}, {"type": "buy", "title": "b", "q": 5}]

    game.drop(event("buy", title="a", p=1, q=1, r={"s": 1}, x="three"), event("buy", title="b", p=1, q=1, r={"s": 1}, x="x"))
    assert (game.run()["buy"].reasons, game.types.types("shop")["buy"].withheld) == ({}, {})
    assert {who: one.conflicts for who, one in kept(game).items()} == {"a": 0, "b": 1}


def test_what_was_withheld_gets_its_column_when_a_person_says_so(game: Stream) -> None:
    game.drop(event("buy", title="a", w=1, x=1, y=1, z=1))
    game.run()
    assert told(game) == [[("/y", "producer_cap"), ("/z", "producer_cap")]]
    pinned = replace(game, group=game.group.with_hints([Hint(type="buy", of="/z", says="long")]))
    pinned.drop(event("buy", title="a", w=2, x=2, y=2, z=2))
    pinned.run()
    assert told(pinned)[1] == [("/y", "producer_cap")]
    allowed = replace(pinned, group=game.group.with_hints([Hint(type="buy", of="columns", says="evolve")]))
    allowed.drop(event("buy", title="a", w=3, x=3, y=3, z=3))
    allowed.replay("buy")
    assert (told(allowed), allowed.types.types("shop")["buy"].withheld) == ([[], [], []], {})


def test_events_and_rescued_rows_are_counted_by_who_sent_them(game: Stream) -> None:
    game.drop(event("buy", title="a", n=1), event("buy", n=2), event("fly", title="b", n=1), event("buy", title=7, n=3))
    game.run()
    assert {who: (one.events, one.rescued, one.variations) for who, one in kept(game, "buy").items()} == {"a": (1, 0, 1), "": (2, 0, 2)}
    game.drop(
        event("buy", title="a", N=1), event("buy", title="a", N=2, n=1), event("buy", title="b", n="x"), event("buy", title="b", n=2),
        b'{"type":"buy","title":"c","n":1,"n":2}', event("buy", title="b", N=2, n=2),
    )  # fmt: skip
    done = game.run()["buy"]
    assert done.producers == {
        "a": Sent(events=2, rescued=2, reasons={Rescue.CASE: 2}), "b": Sent(events=3, rescued=1, reasons={Rescue.CASE: 1}),
        "c": Sent(events=1, rescued=1, reasons={Rescue.DUPLICATE: 1}),
    }  # fmt: skip
    found = kept(game, "buy")
    assert {who: (one.events, one.rescued, one.conflicts) for who, one in found.items()} == {
        "a": (3, 2, 0), "b": (3, 1, 1), "c": (1, 1, 0), "": (2, 0, 1),
    }  # fmt: skip
    assert {who: one.reasons for who, one in found.items()} == {"a": {"case": 2}, "b": {"case": 1}, "c": {"duplicate": 1}, "": {}}
    assert kept(game)["b"].events == 4


def test_the_producers_of_few_events_are_told_in_sum(game: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "MAX_PRODUCERS", 2)
    monkeypatch.setattr(rescues, "MAX_PRODUCERS", 2)
    game.drop(event("buy", title="a", n=1))
    game.run()
    game.drop(*(event("buy", title=who, N=1) for who in "aaabbcd"))
    assert game.run()["buy"].producers == {
        "a": Sent(events=3, rescued=3, reasons={Rescue.CASE: 3}), "b": Sent(events=2, rescued=2, reasons={Rescue.CASE: 2}),
        "(other)": Sent(events=2, rescued=2, reasons={Rescue.CASE: 2}),
    }  # fmt: skip


def test_an_attempt_tried_again_counts_producers_once(game: Stream) -> None:
    game.drop(event("buy", title="a", n=1))
    game.run()
    game.drop(event("buy", title="a", n="x"), event("buy", title="b", N=1, m=1))
    game.ingest()
    game.step(game.end(), attempt=1, execution="e2").run()  # and dies before it settles
    game.drop(event("buy", title="b", N=2))
    game.ingest()
    result = game.step(game.end(), attempt=2, execution="e2").run()
    game.settle(result, game.end(), "e2")
    assert game.run()["buy"].producers == {}
    found = {who: (one.events, one.rescued, one.variations, one.columns, one.conflicts) for who, one in kept(game).items()}
    assert found == {"a": (2, 0, 2, 4, 1), "b": (2, 2, 2, 1, 0)}


def test_two_attempts_withhold_the_same(game: Stream) -> None:
    game.drop(event("buy", title="a", **dict.fromkeys("pqrs", 1)))
    game.ingest()
    end = game.end()
    one, other = (game.step(end, attempt=number, execution="e1") for number in (1, 2))
    one.run()
    withheld = game.types.types("shop")["buy"].withheld
    (done,) = other.run().types
    assert (done.error, done.rows, len(withheld), game.types.types("shop")["buy"].withheld) == ("", 1, 2, withheld)


def test_a_stream_that_tells_no_producer_has_no_caps_and_counts_none(spark: SparkSession, tmp_path: Path) -> None:
    plain = event_stream("game", source=JsonLines("in"))
    game = Stream(spark, tmp_path, event_group("shop", plain, max_columns_per_producer=1), stream=plain)
    game.drop(event("buy", title="a", n=1), event("buy", title="b", m=1, N=1))
    done = game.run()["buy"]
    assert (done.producers, done.columns_added, kept(game)) == ({}, 4, {})
