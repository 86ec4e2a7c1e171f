"""Keys of a real PostgreSQL's table that are repaired beside its writers: in whatever order
messages come, the rows are the database's.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakechime_dagster.cdc.load_service import Repaired, repaired
from tests.support.postgres import Server, fresh_database
from tests.support.replica import read
from tests.support.wal import WalShop, Writer, a_wal_shop, work

pytestmark = pytest.mark.services

NOW = 1_700_000_000_500


@pytest.fixture
def shop(logical_postgres: Server, tmp_path: Path) -> Iterator[WalShop]:
    with fresh_database(logical_postgres.url) as url, a_wal_shop(url, tmp_path) as found:
        yield found


def never(seconds: float) -> None:
    raise AssertionError(f"nobody is to be waited for, {seconds}")


def repair(
    shop: WalShop,
    *keys: int,
    pause: Callable[[float], None] = never,
    dry_run: bool = False,
    now: int = NOW,
) -> Repaired:
    return repaired(
        shop.tables, shop.monitor, [(str(key),) for key in keys], now, dry_run=dry_run, pause=pause
    )


def test_keys_become_what_the_database_says_of_them_and_later_changes_go_on_above_it(
    shop: WalShop,
) -> None:
    shop.run("INSERT INTO orders VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four')")
    shop.run(
        "UPDATE orders SET note = 'lost' WHERE id = 2", "INSERT INTO orders VALUES (5, 'lost')"
    )
    shop.refresh()
    shop.run("UPDATE orders SET note = NULL WHERE id = 3", "DELETE FROM orders WHERE id = 4")
    shop.reported, _ = [], shop.log.messages()
    planned = repair(shop, 2, 3, 4, 5, dry_run=True)
    assert (planned.rows, planned.deletions, planned.version) == (
        (("2",), ("3",), ("5",)),
        (("4",),),
        None,
    )
    assert shop.replica == {1: "one", 2: "two", 3: "three", 4: "four"}

    repair(shop, 2, 3, 4, 5)
    assert shop.replica == shop.rows == {1: "one", 2: "lost", 3: None, 5: "lost"}
    shop.run(
        "UPDATE orders SET note = 'later' WHERE id = 2",
        "DELETE FROM orders WHERE id = 5",
        "INSERT INTO orders VALUES (4, 'again')",
    )
    shop.refresh()
    assert shop.replica == shop.rows == {1: "one", 2: "later", 3: None, 4: "again"}
    reported = [
        row
        for row in read(str(shop.folder / "orders__changes"))
        if row["topic_id"] == "lakechime-repair/orders"
    ]
    assert {row["op"] for row in reported} == {"r", "d"}
    assert {(one["key"], one["value"]) for row in reported for one in row["headers"]} == {
        ("lakechime-origin", b"repair")
    }


def test_changes_that_are_committed_between_the_checkpoint_and_the_cut_are_seen_and_come_again(
    shop: WalShop,
) -> None:
    shop.run(
        "INSERT INTO orders VALUES (1, '1'), (2, '2'), (3, '3'), (4, '4')",
        "UPDATE orders SET note = 'lost' WHERE id < 4",
    )
    shop.refresh()
    shop.run("BEGIN", "UPDATE orders SET note = 'open' WHERE id = 4", session=1)

    def pause(_: float) -> None:
        shop.run(
            "UPDATE orders SET note = 'between' WHERE id = 1", "DELETE FROM orders WHERE id = 2"
        )
        shop.run("BEGIN", "UPDATE orders SET note = 'above' WHERE id = 3", session=2)
        shop.run("COMMIT", session=1)

    done = repair(shop, 1, 2, 3, 4, pause=pause)
    assert (done.rows, done.deletions) == ((("1",), ("3",), ("4",)), (("2",),))
    assert shop.replica == {1: "between", 3: "lost", 4: "open"}
    shop.run("COMMIT", session=2)
    shop.refresh()
    assert shop.replica == shop.rows == {1: "between", 3: "above", 4: "open"}


@pytest.mark.parametrize("seed", range(3))
def test_beside_any_writers_the_rows_are_those_of_the_database(seed: int, shop: WalShop) -> None:
    """Four sessions write, change keys, truncate, and end when they like; the lake is behind, and
    messages were lost before that.
    """
    chance = random.Random(seed)
    shop.run(f"INSERT INTO orders VALUES {', '.join(f'({key}, {key})' for key in range(1, 9))}")
    shop.refresh()
    writers = [Writer(shop, number, chance) for number in range(4)]

    def pause(_: float) -> None:
        for writer in writers:
            writer.write()
        chance.choice(writers).end()

    for repairs in range(3):
        work(writers, chance, loses=True)
        for writer in writers:
            if writer.is_lost:
                writer.end()
        shop.refresh()
        work(writers, chance)
        shop.refresh(most=chance.randrange(5))
        repair(shop, *range(1, 21), pause=pause, now=NOW + repairs)
        work(writers, chance)
        shop.refresh()
        assert shop.replica == shop.rows
