"""`lakechime schema project`: the tables that show what is known of types, brought up to date or made anew by a person."""

from deltalake import DeltaTable

from tests.cli.game import Game, event
from tests.support.cli import Cli


def test_what_is_known_is_told_once_and_made_anew_when_asked(lakechime: Cli) -> None:
    game = Game.declared(lakechime)
    game.come(event("shop_buy", n=1), event("shop_buy", n="x"))
    game.step()
    assert lakechime("schema", "project", "game").out == "game.schemas: 1 row added\ngame.variations: 2 rows added\n"
    assert lakechime("schema", "project", "game", "--json").json == {
        "stream": "game", "rebuilt": False, "told": {"game.schemas": 0, "game.variations": 0},
    }  # fmt: skip
    assert lakechime("schema", "project", "game", "--rebuild").out == (
        "game.schemas: 1 row in place of what was there\ngame.variations: 2 rows in place of what was there\n"
    )
    assert DeltaTable(str(lakechime.home / "warehouse" / "game" / "schemas")).to_pyarrow_table().num_rows == 1
    answer = lakechime("schema", "project", "gme")
    assert (answer.code, "did you mean game?" in answer.err) == (3, True)
