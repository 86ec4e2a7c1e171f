"""A table of a real PostgreSQL, of whose rows no message told, loaded in chunks beside its writers: the rows are the database's."""

import random
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from lakechime_dagster.cdc.load_service import Chunk, chunks_loaded
from tests.support.postgres import Server, fresh_database
from tests.support.wal import WalShop, Writer, a_wal_shop, work

pytestmark = pytest.mark.services

NOW = 1_700_000_000_500


@pytest.fixture
def shop(logical_postgres: Server, tmp_path: Path) -> Iterator[WalShop]:
    """Of 20 orders the connector told none; then one was changed."""
    with fresh_database(logical_postgres.url) as url, a_wal_shop(url, tmp_path) as found:
        found.run(f"INSERT INTO orders VALUES {', '.join(f'({key}, {key})' for key in range(1, 21))}")
        found.log.messages()
        found.run("UPDATE orders SET note = 'first' WHERE id = 1")
        found.follow()
        yield found


def never(seconds: float) -> None:
    raise AssertionError(f"nobody is to be waited for, {seconds}")


def load(shop: WalShop, size: int, *, pause: Callable[[float], None] = never) -> Iterator[Chunk]:
    ticks = count(NOW)
    return chunks_loaded(shop.task, shop.monitor, size, lambda: next(ticks), pause=pause)


def test_a_table_is_loaded_while_it_changes_and_is_then_what_the_database_is(shop: WalShop) -> None:
    shop.run("BEGIN", "INSERT INTO others VALUES (1)", session=1)
    loading = load(shop, 8)
    first = next(loading)
    assert (first.rows, first.total, first.last, first.is_last) == (8, 8, ("8",), False)

    shop.run("UPDATE orders SET note = 'after its chunk' WHERE id = 2", "DELETE FROM orders WHERE id = 3", session=1)
    shop.run("UPDATE orders SET id = 30 WHERE id = 4", "UPDATE orders SET note = 'before its chunk' WHERE id = 10")
    shop.run("COMMIT", session=1)
    second = next(loading)
    assert (second.rows, second.last) == (8, ("16",))

    shop.run("DELETE FROM orders WHERE id = 17", "INSERT INTO orders VALUES (3, 'again')")
    assert [(one.rows, one.total, one.is_last) for one in loading] == [(4, 20, True)]
    shop.follow()
    assert shop.followed == shop.rows
    assert (shop.rows[2], shop.rows[10], shop.rows[3], 17 in shop.rows) == ("after its chunk", "before its chunk", "again", False)


@pytest.mark.parametrize("seed", range(2))
def test_beside_any_writers_the_rows_are_those_of_the_database(seed: int, shop: WalShop) -> None:
    chance = random.Random(seed)
    writers = [Writer(shop, number, chance) for number in range(4)]

    def pause(_: float) -> None:
        for writer in writers:
            writer.write()
        chance.choice(writers).end()

    for _ in load(shop, 4, pause=pause):
        work(writers, chance)
        shop.follow(most=chance.randrange(10))
        work(writers, chance)
    shop.follow()
    assert shop.followed == shop.rows
