"""Many writers that register the same events at once leave each of them once, with all their tags."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from lakechime_dagster.dce.contract import EventQuery
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.store import SqlDCEStore
from tests.factories import make_event

WRITERS = 6

pytestmark = [pytest.mark.dialect, pytest.mark.several_connections]  # a file: processes and threads open it


def test_the_same_events_from_many_writers_are_registered_once(engine: Engine) -> None:
    events = [make_event(snapshot_id=str(number)) for number in range(15)]

    def register(writer: int) -> int:
        store = SqlDCEStore(engine)
        store.table("bronze.orders")
        new = sum(len(store.register([event]).registered) for event in events)
        return new + len(store.register(events if writer % 2 else events[::-1]).registered)

    with ThreadPoolExecutor(WRITERS) as writers:
        registered = sum(writers.map(register, range(WRITERS)))

    assert registered == len(events)
    assert sorted(int(one.event.snapshot_id or -1) for one in SqlDCEStore(engine).fetch(EventQuery())) == list(range(15))


def test_concurrent_amendments_are_all_merged(engine: Engine) -> None:
    SqlDCEStore(engine).register([make_event(snapshot_id="1")])

    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(lambda name: SqlDCEStore(engine).register([make_event(snapshot_id="1", tags={name: "1"})]), "abcdef"))

    first, *amendments = SqlDCEStore(engine).fetch(EventQuery())
    assert dict(amendments[-1].event.tags) == dict.fromkeys("abcdef", "1")
    assert {one.amends for one in amendments} == {first.position}


def test_levels_declared_while_others_register_hold_for_every_event(engine: Engine) -> None:
    store = SqlDCEStore(engine)
    store.register([make_event(partition=["00"], snapshot_id="0")])

    def register(writer: int) -> None:
        mine = SqlDCEStore(engine)
        for number in range(10):
            mine.register([make_event(partition=[f"0{number}"], snapshot_id=str(writer))])

    with ThreadPoolExecutor(WRITERS) as writers:
        running = [writers.submit(register, writer) for writer in range(1, WRITERS)]
        SqlDCEStore(engine).declare("bronze.orders", PartitionLevels.of({"hour": "int"}))
        for one in running:
            one.result()

    canonicals = [one.canonical for one in store.fetch(EventQuery())]
    assert len(canonicals) == 1 + 10 * (WRITERS - 1)
    assert all(not canonical.startswith('["') for canonical in canonicals)
