"""A type that moves to another group goes on in its table, where each event is once, whoever was at
it.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.silver.results import TypeResult
from lakechime_dagster.silver.schema import TypeCheckpoint
from lakechime_dagster.tables.events import EventGroup, checked_groups, event_group
from lakechime_dagster.triggers.consumers import ConsumerId
from tests.support.streams import GAME, Stream, event, stream

pytestmark = pytest.mark.spark

SHOP = event_group("shop", GAME)
VIP = event_group("vip", GAME, match="buy")


@pytest.fixture
def game(spark: SparkSession, tmp_path: Path) -> Stream:
    return stream(spark, tmp_path)


def other(
    game: Stream, group: EventGroup, *groups: EventGroup, start: TypeCheckpoint | None = None
) -> Stream:
    """Another group of the stream, which is declared with these groups from now on."""
    declared = checked_groups(GAME, [group, *groups])
    game.groups = declared
    return replace(
        game, group=group, groups=declared, start=start or TypeCheckpoint(), executions=100
    )


def execute(one: Stream) -> dict[str, TypeResult]:
    """An execution of a group up to where the stream's table stands."""
    one.executions += 1
    end, execution = one.end(), f"{one.group.name}{one.executions}"
    result = one.execute(end, execution=execution).run()
    one.complete(result, end, execution)
    return {each.type: each for each in result.types}


def numbers(game: Stream, kind: str = "buy") -> list[int]:
    return [row["n"] for row in game.rows(kind)]


def test_a_type_that_moved_goes_on_in_its_table(game: Stream) -> None:
    game.drop(event("buy", n=1), event("sell", n=1))
    game.run()
    game.drop(event("buy", n=2), event("sell", n=2))
    game.ingest()
    vip = other(game, VIP, SHOP)
    done = execute(vip)
    assert {name: (one.rows, one.written, one.table) for name, one in done.items()} == {
        "buy": (1, 1, "shop.buy")
    }
    assert {name: one.rows for name, one in execute(game).items()} == {"sell": 1}
    assert (numbers(game), numbers(game, "sell"), (game.folder / "vip").exists()) == (
        [1, 2],
        [1, 2],
        False,
    )
    log = DeltaLog(game.location("buy"), "shop.buy")
    last = log.last_committed(ConsumerId("test", "shop", "buy"))
    assert last is not None
    assert (last.commit_metadata.number, done["buy"].commits) == (2, (last,))


def test_a_group_that_is_renamed_goes_on_in_all_tables(game: Stream) -> None:
    game.drop(event("buy", n=1), event("sell", n=1))
    game.run()
    game.drop(event("buy", n=2), event("sell", n=2), event("gift", n=2))
    game.ingest()
    kiosk = other(game, event_group("kiosk", GAME), start=game.start)
    assert {name: one.written for name, one in execute(kiosk).items()} == {
        "buy": 1,
        "sell": 1,
        "gift": 1,
    }
    assert [numbers(kiosk, name) for name in ("buy", "sell", "gift")] == [[1, 2], [1, 2], [2]]
    assert sorted(path.name for path in (game.folder / "shop").iterdir()) == ["buy", "sell"]
    assert [path.name for path in (game.folder / "kiosk").iterdir()] == ["gift"]


def test_an_execution_of_the_former_group_that_is_under_way_neither_loses_nor_doubles_a_row(
    game: Stream,
) -> None:
    game.drop(event("buy", n=1))
    game.run()
    game.drop(event("buy", n=2))
    game.ingest()
    end = game.end()
    late, later = game.execute(end, execution="late"), game.execute(end, execution="later")
    found = late.run()  # commits, and has not completed
    vip = other(game, VIP, SHOP, start=game.start)
    game.drop(event("buy", n=3))
    game.ingest()
    assert execute(vip)["buy"].rows == 2  # that of the other group, and its own
    game.complete(found, end, "late")
    assert numbers(game) == [1, 2, 3]
    assert (vip.types.types("vip")["buy"].checkpoint.commits, vip.types.types("shop")) == (3, {})
    later.run()
    assert numbers(game) == [1, 2, 3]
    game.drop(event("buy", n=4))
    game.ingest()
    assert (execute(vip)["buy"].written, numbers(game)) == (1, [1, 2, 3, 4])
