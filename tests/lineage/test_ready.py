"""A network that is ready before anybody asks, and follows the store."""

import threading

from sqlalchemy import Engine

from lakechime_dagster.errors import StoreUnreachableError
from lakechime_dagster.lineage.network import Network
from lakechime_dagster.lineage.network_store import CurrentNetwork
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.lineage.service import ReadyNetwork
from tests.lineage.factories import make_record, make_statement


class Once(threading.Event):
    """Told to stop after one round."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


def test_where_following_is_quick_whoever_asks_has_what_the_store_has(sqlite_engine: Engine) -> None:
    ready = ReadyNetwork(CurrentNetwork(sqlite_engine))
    assert "gold.daily" not in ready.network().tables
    SqlLineage(sqlite_engine).record(make_record())
    assert "gold.daily" in ready.network().tables
    assert ready.network() is ready.network()


def test_where_it_is_not_nobody_waits_and_the_thread_follows(sqlite_engine: Engine) -> None:
    ready = ReadyNetwork(CurrentNetwork(sqlite_engine), quick_seconds=-1)
    first = ready.network()
    SqlLineage(sqlite_engine).record(make_record(make_statement("gold.new", a="silver.flights.a")))
    assert ready.network() is first
    stop = Once()
    ready.keep(stop)
    assert ready.network() is not first
    assert "gold.new" in ready.network().tables


def test_a_store_that_is_away_is_asked_again() -> None:
    stop, asked = threading.Event(), list[int]()

    class Away:
        def network(self) -> Network:
            asked.append(1)
            if len(asked) == 3:
                stop.set()
            raise StoreUnreachableError("away")

    ReadyNetwork(Away()).keep(stop, 0)  # type: ignore[arg-type]
    assert len(asked) == 3
