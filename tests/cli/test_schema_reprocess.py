"""`lakechime schema replay --quarantine`: what a stream refused is to be looked at again, and what was reprocessed is refused no more."""

import datetime as dt

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.silver.bronze import WouldReprocess
from lakechime_dagster.silver.requests import event_reprocesses
from lakechime_dagster.silver.results import Reprocessed
from lakechime_dagster.silver.store import close_reprocess
from tests.cli.game import SCHEMA, Game
from tests.support.cli import Cli

WHY = ("--reason", "the type is in another field", "--who", "me")


@pytest.fixture
def game(lakechime: Cli) -> Game:
    game = Game.declared(lakechime)
    game.come(b'{"kind": "buy"}', b"{damaged", b'{"kind": "sell"}')
    return game


def test_a_reprocess_is_asked_for_once_and_its_end_is_told(lakechime: Cli, game: Game) -> None:
    told = lakechime("schema", "replay", "--quarantine", "game", *WHY)
    assert told.out == (
        "reprocessing 1 of game is done by the next execution of game.events, which its sensor launches;"
        " `lakechime schema show game --quarantine` shows the result\n"
    )
    assert lakechime("schema", "replay", "--quarantine", "game", *WHY, "--json").json["reprocessing"] == 1
    reprocesses = event_reprocesses(lakechime.platform)
    assert reprocesses.open("game.events") == 1
    assert "waits" in lakechime("schema", "show", "--quarantine", "game").out
    with writing(reprocesses.engine) as connection:
        close_reprocess(connection, "e1", Reprocessed(reprocess_id=1, rows=2))
    (shown,) = lakechime("schema", "show", "--quarantine", "game", "--json").json["reprocessing"]
    assert (shown["number"], shown["rows"], shown["who"], shown["reason"]) == (1, 2, "me", WHY[1])


def test_a_row_that_was_reprocessed_is_neither_shown_nor_counted_any_more(lakechime: Cli, game: Game) -> None:
    assert lakechime("schema", "show", "--quarantine", "game", "--json").json["reasons"] == {"type_missing": 2, "not_json": 1}
    moment = dt.datetime(2024, 3, 1, tzinfo=dt.timezone.utc)
    row = {"_src": "a.jsonl@0", "_ingested_at": moment, "type": "buy", "payload": '{"kind": "buy"}', "refused_before": "type_missing"}
    data = pa.Table.from_pylist([row], schema=SCHEMA.append(pa.field("refused_before", pa.string())))
    write_deltalake(game.location, data, mode="append", schema_mode="merge")
    document = lakechime("schema", "show", "--quarantine", "game", "--json").json
    assert (document["total"], document["reasons"]) == (2, {"not_json": 1, "type_missing": 1})
    assert sorted(one["_src"] for one in document["refused"]) == ["a.jsonl@1", "a.jsonl@2"]


def test_a_dry_run_tells_what_would_be_reprocessed(lakechime: Cli, game: Game, monkeypatch: pytest.MonkeyPatch) -> None:
    would = WouldReprocess(rows=3, kinds=(("type_missing", "buy", 2), ("type_missing", "sell", 1)))
    monkeypatch.setattr("lakechime_dagster.silver.dry_run.would_reprocess", lambda platform, table, log: would)
    told = lakechime("schema", "replay", "--quarantine", "game", "--dry-run", *WHY)
    assert told.out.splitlines()[0] == "3 rows of game.events would be reprocessed"
    assert [line.split() for line in told.out.splitlines()[-2:]] == [["type_missing", "buy", "2"], ["type_missing", "sell", "1"]]
    assert lakechime("schema", "replay", "--quarantine", "game", "--dry-run", *WHY, "--json").json["kinds"][1] == {
        "reason": "type_missing",
        "type": "sell",
        "rows": 1,
    }
    assert event_reprocesses(lakechime.platform).of("game.events") == []


def test_a_reprocess_that_waits_may_be_cancelled(lakechime: Cli, game: Game) -> None:
    lakechime("schema", "replay", "--quarantine", "game", *WHY)
    would = lakechime("schema", "replay", "--quarantine", "game", "--cancel", "--dry-run", *WHY)
    assert (would.out, event_reprocesses(lakechime.platform).open("game.events")) == ("reprocessing 1 of game would be cancelled\n", 1)
    done = lakechime("schema", "replay", "--quarantine", "game", "--cancel", *WHY)
    assert (done.out, event_reprocesses(lakechime.platform).open("game.events")) == ("reprocessing 1 of game is cancelled\n", None)
    assert "cancelled" in lakechime("schema", "show", "--quarantine", "game").out


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("gama",), "the lake declares no stream 'gama' of events; did you mean game?"),
        (("game", "--cancel"), "no request to reprocess game.events is open"),
    ],
)
def test_what_cannot_be_reprocessed_is_told(lakechime: Cli, game: Game, arguments: tuple[str, ...], answer: str) -> None:
    told = lakechime("schema", "replay", "--quarantine", *arguments, *WHY)
    assert told.code != 0
    assert answer in " ".join(told.err.replace("│", " ").split())
    assert event_reprocesses(lakechime.platform).of("game.events") == []
