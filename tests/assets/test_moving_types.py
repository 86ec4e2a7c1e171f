"""Types that change their group, run by Dagster: as patterns give them to another, or match what
nobody had read.
"""

from dataclasses import replace

import pytest

from lakechime_dagster.assets import events
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.tables.events import event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import JsonLines
from tests.assets.test_events import FINE, Game, buy, checks, dies, game, reported
from tests.support.streams import event

pytestmark = pytest.mark.spark
__all__ = ["game"]


def test_a_group_whose_pattern_comes_to_match_a_type_that_nobody_had_read_takes_all_events_of_it(
    game: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    game.execute(buy(1), event("sale", n=1))  # a type of the group for the rest, which does not run
    game.execute(buy(2), event("sale", n=2))
    stream = event_stream("game", source=JsonLines(str(game.folder)), producer_field="$.title")
    wide = replace(
        game,
        definitions=build_definitions(
            Lake("ev", [stream, event_group("shop", stream, match="s*")])
        ),
    )
    with monkeypatch.context() as patched:
        patched.setattr(events, "complete_group", dies)
        with pytest.raises(KeyboardInterrupt):
            wide.execute(buy(3))
    wide.tick("shop")
    wide.let_pass()
    done = wide.execute()
    # of a type that is not new, mere rows are shown rarely
    assert (checks(done), reported(done)) == (FINE, {"sale": 2})
    assert wide.tick("shop").run_requests == []
    wide.execute(event("sale", n=3), event("soon", n=1), event("rest", n=1))
    assert reported(wide.run("ev__game_other")) == {"rest": 1}
    assert (wide.numbers("sale"), wide.numbers("soon"), wide.numbers("shop.buy")) == (
        [1, 2, 3],
        [1],
        [1, 2, 3],
    )
